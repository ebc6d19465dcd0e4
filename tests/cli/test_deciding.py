"""A sweep over HTTP that ends when its question is answered: with real processes, killed in between."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from evalkit.serve.launch import simulated
from tests.support.command_line import Call, await_requests, bill_lines, finish, lab, start

SWEEP = """
width = 4
budget_usd = "20"

[decide]
margin = 15

[[agents]]
name = "knuth"
provider = "lab"
model = "knuth"
[[agents]]
name = "noisy"
provider = "lab"
model = "noisy"
[[agents]]
name = "random"
provider = "lab"
model = "random"
[[suites]]
name = "many.jsonl"
"""
INSTANCES = 120


@pytest.fixture
def asked(call: Call, here: Path) -> Path:
    made = call(
        "suites", "generate", "scheduling", "--instances", str(INSTANCES), "--n=4", "--periods=8", "--out", "many.jsonl"
    )
    assert made.code == 0, made.err
    (here / "ask.toml").write_text(SWEEP)
    return here


def answers(said: dict[str, Any]) -> dict[tuple[str, ...], tuple[str, int]]:
    return {tuple(one["about"]): (one["answer"], one["answered_at"]) for one in said["question"]["answers"]}


def requests(bill: Path) -> list[str]:
    return [line["request_id"].rpartition("/")[0] for line in bill_lines(bill)]


@pytest.mark.exhaustive
def test_answers_are_right_money_is_spared_and_a_kill_changes_nothing(call: Call, asked: Path) -> None:
    whole_bill, bill, later_bill = (asked / f"{name}.jsonl" for name in ("whole", "bill", "later"))
    with simulated({"bill": str(whole_bill), "latency": "10ms"}) as url:
        lab(asked, url)
        whole = call("run", "ask.toml", "--dir", "whole", "--json")
    assert whole.code == 0, whole.err
    outcome = json.loads(whole.out)
    assert outcome["reason"] == "decided"
    assert {pair: answer for pair, (answer, _) in answers(outcome).items()} == {
        ("knuth", "noisy"): "equal",
        ("knuth", "random"): "below",
        ("noisy", "random"): "below",
    }
    assert outcome["spared"] > INSTANCES
    assert outcome["ended"] + outcome["spared"] == outcome["episodes"] == 3 * INSTANCES

    with simulated({"bill": str(bill), "latency": "10ms"}) as url:
        lab(asked, url)
        for kills in (1, 2):
            process = start(asked, "run", "ask.toml", "--dir", "torn")
            await_requests(process, bill, 150 * kills)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        torn = call("run", "ask.toml", "--dir", "torn", "--json")
        assert torn.code == 0, torn.err
    with simulated({"bill": str(later_bill)}) as url:
        lab(asked, url)
        again = call("run", "ask.toml", "--dir", "torn", "--json")
    assert requests(later_bill) == [], "nothing is asked for once all is known"
    assert answers(json.loads(torn.out)) == answers(outcome) == answers(json.loads(again.out))
    assert json.loads(torn.out)["spent_usd"] >= sum(line["cost"] for line in bill_lines(bill)) / 1e12
    assert call("verify", "whole").code == call("verify", "torn").code == 0


@pytest.mark.exhaustive
def test_a_terminal_is_told_the_answers_and_what_was_spared(call: Call, asked: Path) -> None:
    with simulated({"latency": "5ms"}) as url:
        lab(asked, url)
        process = start(asked, "run", "ask.toml")
        said = finish(process)
    assert said.code == 0, said.err
    assert "knuth is better than random by" in said.out
    assert "were spared: every question is answered (`--play-all` plays them)" in said.out
    assert "Continue with" not in said.out
    assert "limit" not in said.out
