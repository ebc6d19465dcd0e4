"""Each reason to stop has one sentence, which names what decided: in the last lines of `run`, in `events.jsonl`, in
`status`, on the page and in JSON."""

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiohttp import web

from evalkit.client import retry
from evalkit.engine import episode
from evalkit.errors import CorruptLogError, StorageError
from evalkit.store.events import last_session
from evalkit.view.overview import overview
from evalkit.view.reading import read_run
from tests.support.command_line import Call
from tests.support.refusing import PROVIDER, Answer, Refusing, error, reply, sweep_text

CODE = """
import evalkit
@evalkit.agent(version=1)
async def crash(seat):
    raise KeyError("prices")
"""


@dataclass(frozen=True)
class Case:
    """A way to make a run stop."""

    reason: str
    words: str
    """Regular expression of the sentence."""
    top: str = ""
    more: str = ""
    """Lines of the sweep: its first, and its last."""
    arguments: tuple[str, ...] = ()
    answers: str = "all"
    raises: Exception | None = None
    """From within evalkit, at each step."""


CASES = (
    Case("complete", ""),
    Case(
        "limit", r"`--limit 1` is reached: this call was to end 1 episode of each model\.", arguments=("--limit", "1")
    ),
    Case(
        "budget",
        r"The budget of \$0\.0\d+ is reached: \$0\.0\d+ remain, and the next episode may take up to \$0\.0\d+\.",
        top='budget_usd = "0.08"',
        answers="dear",
    ),
    Case(
        "budget",
        r"The budget of agent n \(\$0\.0380\) is reached: too little remains to finish another episode\..*",
        more='[[agents]]\nname = "n"\nprovider = "acme"\nmodel = "m-2"\nbudget_usd = "0.038"',
    ),
    Case("deadline", r"The deadline of 1 s has passed\.", top='deadline = "1s"', answers="late"),
    Case("interrupt", r"Interrupted after .* m?s\.", answers="interrupts"),
    Case("lane", r"acme/m-1: .*Wrong key.*", answers="wrong key"),
    Case(
        "lane",
        r"acme/m-1: .*Wrong key.*\nacme/m-2: .*Wrong key.*",
        more='[[agents]]\nname = "n"\nprovider = "acme"\nmodel = "m-2"',
        answers="wrong key",
    ),
    Case("refused", r"acme/m-1: 1 episode was refused and is not scored\. .*", answers="one"),
    Case("deferred", r"acme/m-1: .*attempts.*", answers="down for one"),
    Case(
        "agent",
        r"agent coded: its code failed in \d+ episodes, not scored; the last: KeyError: 'prices' .*",
        more='[[agents]]\nname = "coded"\nagent = "coded:crash"\nmodels = { main = "acme/m-1" }',
        top='budget_usd = "5"',
    ),
    Case("errors", r"10 episodes in a row .*: ZeroDivisionError\(\)\.", raises=ZeroDivisionError()),
    Case("storage", r"The disk is full\.", raises=StorageError("The disk is full.")),
    Case("corrupt", r"The log has changed\.", raises=CorruptLogError("The log has changed.")),
)


class Provider(Refusing):
    """Answers as a case says."""

    answers = "all"
    first = ""

    async def answer(self, request: web.Request) -> web.Response:
        if self.answers == "late":  # what is in flight at the deadline is awaited
            await asyncio.sleep(1.2)
        return await super().answer(request)

    def chosen(self, name: str, step: int, before: int) -> Answer | None:
        self.first = self.first or name
        if self.answers == "interrupts" and before == 2:
            os.kill(os.getpid(), signal.SIGINT)
        if self.answers == "dear":  # of what the run would cost, its budget pays for a third
            return 200, reply(step).replace('"completion_tokens": 1', '"completion_tokens": 2000')
        if self.answers == "wrong key":
            return 401, error("Wrong key", "invalid_api_key")
        if name == self.first and self.answers == "one":
            return 400, error("Not this one", "bad")
        if name == self.first and self.answers == "down for one":
            return 500, error("Not now", "down")
        return None


@contextmanager
def beside() -> Iterator[tuple[str, Provider]]:
    """The provider, on a loop of its own."""
    provider, loop, over, urls = Provider(lambda *_: None), asyncio.new_event_loop(), threading.Event(), list[str]()
    provider.decide = provider.chosen
    there = threading.Event()

    async def listen() -> None:
        async with provider.listening() as url:
            urls.append(url)
            there.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: loop.run_until_complete(listen()))
    thread.start()
    there.wait()
    try:
        yield urls[0], provider
    finally:
        over.set()
        thread.join()
        loop.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.reason}-{case.answers}")
def test_each_reason(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setattr(retry, "FIRST_S", 0.01)
    monkeypatch.syspath_prepend(here)
    (here / "coded.py").write_text(CODE)
    with beside() as (url, provider):
        provider.answers = case.answers
        (here / "providers").mkdir()
        (here / "providers" / "acme.toml").write_text(PROVIDER.format(url=url))
        (here / "mine.toml").write_text(f"{case.top}\n{sweep_text(more=case.more)}")
        with monkeypatch.context() as broken:
            if case.raises is not None:
                broken.setattr(episode, "advance", Mock(side_effect=case.raises))
            said = call("run", "mine.toml", *case.arguments)
    run = here / "runs" / "mine"
    ended, status = last_session(run)[1], json.loads(call("status", "mine", "--json").out)
    assert (ended["reason"], status["reason"]) == (case.reason, case.reason)
    assert re.fullmatch(case.words, ended["why"]), ended["why"]
    assert status["why"] == ended["why"]
    assert "no running event loop" not in (run / "events.jsonl").read_text()  # before an agent's own traceback
    lines = said.out.splitlines()
    for line in ended["why"].splitlines():
        assert line in ended["messages"]
        assert line in lines[-8:], said.out
        assert lines.count(line) == 1
        assert line in " ".join(call("status", "mine").out.split())
        assert line in overview(read_run(run), "mine").warnings
    whose = "of agent" not in case.words
    assert ("--budget MORE" in said.out) == (case.reason == "budget" and whose)
    if case.reason == "agent":
        assert re.search(r"coded .*\sagent_error\s1\d", call("status", "mine").out)
        assert [cell["deferred"].get("agent_error", 0) >= 10 for cell in status["cells"]] == [False, True]


def test_a_plan_names_the_agent_whose_code_fails(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    (here / "failing.py").write_text(CODE)
    agent = '[[agents]]\nname = "coded"\nagent = "failing:crash"\nmodels = { main = "simulated/knuth" }'
    (here / "mine.toml").write_text(f'budget_usd = "5"\n{agent}\n[[suites]]\nname = "scheduling/basic"\n')
    said = call("plan", "mine.toml")
    assert "plan: an episode of agent 'coded' could not be played: " in said.err
    assert "KeyError: 'prices'" in said.err
