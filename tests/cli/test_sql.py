import json
from pathlib import Path

import pytest

from tests.cli.calling import Call


@pytest.fixture
def ran(spec: Path, call: Call) -> str:
    assert call("run", str(spec), "--dir", "run", "--json").code == 0
    return "run"


def test_a_query_is_answered_in_three_forms(ran: str, call: Call) -> None:
    query = "select agent, count(*) as n, max(score) as best from episodes where used group by agent order by agent"
    shown = call("sql", ran, query)
    assert shown.code == 0
    head, *lines = [line.split() for line in shown.out.splitlines()]
    assert (head, [line[:2] for line in lines]) == (["agent", "n", "best"], [["knuth", "2"], ["random", "2"]])
    rows = json.loads(call("sql", ran, query, "--json").out)
    assert [(row["agent"], row["n"]) for row in rows] == [("knuth", 2), ("random", 2)]
    assert call("sql", ran, "select 'a' as x, 1 as y", "--csv").out == '"x","y"\n"a",1\n'


def test_without_a_query_the_views_are_told(ran: str, call: Call) -> None:
    told = call("sql", ran).out
    for name in ("steps", "calls", "episodes", "scores", "ledger", "agents", "instances"):
        assert f"\n{name}: " in f"\n{told}"
    assert "tokens_cached_read bigint" in told


def test_a_wrong_query_names_what_there_is(ran: str, call: Call) -> None:
    refused = call("sql", ran, "select * from nothing")
    assert refused.code == 2
    assert "nothing" in refused.err
    assert "The views are" in refused.err
