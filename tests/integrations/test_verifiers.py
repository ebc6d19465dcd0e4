"""The taskset and the harness of verifiers: the same replies have the same score, and `vf-eval` plays a suite."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

import evalkit
from evalkit.dialogue import Reply
from evalkit.serve.launch import simulated
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from tests.integrations.cases import CASES, PERIODS, Case, case_id, played
from tests.integrations.howto import follow

WHY = "verifiers is not installed here: `python -m tests.integrations` installs and tries it"
vf = pytest.importorskip("verifiers.v1", reason=WHY)
from evalkit.integrations.verifiers import EvalkitConfig, EvalkitHarnessConfig  # noqa: E402
from evalkit_verifiers import EvalkitHarness, EvalkitTaskset  # noqa: E402

SECRET = "of-verifiers"


def task_of(case: Case) -> Any:
    periods = "periods" in evalkit.env(case[0].partition("/")[0]).parameters
    config = EvalkitConfig(suite=case[0], instances=[case[1]], vary=PERIODS if periods else {})
    (found,) = EvalkitTaskset(config)
    return found


def launched(
    task: Any, replies: Sequence[Reply | None], status: int = 200, model: str = "m"
) -> tuple[Any, dict[str, Any], list[Any]]:
    """The harness's result and `info`, where a model gives these replies; and the requests' bodies."""
    waiting, bodies = iter(replies), list[Any]()

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        bodies.append(await request.json())
        reply = next(waiting)
        assert reply is not None
        return web.Response(body=SERVED_OPENAI_CHAT.encode_reply(reply), status=status)

    async def play() -> tuple[Any, dict[str, Any]]:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            trace = SimpleNamespace(info={})
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            harness = EvalkitHarness(EvalkitHarnessConfig(id="evalkit-verifiers"))
            result = await harness.launch(SimpleNamespace(model=model), trace, None, url, SECRET, {}, task.data)
            task_trace = SimpleNamespace(info=trace.info)
            assert await task.exact_score(task_trace) == trace.info["evalkit"]["score"]
            return result, trace.info["evalkit"]
        finally:
            await runner.cleanup()

    result, info = asyncio.run(play())
    return result, info, bodies


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_harness_scores_as_a_run_does(case: Case) -> None:
    episode = played(case)
    result, info, bodies = launched(task_of(case), episode.replies)
    assert (result.exit_code, result.stderr) == (0, "")
    assert tuple(info["facts"]) == episode.facts
    assert episode.score is not None
    wanted = episode.score.value, episode.score.solved, episode.score.metrics, episode.ending
    assert (info["score"], info["solved"], info["metrics"], info["ending"]) == wanted
    starts = [body["messages"][0]["role"] for body in bodies]
    assert set(starts) == {"system"}
    assert [len(body["messages"]) for body in bodies].count(2) == len(episode.chats)


def test_what_verifiers_refuses_ends_the_episode_with_what_it_said() -> None:
    episode = played(CASES[0])
    result, info, _ = launched(task_of(CASES[0]), episode.replies, status=403)
    assert result.exit_code == 1
    assert "status 403" in result.stderr
    assert (info["facts"], info["ending"]) == ([], "")


def test_a_model_of_mistral_reads_no_users_message_right_after_results() -> None:
    episode = played(CASES[0])
    orders = set[tuple[str, str]]()
    for model in ("m", "mistralai/Ministral-8B"):
        result, _, bodies = launched(task_of(CASES[0]), episode.replies, model=model)
        assert result.exit_code == 0
        roles = [message["role"] for message in bodies[-1]["messages"]]
        orders = set(pairwise(roles))
        assert (("tool", "user") in orders) == (model == "m")
    assert ("tool", "assistant") in orders


def test_tasks_have_the_names_of_instances() -> None:
    keys = [task.key for task in EvalkitTaskset(EvalkitConfig(suite="pricing/basic", vary={"periods": [3]}))]
    assert len(keys) == len(set(keys)) == 12
    assert "pricing/basic?periods=3:seed-3" in keys


def test_vf_eval_plays_a_suite_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated({"key": "", "rpm": 1_000_000}) as url:
        _, printed = follow("docs/verifiers.md", tmp_path, monkeypatch, {"http://127.0.0.1:8765/v1": url})
    first = [f"scheduling/basic:{one.id} stable 1.0" for one in evalkit.suite("scheduling/basic")[:2]]
    assert sorted(line.rpartition(" ")[0] for line in printed.splitlines()) == sorted(first * 2)
    (file,) = tmp_path.rglob("traces.jsonl")
    for line in file.read_text().splitlines():
        (trace,) = json.loads(line)["traces"]
        assert (trace["rewards"]["exact_score"]["score"], trace["metrics"]["solved"]) == (1.0, 1.0)
        assert len(trace["calls"]) == len(trace["info"]["evalkit"]["facts"])
