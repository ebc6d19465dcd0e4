"""Sweeps in Anthropic's format, over real HTTP with the simulated provider, and as far as a plan goes with theirs."""

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from tests.support.small_sweeps import COSTBENCH, resolved
from tests.support.sweep_runs import go_served, served

LAB = """
dialect = "anthropic_messages"
[simulate]
[usd_per_mtok]
input = "1"
cached_write = "2"
output = "4"
source = "made up, 2026-11-21"
"""

THEIRS = """
[[agents]]
name = "m"
provider = "anthropic"
model = "claude-opus-5-5"
[[suites]]
name = "scheduling/basic"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "simulated.toml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", [served(), COSTBENCH], ids=["scheduling", "costbench"])
def test_a_sweep_runs_to_its_end_and_costs_what_the_provider_bills(lab: Path, text: str) -> None:
    outcome, simulator = go_served(resolved(lab, text), lab / "run")
    assert (outcome.exit_code, outcome.remaining, outcome.messages) == (0, 0, ())
    assert outcome.ended == outcome.episodes > 0
    assert set(simulator.totals.by_outcome) == {"ok"}
    assert outcome.spent == simulator.totals.bill > 0


def test_what_a_model_refuses_is_marked_or_an_error(tmp_path: Path) -> None:
    assert resolved(tmp_path, THEIRS).manifest.agents["m"].marks == (
        "temperature not sent: the model refuses it",
        "tool_choice not sent: the model refuses it",
    )
    with pytest.raises(UsageError, match="anthropic/claude-opus-5-5 refuses `top_p`"):
        resolved(tmp_path, THEIRS.replace('5-5"', '5-5"\ntop_p = 0.5'))
    haiku = THEIRS.replace("claude-opus-5-5", "claude-haiku-4-5-20251001")
    assert resolved(tmp_path, haiku).manifest.agents["m"].marks == ()
    with pytest.raises(UsageError, match="temperature must be at most 1"):
        resolved(tmp_path, haiku.replace('1001"', '1001"\ntemperature = 1.5'))
