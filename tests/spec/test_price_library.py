"""Prices from genai-prices: bounds of what its tables may come to, whole pico-dollars, and names that are exact."""

import datetime
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices import calc_price
from genai_prices import data as bundled
from genai_prices.types import (
    ClauseEquals,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)
from genai_prices.types import Provider as TheirProvider

from evalkit.dialogue import Usage
from evalkit.errors import UsageError
from evalkit.money import PICO_PER_USD, Price
from evalkit.spec import price_library
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.spec.price_library import published, published_names
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES

PROJECT = Path(__file__).resolve().parents[2]
DAY = datetime.date(2026, 11, 1)
Shop = Callable[..., None]


def rates(**usd: str | TieredPrices) -> ModelPrice:
    return ModelPrice(**{key: Decimal(value) if isinstance(value, str) else value for key, value in usd.items()})


def steps(base: str, *tiers: tuple[int, str]) -> TieredPrices:
    return TieredPrices(base=Decimal(base), tiers=[Tier(start=start, price=Decimal(price)) for start, price in tiers])


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Makes a library whose only provider, `acme`, sells what it is given as `big`."""

    def stock(prices: ModelPrice | list[ConditionalPrice], match: object = None) -> None:
        clause = match or ClauseEquals(equals="big")
        big = ModelInfo(id="big", match=clause, prices=prices, context_window=9000)  # type: ignore[arg-type]
        monkeypatch.setattr(bundled, "providers", [TheirProvider(id="acme", name="", api_pattern="", models=[big])])
        price_library._names.cache_clear()

    yield stock
    price_library._names.cache_clear()


def price_of(model: str = "big") -> Price:
    found = published("acme", model, on=DAY)
    assert found is not None
    return found.price


def test_a_plain_price_is_whole_pico_dollars_a_token(shop: Shop) -> None:
    shop(rates(input_mtok="0.25", output_mtok="2", cache_read_mtok="0.025"))
    assert price_of() == Price(input=250_000, output=2_000_000, cached_read=25_000, cached_write=250_000)


def test_what_is_finer_than_a_pico_dollar_is_rounded_up(shop: Shop) -> None:
    shop(rates(input_mtok="0.08333333333333334", output_mtok="1"))
    assert price_of().input == 83_334


def test_reasoning_and_requests_that_cost_extra_are_counted(shop: Shop) -> None:
    shop(rates(input_mtok="1", output_mtok="8", output_reasoning_mtok="9", requests_kcount="5"))
    assert (price_of().output, price_of().request) == (9_000_000, PICO_PER_USD * 5 // 1000)


def test_a_step_in_the_length_of_the_prompt_is_kept(shop: Shop) -> None:
    shop(rates(input_mtok=steps("1", (200, "2")), output_mtok=steps("10", (200, "15"))))
    price = price_of()
    assert (price.input, price.output, price.over) == (10**6, 10**7, 200)
    assert (price.over_input, price.over_output, price.over_cached_read) == (2 * 10**6, 15 * 10**6, 2 * 10**6)


def test_of_several_steps_the_dearest_holds_from_the_first(shop: Shop) -> None:
    shop(rates(input_mtok=steps("1", (30, "3"), (200, "2")), output_mtok=steps("1", (100, "4"))))
    price = price_of()
    assert (price.over, price.over_input, price.over_output) == (30, 3 * 10**6, 4 * 10**6)


def test_of_prices_that_take_turns_the_highest_counts(shop: Shop) -> None:
    night = TimeOfDateConstraint(datetime.time(16), datetime.time(1))
    low, high = rates(input_mtok="1", output_mtok="9"), rates(input_mtok="2", output_mtok="3")
    shop([ConditionalPrice(prices=low), ConditionalPrice(night, prices=high)])
    assert (price_of().input, price_of().output) == (2 * 10**6, 9 * 10**6)


@pytest.mark.parametrize(
    ("starts", "paid"),
    [((-3, -1), 3), ((-1, 5), 3), ((2, 5), 3), ((-5,), 2), ((5,), 2)],
    ids=["both-begun", "one-ahead", "both-ahead", "begun", "ahead"],
)
def test_a_price_that_has_ended_is_forgotten_and_one_ahead_is_not(
    shop: Shop, starts: tuple[int, ...], paid: int
) -> None:
    """Prices in order of their beginnings: 1 USD, then 2, then 3."""
    begins = [StartDateConstraint(DAY + datetime.timedelta(days)) for days in starts]
    later = [
        ConditionalPrice(when, prices=rates(input_mtok=str(i + 2), output_mtok="1")) for i, when in enumerate(begins)
    ]
    shop([ConditionalPrice(prices=rates(input_mtok="1", output_mtok="1")), *later])
    assert price_of().input == paid * 10**6


def test_a_price_that_went_down_is_the_low_one(shop: Shop) -> None:
    begun = StartDateConstraint(DAY)
    high, low = rates(input_mtok="9", output_mtok="9"), rates(input_mtok="1", output_mtok="1")
    shop([ConditionalPrice(prices=high), ConditionalPrice(begun, prices=low)])
    assert price_of().input == 10**6


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("big", True),
        ("BIG", True),
        ("big-latest", True),
        ("big-2026-10-01", True),
        ("big-20261001", True),
        ("big-2610", True),
        ("bigg", False),
        ("big-mini", False),
        ("bi", False),
    ],
)
def test_only_exact_names_and_dated_ones_are_known(shop: Shop, name: str, known: bool) -> None:
    shop(rates(input_mtok="1", output_mtok="1"), ClauseStartsWith(starts_with="big"))
    assert (published("acme", name, on=DAY) is not None) is known


@pytest.mark.parametrize(
    "prices", [rates(input_mtok="1"), rates(audio_hours="3"), rates()], ids=["embeds", "hears", "free"]
)
def test_what_has_no_price_for_replies_has_none(shop: Shop, prices: ModelPrice) -> None:
    shop(prices)
    assert published("acme", "big") is None
    assert published_names("acme") == []


def test_where_the_price_comes_from_is_said(shop: Shop) -> None:
    shop(rates(input_mtok="1", output_mtok="1"))
    found = published("acme", "big", on=DAY)
    assert found is not None
    assert found.source.startswith("genai-prices ")
    assert found.source.endswith(", as of 2026-11-01")
    assert found.context_tokens == 9000


def test_an_unknown_provider_sells_nothing() -> None:
    assert published("acme", "big") is None


@pytest.mark.parametrize("tokens", [(5, 0, 0, 7), (1000, 400, 0, 50), (300_000, 1000, 200_000, 900)])
@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-5-mini"), ("anthropic", "claude-haiku-4-5"), ("openai", "gpt-5.4")]
)
def test_a_reply_costs_what_the_library_itself_says(
    provider: str, model: str, tokens: tuple[int, int, int, int]
) -> None:
    given, read, written, output = tokens
    found = published(provider, model)
    assert found is not None
    theirs = calc_price(
        TheirUsage(input_tokens=given, cache_read_tokens=read, cache_write_tokens=written, output_tokens=output),
        model_ref=model,
        provider_id=provider,
    )
    ours = found.price.of(Usage(input=given, cached_read=read, cached_write=written, output=output))
    assert ours == theirs.total_price * PICO_PER_USD


# What the catalogue makes of it.

FILE = """
dialect = "openai_chat"
url = "https://example.invalid/v1"
price_as = "acme"
[models.small]
usd_per_mtok = { input = "3", output = "4", source = "a page, 2026-01-01" }
[models.big]
refuses = ["temperature"]
[models.mine]
price_as = "big"
context_tokens = 5
[models."bi*"]
refuses = ["max_tokens"]
[models."big*"]
refuses = ["top_p"]
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    shop(rates(input_mtok="1", output_mtok="2"), ClauseStartsWith(starts_with="big"))


