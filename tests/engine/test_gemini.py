"""Sweeps in Gemini's format, over real HTTP with the simulated provider, and as far as a plan goes with theirs."""

from pathlib import Path

import pytest

from evalkit.errors import UsageError
from tests.support.small_sweeps import COSTBENCH, resolved
from tests.support.sweep_runs import go_served, served

LAB = """
dialect = "gemini"
[simulate]
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""

OTHERS = """
[[agents]]
name = "noisy"
provider = "simulated"
model = "noisy"
[[suites]]
name = "procurement/basic"
instances = ["seed-0"]
vary = { periods = [3] }
[[suites]]
name = "pricing/basic"
instances = ["seed-0"]
vary = { periods = [3] }
"""

THEIRS = """
[[agents]]
name = "m"
provider = "google"
model = "gemini-3.8-flash"
effort = "low"
[[suites]]
name = "scheduling/basic"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "simulated.toml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", [served(), COSTBENCH, OTHERS], ids=["scheduling", "costbench", "others"])
def test_a_sweep_runs_to_its_end_and_costs_what_the_provider_bills(lab: Path, text: str) -> None:
    outcome, simulator = go_served(resolved(lab, text), lab / "run")
    assert (outcome.exit_code, outcome.remaining, outcome.messages) == (0, 0, ())
    assert outcome.ended == outcome.episodes > 0
    assert set(simulator.totals.by_outcome) == {"ok"}
    assert outcome.spent == simulator.totals.bill > 0


def test_what_a_model_does_not_heed_is_marked_and_what_it_is_asked_in_vain_is_an_error(tmp_path: Path) -> None:
    assert resolved(tmp_path, THEIRS).manifest.agents["m"].marks == ("temperature not sent: the model refuses it",)
    with pytest.raises(UsageError, match=r"google/gemini-3\.8-flash refuses `top_p`"):
        resolved(tmp_path, THEIRS.replace('8-flash"', '8-flash"\ntop_p = 0.5'))
    older = THEIRS.replace("gemini-3.8-flash", "gemini-2.5-pro").replace('"low"', '"1024"')
    assert resolved(tmp_path, older).manifest.agents["m"].marks == ()
