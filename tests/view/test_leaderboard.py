"""Agents by suites: what leads, what is drawn, and that the query gives the same means."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.report.views import open_views
from evalkit.view import leaderboard as module
from evalkit.view.comparing import _two_best
from evalkit.view.leaderboard import QUERY, leaderboard, ranked, standings
from evalkit.view.overview import overview, overview_frame
from evalkit.view.reading import Reading
from evalkit.view.render import render


def test_means_are_those_of_its_query(run: Path, reading: Reading) -> None:
    rows = open_views(run).sql(QUERY).to_pylist()
    ranked = standings(reading.report)
    assert [row["agent"] for row in rows] == [agent for agent, _ in ranked]
    assert [row["mean"] for row in rows] == pytest.approx([sum(scores) / len(scores) for _, scores in ranked])
    assert [row["suites"] for row in rows] == [len(scores) for _, scores in ranked]


def test_each_score_stands_in_its_suites_column_with_its_interval(reading: Reading) -> None:
    board = leaderboard(reading.report, "runs/x", "/run/x")
    heads = ["".join(parts) for parts in board.heads]
    assert heads == [
        "scheduling/basic periods=3",
        "procurement/basic periods=3",
        "pricing/basic periods=4",
        "costbench/basic",
    ]
    assert board.heads[0] == ["scheduling/", "basic ", "periods=", "3"]  # lines break behind these, not within words
    by_agent = {row.agent: row for row in board.rows}
    for cell, scored in zip(reading.report.cells, reading.report.table("scores").rows, strict=True):
        (place,) = [
            place
            for head, place in zip(heads, by_agent[cell.agent].places, strict=True)
            if head.startswith(cell.suite.base)
        ]
        assert place.sort == ("" if scored["score"] is None else repr(scored["score"]))
        assert (place.span is None) == (scored["interval"] is None)
        assert place.span is None or (place.span.down is None) == (scored["unmet"] is None)
        assert "episodes?" in place.href
    assert board.rows[0].agent == "oracle"
    assert board.more == 0


def test_agents_stand_in_the_order_of_their_means_and_those_that_played_all_have_a_rank(reading: Reading) -> None:
    report = reading.report
    scores = report.table("scores")
    rows = tuple(
        {**row, "score": None, "interval": None}
        if row["agent"] == "oracle" and row["suite"] != "costbench/basic"
        else row
        for row in scores.rows
    )
    less = replace(report, tables=(replace(scores, rows=rows), *report.tables[1:]))
    assert [agent for agent, _ in standings(less)] == ["oracle", "noisy", "hostile"]
    assert ranked(less) == ["noisy", "hostile"]
    board = leaderboard(less, "x", "")
    assert [(row.agent, row.rank) for row in board.rows] == [("oracle", ""), ("noisy", "1"), ("hostile", "2")]
    row = board.rows[0]
    assert (row.mean, row.scored, row.href) == ("100.0", "1 of 4", "")
    assert any(note.startswith("order: by the mean; rank: among") for note in board.notes)
    glance = replace(reading, report=less).glance
    assert glance.scores == "oracle 100.0 on 1 of 4, noisy 76.3, hostile 0.0"
    assert _two_best(replace(reading, report=less)) == ("hostile", "noisy")
    assert _two_best(reading) == ("noisy", "oracle")


def test_many_suites_become_a_column_for_each_environment(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SUITES", 2)
    monkeypatch.setattr(module, "MOST_AGENTS", 1)
    board = leaderboard(reading.report, "runs/x", "/run/x")
    assert ["".join(parts) for parts in board.heads] == ["scheduling", "procurement", "pricing", "costbench"]
    assert (len(board.rows), board.more) == (1, 2)


def test_the_page_stays_small_with_many_agents(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    report = reading.report
    scores = report.table("scores")
    agents = [f"a-model-of-some-provider-2026-{number:03}" for number in range(200)]
    cells = tuple(replace(cell, agent=agent) for agent in agents for cell in report.cells if cell.agent == "noisy")
    rows = tuple({**row, "agent": agent} for agent in agents for row in scores.rows if row["agent"] == "noisy")
    many = replace(
        reading, report=replace(report, cells=cells, tables=(replace(scores, rows=rows), *report.tables[1:]))
    )
    page = overview(many, "x")
    text = render("run.html", overview_frame(page, "x"), page=page)
    assert len(text) < 300_000
    assert re.search(r"150 more agents are in the table of scores", text)