@pytest.mark.parametrize(
    ("name", "usd", "context", "refuses"),
    [
        ("small", 3, None, ()),
        ("big", 1, 9000, ("temperature",)),
        ("big-latest", 1, 9000, ("top_p",)),
        ("mine", 1, 5, ("top_p",)),
    ],
)
def test_a_model_has_the_files_price_or_the_librarys(
    acme: None, name: str, usd: int, context: int | None, refuses: tuple[str, ...]
) -> None:
    model = find_model(read_provider("acme"), name)
    assert (model.name, model.context_tokens, model.quirks.refuses) == (name, context, frozenset(refuses))
    assert model.price is not None
    assert model.price.input == usd * 10**6
    assert model.price_source.startswith("a page" if name == "small" else "genai-prices ")


def test_names_that_begin_alike_share_what_they_do_not_say_themselves(acme: None) -> None:
    provider = read_provider("acme")
    fields = {name: find_model(provider, name).quirks.max_tokens_field for name in ("small", "big", "big-latest")}
    assert fields == dict.fromkeys(("small", "big", "big-latest"), "max_tokens")
    assert "bi*" not in provider.models


@pytest.mark.parametrize(("name", "nearest"), [("bigg", "big"), ("smal", "small"), ("mien", "mine")])
def test_a_name_that_nobody_knows_gets_the_nearest_of_both(acme: None, name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"lists no model '{name}'. Did you mean '{nearest}'"):
        find_model(read_provider("acme"), name)


def test_a_price_as_that_nobody_knows_is_refused(acme: None) -> None:
    path = Path("providers/acme.toml")
    path.write_text(FILE.replace('price_as = "big"', 'price_as = "bigg"'))
    with pytest.raises(UsageError, match=r"models\.mine\.price_as: the price of 'bigg' is unknown.*'big'"):
        find_model(read_provider("acme"), "mine")


def test_the_library_is_not_loaded_for_a_model_with_a_price_of_its_own() -> None:
    script = """
import sys
from evalkit.spec.catalogue import find_model, read_provider
assert find_model(read_provider("openai"), "gpt-5").price is not None
print("genai_prices" in sys.modules)
find_model(read_provider("openai"), "gpt-5.4")
print("genai_prices" in sys.modules, "httpx" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.split() == ["False", "True", "False"]


def test_claudes_caches_of_an_hour_are_written_at_the_times_that_requests_reserve() -> None:
    def base(rate: Any) -> Decimal:
        return getattr(rate, "base", rate)

    found = 0
    for entry in bundled.providers:
        for info in entry.models if entry.id in ("anthropic", "aws", "google") else ():
            listed = [
                getattr(one, "prices", one) for one in (info.prices if isinstance(info.prices, list) else [info.prices])
            ]
            for price in cast(list[Any], listed):
                hour = getattr(price, "cache_write_1h_mtok", None)
                if hour is not None:
                    assert base(hour) == ANTHROPIC_MESSAGES.caches["1h"].write_times * base(price.input_mtok), info.id
                    found += 1
    assert found > 20
