"""Where am I: `ls`, commands without a run, one table of a report, and runs in a notebook."""

import json
import os
from pathlib import Path

import pytest

import evalkit
from evalkit.cli.read import view
from tests.support.command_line import POLICIES, Call


@pytest.fixture
def two(call: Call, spec: Path, here: Path) -> Path:
    """Two runs, of which the one that began first was played last."""
    assert call("run", str(spec), "--name", "first").code == 0
    assert call("run", str(spec), "--name", "second", "--only", "agent=knuth").code == 0
    late = (here / "runs/second/events.jsonl").stat().st_mtime + 10
    os.utime(here / "runs/first/events.jsonl", (late, late))
    return here


@pytest.mark.parametrize(
    "words", [("status",), ("report", "--table", "scores"), ("show",), ("compare",), ("verify",), ("verify", "--json")]
)
def test_without_a_run_the_newest_is_read_and_named_on_standard_error(
    call: Call, two: Path, words: tuple[str, ...]
) -> None:
    said = call(*words)
    assert said.code == 0, said.err
    assert said.err == "evalkit: the newest run: runs/first\n"
    head, *rest = words
    assert said.out.replace("runs/first", "first") == call(head, "first", *rest).out.replace("runs/first", "first")


def test_a_word_that_is_no_run_is_an_episode_of_the_newest(call: Call, two: Path) -> None:
    said = call("show", "knuth:scheduling/basic?periods=4:seed-0:0")
    assert said.code == 0, said.err
    assert "the newest run: runs/first" in said.err
    assert "holds no episode" in call("show", "nobody").err


@pytest.mark.parametrize(
    "words",
    [
        ("tools", "void", "--reason", "x"),
        ("tools", "reconcile", "--spent", "1"),
        ("export", "--format", "csv", "--out", "x"),
    ],
)
def test_what_writes_takes_no_run_by_itself(call: Call, two: Path, words: tuple[str, ...]) -> None:
    said = call(*words)
    assert said.code == 2
    assert "required: RUN" in said.message


def test_without_any_run_it_is_said(call: Call) -> None:
    assert "There is no run in runs/ here" in call("status").message
    assert "evalkit run quickstart" in call("ls").out


def test_the_list_of_runs_has_state_money_date_and_best_agent(call: Call, two: Path, here: Path) -> None:
    said = call("ls", "--json")
    assert said.code == 0, said.err
    rows = {row["run"]: row for row in json.loads(said.out)["runs"]}
    assert rows.keys() == {"first", "second"}
    assert (rows["first"]["state"], rows["second"]["state"]) == ("complete", "partial")
    assert (rows["first"]["ended"], rows["second"]["ended"], rows["second"]["planned"]) == (4, 2, 4)
    assert rows["first"]["best"].startswith("knuth ")
    assert rows["first"]["spent_pico_usd"] == 0
    for file in (here / "runs/second/manifest").iterdir():
        file.chmod(0o644)
        file.write_bytes(b"{")
    damaged = {row["run"]: row for row in json.loads(call("ls", "--json").out)["runs"]}
    assert damaged["second"]["state"] == "damaged"
    assert damaged["first"] == rows["first"]
    assert call("ls").out.splitlines()[0].split() == [
        "Run",
        "State",
        "Ended",
        "Planned",
        "Money",
        "Began",
        "(UTC)",
        "Best",
        "agent",
    ]


def test_one_table_of_a_report(call: Call, two: Path) -> None:
    said = json.loads(call("report", "first", "--table", "scores", "--table", "money", "--json").out)
    assert list(said["tables"]) == ["scores", "money"]
    refused = call("report", "first", "--table", "score")
    assert "the run has no table 'score'. Did you mean 'scores'? Its tables: scores, " in refused.message
    other = call("report", "first", "--table", "?")
    assert "the run has no table '?'. Its tables: scores, " in other.message


def test_two_agents_need_no_names_and_three_do(call: Call, two: Path, here: Path) -> None:
    assert "A: first:knuth   B: first:random" in call("compare", "first").out
    (here / "three.toml").write_text('[[agents]]\npolicy = "oracle"\n' + POLICIES)
    assert call("run", "three.toml", "--only", "agent=oracle").code == 0
    assert "--agents X Y, is missing. Agents of three: oracle, knuth, random." in call("compare", "three").message


def test_the_browser_opens_at_the_newest_run_where_there_is_a_screen(
    two: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from evalkit.view.run_cache import RunCache

    cache = RunCache([], Path("runs"))
    assert view._newest_page(cache) == "/run/first/"
    cache.close()
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("DISPLAY", ":0")
    view._tell("http://127.0.0.1:1", page="/run/first/", opens=True)
    view._tell("http://127.0.0.1:1", page="", opens=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    view._tell("http://127.0.0.1:1", page="", opens=True)
    assert opened == ["http://127.0.0.1:1/run/first/"]


def test_runs_tables_and_plans_show_themselves_in_notebooks(two: Path, spec: Path) -> None:
    run = evalkit.load("first")
    shown = run._repr_html_()
    assert "<caption>Run(first: complete, 4 of 4 episodes, 0 USD)</caption>" in shown
    assert "<td>knuth</td>" in shown
    plan = evalkit.plan(str(spec))
    assert "<th>Cost</th>" in plan._repr_html_()
    assert repr(plan).startswith("Plan(mine: 4 episodes, ")


def test_nothing_of_a_table_is_html() -> None:
    from evalkit.text import html_table

    assert html_table("<a>", ["&"], [["<script>"]], ['"']) == (
        "<table><caption>&lt;a&gt;</caption><thead><tr><th>&amp;</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;</td></tr></tbody></table><div><small>&quot;</small></div>"
    )
