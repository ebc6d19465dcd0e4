"""Sweeps in the format of OpenAI Responses, over real HTTP with the simulated provider, and as far as a plan goes."""

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from tests.support.small_sweeps import COSTBENCH, resolved
from tests.support.sweep_runs import go_served, served

LAB = """
dialect = "openai_responses"
[simulate]
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""

THEIRS = """
[[agents]]
name = "m"
provider = "openai-responses"
model = "gpt-5"
effort = "low"
[[suites]]
name = "scheduling/basic"
"""


@pytest.mark.parametrize("text", [served(), COSTBENCH], ids=["scheduling", "costbench"])
def test_a_sweep_runs_to_its_end_and_costs_what_the_provider_bills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "simulated.toml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    outcome, simulator = go_served(resolved(tmp_path, text), tmp_path / "run")
    assert (outcome.exit_code, outcome.remaining, outcome.messages) == (0, 0, ())
    assert outcome.ended == outcome.episodes > 0
    assert set(simulator.totals.by_outcome) == {"ok"}
    assert outcome.spent == simulator.totals.bill > 0


def test_what_a_model_refuses_is_marked_or_an_error(tmp_path: Path) -> None:
    assert resolved(tmp_path, THEIRS).manifest.agents["m"].marks == ("temperature not sent: the model refuses it",)
    with pytest.raises(UsageError, match="openai-responses/gpt-5 refuses `top_p`"):
        resolved(tmp_path, THEIRS.replace('5"', '5"\ntop_p = 0.5'))
    with pytest.raises(UsageError, match="max_tokens must be at least 16"):
        resolved(tmp_path, THEIRS.replace('5"', '5"\nmax_tokens = 8'))
    older = THEIRS.replace("gpt-5", "gpt-4.1")
    with pytest.raises(UsageError, match=r"openai-responses/gpt-4\.1 refuses `effort`"):
        resolved(tmp_path, older)
    assert resolved(tmp_path, older.replace('effort = "low"', "")).manifest.agents["m"].marks == ()
