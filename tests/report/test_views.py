"""A run as SQL: a log in three commits, in which one episode was played again."""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evalkit.envs import table
from evalkit.errors import CorruptLogError, RunError, UsageError
from evalkit.frozen.manifest import ManifestSuite
from evalkit.frozen.manifests import write_manifest
from evalkit.money import PicoUsd
from evalkit.report import views as module
from evalkit.report.views import VIEWS, Views, open_views
from evalkit.results.rows import instance_table
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import STEPS, UNASKED, steps_table
from evalkit.store.files.segment import read_segment
from tests.support.guessing_game import guess
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.log_contents import LOGS
from tests.support.run_directories import write_tails

MANIFEST = a_manifest([an_agent("a", tags=("small",))], [a_suite("s", [4, 5, 6])], 1)
FIRST = rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(2)])
AGAIN = rows(MANIFEST, "a", "s", "i0", 0, search(4), take=1)
OTHERS = [row for i in (1, 2) for row in rows(MANIFEST, "a", "s", f"i{i}", 0, search(4 + i))]
MONEY = [LedgerRecord(kind="charge", session="x", amount=PicoUsd(10**9), agent="a")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    return write_tails(tmp_path, [FIRST, OTHERS, AGAIN], MONEY)


def one(views: Views, query: str) -> dict[str, object]:
    found = views.sql(query).to_pylist()
    assert len(found) == 1
    return found[0]


def test_steps_are_the_rows_in_effect(run: Path) -> None:
    expected = len(AGAIN) + len(OTHERS)
    found = one(open_views(run), "select count(*) n, max(take) take, sum(cost) cost, sum(usd) usd from steps")
    cost = sum(row.cost for row in [*AGAIN, *OTHERS])
    assert found == {"n": expected, "take": 1, "cost": cost, "usd": pytest.approx(cost / 1e12)}


@pytest.mark.parametrize("write", LOGS)
def test_columns_of_asks_come_behind_and_say_the_same_in_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Path]
) -> None:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    write(tmp_path, [FIRST, OTHERS])
    views = open_views(tmp_path)
    first = [name for name in STEPS.names if name not in UNASKED]
    for view in ("steps", "log"):
        assert views.sql(f"select * from {view}").column_names == [*first, "usd", "asked_at", *UNASKED]
    words = ", ".join(f"min({name}), max({name})" for name in UNASKED)
    assert list(one(views, f"select {words} from steps").values()) == [v for v in UNASKED.values() for _ in range(2)]


def test_calls_are_told_with_their_outcome_and_arguments(run: Path) -> None:
    views = open_views(run)
    found = views.sql("select step, call, tool, outcome, arguments from calls where instance = 'i1' order by step")
    first = found.to_pylist()[0]
    assert (first["step"], first["call"], first["tool"], first["outcome"]) == (0, 0, "guess", "ok")
    assert first["arguments"].startswith("{")
    assert one(views, "select count(*) n from calls")["n"] == len(AGAIN) + len(OTHERS)


def test_episodes_and_scores_are_those_of_the_report(run: Path) -> None:
    from evalkit.report.report import report

    made = report(run).cells[0]
    views = open_views(run)
    found = views.sql("select instance, score, solved, used, steps from episodes order by instance").to_pylist()
    assert [(row["instance"], row["score"], row["used"]) for row in found] == [
        (episode.instance, episode.score, True) for episode in made.episodes
    ]
    mean = one(views, "select avg(value) mean from scores where metric = 'score' and used")["mean"]
    assert mean == pytest.approx(sum(episode.score or 0 for episode in made.prefix) / len(made.prefix))


def test_money_agents_and_instances_have_views(run: Path) -> None:
    views = open_views(run)
    assert one(views, "select kind, amount from ledger") == {"kind": "charge", "amount": 10**9}
    assert one(views, "select name, tags from agents") == {"name": "a", "tags": ["small"]}
    assert one(views, "select count(*) n, min(line->>'$.value') least from instances") == {"n": 3, "least": "4"}


