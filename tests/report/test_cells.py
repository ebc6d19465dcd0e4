from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from evalkit.errors import CorruptLogError
from evalkit.frozen.instances import InstanceList, admission
from evalkit.frozen.manifest import Manifest
from evalkit.report.run_data import RunData
from evalkit.results.cells import Cell, cells
from evalkit.results.episodes import EpisodeResult, episode_results
from evalkit.store.files.record import UNSCORED, StepRecord
from evalkit.store.files.schema import steps_table
from tests.support.guessing_game import calls, guess, hint, say
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search


def results(manifest: Manifest, log: Sequence[StepRecord]) -> list[EpisodeResult]:
    return episode_results(steps_table(log), manifest, ENVIRONMENTS)


def two_by_three() -> Manifest:
    return a_manifest([an_agent("a")], [a_suite("s", [4, 5, 6])], replicates=2)


@pytest.mark.parametrize(
    ("ended", "begun", "prefix", "outside"),
    [
        # The admission order of three instances and two replicates is 00 10 20, 01 11 21 (instance, replicate).
        ("", "", 0, 0),
        ("", "00", 0, 0),
        ("00", "", 1, 0),
        ("00 10", "20", 2, 0),
        ("00 20", "10", 1, 1),
        ("10 20 01 11 21", "00", 0, 5),
        ("00 10 20", "", 3, 0),
        ("00 10 20 11", "01", 3, 1),
        ("00 01 11 21", "", 1, 3),
        ("00 10 20 01 11", "21", 5, 0),
        ("00 10 20 01 11 21", "", 6, 0),
    ],
)
def test_an_estimate_stands_on_the_longest_ended_prefix(ended: str, begun: str, prefix: int, outside: int) -> None:
    manifest, log = two_by_three(), []
    for place in ended.split():
        log += rows(manifest, "a", "s", f"i{place[0]}", int(place[1]), search(int(place[0]) + 4))
    for place in begun.split():
        log += rows(manifest, "a", "s", f"i{place[0]}", int(place[1]), [hint()])
    (cell,) = cells(manifest, results(manifest, log))
    assert len(cell.prefix) == prefix
    assert [f"{one.instance[1]}{one.replicate}" for one in cell.prefix] == ["00", "10", "20", "01", "11", "21"][:prefix]
    assert (cell.planned, cell.ended, cell.outside) == (6, len(ended.split()), outside)
    assert (cell.remaining, cell.complete) == (6 - cell.ended, cell.ended == 6)
    assert len(cell.episodes) == len(ended.split()) + len(begun.split())


def test_a_suites_order_is_made_once_and_its_lines_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", [4, 5, 6])], replicates=3)
    log = [row for name in "ab" for r in range(3) for row in rows(manifest, name, "s", "i1", r, search(5))]
    found, made = results(manifest, log), []

    def counted(instances: Sequence[Any], key: int | None) -> Iterator[int]:
        made.append(len(instances))
        return admission(instances, key)

    monkeypatch.setattr("evalkit.results.cells.admission", counted)
    monkeypatch.setattr(InstanceList, "at", None)
    assert [len(cell.episodes) for cell in cells(manifest, found)] == [3, 3]
    assert made == [3]


def test_a_suite_that_joins_a_run_takes_nothing_from_the_others() -> None:
    manifest = two_by_three()
    log = [row for i in range(3) for r in range(2) for row in rows(manifest, "a", "s", f"i{i}", r, search(i + 4))]
    extended = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", [4, 5, 6]), a_suite("t", [1])], replicates=3)
    found = {(cell.agent, cell.suite.name): cell for cell in cells(extended, results(extended, log))}
    assert {key: len(cell.prefix) for key, cell in found.items()} == {
        ("a", "s"): 6,
        ("b", "s"): 0,
        ("a", "t"): 0,
        ("b", "t"): 0,
    }


def test_agents_and_suites_stand_in_the_order_of_the_spec() -> None:
    manifest = a_manifest([an_agent("z"), an_agent("a")], [a_suite("t", [1]), a_suite("s", [2])])
    found: list[Cell] = cells(manifest, [])
    assert [(cell.suite.name, cell.agent) for cell in found] == [("t", "z"), ("t", "a"), ("s", "z"), ("s", "a")]
    assert [cell.planned for cell in found] == [1, 1, 1, 1]


def test_an_episode_is_scored_from_its_facts() -> None:
    manifest = a_manifest([an_agent("a")], [a_suite("s?k=2", [4, 5], {"k": 2})], replicates=2)
    log = rows(manifest, "a", "s?k=2", "i1", 1, [calls(("fly", "{}"), ("guess", "{")), guess(7), guess(8), guess(6)])
    (one,) = results(manifest, log)
    assert (one.agent, one.suite, one.instance, one.replicate) == ("a", "s?k=2", "i1", 1)
    assert (one.axes, one.environment, one.stratum) == ({"k": 2}, "guessing", "odd")
    assert (one.ending, one.finished, one.score, one.solved) == ("complete", True, 0.9, False)
    assert (one.steps, one.periods, one.no_action) == (4, 3, 0)
    assert one.metrics["exploration_rate"] == 1.0
    assert one.outcomes == (("fly", "unknown_tool", 1), ("guess", "bad_arguments", 1), ("guess", "ok", 3))
    assert (one.tokens_in, one.tokens_out, one.tokens_cached_read, one.cost) == (4000, 80, 1600, 2_880_000_000)
    assert one.latency_s == pytest.approx(3.2)


