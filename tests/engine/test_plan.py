"""What `plan` says beforehand, and what the provider's bill says afterwards."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.planning.plan import ASSUMED_REPLY_S, CPU_S, PROCESSOR, PriorKnowledge, plan_sweep
from evalkit.engine.planning.planned import Plan
from evalkit.engine.universe import Choice
from evalkit.playing.planning import _known
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.store.reading.index import read_index
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget


def planned(sweep: ResolvedSweep, steps: float = 1e6, known: PriorKnowledge | None = None) -> Plan:
    """A plan that plays four episodes a cell; `steps=0`: the beginning of one."""
    return asyncio.run(plan_sweep(sweep, Choice(), steps=steps, known=known))


PARTS = {
    "scheduling/basic": ("seed-1", "seed-5", "seed-9"),
    "procurement/basic": ("seed-3",),
    "pricing/basic": ("seed-2",),
    "costbench/basic": ("accommodation-0002", "dining-0004", "location-0000"),
}
"""Of quickstart: a few instances of each environment. Its policies take most of the time."""


def a_part_of_quickstart() -> ResolvedSweep:
    """PARTS of it once, and all of its agents."""
    whole = read_sweep(find_sweep("quickstart"))
    suites = [replace(suite, instances=PARTS[suite.name]) for suite in whole.suites if suite.name in PARTS]
    return resolve(replace(whole, replicates=1, suites=tuple(suites)))


@pytest.mark.exhaustive
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
    paid = [cell for cell in plan.cells if cell.cost]
    assert all(cell.played == cell.episodes and cell.cost_low == cell.cost_high for cell in paid)
    assert {cell.played for cell in plan.cells if not cell.cost} == {0}  # they ask nobody: there is nothing to predict
    assert plan.cost == totals.bill > 0


def test_a_plan_that_has_played_a_part_stays_near_the_bill(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=6, periods=6))
    plan = planned(sweep, steps=0)
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
        ("0.0001", "will not do: it pays for about 0%, 0 episodes"),
        ("0.012", "will not start without room for doubt"),
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


def test_a_run_that_has_begun_owes_the_rest_alone(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=2))
    whole = planned(sweep)
    go_served(sweep, tmp_path / "run", limit=3)
    rest = planned(sweep, known=_known(sweep, tmp_path / "run"))
    assert sum(cell.ended for cell in rest.cells) == 6
    assert sum(cell.episodes for cell in rest.cells) == 10
    assert rest.spent + rest.cost == pytest.approx(whole.cost, rel=0.2)
    again, _ = go_served(sweep, tmp_path / "run")
    assert again.spent == pytest.approx(rest.spent + rest.cost, rel=0.2)
    assert all(cell.cost_low < cell.cost < cell.cost_high for cell in rest.cells)


@pytest.mark.exhaustive
def test_what_a_run_has_of_a_variant_is_not_counted_for_the_suite_itself(tmp_path: Path) -> None:
    text = served(periods=3) + '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
    sweep = resolved(tmp_path, text)
    go_served(sweep, tmp_path / "run")
    rest = planned(sweep, known=_known(sweep, tmp_path / "run"))
    assert {(cell.episodes, cell.requests, cell.cost) for cell in rest.cells} == {(0, 0.0, 0.0)}
    assert sum(cell.ended for cell in rest.cells) == len(read_index(tmp_path / "run").episodes)


def test_a_prompt_that_outgrows_the_model_is_told_with_its_place(tmp_path: Path) -> None:
    text = REAL.format(budget=50).replace("periods = [4]", "periods = [30]")
    sweep = resolved(tmp_path, text)
    endpoint = sweep.endpoints["mini"]
    narrow = replace(endpoint, model=replace(endpoint.model, context_tokens=8192 + 1200))
    mini = planned(replace(sweep, endpoints={"mini": narrow})).cells[0]
    assert mini.too_long is not None
    assert 0 < mini.too_long.period < 30
    assert mini.too_long.tokens > 8192 + 1200
    assert mini.longest_prompt + 8192 >= mini.too_long.tokens
    assert planned(sweep).cells[0].too_long is None


def test_limits_that_lanes_share_are_a_line_of_their_own(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=3, more="limits = { simulated = { requests_per_minute = 6 } }"))
    plan = planned(sweep)
    *lanes, shared = plan.lanes
    assert [len(lane.members) for lane in plan.lanes] == [0, 0, 2]
    assert shared.requests == sum(lane.requests for lane in lanes)
    assert (shared.bound, shared.seconds) == ("requests/min", pytest.approx(10 * shared.requests))
    assert plan.seconds == shared.seconds


def test_a_small_budget_narrows_what_is_in_flight(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=3))
    wide = planned(sweep)
    narrow = planned(with_budget(sweep, 2 * wide.dearest + 1))
    assert (wide.in_flight, narrow.in_flight) == (None, 2)
    assert all("in flight" in lane.bound for lane in narrow.lanes)
    assert narrow.lanes[0].seconds > wide.lanes[0].seconds


def test_a_budget_that_is_short_pays_for_a_part_of_every_cell(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=3))
    whole = planned(sweep)
    half = planned(with_budget(sweep, round(whole.cost / 2) + whole.dearest))
    assert (whole.pays_for, half.pays_for) == (1.0, pytest.approx(0.5))
    assert half.to_json()["budget_pays_for"] == half.pays_for
    outcome, _ = go_served(with_budget(sweep, round(whole.cost / 2) + whole.dearest), tmp_path / "run")
    assert outcome.ended == pytest.approx(outcome.episodes / 2, abs=3)


def test_where_processors_take_longer_than_lanes_the_plan_says_so(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=300, width=10**4))
    quick = PriorKnowledge(reply_s={agent.lane: 0.0 for agent in sweep.manifest.agents.values()})
    *_, machine = planned(sweep, known=quick).lanes
    assert (machine.bound, len(machine.members)) == (PROCESSOR, 2)
    assert machine.seconds > CPU_S * machine.requests
    assert planned(sweep, known=quick).seconds == machine.seconds
