"""The query that a table shows is what made it: whoever asks it, over the log's files, gets the table's very values."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyarrow import compute

from bench.replicas import SWEEP, write_replicas
from evalkit.money import PicoUsd
from evalkit.report.comparing.compare import Side, compare, narrowed
from evalkit.report.figures.build import figures
from evalkit.report.nights.history import read_night
from evalkit.report.nights.trends import nights_table
from evalkit.report.quotes import quotes_table, run_quotes
from evalkit.report.report import Report, report
from evalkit.report.run_data import RunData
from evalkit.report.tables import Table
from evalkit.report.views import Views, open_views
from evalkit.spec.model import AgentSpec, SuiteUse
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import STEPS
from evalkit.store.reading.reader import scan_all
from tests.support.run_directories import write_tails

QUICK = tuple(AgentSpec(name=name, policy=name) for name in ("replanner", "greedy", "knuth", "random"))
BLOCKED = {"block": ("ban_tool",), "blocks": (1,)}
SUITES = (
    *SWEEP.suites,
    SuiteUse(name="costbench/basic", vary=BLOCKED),
    SuiteUse(name="scheduling/hard"),
)
PROMPTS = replace(
    SWEEP,
    agents=(
        AgentSpec(name="plain", policy="random"),
        AgentSpec(name="horizon", policy="random", prompts="known_horizon"),
    ),
    suites=(SuiteUse(name="procurement/basic"), SuiteUse(name="procurement/hard")),
)
LEDGER = [
    LedgerRecord(kind="charge", session="s", amount=PicoUsd(5 * 10**9), agent="random"),
    LedgerRecord(kind="release", session="s", amount=PicoUsd(10**9), agent="random"),
    LedgerRecord(kind="crash", session="s", amount=PicoUsd(7 * 10**9)),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four environments, blocks, basic and hard; one episode played again by another version, one that has begun
    anew and not ended, money that is no step."""
    path = tmp_path_factory.mktemp("run") / "run"
    write_replicas(path, 1, replace(SWEEP, agents=QUICK, suites=SUITES), instances=4)
    rows = scan_all(path, STEPS.names)
    first, second = sorted(set(rows.column("episode").to_pylist()))[:2]
    write_tails(path, [_again(rows, first)], LEDGER)
    begun = _again(rows, second)[:1]
    begun[0].ending = ""
    write_tails(path, [begun])
    return path


def _again(rows: pa.Table, episode: str) -> list[StepRecord]:
    """An episode's rows as a second take that another version answered."""
    plain = rows.set_column(0, "episode", rows.column("episode").cast(pa.string()))
    mine = plain.filter(compute.equal(plain.column("episode"), episode)).cast(STEPS)
    names = [field.name for field in fields(StepRecord)]
    found = []
    for row in mine.select(names).to_pylist():
        as_bytes = {"reply": row["reply"] and row["reply"].encode(), "facts": row["facts"].encode()}
        found.append(StepRecord(**{**row, **as_bytes, "take": 1, "served_model": "another"}))
    return found


@pytest.fixture(scope="module")
def made(run: Path) -> Report:
    return report(run)


@pytest.fixture(scope="module")
def views(run: Path) -> Views:
    return open_views(run)


NAMES = (
    *("scores", "behaviour", "refusals", "completeness", "money", "speed", "drift"),
    *("planning_own", "planning_goal_only_own", "planning_counts", "planning_calls", "planning_blocks_own"),
    *("adaptation", "coverage", "econ_scores", "econ_difficulty", "econ_action_quality", "econ_exploration"),
    "econ_feasible",
)


