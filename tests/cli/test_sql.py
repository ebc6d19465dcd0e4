import csv
import io
import json
import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from evalkit.cli.main import INTERRUPTED
from evalkit.report.views import Views
from tests.support.command_line import Call
from tests.support.patience import PATIENCE_S


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


def test_a_long_answer_is_set_in_part_and_says_how_to_get_the_rest(ran: str, call: Call) -> None:
    query = "select i from range(1234) t(i)"
    shown = call("sql", ran, query)
    assert shown.code == 0
    assert [int(line) for line in shown.out.split()[1:]] == list(range(1000))
    assert "234 more rows: --csv and --json print all 1,234." in shown.err
    assert len(call("sql", ran, query, "--csv").out.splitlines()) == 1235


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(
    "view", ["steps", "calls", "log", "cells", "episodes", "scores", "ledger", "agents", "instances"]
)
def test_every_view_is_told_whole_in_every_form(ran: str, call: Call, view: str) -> None:
    rows = json.loads(call("sql", ran, f"select * from {view}", "--json").out)
    found = list(csv.DictReader(io.StringIO(call("sql", ran, f"select * from {view}", "--csv").out)))
    assert len(found) == len(rows)
    assert call("sql", ran, f"select * from {view}").code == 0
    if view == "episodes":
        assert json.loads(found[0]["metrics"]) == rows[0]["metrics"]
        assert isinstance(rows[0]["metrics"], dict)
    if view == "steps":
        assert bytes.fromhex(found[0]["step_digest"]) == bytes.fromhex(rows[0]["step_digest"])


def test_odd_values_are_told(ran: str, call: Call) -> None:
    query = "select map {1: 'x'} as m, [1, null] as l, {'a': '=1'} as s, interval 1 day as i, null as n, 1.5 as d"
    (row,) = csv.DictReader(io.StringIO(call("sql", ran, query, "--csv").out))
    assert (row["m"], row["l"], row["s"], row["n"], row["d"]) == ('{"1":"x"}', "[1,null]", '{"a":"=1"}', "", "1.5")
    assert json.loads(call("sql", ran, query, "--json").out)[0]["m"] == {"1": "x"}


@pytest.mark.parametrize("value", ["date '20000-01-01'", "interval '2147483646 days'", "map {[1]: 2}", "1::bignum"])
def test_a_value_that_cannot_be_printed_is_told(ran: str, call: Call, value: str) -> None:
    for form in ([], ["--json"], ["--csv"]):
        told = call("sql", ran, f"select [{value}] as a", *form)
        assert told.code == 0 or "Cast it in the query" in told.err
        assert call("sql", ran, f"select cast({value} as varchar) as a", *form).code == 0


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


LONG = "select count(*) from range(1000000000) a, range(1000000000) b where hash(a.range * b.range) % 7 = 3"


@pytest.mark.parametrize("query", [LONG, f"with never as ({LONG}) select * from periods, never"])
def test_an_interrupt_ends_a_query(ran: str, call: Call, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the query would never end
    began, own = threading.Event(), Views.sql

    def told(views: Views, words: str) -> pa.Table:
        began.set()
        return own(views, words)

    def interrupt() -> None:
        assert began.wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Views, "sql", told)
    thread = threading.Thread(target=interrupt)
    thread.start()
    said = call("sql", ran, query)
    thread.join()
    assert (said.code, said.out, said.err) == (INTERRUPTED, "", "")


def test_no_cell_begins_a_formula(ran: str, call: Call) -> None:
    query = "select '=1' as a, '+1' as \"=b\", '@x' as c, -1 as d, '-1' as e, -1.5 as f, 'a=1' as g"
    head, line = csv.reader(io.StringIO(call("sql", ran, query, "--csv").out))
    assert head == ["a", "'=b", "c", "d", "e", "f", "g"]
    assert line == ["'=1", "'+1", "'@x", "-1", "'-1", "-1.5", "a=1"]
    (row,) = json.loads(call("sql", ran, "select '=1' as a", "--json").out)
    assert row["a"] == "=1"
