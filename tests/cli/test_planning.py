"""A plan of a run that has begun: its own figures, those of `status`; before that, whose figures they are."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evalkit.engine.stand_in import Sample, play_sample
from evalkit.serve.launch import simulated
from tests.snapshots import workspace
from tests.support.command_line import LAB, Call

SLOW = """
budget_usd = {budget}
width = 4
replicates = 3
[[agents]]
name = "gpt"
provider = "lab"
model = "random"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-1", "seed-2", "seed-3"]
vary = {{ periods = [40] }}
"""


def sweep(folder: Path, url: str, budget: str = "50") -> None:
    """An agent that always plays to the last period, planned with a stand-in that ends earlier."""
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "lab.toml").write_text(LAB.format(url=url, more=""))
    (folder / "sweep.toml").write_text(SLOW.format(budget=budget))


def agree(plan: dict[str, object], status: dict[str, object]) -> None:
    """Both say the same of what remains, money and time."""
    said, wanted = plan["usd"], status["to_finish_usd"]
    assert isinstance(said, dict)
    assert isinstance(wanted, dict)
    assert said["expected"] == pytest.approx(wanted["expected"], rel=0.05)
    assert said["low"] == pytest.approx(wanted["low"], rel=0.2)
    assert said["high"] == pytest.approx(wanted["high"], rel=0.2)
    assert plan["seconds"] == pytest.approx(status["seconds_left"] or 0.0, rel=0.05)


def test_before_the_first_reply_a_plan_says_that_its_range_is_the_stand_ins(call: Call, here: Path) -> None:
    sweep(here, "http://127.0.0.1:9/v1")
    said = call("plan", "sweep.toml").out
    assert "No episode of gpt has ended yet" in " ".join(said.split())


@pytest.mark.exhaustive
def test_once_episodes_have_ended_a_plan_goes_by_them_and_agrees_with_status(call: Call, here: Path) -> None:
    with simulated({"bill": str(here / "bill.jsonl")}) as url:
        sweep(here, url)
        before = json.loads(call("plan", "sweep.toml", "--json").out)
        call("run", "sweep.toml", "--limit", "6")
        plan, status = (
            json.loads(call(*words, "--json").out) for words in (("plan", "sweep.toml"), ("status", "sweep"))
        )
        assert plan["usd"]["expected"] == pytest.approx(plan["spent_usd"] * 6 / 6, rel=0.25)
        assert (plan["episodes"], {cell["basis"] for cell in plan["cells"]}) == (6, {"6 episodes of sweep"})
        assert plan["lanes"][0]["bound"] == "the rate so far"
        agree(plan, status)
        words = " ".join(call("plan", "sweep.toml").out.split())
        assert "at the rate so far" in words
        assert "No episode of gpt" not in words
        call("run", "sweep.toml")
        spent = json.loads(call("status", "sweep", "--json").out)["money"]["spent_usd"]
        assert abs(plan["spent_usd"] + plan["usd"]["expected"] - spent) < abs(before["usd"]["expected"] - spent) / 2
        after = call("plan", "sweep.toml").out
        assert "Next: evalkit report runs/sweep" in after
        assert call("report", "runs/sweep").code == 0


@pytest.mark.parametrize("fixture", ["killed", "faulty", "finished"])
def test_of_a_stored_run_plan_and_status_say_the_same(tmp_path: Path, fixture: str) -> None:
    folder = workspace.copy(fixture, tmp_path)
    plan, status = (
        json.loads(workspace.call(folder, *words, "--json").out)
        for words in (("plan", "sweep.toml"), ("status", "runs/sweep"))
    )
    assert plan["spent_usd"] == pytest.approx(status["money"]["spent_usd"])
    agree(plan, status)


@pytest.mark.parametrize(("budget", "fits"), [("50", True), ("0.05", False)])
def test_a_run_is_recommended_only_with_a_budget_that_is_enough(
    call: Call, here: Path, budget: str, fits: bool
) -> None:
    sweep(here, "http://127.0.0.1:9/v1", budget)
    said = call("plan", "sweep.toml").out
    (below,) = said.partition("Next:")[2].strip().splitlines()
    assert (below == "evalkit run sweep.toml") == fits
    assert ("it pays for about" in " ".join(said.split())) == (not fits)
    if not fits:
        whole = below.split()
        assert whole[:4] == ["evalkit", "run", "sweep.toml", "--budget"]
        assert call("plan", "sweep.toml", "--budget", whole[4]).out.endswith("Next: evalkit run sweep.toml\n")


def test_agents_who_read_the_same_share_the_play_of_their_stand_in(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    async def counted(*arguments: Any) -> Sample:
        played.append(arguments)
        return await play_sample(*arguments)

    monkeypatch.setattr("evalkit.engine.stand_in.play_sample", counted)
    one = SLOW.format(budget=50)
    head, model, suite = (
        one[start:end] for start, end in pairwise([0, one.index("[[ag"), one.index("[[su"), len(one)])
    )
    sweep(here, "http://127.0.0.1:9/v1")
    call("plan", "sweep.toml", "--json")
    alone = len(played)
    agents = "".join(model.replace('"gpt"', f'"gpt-{i}"').replace('"random"', f'"m-{i}"') for i in range(6))
    (here / "sweep.toml").write_text(head + agents + suite)
    plan = json.loads(call("plan", "sweep.toml", "--json").out)
    assert len(played) == 2 * alone > 0
    assert len({cell["usd"]["expected"] for cell in plan["cells"]}) == 1
