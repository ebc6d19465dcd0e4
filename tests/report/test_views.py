"""A run as SQL: a log in three commits, in which one episode was played again."""

from pathlib import Path

import pytest

from evalkit.env import table
from evalkit.errors import UsageError
from evalkit.report.views import VIEWS, Views, open_views
from evalkit.store.manifest import write_manifest
from evalkit.store.record import LedgerRecord
from tests.guessing import guess
from tests.logs import write_tails
from tests.playing import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search

MANIFEST = a_manifest([an_agent("a", tags=("small",))], [a_suite("s", [4, 5, 6])], 1)
FIRST = rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(2)])
AGAIN = rows(MANIFEST, "a", "s", "i0", 0, search(4), take=1)
OTHERS = [row for i in (1, 2) for row in rows(MANIFEST, "a", "s", f"i{i}", 0, search(4 + i))]
MONEY = [LedgerRecord(kind="charge", session="x", amount=10**9, agent="a")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table, "ENVIRONMENTS", ENVIRONMENTS)
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
