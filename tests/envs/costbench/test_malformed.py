"""A malformed id given to a composite tool: refused free of charge, or charged as in the reference."""

import json
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.score import score
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.tasks.costbench.queries import read_queries, suite_lines
from tests.conform.compare.costbench_metrics import MALFORMED, metrics, played
from tests.conform.compare.documented import DOCUMENTED
from tests.support.costbench_episodes import Episode, make_instance
from tests.support.costbench_lines import DINING

DECIDE, SEARCH, FINISH = "Decide_Dining_Preference", "Search_Dining_Candidates", "Dining_Finish_from_Step1_3Steps"
SHORT = "<DiningCandidateSet12>"
BAD = [SHORT, "", "none", "<DiningCandidateSet123456>", "12 345 6"]


def episode(**said: Any) -> Episode:
    """An episode behind its first two calls."""
    found = Episode(make_instance(**said))
    found.call(DECIDE)
    found.call(SEARCH)
    return found


@pytest.mark.parametrize("text", BAD)
def test_it_is_refused_free_of_charge_by_default(text: str) -> None:
    found = episode()
    seen = found.call(FINISH, DiningCandidate_Raw=text)
    assert found.facts[-1]["calls"] == [{"tool": FINISH, "outcome": "bad_id"}]
    assert not found.facts[-1]["goal"]
    assert seen.messages[0].text.startswith("[ERROR]")


@pytest.mark.parametrize("text", BAD)
def test_it_is_charged_and_gives_its_type_where_the_instance_says_so(text: str) -> None:
    found = episode(malformed_ids="charged")
    seen = found.call(FINISH, DiningCandidate_Raw=text)
    (call,) = found.facts[-1]["calls"]
    terms, world = found.state.terms, found.state.setup.world
    assert call == {
        "tool": FINISH,
        "outcome": "ok",
        "malformed": True,
        "goal": True,
        "cost": terms.costs[world.place[FINISH]],
    }
    assert found.facts[-1]["goal"]
    # What ran is named first, so the result does not begin as an error does.
    assert not seen.messages[0].text.startswith("[ERROR]")
    assert "[ERROR]" in seen.messages[0].text
    found.answer()
    figures = score(found.instance, found.facts)
    assert figures.path == (DECIDE, SEARCH, FINISH)
    assert (figures.metrics["goal"], figures.metrics["valid_calls"], figures.metrics["malformed_charged"]) == (1, 3, 1)


def test_an_atomic_tool_refuses_it_either_way() -> None:
    for choice in ("refused", "charged"):
        found = Episode(make_instance(malformed_ids=choice))
        found.call(DECIDE)
        found.call(SEARCH, DiningPreference="<DiningPreference12>")
        assert found.outcome == "bad_id"
        assert "cost" not in found.facts[-1]["calls"][0]


def test_other_flaws_of_a_composite_s_arguments_are_refused_either_way() -> None:
    found = Episode(make_instance(malformed_ids="charged"))
    found.call("Dining_Preference_and_Search", LocationPreference="<LocationPreference99999>")
    assert found.outcome == "unknown_context"
    found = episode(malformed_ids="charged", strict=True)
    found.call(FINISH, DiningCandidate_Raw=SHORT, TimeInfo="<TimeInfo00001>")
    assert found.outcome == "wrong_id"


def test_a_call_like_the_reference_s_own_example_costs_what_it_costs_there(shared: Path) -> None:
    lines = suite_lines([read_queries(shared / "data" / "costbench" / "test" / "queries.json")], seed=7)
    line = next(one for one in lines if one["query"]["id"] == "<Query00676>")
    found = Episode(COSTBENCH.load({**line, "malformed_ids": "charged"}))
    found.call(DECIDE)
    found.call(SEARCH)
    found.call(FINISH, DiningCandidate_Raw=SHORT)
    figures = score(found.instance, found.facts).metrics
    assert (round(figures["cost"], 2), figures["goal"], figures["valid_calls"], figures["calls"]) == (99.2, 1, 3, 3)


def test_what_is_the_default_is_not_written() -> None:
    for said, written in (({}, None), ({"malformed_ids": "refused"}, None), ({"malformed_ids": "charged"}, "charged")):
        assert COSTBENCH.describe(COSTBENCH.load({**DINING, **said})).get("malformed_ids") == written


def test_the_papers_sweeps_go_by_the_reference() -> None:
    names = sorted(path.stem for path in (Path(__file__).parents[3] / "runs" / "papers").glob("costbench-*.toml"))
    assert names
    for name in names:
        for use in read_sweep(find_sweep(f"papers/{name}")).suites:
            assert use.vary["malformed_ids"] == ("charged",), name


def golden(shared: Path) -> dict[str, Any]:
    """A row in the form of the goldens: an episode with such a call, as the reference's rule has it."""
    wishes = {"category": "restaurant", "tier": "popular_local_mainstay", "style": "culinary_quality_priority"}
    suffixes = {"category": "Category", "tier": "Tier", "style": "Style"}
    arguments = {f"Dining{suffixes[key]}": value for key, value in wishes.items()}
    arguments |= {
        "DiningFeaturePackage": "unique_themed_environment",
        "LocationPreference": "<LocationPreference00017>",
    }
    ids = {"DiningPreference": "<DiningPreference00012>", "TimeInfo": "<TimeInfo00862>"}
    ids |= {"LocationPreference": "<LocationPreference00017>", "DiningCandidate_Raw": SHORT}
    trajectory: list[dict[str, Any]] = []
    for name, said in ((DECIDE, arguments), (SEARCH, ids), (FINISH, ids)):
        call = {"name": name, "arguments": json.dumps(said)}
        trajectory.append({"role": "assistant", "content": None, "tool_calls": [call]})
        trajectory.append({"role": "tool", "kind": "ok", "cost_text": None})
    trajectory.append({"role": "assistant", "content": "done", "tool_calls": []})
    row = next(
        json.loads(line)
        for line in (shared / "goldens" / "costbench" / "metrics_synthetic.jsonl").read_text().splitlines()
        if json.loads(line)["query_id"] == "<Query00685>"
    )
    row |= {"trajectory": trajectory, "name": "malformed id to a composite"}
    found = played(row, shared / "data")
    for message, one in zip(trajectory[1::2], found.facts, strict=False):
        message["cost_text"] = str(one["calls"][0]["cost"] / 100)
    row |= {"total_steps": 4, "status": "completed", "is_goal_state": True}
    row["eval"] = {key: list(value) if isinstance(value, tuple) else value for key, value in found.evaluation.items()}
    return row


def test_conform_knows_the_difference_by_an_id_of_its_own(shared: Path) -> None:
    row = golden(shared)
    assert row["eval"]["valid_tool_calls"] == row["eval"]["total_tool_calls"] == 3
    verdict = metrics(row, shared / "data")
    assert (verdict.status, verdict.detail) == ("documented", MALFORMED)
    assert MALFORMED in DOCUMENTED
    # A row that names the error by its message is the same row; a free one is not.
    row["trajectory"][5]["kind"] = "bad_id"
    assert metrics(row, shared / "data").detail == MALFORMED
    row["trajectory"][5]["cost_text"] = "1.25"
    assert metrics(row, shared / "data").status == "differing"
