"""Prices: what a reply costs, and the bound of what it may cost."""

from dataclasses import asdict, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Usage
from evalkit.engine.freezing.freeze import price_fields
from evalkit.money import Price, money_words, parse_usd, pico_per_token, usd_number

CENTS = 10**10
FLAT = Price(input=10, output=100, cached_read=1, cached_write=12, request=7)
TIERED = Price(
    input=10,
    output=100,
    cached_read=1,
    cached_write=12,
    over=1000,
    over_input=20,
    over_output=150,
    over_cached_read=2,
    over_cached_write=24,
)


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        (FLAT, Usage(input=100, output=5), 7 + 100 * 10 + 5 * 100),
        (FLAT, Usage(input=100, cached_read=60, cached_write=30, output=5), 7 + 10 * 10 + 60 + 30 * 12 + 5 * 100),
        (TIERED, Usage(input=1000, output=5), 1000 * 10 + 5 * 100),
        (TIERED, Usage(input=1001, output=5), 1001 * 20 + 5 * 150),
        (TIERED, Usage(input=1001, cached_read=1000, output=5), 20 + 1000 * 2 + 5 * 150),
        (TIERED, Usage(input=2000, cached_write=2000), 2000 * 24),
    ],
    ids=["plain", "cached", "at-the-step", "over-it", "cached-tokens-count", "written"],
)
def test_a_reply_costs_its_tokens_at_the_rates_of_its_prompt(price: Price, usage: Usage, cost: int) -> None:
    assert price.of(usage) == cost


RATES = st.integers(0, 1000)


@given(
    st.builds(
        Price,
        input=RATES,
        output=RATES,
        cached_read=RATES,
        cached_write=RATES,
        request=RATES,
        over=st.integers(0, 30),
        over_input=RATES,
        over_output=RATES,
        over_cached_read=RATES,
        over_cached_write=RATES,
    ),
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_no_reply_costs_more_than_the_bound_of_its_tokens(
    price: Price, parts: list[int], output: int, more: int, longer: int
) -> None:
    usage = Usage(input=sum(parts), cached_read=parts[0], cached_write=parts[1], output=output)
    assert price.of(usage) <= price.worst(input_tokens=usage.input + more, output_tokens=output + longer)


@pytest.mark.parametrize("price", [FLAT, TIERED], ids=["flat", "tiered"])
def test_a_frozen_price_reads_back(price: Price) -> None:
    assert Price(**price_fields(price)) == price


def test_a_price_without_steps_is_frozen_as_it_always_was() -> None:
    assert price_fields(FLAT) == {"input": 10, "output": 100, "cached_read": 1, "cached_write": 12, "request": 7}
    whole = {name: value for name, value in asdict(TIERED).items() if not name.endswith("lasting")}
    assert price_fields(TIERED.writing(2)) == price_fields(TIERED) == whole


@pytest.mark.parametrize("used", [0, 5])
def test_what_is_written_to_last_costs_so_many_times_the_price_of_input(used: int) -> None:
    usage = Usage(input=5, cached_write=5, lasting=used)
    assert FLAT.writing(2).of(usage) - FLAT.of(replace(usage, lasting=0)) == 8 * used
    assert FLAT.writing(1) == FLAT  # written as any other is, and that is dearer
    assert FLAT.writing(2).worst(input_tokens=7, output_tokens=0) == 7 + 7 * 20
    unsaid = replace(usage, cached_write=0, lasting=0, unknown=("cached_write",))
    assert FLAT.writing(2).most(unsaid, input_tokens=9, output_tokens=9) == 7 + 5 * 20
    long = replace(usage, input=TIERED.over + 5)
    extra = 2 * TIERED.over_input - TIERED.over_cached_write
    assert TIERED.writing(2).of(long) - TIERED.of(long) == used * max(0, extra)


@pytest.mark.parametrize("text", ["9000000.01", "1e400", "1e999999999", "inf", "nan", "-1", "", "1e-13"])
def test_an_amount_that_no_log_could_hold_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount in USD"):
        parse_usd(text)


@pytest.mark.parametrize("text", ["2000.000001", "1e9999", "sNaN"])
def test_a_price_that_no_log_could_hold_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a price"):
        pico_per_token(text)


def test_the_dearest_reply_there_can_be_fits_the_log() -> None:
    dearest = pico_per_token("2000")
    price = Price(input=dearest, output=dearest, cached_read=dearest, cached_write=dearest)
    assert price.of(Usage(input=2**31 - 1, output=2**31 - 1)) < 2**63
    assert parse_usd("9000000") < 2**63


@given(st.integers(0, 10**15 - 1), st.integers(0, 4))
def test_an_amount_in_json_reads_as_what_it_is(digits: int, zeros: int) -> None:
    amount = digits * 10**zeros
    assert Decimal(repr(usd_number(amount))) * 10**12 == amount
    assert usd_number(amount + 0.4 if amount < 10**12 else amount) == usd_number(amount)


def test_money_is_marked_where_nobody_pays_it() -> None:
    assert money_words(180 * CENTS, None, "") == "$1.80 spent"
    assert money_words(180 * CENTS, 500 * CENTS, "simulated") == "$1.80 of $5.00 spent (simulated money)"
