"""What `plan` says beforehand, and what the provider's bill says afterwards."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.run.freeze import Resolved, resolve
from evalkit.run.plan import ASSUMED_REPLY_S, Plan, plan_sweep
from evalkit.run.universe import Choice
from evalkit.spec.sweep import find_sweep, read_sweep
from tests.run.running import go_served, served, with_budget
from tests.run.sweeps import resolved


def planned(sweep: Resolved, choice: Choice | None = None, seconds: float = 60.0) -> Plan:
    return asyncio.run(plan_sweep(sweep, choice or Choice(), seconds=seconds, reply_s={}))


def a_part_of_quickstart() -> Resolved:
    """Every fourth instance of its first suite once, and all of its agents."""
    whole = read_sweep(find_sweep("quickstart"))
    basic = replace(whole.suites[0], instances=("seed-1", "seed-5", "seed-9"))
    return resolve(replace(whole, replicates=1, suites=(basic, *whole.suites[2:])))


def test_the_plan_of_quickstart_is_what_the_bill_says(tmp_path: Path) -> None:
    sweep = a_part_of_quickstart()
    plan = planned(sweep)
    outcome, simulator = go_served(sweep, tmp_path / "run")
    totals = simulator.totals
    assert outcome.exit_code == 0
    assert plan.cost == pytest.approx(totals.bill, rel=0.1)
    assert sum(cell.requests for cell in plan.cells) == pytest.approx(totals.billed, rel=0.1)
    assert sum(cell.tokens_in for cell in plan.cells) == pytest.approx(totals.tokens_in, rel=0.1)
    assert sum(cell.tokens_out for cell in plan.cells) == pytest.approx(totals.tokens_out, rel=0.1)
    # Played whole, the very same conversations: then it is not a prediction any more.
    assert all(cell.played == cell.episodes and cell.cost_low == cell.cost_high for cell in plan.cells)
    assert plan.cost == totals.bill > 0


def test_a_plan_that_has_played_a_part_stays_near_the_bill(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=6, periods=6))
    plan = planned(sweep, seconds=0.0)
    _, simulator = go_served(sweep, tmp_path / "run")
    assert all(cell.played < cell.episodes for cell in plan.cells)
    assert all(cell.cost_low < cell.cost < cell.cost_high for cell in plan.cells)
    assert plan.cost == pytest.approx(simulator.totals.bill, rel=0.1)


def test_a_budget_of_what_the_plan_needs_is_enough_and_the_bare_cost_is_not(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=3))
    plan = planned(sweep)
    done, _ = go_served(with_budget(sweep, round(plan.needed)), tmp_path / "enough")
    assert (done.exit_code, done.spent) == (0, round(plan.cost))
    short, _ = go_served(with_budget(sweep, round(plan.cost)), tmp_path / "short")
    assert (short.exit_code, short.reason) == (3, "budget")


REAL = """
budget_usd = "{budget}"
[[agents]]
name = "mini"
provider = "openai"
model = "gpt-4.1-mini"
[[agents]]
policy = "oracle"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-1"]
vary = {{ periods = [4] }}
"""


def test_a_plan_for_a_real_model_names_its_stand_in_and_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = planned(resolved(tmp_path, REAL.format(budget=50)))
    mini, oracle = plan.cells
    assert (mini.stand_in, mini.episodes, mini.played) == ("knuth", 2, 2)
    assert mini.requests >= 2 * 2
    prices = 400_000, 1_600_000
    assert mini.cost == mini.tokens_in * prices[0] + mini.tokens_out * prices[1]
    assert (oracle.requests, oracle.cost) == (0, 0)
    assert plan.to_json()["cells"][0]["stand_in"] == "knuth"
    assert plan.reply_s["openai/gpt-4.1-mini"] == ASSUMED_REPLY_S
    assert mini.dearest > 8192 * prices[1]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("0.0001", "will not do: raise `budget_usd`"),
        ("0.012", "will not do: a request may cost up to"),
        ("50", "is enough"),
    ],
)
def test_a_plan_warns_where_the_budget_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], budget: str, words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mine.toml").write_text(REAL.format(budget=budget))
    assert main(["plan", str(tmp_path / "mine.toml")]) == 0
    printed = capsys.readouterr().out
    assert words in printed
    assert "knuth" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_suite_and_its_variants_are_planned_apart(tmp_path: Path) -> None:
    text = (
        'replicates = 2\n[[agents]]\nprovider = "simulated"\nmodel = "random"\n[[suites]]\nname = "scheduling/basic"\n'
        'instances = ["seed-0", "seed-3"]\n[[suites]]\nname = "scheduling/basic"\n'
        'instances = ["seed-0", "seed-3"]\nvary = { periods = [5] }\n'
    )
    plain, varied = planned(resolved(tmp_path, text)).cells
    assert (plain.episodes, plain.played, plain.chain) == (4, 4, 200)
    assert (varied.episodes, varied.played, varied.chain) == (4, 4, 10)