def test_the_run_has_every_table_of_the_report(made: Report) -> None:
    assert {table.name for table in made.tables} >= set(NAMES)
    assert [table.name for table in made.tables if not table.query] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tables_query_gives_its_numbers(made: Report, views: Views, name: str) -> None:
    table = made.table(name)
    assert differences(table, views.sql(table.query).to_pylist()) == []


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_report_has_the_same_bytes_by_any_number_of_threads(
    run: Path, made: Report, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.report.report.RunData", partial(RunData, threads=threads))
    assert orjson.dumps(report(run).to_json()) == orjson.dumps(made.to_json())


@pytest.mark.exhaustive
def test_prompt_packs_are_compared_by_their_queries(tmp_path: Path) -> None:
    write_replicas(tmp_path, 1_200, PROMPTS, instances=4)
    made, views = report(tmp_path), open_views(tmp_path)
    for name in ("econ_scores", "econ_difficulty", "econ_prompts", "econ_prompts_tests"):
        table = made.table(name)
        assert differences(table, views.sql(table.query).to_pylist()) == []


def test_the_figures_that_ask_for_their_own_numbers_are_what_their_queries_give(made: Report, views: Views) -> None:
    drawn = {figure.name: figure.table for figure in figures(made)}
    for name in ("figure_runs_scheduling", "figure_runs_procurement", "figure_runs_pricing"):
        assert drawn[name].rows
        assert list(drawn[name].rows) == views.sql(drawn[name].query).to_pylist()
    paid = [row for row in views.sql(drawn["figure_cost"].query).to_pylist() if row["cost_pico_usd"]]
    keys = ("agent", "cost_pico_usd")
    assert [[row[key] for key in keys] for row in drawn["figure_cost"].rows] == [
        [row[key] for key in keys] for row in paid
    ]


def test_the_errors_that_are_quoted_are_those_their_query_counts(run: Path, made: Report, views: Views) -> None:
    quoted = run_quotes(run, made.manifest, made.cells)
    table = quotes_table(quoted, made.cells, "run")
    rows = views.sql(table.query).to_pylist()
    keys = ("environment", "kind", "count", "unit", "episodes", "share")
    assert [{key: row[key] for key in keys} for row in table.rows] == [{key: row[key] for key in keys} for row in rows]
    assert [quote.example.id for quote in quoted] == [row["example"] for row in rows]


def test_what_a_nights_cells_took_is_what_the_query_of_its_table_gives(run: Path, views: Views) -> None:
    record = read_night(run, "2026-11-01", 0)
    asked = views.sql(nights_table([record]).query).to_pylist()
    for cell, row in zip(record.cells, asked, strict=True):
        assert (cell.suite, cell.agent, sum(cell.ended.values())) == (row["suite"], row["agent"], row["ended"])
        for name in ("cost", "tokens_in", "tokens_out", "steps", "latency_s"):
            assert getattr(cell, name) == row[name], name
    assert sum(row["tokens_in"] for row in asked) > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("threads", [2, 8])
def test_two_agents_compare_alike_by_any_number_of_threads_and_as_their_query_says(
    made: Report, views: Views, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(label="run", manifest=made.manifest, cells=made.cells)
    first, second = (narrowed(side, name) for name in ("random", "greedy"))
    found = compare(first, second, [("random", "greedy")])
    asked = views.sql(found.tables[0].query).to_pylist()
    scores = [row for row in found.tables[0].rows if row["measure"] == "Score"]
    others = {cell.suite.name: {one.instance for one in cell.prefix} for cell in second.cells}
    suites = [
        cell.suite.name
        for cell in first.cells
        if {one.instance for one in cell.prefix} & others.get(cell.suite.name, set())
    ]
    for row, suite in zip(scores, suites, strict=True):
        mine = [one for one in asked if one["used"] and (one["agent"], one["suite"]) == ("random", suite)]
        shared = [one["score"] for one in mine if one["instance"] in others[suite]]
        assert row["pairs"] == len(shared) > 0
        assert row["first"] == pytest.approx(100 * sum(shared) / len(shared))
    monkeypatch.setattr("evalkit.report.comparing.compare.RunData", partial(RunData, threads=threads))
    assert orjson.dumps(compare(first, second, [("random", "greedy")]).to_json()) == orjson.dumps(found.to_json())


def test_a_wrong_number_and_a_column_without_a_source_are_noticed(made: Report, views: Views) -> None:
    table = made.table("scores")
    rows = views.sql(table.query).to_pylist()
    wrong = [{**row, "score": (row["score"] or 0.0) + 0.001} for row in rows]
    assert len(differences(table, wrong)) == len(rows)
    assert differences(replace(table, query=""), rows) == ["no column interval", "no column kind", "no column unmet"]


def differences(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where a table and what its query gave differ: columns that neither SQL nor a comment accounts for, and values."""
    said = {key.strip() for line in re.findall(r"^-- ([^:]+):", table.query, re.MULTILINE) for key in line.split(",")}
    names = set(rows[0]) if rows else set()
    found = [f"no column {column.key}" for column in table.columns if column.key not in names | said]
    keys = [column.key for column in table.columns if column.kind == "text" and column.key in names]
    keys += [key for key in names & {"difficulty"} if key not in keys]
    by_key: dict[tuple[str, ...], Mapping[str, Any]] = {tuple(_text(row[key]) for key in keys): row for row in rows}
    if len(by_key) != len(rows):
        found.append(f"rows that {keys} do not tell apart")
    for row in table.rows:
        key = tuple(_text(row.get(one)) for one in keys)
        given = by_key.get(key, {})
        for column in table.columns:
            if column.key in keys or column.key not in names:
                continue
            if not _same(row.get(column.key), given.get(column.key)):
                found.append(
                    f"{key}: {column.key} is {row.get(column.key)!r}, the query gives {given.get(column.key)!r}"
                )
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _same(value: Any, given: Any) -> bool:
    if isinstance(value, Mapping):
        return dict(value) == {name: int(count) for name, count in given or ()}
    if value is None or given is None:
        return not value and not given
    # To the last digit: means state the order of their sums, whatever the number of threads.
    return float(value) == float(given)
