"""Runs whose replies are streamed by the simulated provider, over HTTP: the same log, and money that is enough."""

from pathlib import Path
from typing import Any

import pytest

from evalkit.engine.outcome import RunOutcome
from evalkit.store.reading.reader import read_ledger, scan
from tests.provider.double import Double
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served

LAB = """
dialect = "{dialect}"
stream = "{stream}"
timeout_s = 60
silence_s = 5
[simulate]
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
DIALECTS = ["anthropic_messages", "gemini", "openai_chat", "openai_responses"]
TIMES = {"latency_s", "queue_s", "started_at", "worker", "attempts"}
SWEEP = served(periods=2)


def play(
    folder: Path, dialect: str, stream: str, simulate: dict[str, Any] | None = None, sweep: str = SWEEP
) -> tuple[RunOutcome, Double, list[dict[str, Any]]]:
    """The outcome, the provider, and the log's rows in order, without times."""
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "simulated.toml").write_text(LAB.format(dialect=dialect, stream=stream))
    run = folder / f"run-{dialect}-{stream}"
    outcome, simulator = go_served(resolved(folder, sweep), run, simulate)
    table = scan(run, ["episode", "step", "reply", "finish", "tokens_in", "tokens_out", "tokens_cached_read", "cost",
                       "served_model", "fingerprint", "response_id", "ending", "facts", "raw"])  # fmt: skip
    rows = table.sort_by([("episode", "ascending"), ("step", "ascending")]).to_pylist()
    return outcome, simulator, rows


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_streamed_run_has_the_log_of_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    monkeypatch.chdir(tmp_path)
    simulate = {"reasoning": 30}
    plain, whole, expected = play(tmp_path, dialect, "off", simulate)
    outcome, streaming, rows = play(tmp_path, dialect, "on", simulate)
    assert (outcome.exit_code, outcome.remaining, outcome.messages) == (0, 0, ())
    assert rows == expected
    assert (outcome.spent, streaming.totals.bill) == (plain.spent, whole.totals.bill)
    assert outcome.spent == streaming.totals.bill > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_streams_that_break_are_charged_and_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, expected = play(tmp_path, dialect, "off")
    broken = {"fault_stream_end": 0.06, "fault_stream_reset": 0.06, "fault_stream_error": 0.06}
    odd = {"fault_stream_comments": 0.2, "fault_stream_joined": 0.2, "fault_stream_crlf": 0.2, "stream_tokens": 1}
    outcome, simulator, rows = play(tmp_path, dialect, "on", {**broken, **odd})
    assert outcome.exit_code == 0
    assert rows == expected
    failed = sum(count for word, count in simulator.totals.by_outcome.items() if word in {name[6:] for name in broken})
    charges = [row for row in read_ledger(tmp_path / f"run-{dialect}-on") if row.kind == "charge"]
    assert 0 < failed == len(charges)
    assert outcome.spent + outcome.remaining >= simulator.totals.bill


def test_usage_that_never_comes_is_charged_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome, simulator, _ = play(tmp_path, "openai_chat", "on", {"fault_unmetered": 0.3})
    assert outcome.exit_code == 0
    assert simulator.totals.by_outcome["unmetered"] > 0
    assert outcome.spent > simulator.totals.bill


def test_auto_streams_an_agent_that_reasons_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "simulated.toml").write_text(LAB.format(dialect="openai_chat", stream="auto"))
    reasoning = SWEEP.replace('model = "knuth"', 'model = "knuth"\neffort = "high"')
    every = {"fault_stream_crlf": 1.0}
    _, simulator = go_served(resolved(tmp_path, reasoning), tmp_path / "run", every)
    # Only a streamed reply can have this fault.
    assert 0 < simulator.totals.by_outcome["stream_crlf"] < simulator.totals.requests
