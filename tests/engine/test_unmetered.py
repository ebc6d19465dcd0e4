"""Replies without usage are told wherever money is told: while a run plays, when it has ended, and of a run on disk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from evalkit.cli.display import plain, render
from evalkit.cli.main import main
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.spending.reconcile import read_books
from evalkit.engine.status import read_status
from evalkit.engine.view import View
from evalkit.report.report import report
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from evalkit.store.reading.unmetered import UnmeteredReplies
from tests.cli.test_display import lane
from tests.support import refusing
from tests.support.refusing import Answer
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served


def played(folder: Path) -> tuple[Path, RunOutcome]:
    """A run of two calls with 15 % of its replies without usage."""
    sweep = resolved(folder, served(periods=2))
    go_served(sweep, folder / "run", {"fault_unmetered": 0.15}, limit=3)
    return folder / "run", go_served(sweep, folder / "run", {"fault_unmetered": 0.15})[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunOutcome]:
    return played(tmp_path_factory.mktemp("unmetered"))


def test_figures_that_contradict_each_other_have_words_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def decide(episode: str, step: int, before: int) -> Answer | None:
        value = json.loads(refusing.reply(step))
        value["usage"] = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 30}
        return (200, json.dumps(value)) if before < 3 else None

    outcome, _ = refusing.play(tmp_path, decide, refusing.sweep_text(replicates=1))
    told = UnmeteredReplies(doubtful=3, doubtful_cost=3 * (9 + 21 * 4) * 10**6)
    assert outcome.unmetered == told == read_status(tmp_path / "run").unmetered
    assert "the larger reading is charged, $0.0003" in told.words()
    assert [line for line in outcome.messages if "contradict" in line] == [told.advice()]
    assert main(["status", "run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert told.advice() in said
    assert "without usage" not in said
    table = report(tmp_path / "run").table("money")
    assert told.words() in table.notes
    assert "unmetered" not in table.rows[0]
    assert table.rows[0]["requests"] == 8
    assert sum(row.amount for row in read_books(tmp_path / "run").guessed) == told.doubtful_cost


def expected(directory: Path) -> UnmeteredReplies:
    """By the rows themselves."""
    rows = scan(directory, ("attempts", "cost")).to_pylist()
    mine = [row for row in rows if row["attempts"].endswith("unmetered")]
    assert all(row["cost"] > 4 * 10**6 * 1000 for row in mine)  # the bound
    return UnmeteredReplies(replies=len(mine), cost=sum(row["cost"] for row in mine))


def test_the_last_message_and_the_status_tell_of_all_calls_together(run: tuple[Path, RunOutcome]) -> None:
    directory, outcome = run
    want = expected(directory)
    assert want.replies > 5
    assert outcome.unmetered == want == read_status(directory).unmetered
    words = [line for line in outcome.messages if "came without usage" in line]
    assert words == [want.advice()]
    assert words[0].startswith(f"{want.replies} replies came without usage: $")
    assert outcome.to_json()["unmetered_replies"] == want.replies


@pytest.mark.parametrize("more", [(), ("--money",)], ids=["status", "money"])
def test_commands_tell_it_in_words_and_as_json(
    run: tuple[Path, RunOutcome], more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, outcome = run
    assert main(["status", str(directory), *more]) == 0
    assert outcome.unmetered.advice() in " ".join(capsys.readouterr().out.split())
    assert main(["status", str(directory), *more, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    money = said if more else said["money"]
    assert outcome.unmetered.to_json().items() <= money.items()


def test_the_report_counts_them_by_agent(run: tuple[Path, RunOutcome]) -> None:
    directory, outcome = run
    table = report(directory).table("money")
    everybody = table.rows[-1]
    assert (everybody["unmetered"], everybody["unmetered_pico_usd"]) == (
        outcome.unmetered.replies,
        outcome.unmetered.cost,
    )
    assert everybody["requests"] == read_index(directory).rows  # who answered without usage answered
    assert any(note.startswith(outcome.unmetered.words()) for note in table.notes)
    speed = report(directory).table("speed")
    assert sum(row["failed"] for row in speed.rows) == 0


@pytest.mark.exhaustive
def test_the_tables_own_queries_find_the_same(run: tuple[Path, RunOutcome], capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = run
    for name in ("money", "speed"):
        table = report(directory).table(name)
        assert main(["sql", str(directory), table.query, "--json"]) == 0
        rows = {row["agent"]: row for row in json.loads(capsys.readouterr().out)}
        for row in table.rows:
            for key, value in rows[row["agent"]].items():
                if key not in ("agent", "failures"):
                    assert float(value) == pytest.approx(float(row[key])), key


def test_show_says_it_of_the_steps(run: tuple[Path, RunOutcome], capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = run
    rows = scan(directory, ("episode", "attempts")).to_pylist()
    episode = next(row["episode"] for row in rows if row["attempts"] != "ok")
    assert main(["show", str(directory), episode]) == 0
    said = capsys.readouterr().out
    assert "(not all stated; cost at worst case)" in said


def test_the_live_display_has_a_line_for_them() -> None:
    quiet = View(name="x", elapsed_s=1.0, lanes=(lane(1),), spent=0, reserved=0, budget=None, simulated="", stopping="")
    assert "usage" not in plain(quiet)
    some = replace(quiet, unmetered=UnmeteredReplies(replies=171, cost=3_860_000_000_000))
    line = "171 replies came without usage: $3.86 at worst case."
    assert line in plain(some).splitlines()[1]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render(some, 80))
    assert line in capture.get()
    assert some.published()["unmetered_replies"] == 171
