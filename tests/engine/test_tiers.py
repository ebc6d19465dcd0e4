"""Tiers in a sweep: where they are chosen, what is refused, what a plan and a status say of them."""

import asyncio
from pathlib import Path

import pytest

from evalkit.cli.play.plan import print_plan
from evalkit.client.lanes.tier_pace import TierPace
from evalkit.engine import sweep
from evalkit.engine.forecast import Forecast, read_priors
from evalkit.engine.freezing.freeze import ResolvedSweep, merge, resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.session import Session
from evalkit.engine.status import read_status
from evalkit.errors import UsageError
from evalkit.money import pico_per_token
from evalkit.playing.planning import planned
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.sweep import read_sweep
from evalkit.store.reading.totals import MIXTURE, TierTotals, outlook_words, outlooks, tier_words
from tests.provider.options import options_from
from tests.provider.serving import serving

PROVIDER = """
dialect = "openai_chat"
url = "http://127.0.0.1:1"
service_tiers = { standard = "default", flex = "flex", priority = "priority" }
PROVIDER
[models."m"]
usd_per_mtok = { input = "1", output = "4", source = "made up, 2026-11-28" }
MODEL
"""
SWEEP = """
TOP
[[agents]]
provider = "p"
model = "m"
AGENT
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
LIMITS
"""
HALF = 'tiers = { flex = "0.5" }'


def resolved(
    folder: Path, *, agent: str = "", top: str = "", limits: str = "", model: str = HALF, own: str = ""
) -> ResolvedSweep:
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "p.toml").write_text(PROVIDER.replace("PROVIDER", own).replace("MODEL", model))
    text = SWEEP.replace("TOP", top).replace("AGENT", agent).replace("LIMITS", limits)
    (folder / "mine.toml").write_text(text)
    return resolve(read_sweep(folder / "mine.toml"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("agent", "limits", "own", "tiers"),
    [
        ("", "", "", ("standard",)),
        ('tier = "flex"', "", "", ("flex",)),
        ('tier = ["flex", "standard"]', '[limits.p]\ntier = "standard"', "", ("flex", "standard")),
        ("", '[limits."p/m"]\ntier = "flex"', 'tier = "standard"', ("flex",)),
        ("", '[limits.p]\ntier = ["flex", "standard"]', "", ("flex", "standard")),
        ("", "", 'tier = "flex"', ("flex",)),
    ],
)
def test_the_tier_is_the_agents_else_its_lanes_else_the_providers(
    tmp_path: Path, agent: str, limits: str, own: str, tiers: tuple[str, ...]
) -> None:
    assert resolved(tmp_path, agent=agent, limits=limits, own=own).endpoints["m"].tiers == tiers


def test_a_tier_alone_leaves_the_limits_as_they_are(tmp_path: Path) -> None:
    found = resolved(tmp_path, limits='[limits."p/m"]\ntier = "flex"\n[limits.p]\nin_flight = 3\ntier = "flex"')
    assert set(found.sweep.limits) == {"p"}


def test_it_is_no_part_of_an_agents_identity_and_its_price_is_frozen(tmp_path: Path) -> None:
    old = resolved(tmp_path, model="").manifest
    first = resolved(tmp_path, agent='tier = "flex"').manifest
    later = resolved(
        tmp_path, agent='tier = ["flex", "priority"]', model='tiers = { flex = "0.4", priority = "2" }'
    ).manifest
    assert old.agents["m"].identity == first.agents["m"].identity == later.agents["m"].identity
    prices = merge(merge(old, first, "run"), later, "run").agents["m"].tier_prices
    assert {tier: price["input"] for tier, price in prices.items()} == {
        "flex": pico_per_token("0.5"),
        "priority": pico_per_token("2"),
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"agent": 'tier = "priority"'}, r"p/m is not sold by the tier `priority`.*it is by standard, flex\. If it is"),
        ({"agent": 'tier = "flex"', "model": ""}, "is not sold by the tier `flex`.*it is by standard"),
        ({"agent": 'tier = "cheap"'}, "agents.1..tier: there is no tier 'cheap', only standard, flex, priority"),
        ({"agent": 'tier = ["flex", "flex"]'}, "name each tier once"),
        ({"agent": "tier = []"}, "name each tier once"),
        ({"limits": '[limits."p/m"]\ntier = "x"'}, r"limits\.p/m\.tier: there is no tier 'x'"),
        ({"own": 'tier = "x"'}, r"p\.toml: tier: there is no tier 'x'"),
        ({"own": 'inference_geo = "us"'}, "inference_geo: `global` or `us`, and of Anthropic's format alone"),
        ({"model": 'tiers = { flex = "half" }'}, r"models\.m\.tiers\.flex: 'half' is not how many times"),
        ({"model": 'tiers = { flex = "-1" }'}, "a number above 0"),
        ({"model": 'tiers = { flex = "nan" }'}, "a number above 0"),
        ({"model": 'tiers = { standard = "1" }'}, "names no such tier beside `standard`"),
        ({"model": 'tiers = { batch = "0.5" }'}, "names no such tier"),
        ({"model": 'tiers = { flex = { input = "x", output = "1" } }'}, "'x' is not a price"),
    ],
)
def test_what_is_wrong_with_tiers_is_said(tmp_path: Path, change: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolved(tmp_path, **change)


def test_a_policy_in_this_process_has_no_tier(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[agents]]\npolicy = "knuth"\ntier = "flex"\n[[suites]]\nname = "scheduling/basic"\n'
    )
    with pytest.raises(UsageError, match="tier: a policy in this process asks no provider"):
        read_sweep(tmp_path / "mine.toml")


