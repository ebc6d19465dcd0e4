"""What `plan` says beforehand, and what the provider's bill says afterwards."""

import asyncio
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.engine.forecast import make_priors
from evalkit.engine.freezing.freeze import Resolved, resolve
from evalkit.engine.planning.nights import proposal_of
from evalkit.engine.planning.pilot import NOTHING, Figures, basis_of
from evalkit.engine.planning.plan import ASSUMED_REPLY_S, PriorKnowledge, plan_sweep
from evalkit.engine.planning.planned import Plan
from evalkit.engine.universe import Choice, episodes
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifests import read_manifest
from evalkit.results.episodes import COLUMNS, episode_results
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget


def planned(sweep: Resolved, choice: Choice | None = None, requests: float = math.inf) -> Plan:
    """A plan that plays everything; `requests=0`: the beginning of one episode a cell."""
    return asyncio.run(plan_sweep(sweep, choice or Choice(), requests=requests))


PARTS = {
    "scheduling/basic": ("seed-1", "seed-5", "seed-9"),
    "procurement/basic": ("seed-3",),
    "pricing/basic": ("seed-2",),
    "costbench/basic": ("accommodation-0002", "dining-0004", "location-0000"),
}
"""Of quickstart: a few instances of each environment. Its policies take most of the time."""


def a_part_of_quickstart() -> Resolved:
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
    plan = planned(sweep, requests=0)
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


def known_from(sweep: Resolved, run: Path) -> PriorKnowledge:
    """What the ended episodes of a run say."""
    manifest = read_manifest(run)
    results = episode_results(scan(run, COLUMNS), manifest, ENVIRONMENTS)
    return PriorKnowledge(basis=basis_of("pilot", manifest, results, asyncio.run(make_priors(manifest))))


def test_a_plan_from_a_run_is_what_that_run_took(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=5, replicates=2))
    outcome, simulator = go_served(sweep, tmp_path / "pilot", simulate={"latency": "20ms"})
    plan = asyncio.run(plan_sweep(sweep, Choice(), requests=0, known=known_from(sweep, tmp_path / "pilot")))
    assert plan.cost == pytest.approx(outcome.spent)
    assert sum(cell.requests for cell in plan.cells) == pytest.approx(simulator.totals.billed)
    assert sum(cell.tokens_in for cell in plan.cells) == pytest.approx(simulator.totals.tokens_in)
    assert {cell.basis for cell in plan.cells} == {"8 episodes of pilot"}
    assert all(seconds >= 0.02 for seconds in plan.reply_s.values())
    assert not plan.assumed


def test_cells_that_a_run_lacks_are_scaled_by_how_its_agents_came_out(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=5))
    go_served(sweep, tmp_path / "pilot")
    known = known_from(sweep, tmp_path / "pilot")
    doubled = {place: Figures(1.0, 2.0, 3.0) for place in known.basis.against}
    known = replace(known, basis=replace(known.basis, against=doubled))
    text = REAL.format(budget=50) + '[[agents]]\nname = "knuth-pro"\nprovider = "openai"\nmodel = "gpt-5"\n'
    other = resolved(tmp_path, text, "other")
    plain, scaled = (asyncio.run(plan_sweep(other, Choice(), requests=math.inf, known=one)) for one in (None, known))
    mini, _, _ = scaled.cells
    assert mini.requests == pytest.approx(plain.cells[0].requests)
    assert mini.tokens_in == pytest.approx(2 * plain.cells[0].tokens_in)
    assert mini.tokens_out == pytest.approx(3 * plain.cells[0].tokens_out)
    assert 2 * plain.cells[0].cost < mini.cost < 3 * plain.cells[0].cost
    assert mini.basis == "stand-in x 2: the agents of pilot"
    assert mini.cost_high / mini.cost < plain.cells[0].cost_high / plain.cells[0].cost


def test_a_run_that_has_begun_owes_the_rest_alone(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=2))
    whole = planned(sweep)
    go_served(sweep, tmp_path / "run", limit=3)
    index = read_index(tmp_path / "run")
    known = replace(known_from(sweep, tmp_path / "run"), held=index.episodes, spent=index.totals["cost"])
    rest = asyncio.run(plan_sweep(sweep, Choice(), requests=math.inf, known=known))
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
    index = read_index(tmp_path / "run")
    held = replace(known_from(sweep, tmp_path / "run"), held=index.episodes, spent=index.totals["cost"])
    rest = asyncio.run(plan_sweep(sweep, Choice(), requests=0, known=held))
    assert {(cell.episodes, cell.requests, cell.cost) for cell in rest.cells} == {(0, 0.0, 0.0)}
    assert sum(cell.ended for cell in rest.cells) == len(index.episodes)


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


def test_a_proposal_played_by_its_commands_has_just_those_episodes(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=4, replicates=3))
    plan = planned(sweep)
    amount = round(plan.cost / 2) + plan.dearest
    made = proposal_of(plan, sweep, NOTHING, amount)
    (share,) = made.shares
    assert 3 <= share.episodes < 12
    assert made.cost <= amount - plan.dearest
    for command in made.commands:
        only = Choice(suites=frozenset({command.suite}), agents=frozenset(command.agents))
        go_served(sweep, tmp_path / "run", choice=only, limit=command.limit)
    held = read_index(tmp_path / "run").episodes
    admitted_first = [
        one.id
        for agent in sweep.manifest.agents.values()
        for one in islice(episodes(sweep.manifest, [agent], Choice()), share.episodes)
    ]
    assert set(held) == set(admitted_first)
    assert all(one.ending for one in held.values())
    assert made.to_json()["suites"][0]["more"] == share.episodes
    assert len(made.nights) >= 2


@pytest.mark.exhaustive
def test_scores_that_are_all_the_same_are_not_believed_to_stay_so(tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(periods=60))
    go_served(sweep, tmp_path / "pilot")
    basis = known_from(sweep, tmp_path / "pilot").basis
    (place,) = [one for one in basis.cells if one[0] == "knuth"]
    assert (basis.cells[place].between, basis.cells[place].within) == (0, 0)
    scatter = basis.scatter(sweep.manifest.agents["knuth"], place[1])
    assert scatter == pytest.approx((0.4 * (3 / 7) ** 0.5, 0.3 * (3 / 7) ** 0.5))
