"""Against a provider of the tests' own that sells tiers, serves what it likes of what it may, and bills what it served:
bill <= books <= budget over every mixture and fault; without faults the books are the bill."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from evalkit.client import retry
from evalkit.client.lanes import health
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.spending.reconcile import read_books
from evalkit.engine.status import read_status
from evalkit.playing.sweeps import run_sweep
from evalkit.report.report import report
from evalkit.spec.sweep import read_sweep
from evalkit.store.reading.reader import scan
from evalkit.store.reading.totals import tier_words
from tests.engine.foreign import BILLED, FREE, LOST, LOST_CACHES, PRICED, PROVIDER, TIERED, WORDS, Foreign
from tests.engine.test_failures import listening
from tests.support.formats import FORMATS

SWEEP = """
replicates = 2
width = 4
{budget}
[[agents]]
name = "a"
provider = "foreign"
model = "m"
max_tokens = 300
tier = {tier}
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [1] }}
"""
USD = 10**12
CHOICES = ('"flex"', '"standard"', '"priority"', '["flex", "standard"]', '["flex", "priority"]')


@pytest.fixture(autouse=True)
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds in place of minutes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retry, "FIRST_S", 0.001)
    monkeypatch.setattr(health, "FIRST_PROBE_S", 0.002)
    monkeypatch.setattr("evalkit.client.client.PATIENCE_S", 0.01)


def played(folder: Path, stub: Foreign, tier: str, *, budget: str = "", cache: str = "") -> RunOutcome:
    async def play() -> RunOutcome:
        async with listening(stub.answer) as (url, _):
            (folder / "providers").mkdir(exist_ok=True)
            tiers = TIERED.format(standard=WORDS[stub.dialect]["standard"])
            text = (
                PROVIDER.format(dialect=stub.dialect, url=url).replace("[usd_per_mtok]", f"{tiers}[usd_per_mtok]")
                + PRICED
            )
            (folder / "providers" / "foreign.toml").write_text(text)
            bound = f'budget_usd = "{budget}"' if budget else ""
            lasting = f'[limits.foreign]\ncache = "{cache}"' if cache else ""
            (folder / "mine.toml").write_text(SWEEP.format(budget=bound, tier=tier) + lasting)
            options = RunOptions(directory=folder / "run")
            return await run_sweep(resolve(read_sweep(folder / "mine.toml")), options, lambda view: None)

    return asyncio.run(play())


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("tier", CHOICES)
@pytest.mark.parametrize("dialect", FORMATS)
def test_without_faults_the_books_are_the_bill_whatever_serves(tmp_path: Path, dialect: str, tier: str) -> None:
    stub = Foreign(dialect, (), 0.0, tiers=True, full=0.3, other=0.3)
    outcome = played(tmp_path, stub, tier)
    assert outcome.exit_code == 0
    assert stub.bill <= outcome.spent <= 1.01 * stub.bill
    assert outcome.spent == read_books(tmp_path / "run").spent
    totals = read_status(tmp_path / "run").tiers
    assert {name: sums.replies for name, sums in totals.items()} == dict(stub.served)
    assert sum(sums.cost + sums.saved for sums in totals.values()) == stub.standard
    assert bool(tier_words(totals)) == (tier != '"standard"')
    money = report(tmp_path / "run").table("money").rows[-1]
    if tier == '"standard"':
        assert "tiers" not in money
    else:
        assert (money["tiers"], money["standard_pico_usd"]) == (dict(stub.served), stub.standard)
    rows = scan(tmp_path / "run", ("tier", "attempts"))
    assert set(rows["tier"].to_pylist()) == set(stub.served)
    refusals = sum(words.split(",").count("no_room") for words in rows["attempts"].to_pylist())
    assert refusals == stub.met["full"] > (0 if "flex" in tier else -1)


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("budget", ["", "0.15"], ids=["no budget", "a budget that runs out"])
@pytest.mark.parametrize(
    "outcomes", [(one,) for one in (*LOST, *BILLED, *FREE) if one != "timeout"], ids=lambda own: own[0]
)
@pytest.mark.parametrize("tier", CHOICES)
def test_over_every_mixture_and_fault_the_books_hold(
    tmp_path: Path, tier: str, outcomes: Sequence[str], budget: str
) -> None:
    dialect = sorted(FORMATS)[(CHOICES.index(tier) + len(outcomes[0])) % len(FORMATS)]
    stub = Foreign(dialect, tuple(outcomes), 0.3, tiers=True, full=0.2, other=0.3, silent=0.3)
    outcome = played(tmp_path, stub, tier, budget=budget)
    assert stub.met[outcomes[0]] > 0
    assert stub.bill <= outcome.spent == read_books(tmp_path / "run").spent
    assert not budget or outcome.spent <= float(budget) * USD


LASTING = {"anthropic_messages": "1h", "openai_chat": "24h", "openai_responses": "24h"}


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("tier", CHOICES)
@pytest.mark.parametrize("dialect", LASTING)
def test_a_cache_that_lasts_longer_costs_what_the_reply_says_is_kept_so(
    tmp_path: Path, dialect: str, tier: str
) -> None:
    stub = Foreign(dialect, (), 0.0, tiers=True, full=0.2, other=0.3)
    outcome = played(tmp_path, stub, tier, cache=LASTING[dialect])
    assert outcome.exit_code == 0
    assert stub.bill <= outcome.spent <= 1.01 * stub.bill
    assert stub.lasting == sum(stub.served.values())


@pytest.mark.exhaustive(but=5)
@pytest.mark.parametrize("budget", ["", "0.25"], ids=["no budget", "a budget that runs out"])
@pytest.mark.parametrize("outcome", [one for one in (*LOST_CACHES, *LOST, *BILLED) if one != "timeout"])
@pytest.mark.parametrize("tier", ['"standard"', '["flex", "standard"]'])
def test_the_books_hold_whatever_is_said_of_caches_that_last(
    tmp_path: Path, tier: str, outcome: str, budget: str
) -> None:
    stub = Foreign("anthropic_messages", (outcome,), 0.4, tiers=True, full=0.2, other=0.3, silent=0.3)
    found = played(tmp_path, stub, tier, budget=budget, cache="1h")
    assert stub.met[outcome] > 0
    assert stub.bill <= found.spent == read_books(tmp_path / "run").spent
    assert not budget or found.spent <= float(budget) * USD


def test_what_is_silent_about_its_tier_counts_as_the_dearest_that_may_have_served_it(tmp_path: Path) -> None:
    stub = Foreign("openai_chat", (), 0.0, tiers=True, silent=1.0)
    outcome = played(tmp_path, stub, '"flex"')
    assert outcome.spent == stub.standard == 2 * stub.bill
    assert set(scan(tmp_path / "run", ("tier",))["tier"].to_pylist()) == {""}


def test_a_tier_whose_price_nobody_knows_is_charged_at_the_dearest_and_ends_the_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = Foreign("openai_chat", (), 0.0, tiers=True)
    monkeypatch.setattr(stub, "_tier_of", lambda body, draw: ("priority", "ultrafast"))
    outcome = played(tmp_path, stub, '"flex"')
    assert outcome.reason == "lane"
    assert "served by 'ultrafast', whose price is not known" in outcome.why
    assert stub.bill <= outcome.spent


def test_the_tier_may_change_between_two_commands(tmp_path: Path) -> None:
    stub = Foreign("openai_chat", (), 0.0, tiers=True)
    played(tmp_path, stub, '"flex"', budget="0.15")
    first = dict(stub.asked)
    outcome = played(tmp_path, stub, '["priority", "standard"]')
    assert first.keys() == {"flex"}
    assert stub.asked.keys() == {"flex", "priority"}
    assert outcome.exit_code == 0
    assert outcome.spent == stub.bill