def test_rows_may_come_in_any_order() -> None:
    manifest = two_by_three()
    log = [row for i in range(3) for row in rows(manifest, "a", "s", f"i{i}", 0, search(i + 4))]
    assert results(manifest, log[::-1]) == results(manifest, log)


def test_an_episode_that_the_model_ended_is_scored_as_it_stands() -> None:
    manifest = two_by_three()
    (one,) = results(manifest, rows(manifest, "a", "s", "i0", 0, [guess(6)], refused="content_filter"))
    assert (one.ending, one.finished, one.score) == ("content_filter", True, 0.8)
    (none,) = results(manifest, rows(manifest, "a", "s", "i0", 0, [say("no"), say("no")], refused="context_length"))
    assert (none.score, none.no_action, none.without_call) == (0.0, 1, 2)


@pytest.mark.parametrize("ending", ["", *sorted(UNSCORED)])
def test_an_episode_that_the_world_stopped_is_owed_and_unscored(ending: str) -> None:
    manifest = two_by_three()
    (one,) = results(manifest, rows(manifest, "a", "s", "i0", 0, [guess(6)], refused=ending))
    assert (one.finished, one.score, one.solved, one.outcomes) == (False, None, False, ())
    (cell,) = cells(manifest, [one])
    assert (cell.ended, cell.remaining, len(cell.prefix)) == (0, 6, 0)


@pytest.mark.parametrize("field", [{"agent": "x"}, {"suite": "x"}, {"instance": "x"}, {"replicate": 2}])
def test_rows_that_the_manifest_does_not_plan_are_named(field: dict[str, Any]) -> None:
    from dataclasses import replace

    manifest = two_by_three()
    log = [replace(row, **field) for row in rows(manifest, "a", "s", "i0", 0, search(4))]
    with pytest.raises(CorruptLogError, match="does not plan"):
        results(manifest, log)


def test_facts_that_are_no_json_are_named() -> None:
    from dataclasses import replace

    manifest = two_by_three()
    log = [replace(row, facts=b"{") for row in rows(manifest, "a", "s", "i0", 0, search(4))]
    with pytest.raises(CorruptLogError, match=f"episode {log[0].episode}: logged facts are no JSON"):
        results(manifest, log)


def test_an_empty_log_has_no_episodes() -> None:
    assert results(two_by_three(), []) == []


def test_a_partial_cells_interval_holds_whenever_the_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from evalkit.envs import table
    from evalkit.report import scores

    manifest = a_manifest([an_agent("a")], [a_suite("s", [2, 4, 6, 8, 0])])
    log = [row for i in range(4) for row in rows(manifest, "a", "s", f"i{i}", 0, [guess(9), guess(9), guess(i)])]
    (cell,) = cells(manifest, results(manifest, log))
    ordinary, kind = scores.interval_and_kind(cell)
    assert kind == "Hall"
    bounded = replace(ENVIRONMENTS["guessing"], score_range=(0.0, 1.0))
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", {"guessing": bounded})
    held, kind = scores.interval_and_kind(cell)
    assert kind == "betting"
    assert ordinary is not None
    assert held is not None
    assert held.high - held.low > ordinary.high - ordinary.low
    notes = scores.scores_table(RunData(manifest, [cell])).notes
    assert any("betting, valid whenever a run is stopped" in note for note in notes)


def test_the_interval_of_a_cell_is_made_once_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    from evalkit.report import scores
    from evalkit.stats.intervals import estimate

    manifest = a_manifest([an_agent("a")], [a_suite("s", [2, 4, 6, 8])])
    log = [row for i in range(4) for row in rows(manifest, "a", "s", f"i{i}", 0, [guess(9), guess(9), guess(i)])]
    (cell,) = cells(manifest, results(manifest, log))
    made = []

    def counted(*arguments: Any, **settings: Any) -> Any:
        made.append(arguments)
        return estimate(*arguments, **settings)

    monkeypatch.setattr("evalkit.report.scores.estimate", counted)
    assert scores.interval_figures(cell) == scores.interval_figures(cell)
    assert len(made) == 1


def test_an_interval_is_of_the_range_that_scores_have(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from evalkit.envs import table
    from evalkit.report import scores

    manifest = a_manifest([an_agent("a")], [a_suite("s", [2, 4, 6, 8, 0])])
    log = [row for i in range(4) for row in rows(manifest, "a", "s", f"i{i}", 0, [guess(9), guess(9), guess(i)])]
    (cell,) = cells(manifest, results(manifest, log))
    held = {}
    for least in (0.0, -3.0):
        ranged = replace(ENVIRONMENTS["guessing"], score_range=(least, 1.0))
        monkeypatch.setattr(table.ENVIRONMENTS, "built_in", {"guessing": ranged})
        held[least], kind = scores.interval_and_kind(cell)
        assert kind == "betting"
    narrow, wide = held[0.0], held[-3.0]
    assert narrow is not None
    assert wide is not None
    assert -3 <= wide.low < narrow.low
    assert wide.high == pytest.approx(narrow.high)
