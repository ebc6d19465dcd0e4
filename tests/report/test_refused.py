"""Episodes that the provider refused: in no mean, interval or difference, and told beside each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.envs import table
from evalkit.frozen.manifests import write_manifest
from evalkit.report.comparing.compare import Side, compare
from evalkit.report.report import Report, report
from evalkit.results.cells import cells
from evalkit.results.episodes import episode_results
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import guess
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_run

SECRETS = [4, 5, 6, 7, 8, 3]
MANIFEST = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", SECRETS)], 2)
WORDS = "Unsupported value: 'temperature'. Request 71."


def log(agent: str, refused: Mapping[tuple[int, int], int]) -> list[StepRecord]:
    """All episodes of an agent; `refused`: (instance, replicate) -> after how many replies it was refused."""
    made = []
    for replicate in range(2):
        for i, secret in enumerate(SECRETS):
            steps = refused.get((i, replicate))
            if steps is None:
                made += rows(MANIFEST, agent, "s", f"i{i}", replicate, search(secret))
                continue
            *before, last = rows(MANIFEST, agent, "s", f"i{i}", replicate, [guess(1)] * steps, refused="refused")
            made += [*before, replace(last, raw=WORDS.encode(), attempts="bad_request")]
    return made


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    write_run(tmp_path, [[*log("a", {(0, 0): 0, (1, 0): 1, (1, 1): 2}), *log("b", {})]])
    return report(tmp_path)


def row(made: Report, name: str, agent: str) -> Mapping[str, object]:
    return next(one for one in made.table(name).rows if one["agent"] == agent)


def test_refused_episodes_are_in_no_mean_and_the_others_all_are(made: Report) -> None:
    a, b = made.cells
    assert (a.ended, a.remaining, len(a.refused), len(a.prefix), a.outside, a.complete) == (9, 3, 3, 9, 0, True)
    by_hand = {i: [one.score for one in a.prefix if one.instance == f"i{i}"] for i in range(len(SECRETS))}
    assert [len(by_hand[i]) for i in by_hand] == [1, 0, 2, 2, 2, 2]
    score, refused = row(made, "scores", "a"), row(made, "scores", "b")
    full = [sum(one.score or 0 for one in b.prefix if one.instance == f"i{i}") / 2 for i in range(len(SECRETS))]
    assert score["score"] == pytest.approx(100 * (sum(full) - full[1]) / 5)
    assert (score["instances"], score["episodes"]) == (5, 9)
    assert (score["refused"], refused["refused"], refused["if_refused"]) == (3, None, None)


def test_the_mean_is_told_as_it_would_be_if_all_of_them_scored_0_or_100(made: Report) -> None:
    a, b = made.cells
    full = [sum(one.score or 0 for one in b.prefix if one.instance == f"i{i}") / 2 for i in range(len(SECRETS))]
    low = (full[0] / 2 + sum(full[2:])) / 6
    high = ((full[0] + 1) / 2 + 1 + sum(full[2:])) / 6
    assert a.if_refused == pytest.approx((low, high))
    assert row(made, "scores", "a")["if_refused"] == pytest.approx((100 * low, 100 * high))
    (note,) = [note for note in made.table("scores").notes if note.startswith("refused: ")]
    assert note.startswith(
        "refused: a on s: 3 episodes without a score, in no mean; if all had scored 0 or 100, the me"
    )
    assert f"{100 * low:.1f} or {100 * high:.1f}" in note
    assert WORDS in note
    assert not [note for note in made.table("scores").notes if note.startswith("partial")]


def test_completeness_and_the_json_count_them(made: Report, tmp_path: Path) -> None:
    complete = row(made, "completeness", "a")
    assert [complete[key] for key in ("ended", "remaining", "begun", "refused", "prefix")] == [9, 3, 3, 3, 9]
    run = made.to_json()["run"]
    assert (run["remaining"], run["refused"], run["complete"], run["refused_words"]) == (3, 3, False, {"a": WORDS})


def test_a_report_without_refusals_says_nothing_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    write_run(tmp_path, [[*log("a", {}), *log("b", {})]])
    made = report(tmp_path)
    assert not any(
        "refused" in column.key for name in ("scores", "completeness") for column in made.table(name).columns
    )


@pytest.mark.parametrize("fresh", [False, True])
def test_an_instance_that_was_refused_leaves_both_sides_of_a_comparison(fresh: bool) -> None:
    """`fresh`: whether an episode has not been played yet, so that the comparison holds at every look."""
    full = log("b", {})
    kept = [one for one in full if (one.instance, one.replicate) != ("i5", 1)] if fresh else full
    sides = []
    for agent_log in (log("a", {(0, 0): 0, (1, 1): 2}), kept):
        found = cells(MANIFEST, episode_results(steps_table(agent_log), MANIFEST, ENVIRONMENTS))
        sides.append(Side(label="x", manifest=MANIFEST, cells=tuple(found)))
    made = compare(sides[0], sides[1], [("a", "b")])
    (score,) = [one for one in made.tables[0].rows if one["measure"] == "Score"]
    (details,) = [one for one in made.tables[1].rows if one["measure"] == "Score"]
    assert score["pairs"] == 4
    assert details["missing_first"] + details["missing_second"] == 2
    assert score["difference"] == 0.0