@pytest.mark.parametrize("dialect", ["anthropic_vertex", "anthropic_bedrock"])
def test_a_format_without_a_field_names_no_tier(tmp_path: Path, dialect: str) -> None:
    resolved(tmp_path)
    file = tmp_path / "providers" / "p.toml"
    file.write_text(file.read_text().replace("openai_chat", dialect))
    with pytest.raises(UsageError, match=f"requests of the dialect '{dialect}' name no tier"):
        resolve(read_sweep(tmp_path / "mine.toml"))


def test_a_run_under_a_deadline_asks_its_forecast_which_tier_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which tier that is depends on the clock; that everything is billed as it was served does not."""
    asked, share = list[tuple[float, float, int, float]](), TierPace.share

    def noted(own: TierPace, episode: str, now: float) -> float:
        asked.append((*own._remaining(), own._rest(episode)))
        return min(0.5, share(own, episode, now)) if len(asked) > 1 else 0.5

    monkeypatch.setattr(TierPace, "share", noted)

    async def play() -> None:
        options = options_from({"models": ["knuth"], "price": "1:4", "flex_full": 0.1, "downgraded": 0.2})
        async with serving(options) as (url, double):
            resolved(
                tmp_path, agent='name = "m"\nmax_tokens = 900\ntier = ["flex", "standard"]', top='deadline = "10h"'
            )
            for file in (tmp_path / "providers" / "p.toml", tmp_path / "mine.toml"):
                text = file.read_text().replace("http://127.0.0.1:1", url)
                file.write_text(text.replace('model = "m"', 'model = "knuth"').replace('models."m"', 'models."knuth"'))
            sweep = resolve(read_sweep(tmp_path / "mine.toml"))
            outcome = await run_sweep(sweep, RunOptions(directory=tmp_path / "run"), lambda view: None)
            assert outcome.exit_code == 0
            assert outcome.spent == double.totals.bill

    asyncio.run(play())
    requests, longest, width, rest = asked[0]
    assert requests >= longest >= rest >= 1
    assert width >= 1
    tiers = read_status(tmp_path / "run").tiers
    assert set(tiers) <= {"flex", "standard"}
    assert tiers["standard"].saved == 0
    assert tiers["standard"].replies + tiers["flex"].replies == sum(one.replies for one in tiers.values())


@pytest.mark.parametrize(("deadline", "share"), [("10s", "0%"), ("400s", ""), ("10h", "100%")])
def test_a_plan_shows_tiers_and_their_mixture_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], deadline: str, share: str
) -> None:
    found = planned(resolved(tmp_path, agent='tier = ["flex", "standard"]', top=f'deadline = "{deadline}"').sweep)
    flex, standard, mixed = found.tiers
    assert (flex.tier, standard.tier) == ("flex", "standard")
    assert flex.cost == pytest.approx(standard.cost / 2)
    assert mixed.cost == pytest.approx(found.cost)
    assert standard.cost == pytest.approx(found.standard) == pytest.approx(found.to_json()["usd"]["standard"] * 1e12)
    assert [one.expected for one in found.tiers] == [False, False, True]
    assert flex.seconds is not None
    assert standard.seconds is not None
    assert flex.seconds == pytest.approx(10 * standard.seconds)
    assert share in mixed.tier
    assert flex.cost <= mixed.cost <= standard.cost
    if standard.seconds < 400 < flex.seconds and deadline == "400s":
        assert mixed.seconds == pytest.approx(400)
    assert [one["tier"] for one in found.to_json()["tiers"]] == [one.tier for one in found.tiers]
    print_plan(found)
    assert "p/m by tiers: flex $" in " ".join(capsys.readouterr().out.split())


def test_a_plan_of_the_standard_tier_says_nothing_of_tiers(tmp_path: Path) -> None:
    found = planned(resolved(tmp_path).sweep)
    assert found.tiers == ()
    assert "tiers" not in found.to_json()


def test_what_remains_is_said_by_each_tier_and_by_the_mixture() -> None:
    usd = 10**12
    tiers = {"flex": TierTotals(30, usd, usd, 900.0), "standard": TierTotals(10, usd, 0, 50.0), "": TierTotals(5, 0, 0)}
    standard, flex, mixture = sorted(outlooks(tiers, 4 * usd, 950.0), key=lambda one: -one.cost)[:1] + [
        one for one in outlooks(tiers, 4 * usd, 950.0) if one.tier != "standard"
    ]
    assert (standard.tier, flex.tier, mixture.tier) == ("standard", "flex", MIXTURE)
    assert [one.cost for one in (standard, flex, mixture)] == [6 * usd, 3 * usd, 4 * usd]
    assert [one.seconds for one in (standard, flex, mixture)] == pytest.approx([200.0, 1200.0, 950.0])
    assert outlook_words(outlooks(tiers, 4 * usd, None)).startswith(
        "What remains, by tiers: standard $6.00; flex $3.00"
    )
    assert outlooks({"standard": tiers["standard"]}, usd, 1.0) == outlooks(tiers, 0.0, None) == ()
    assert tier_words({"standard": tiers["standard"]}) == ""
    assert tier_words(tiers).endswith("by standard alone they would have cost $3.00.")


@pytest.mark.parametrize(
    ("tier", "model", "times"), [("flex", HALF, 0.5), ("priority", 'tiers = { priority = "2" }', 2.0)]
)
def test_a_plans_cost_is_by_the_tier_that_its_lane_goes_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tier: str, model: str, times: float
) -> None:
    usual = planned(resolved(tmp_path).sweep)
    found = planned(resolved(tmp_path, agent=f'tier = "{tier}"', model=model).sweep)
    assert (found.cost, found.low, found.high) == pytest.approx(
        (times * usual.cost, times * usual.low, times * usual.high)
    )
    assert found.standard == pytest.approx(usual.cost)
    assert found.dearest == max(1, times) * usual.dearest  # the standard tier may serve it too
    print_plan(found)
    assert "; by the standard tier alone $" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("tier", "deadline", "times"),
    [('"flex"', "", 0.5), ('["flex", "standard"]', "", 0.5), ('["flex", "standard"]', 'deadline = "9h"', 1.0)],
)
def test_admission_expects_the_first_tiers_price_and_under_a_deadline_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, deadline: str, times: float
) -> None:
    costs = list[float]()
    by_tiers = sweep._price_by_tiers

    def noted(own: Session, forecast: Forecast) -> None:
        costs.extend(prior.cost for prior in forecast.priors.values())
        by_tiers(own, forecast)
        costs.extend(prior.cost for prior in forecast.priors.values())

    monkeypatch.setattr(sweep, "_price_by_tiers", noted)
    asked = resolved(tmp_path, agent=f"tier = {tier}", top=f'budget_usd = "1e-9"\n{deadline}')
    asyncio.run(run_sweep(asked, RunOptions(directory=tmp_path / "run"), lambda view: None))
    before, after = costs
    assert after == pytest.approx(times * before)
    assert read_priors(tmp_path / "run")[0].cost == pytest.approx(before)  # another command may choose another tier


@pytest.mark.parametrize(
    ("limits", "own", "cache"),
    [
        ("", "", "5m"),
        ("", 'cache = "24h"', "24h"),
        ('[limits."p/m"]\ncache = "24h"', "", "24h"),
        ('[limits.p]\ncache = "24h"', "", "24h"),
        ('[limits."p/m"]\ncache = "5m"\n[limits.p]\ncache = "24h"', "", "5m"),
    ],
)
def test_how_long_a_cache_lasts_is_the_lanes_choice_else_the_providers(
    tmp_path: Path, limits: str, own: str, cache: str
) -> None:
    found = resolved(tmp_path, limits=limits, own=own)
    assert found.endpoints["m"].cache == cache
    assert not found.sweep.limits
    assert found.manifest.agents["m"].identity == resolved(tmp_path).manifest.agents["m"].identity


@pytest.mark.parametrize(
    ("limits", "model", "says"),
    [
        ('[limits.p]\ncache = "1h"', HALF, "no prompt cache of p/m lasts '1h', only 5m, 24h"),
        ('[limits.p]\ncache = "24h"', 'refuses = ["cache"]', "no prompt cache of p/m lasts '24h', only 5m"),
    ],
)
def test_a_cache_that_a_model_does_not_have_is_refused(tmp_path: Path, limits: str, model: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolved(tmp_path, limits=limits, model=model)


CACHED = """
url = "http://127.0.0.1:1"
[models."m"]
usd_per_mtok = { input = "1", output = "5", cached_read = "0.1", cached_write = "WRITE", source = "x, 2026-11-29" }
"""


@pytest.mark.parametrize(
    ("dialect", "write", "limits", "advice"),
    [
        ("openai_chat", "1", "requests_per_minute = 60", ""),
        ("openai_chat", "1", "requests_per_minute = 0.1", 'lasts 5m: with `cache = "24h"`'),
        ("openai_chat", "1", 'requests_per_minute = 0.1\ncache = "24h"', ""),
        ("anthropic_messages", "1.25", "requests_per_minute = 0.1", 'lasts 5m: with `cache = "1h"`'),
        ("anthropic_messages", "1.25", 'requests_per_minute = 60\ncache = "1h"', 'lasts 1h: with `cache = "5m"`'),
        ("anthropic_messages", "1.25", 'requests_per_minute = 0.1\ncache = "1h"', ""),
        ("anthropic_messages", "1.25", 'requests_per_minute = 0.01\ncache = "1h"', 'lasts 1h: with `cache = "5m"`'),
        ("gemini", "1", "requests_per_minute = 0.1", ""),
    ],
)
def test_a_plan_says_where_a_cache_that_lasts_otherwise_pays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dialect: str, write: str, limits: str, advice: str
) -> None:
    resolved(tmp_path)
    text = f'dialect = "{dialect}"{CACHED.replace("WRITE", write)}'
    (tmp_path / "providers" / "p.toml").write_text(text)
    (tmp_path / "mine.toml").write_text(f'{(tmp_path / "mine.toml").read_text()}[limits."p/m"]\n{limits}\n')
    found = planned(read_sweep(tmp_path / "mine.toml"))
    assert len(found.advice) == bool(advice)
    print_plan(found)
    assert advice in " ".join(capsys.readouterr().out.split())
    assert found.to_json().get("advice", []) == list(found.advice)
