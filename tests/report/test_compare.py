"""Two runs of the guessing game side by side, and two agents of one run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from evalkit.frozen.manifest import Manifest
from evalkit.report.comparing import verdicts
from evalkit.report.comparing.compare import Comparison, Side, compare, narrowed, together
from evalkit.report.comparing.times import time_notes
from evalkit.report.report import Report
from evalkit.report.tables import as_csv, markdown
from evalkit.results.cells import cells
from evalkit.results.episodes import episode_results
from evalkit.stats.pairs import change, pair
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import guess
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search

SECRETS = [3, 4, 5, 6, 7, 8, 3, 4]


def fumble(secret: int) -> list[Any]:
    return [guess(secret - 1)] * 40


def side(name: str, manifest: Manifest, log: Sequence[StepRecord]) -> Side:
    found = cells(manifest, episode_results(steps_table(log), manifest, ENVIRONMENTS))
    return Side(label=name, manifest=manifest, cells=tuple(found))


def played(manifest: Manifest, agent: str, solved: Sequence[int], *, replicates: int = 1) -> list[StepRecord]:
    """The rows of an agent that solves these instances of `s` and fumbles the others."""
    return [
        row
        for replicate in range(replicates)
        for i, one in enumerate(manifest.suites["s"].instances)
        for row in rows(
            manifest,
            agent,
            "s",
            one.id,
            replicate,
            search(one.line["value"]) if i in solved else fumble(one.line["value"]),
        )
    ]


@pytest.fixture(scope="module")
def one_run() -> Side:
    manifest = a_manifest([an_agent("a"), an_agent("b", pack="d1"), an_agent("c")], [a_suite("s", SECRETS)])
    log = [*played(manifest, "a", []), *played(manifest, "b", range(8)), *played(manifest, "c", range(7))]
    return side("monday", manifest, log)


def row(found: Comparison, table: str, measure: str) -> dict[str, Any]:
    tables = {one.name: one for one in found.tables}
    (only,) = [one for one in tables[table].rows if one["measure"] == measure]
    return dict(only)


def test_two_agents_of_a_run_are_compared_where_both_played(one_run: Side) -> None:
    found = compare(narrowed(one_run, "a"), narrowed(one_run, "b"), [("a", "b")])
    solved = row(found, "compare", "Solved")
    assert (solved["first"], solved["second"], solved["difference"]) == (0.0, 100.0, 100.0)
    assert (solved["pairs"], solved["agents"]) == (8, "a → b")
    # All eight signs alike: 2 of 256.
    assert solved["p"] == 2 / 256
    details = row(found, "compare_details", "Solved")
    assert (details["test"], details["signs_p"]) == ("all signs", 2 / 256)
    assert (details["missing_first"], details["missing_second"]) == (0, 0)
    assert (solved["losses"], solved["ties"], solved["wins"]) == (0, 0, 8)
    main = found.tables[0]
    tests = [one["p"] for one in main.rows if one["p"] is not None]
    # The score's test is a family of its own, the other measures' another.
    assert solved["p_holm"] == pytest.approx((len(tests) - 1) * 2 / 256)
    score = row(found, "compare", "Score")
    assert (score["p_holm"], score["verdict"], score["better"]) == (score["p"], "B wins more often", "higher")
    # Ten points on each of eight instances: that the mean is higher, too, hangs on losses that were not met.
    assert score["interval"][0] < 0
    assert (solved["verdict"], row(found, "compare_details", "Solved")["least_p"]) == (None, 2 / 256)
    assert f"of {len(tests)} tests" in main.notes[0]


def test_a_verdict_about_the_mean_needs_its_interval(one_run: Side) -> None:
    score = verdicts.measures(*one_run.cells[:2])[0]

    def judged(first: float, gains: Sequence[float]) -> str:
        values = [{str(i): [first + gain] for i, gain in enumerate(side)} for side in ([0.0] * 12, gains)]
        pairs = pair(*values)
        found = change(pairs, place=("s",), width=1.0)
        one = verdicts.TestedRow(
            first=one_run.cells[0],
            second=one_run.cells[1],
            measure=score,
            asked=False,
            partial=False,
            pairs=pairs,
            change=found,
            looked=found,
        )
        return verdicts.verdict(one, found.test.p, found.signs.p, found.least_p)

    spread = [0.001 * i for i in range(12)]
    assert judged(0.1, [0.6 + one for one in spread]) == "B better"
    assert judged(0.8, [-0.6 + one for one in spread]) == "A better"
    assert judged(0.8, [0.05 + one for one in spread]) == "B wins more often"
    assert judged(0.8, [-0.05 + one for one in spread]) == "A wins more often"
    assert judged(0.5, [0.01, -0.01] * 6) == "no difference shown"


def test_what_else_differs_is_said(one_run: Side) -> None:
    found = compare(narrowed(one_run, "a"), narrowed(one_run, "b"), [("a", "b")])
    settings = found.tables[2]
    assert [(one["setting"], one["first"], one["second"]) for one in settings.rows] == [
        ("prompts", "standard, digest d0", "terse, digest d1")
    ]
    assert "A and B also differ in: prompts" in found.tables[0].notes
    same = compare(narrowed(one_run, "a"), narrowed(one_run, "c"), [("a", "c")])
    assert [table.name for table in same.tables] == ["compare", "compare_details"]
    other = a_manifest(
        [an_agent("a", sampling={"guessing": {"temperature": 0.5}}, model="m2")], [a_suite("s", SECRETS)], replicates=2
    )
    settings = compare(one_run, side("tuesday", other, played(other, "a", [])), [("a", "a")]).tables[2]
    assert [(one["of"], one["setting"], one["first"], one["second"]) for one in settings.rows] == [
        ("run", "replicates", "1", "2"),
        ("a", "model", "lab/m1", "lab/m2"),
        ("a, guessing", "sampling: temperature", "none", "0.5"),
    ]


def test_instances_that_one_run_lacks_or_changed_do_not_pair(one_run: Side) -> None:
    # Two instances have other content under their old names, one is new.
    other = a_manifest([an_agent("a")], [a_suite("s", [3, 4, 5, 6, 7, 8, 9, 9, 9])])
    found = compare(one_run, side("tuesday", other, played(other, "a", range(9))), [("a", "a")])
    solved = row(found, "compare", "Solved")
    assert (solved["pairs"], solved["agents"]) == (6, "a")
    details = row(found, "compare_details", "Solved")
    assert (details["missing_first"], details["missing_second"]) == (2, 3)


def test_replicates_are_averaged_and_a_partial_run_says_so(one_run: Side) -> None:
    manifest = a_manifest([an_agent("a")], [a_suite("s", SECRETS)], replicates=3)
    log = played(manifest, "a", [0, 1], replicates=2)
    found = compare(one_run, side("tuesday", manifest, log), [("a", "a")])
    solved = row(found, "compare", "Solved")
    assert (solved["second"], solved["pairs"]) == (25.0, 8)
    assert row(found, "compare_details", "Solved")["signs_p"] is None
    assert "partial: a on s: 16 of 24 episodes" in found.tables[0].notes


def test_it_reads_as_json_markdown_and_csv_without_losing_a_row(one_run: Side) -> None:
    found = compare(narrowed(one_run, "a"), narrowed(one_run, "b"), [("a", "b")])
    read = orjson.loads(orjson.dumps(found.to_json()))
    assert (read["schema"], read["version"], read["agents"]) == ("evalkit.compare", 1, [["a", "b"]])
    assert (read["first"], read["second"]) == ("monday:a", "monday:b")
    for table in found.tables:
        assert len(read["tables"][table.name]["rows"]) == len(table.rows)
        assert as_csv(table).count("\n") == len(table.rows) + 1
        assert all(column.title in markdown(table) for column in table.columns[:1])


def test_an_agent_with_itself_differs_in_nothing(the_report: Report) -> None:
    whole = Side(label="x", manifest=the_report.manifest, cells=the_report.cells)
    found = compare(whole, whole, [("good", "good"), ("poor", "poor"), ("late", "late")])
    assert {one["difference"] for one in found.tables[0].rows} == {0.0}
    assert {one["p"] for one in found.tables[0].rows} == {None}
    assert {one["verdict"] for one in found.tables[0].rows if one["measure"] == "Score"} == {
        "no difference met",
        "undecided",
    }
    assert found.tables[0].notes[0].startswith("0 of 0 tests")


def test_four_pairs_cannot_be_sure_and_the_table_says_so() -> None:
    manifest = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", SECRETS[:4])])
    whole = side("x", manifest, [*played(manifest, "a", []), *played(manifest, "b", range(4))])
    found = compare(narrowed(whole, "a"), narrowed(whole, "b"), [("a", "b")])
    score = row(found, "compare", "Score")
    assert (score["p"], score["verdict"]) == (0.125, "too few pairs")
    assert row(found, "compare_details", "Score")["least_p"] == 0.125
    assert any("p cannot go below 0.125" in note for note in found.tables[0].notes)


def test_suites_are_told_one_by_one_and_all_together() -> None:
    suites = [a_suite("s", SECRETS), a_suite("t", SECRETS), a_suite("u", SECRETS[:4])]
    manifest = a_manifest([an_agent("a"), an_agent("b")], suites)
    log = [
        line
        for suite, solved in (("s", range(8)), ("t", range(0)), ("u", range(4)))
        for agent, mine in (("a", range(0)), ("b", solved))
        for i, one in enumerate(manifest.suites[suite].instances)
        for line in rows(
            manifest,
            agent,
            suite,
            one.id,
            0,
            search(one.line["value"]) if i in mine else fumble(one.line["value"]),
        )
    ]
    whole = side("x", manifest, log)
    found = compare(narrowed(whole, "a"), narrowed(whole, "b"), [("a", "b")])
    said = {one["suite"]: one["verdict"] for one in found.tables[0].rows if one["measure"] == "Score"}
    assert said == {"s": "B wins more often", "t": "no difference met", "u": "too few pairs"}
    (together,) = found.overall
    assert together.counts == {"B wins more often": 1, "no difference met": 1, "too few pairs": 1}
    scores = [one for one in found.tables[0].rows if one["measure"] == "Score"]
    assert together.difference is not None
    assert 100 * together.difference.mean == pytest.approx(sum(one["difference"] for one in scores) / 3)
    assert together.p is not None
    assert together.p < 0.05
    assert together.words in found.tables[0].notes
    # The intervals of all scores hold together, as their tests do; each of another measure holds alone.
    only = replace(whole, cells=tuple(cell for cell in whole.cells if cell.suite.name == "s"))
    alone = compare(narrowed(only, "a"), narrowed(only, "b"), [("a", "b")])
    for measure, wider in (("Score", True), ("Solved", False)):
        one, other = (
            next(line for line in one.tables[0].rows if (line["suite"], line["measure"]) == ("s", measure))
            for one in (alone, found)
        )
        assert (other["interval"][0] < one["interval"][0], other["difference"]) == (wider, one["difference"])
    assert orjson.loads(orjson.dumps(found.to_json()))["overall"][0]["verdicts"] == together.counts


def test_it_says_when_each_side_was_played_and_what_an_hour_may_do() -> None:
    def at(hour: int, minute: int = 0) -> datetime:
        return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)

    morning, noon = {"a": (at(8), at(9))}, {"b": (at(8, 30), at(12)), "c": (at(9, 30), at(10))}
    (together,) = time_notes(morning, noon, [("a", "b")])
    assert together.startswith("played at the same time")
    assert together.endswith(
        "A (a) 2026-03-01 08:00 to 2026-03-01 09:00 and B (b) 2026-03-01 08:30 to 2026-03-01 12:00, UTC"
    )
    (apart,) = time_notes(morning, noon, [("a", "c"), ("x", "c")])
    # Two effects of a point: 1.96 times the root of 2.
    assert "as much wider as ±2.8 points do" in apart


def test_nights_are_compared_by_what_has_ended_in_all_of_them() -> None:
    """One of three nights was cut by its budget: at every look its four pairs would say nothing."""
    manifest = a_manifest([an_agent("a")], [a_suite("s", SECRETS)])

    def night(solved: Sequence[int], ended: int) -> Side:
        # 40 rows an episode that fumbles, fewer one that solves: the log is cut behind a whole one.
        log = played(manifest, "a", solved)
        ids = list(dict.fromkeys(row.episode for row in log))[:ended]
        return replace(side("night", manifest, [row for row in log if row.episode in ids]), night=True)

    good, cut = [night(range(8), 8), night(range(7), 8)], night([], 6)
    found = compare(together(good, "good"), cut, [("a", "a")])
    solved = row(found, "compare", "Solved")
    assert (solved["first"], solved["second"], solved["pairs"]) == (100.0, 0.0, 6)
    details = row(found, "compare_details", "Solved")
    assert details["missing_first"] + details["missing_second"] == 2
    assert row(found, "compare", "Score")["verdict"] == "A wins more often"
    notes = found.tables[0].notes
    assert "A: 2 nights: the replicates of all of them together" in notes
    assert "partial: a on s: 6 of 8 episodes" in notes
    assert not any("at every look" in note for note in notes)
    undecided = compare(together(good, "good"), replace(cut, night=False), [("a", "a")])
    assert row(undecided, "compare", "Score")["verdict"] == "undecided"


def test_a_partial_side_is_judged_by_what_holds_at_every_look(one_run: Side) -> None:
    manifest = a_manifest([an_agent("a")], [a_suite("s", SECRETS)])
    # Of the sixth instance nothing has ended.
    log = [line for line in played(manifest, "a", range(8)) if line.instance != "i5"]
    found = compare(one_run, side("tuesday", manifest, log), [("a", "a")])
    solved, details = row(found, "compare", "Solved"), row(found, "compare_details", "Solved")
    assert (solved["pairs"], solved["difference"]) == (5, 100.0)
    assert (solved["kind"], details["test"]) == ("betting", "betting")
    assert solved["p"] > 0.05
    low, high = solved["interval"]
    assert low < 50
    assert high == 100.0
    score = row(found, "compare", "Score")
    assert (score["verdict"], score["interval"]) == ("undecided", None)
    assert any("hold at every look" in note for note in found.tables[0].notes)


def test_a_complete_comparison_has_a_p_that_survives_earlier_looks(one_run: Side) -> None:
    found = compare(narrowed(one_run, "a"), narrowed(one_run, "b"), [("a", "b")])
    solved, details = row(found, "compare", "Solved"), row(found, "compare_details", "Solved")
    assert solved["p"] < details["looked_p"] < 0.2
    assert details["looked"][0] <= solved["interval"][0]
    assert details["looked"][1] == 100.0
    assert row(found, "compare_details", "Score")["looked"] is None  # no bounds
    assert any("permutation test" in note for note in found.tables[0].notes)


def test_no_note_says_both_permutation_test_and_every_look(one_run: Side) -> None:
    whole = narrowed(one_run, "a")
    found = compare(replace(whole, asked=True), narrowed(one_run, "b"), [("a", "b")])
    assert not any("permutation test" in note for note in found.tables[0].notes)
    assert any("hold at every look" in note for note in found.tables[0].notes)


def test_one_side_with_more_replicates_says_so(one_run: Side) -> None:
    manifest = a_manifest([an_agent("a")], [a_suite("s", SECRETS)], replicates=3)
    found = compare(one_run, side("tuesday", manifest, played(manifest, "a", [0, 1], replicates=3)), [("a", "a")])
    assert row(found, "compare_details", "Solved")["test"] == "drawn labels"
    assert any("one side has more replicates" in note for note in found.tables[0].notes)


def test_what_a_p_value_cannot_go_below_is_what_its_row_could_have_had() -> None:
    # Eight pairs in three suites, all for B, and four and six in two more: Holm asks less of those that are left.
    suites = [a_suite(name, SECRETS[:n]) for name, n in (("s", 8), ("t", 8), ("u", 8), ("v", 4), ("w", 6))]
    manifest = a_manifest([an_agent("a"), an_agent("b")], suites)
    log = [
        line
        for suite in manifest.suites.values()
        for agent, won in (("a", False), ("b", True))
        for one in suite.instances
        for line in rows(manifest, agent, suite.name, one.id, 0, (search if won else fumble)(one.line["value"]))
    ]
    whole = side("x", manifest, log)
    found = compare(narrowed(whole, "a"), narrowed(whole, "b"), [("a", "b")])
    scores = {one["suite"]: one for one in found.tables[0].rows if one["measure"] == "Score"}
    assert {name: one["p_holm"] for name, one in scores.items()} == {
        **dict.fromkeys("stu", 5 * 2 / 256),
        "w": 2 * 2 / 64,
        "v": 0.125,
    }
    assert {name: one["verdict"] for name, one in scores.items()} == {
        **dict.fromkeys("stu", "B wins more often"),
        **dict.fromkeys("vw", "too few pairs"),
    }
    said = [note for note in found.tables[0].notes if "cannot go below" in note]
    assert said == [
        "v, a → b: p cannot go below 0.125: 4 pairs are too few to be sure of any difference",
        "w, a → b: p cannot go below 0.0312, nor below 0.0625 after correction for 5 tests: 6 pairs are too few to be "
        "sure of any difference",
    ]