def test_instances_are_read_only_where_a_query_reads_them(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, plain = list[int](), instance_table

    def counting(suites: Iterable[ManifestSuite]) -> pa.Table:
        found = plain(suites)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(module, "instance_table", counting)
    views = open_views(run)
    for query, most in (
        ("select count(*) n from steps", 0),
        ("select 1 as instances, 'from instances' as said from cells", 0),
        ("describe instances", 0),
        ("select count(*) n from Instances", 3),
        ("with a as (select * from instances) select count(*) from a join cells using (suite)", 3),
    ):
        read.clear()
        views.sql(query)
        assert max(read) == most, query


def test_a_run_without_rows_has_its_views(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    views = open_views(tmp_path)
    rows = {"agents": 1, "instances": 3, "cells": 1}
    for name in VIEWS:
        assert one(views, f"select count(*) n from {name}")["n"] == rows.get(name, 0)


def test_a_wrong_query_is_refused_in_the_databases_words(run: Path) -> None:
    with pytest.raises(UsageError, match="nope") as flaw:
        open_views(run).sql("select nope from steps")
    assert "The views are steps, calls" in str(flaw.value)


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(
    "query",
    [
        "copy (select * from steps) to 'out.csv'",
        "select 1; copy steps to 'out.parquet'",
        "export database 'out'",
        "import database 'out'",
        "attach 'out.db' as other",
        "select * from read_csv('{secret}')",
        "select * from read_text('{secret}')",
        "select * from '{secret}'",
        "select * from read_parquet('{run}/log/*/*.parquet')",
        "select * from glob('*')",
        "install httpfs",
        "load httpfs",
        "select * from read_csv('http://localhost:1/x.csv')",
        "create secret (type s3)",
        "set enable_external_access = true",
        "reset enable_external_access",
        "set temp_directory = 'out'",
        "set lock_configuration = false",
        "set home_directory = 'out'",
        "pragma profiling_output = 'out.json'",
        "copy (select 1) to '/dev/stdout'",
    ],
)
def test_a_query_has_neither_files_nor_the_network(
    run: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    here = tmp_path_factory.mktemp("here")
    secret = here / "secret.csv"
    secret.write_text("key\nabc\n")
    monkeypatch.chdir(here)
    with pytest.raises(UsageError, match="The query could not be answered: ") as flaw:
        open_views(run).sql(query.format(secret=secret, run=run))
    assert "abc" not in str(flaw.value)
    assert "The views are" in str(flaw.value) or "nothing else" in str(flaw.value)
    assert [path.name for path in here.iterdir()] == ["secret.csv"]


def test_no_query_opens_a_file_before_access_is_shut(run: Path, tmp_path: Path) -> None:
    """A file of which others would see that it is opened: a pipe, which lets an opener wait."""
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    reader = os.open(pipe, os.O_RDWR)  # so nobody waits
    os.write(reader, b"key\nabc\n")
    for view in VIEWS:
        with pytest.raises(UsageError, match="nothing else"):
            open_views(run).sql(f"select * from {view}, read_csv('{pipe}')")
        with pytest.raises(UsageError, match="The query could not be answered"):
            open_views(run).sql(f"select * from '{pipe}', {view}")
    os.set_blocking(reader, False)
    assert os.read(reader, 100) == b"key\nabc\n"
    os.close(reader)


def test_a_query_sees_no_names_of_python(run: Path) -> None:
    table_of_mine = steps_table([])
    with pytest.raises(UsageError, match="table_of_mine"):
        open_views(run).sql("select * from table_of_mine")
    assert table_of_mine.num_rows == 0


def test_what_outgrows_the_memory_leaves_nothing_beside_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(run.rglob("*"))
    monkeypatch.chdir(run)
    (found,) = open_views(run).sql("select current_setting('temp_directory') as room").to_pylist()
    assert not Path(found["room"]).is_relative_to(run)
    assert not Path(found["room"]).exists()
    assert sorted(run.rglob("*")) == before


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(
    "name", ["r*", "r?", "[ab]", "r[0-9]", "it's", 'say "x"', "a;b", "**", "{a,b}", "r\\x", "%41", "new\nline"]
)
def test_a_path_means_itself_alone(run: Path, tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Its neighbours would fit the same pattern."""
    place = tmp_path_factory.mktemp("runs")
    for other in (name, "r1", "r2", "a", "b", "ab", "r", "A"):
        shutil.copytree(run, place / other, dirs_exist_ok=True)
    found = one(open_views(place / name), "select count(*) n, count(distinct instance) i from steps")
    assert found == {"n": len(AGAIN) + len(OTHERS), "i": 3}
    assert open_views(place / name).sql("select step from log").num_rows == len(FIRST) + len(AGAIN) + len(OTHERS)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select step from steps where instance = 'i0' and ending <> ''", 1),
        ("select reply from log where take = 0 and agent in ('a', 'b') and instance = 'i0'", 3),
        (
            "select cost from steps where reply like '%guess%' and latency_s >= 0 and raw is null",
            sum(b"guess" in (row.reply or b"") for row in [*AGAIN, *OTHERS]),
        ),
        ("select 1 from steps where step_digest is not null and instance = 'facts'", 0),
        ("select count(*) from steps", 1),
    ],
)
def test_rows_are_chosen_by_columns_that_are_not_shown(run: Path, query: str, rows: int) -> None:
    assert open_views(run).sql(query).num_rows == rows


def test_damage_is_named_by_its_file(run: Path) -> None:
    path = next((run / "log").glob("*/000000001.parquet"))
    data = bytearray(path.read_bytes())
    place = data.index(b"i1")
    data[place + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match=r"log/.*/000000001\.parquet is damaged"):
        open_views(run).sql("select instance from steps")


def test_files_that_move_while_a_query_runs_are_looked_for_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[object] = []
    read = read_segment

    def once_gone(*words: Any) -> Any:
        if not moved:
            moved.append(1)
            raise FileNotFoundError("log/w/000000000.parquet")
        return read(*words)

    monkeypatch.setattr("evalkit.report.log_rows.read_segment", once_gone)
    assert open_views(run).sql("select step from log").num_rows == len(FIRST) + len(AGAIN) + len(OTHERS)
    moved.clear()

    def always_gone(*words: Any) -> Any:
        raise FileNotFoundError("log/w/000000000.parquet")

    monkeypatch.setattr("evalkit.report.log_rows.read_segment", always_gone)
    with pytest.raises(RunError, match="keep moving"):
        open_views(run).sql("select step from log")


def test_a_view_is_derived_only_where_it_is_named(run: Path) -> None:
    made = []

    def results() -> tuple[()]:
        made.append(1)
        return ()

    views = Views(run, results)
    views.sql("select count(*) from steps")
    views.sql("describe episodes")
    assert made == []
    views.sql("select * from Episodes")
    assert made == [1]
