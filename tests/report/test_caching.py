from dataclasses import asdict
from typing import Any

from evalkit.money import PicoUsd, Price
from evalkit.report.accounts import caching_tables
from evalkit.report.run_data import RunData
from evalkit.report.tables import Table
from evalkit.store.files.schema import steps_table
from tests.support.guessing_runs import a_manifest, a_suite, an_agent
from tests.support.run_directories import a_step

LIST = Price(input=3_000_000, output=15_000_000, cached_read=300_000, cached_write=3_750_000)
LONG = Price(
    **{**asdict(LIST), "over": 1000, "over_input": 6_000_000, "over_cached_read": 600_000},
)


def found(price: Price | None, *tokens: tuple[int, int, int]) -> tuple[Table, ...]:
    """The tables of one agent with the given (input, read, written) of each step, and of one that caches nothing."""
    agents = [
        an_agent("kept", price=None if price is None else {n: v for n, v in asdict(price).items() if v}),
        an_agent("plain"),
    ]
    manifest = a_manifest(agents, [a_suite("game/basic", [1])])
    rows: list[Any] = [
        a_step("e", i, agent="kept", tokens_in=read, tokens_cached_read=cached, tokens_cached_write=written)
        for i, (read, cached, written) in enumerate(tokens)
    ]
    rows.append(a_step("f", 0, agent="plain", tokens_in=50, tokens_cached_read=0, tokens_cached_write=0))
    return caching_tables(RunData(manifest, (), {"steps": steps_table(rows)}))


def test_share_and_saving_are_those_of_the_rows() -> None:
    (table,) = found(LIST, (1000, 0, 900), (1200, 900, 200), (1400, 1100, 200))
    (row,) = table.rows
    assert row["agent"] == "kept"
    assert (row["tokens_in"], row["tokens_cached_read"], row["tokens_cached_write"]) == (3600, 2000, 1300)
    assert row["read_share"] == 100 * 2000 / 3600
    assert row["saved_pico_usd"] == 2000 * 2_700_000 - 1300 * 750_000


def test_writing_alone_saves_nothing_but_costs() -> None:
    (table,) = found(LIST, (1000, 0, 900))
    assert table.rows[0]["saved_pico_usd"] == -900 * 750_000


def test_long_prompts_save_at_their_own_rates() -> None:
    (table,) = found(LONG, (1000, 800, 0), (1001, 800, 0))
    assert table.rows[0]["saved_pico_usd"] == 800 * 2_700_000 + 800 * 5_400_000


def test_without_a_price_tokens_are_counted_and_nothing_is_said_of_money() -> None:
    (table,) = found(None, (1000, 800, 0))
    assert table.rows[0]["saved_pico_usd"] is None
    assert table.rows[0]["read_share"] == 80.0


def test_where_nothing_was_cached_there_is_no_table() -> None:
    assert found(LIST, (1000, 0, 0)) == ()


def test_the_saving_is_the_difference_of_the_bills() -> None:
    from evalkit.dialogue import Usage

    tokens = ((1000, 0, 900), (1300, 700, 500))
    (table,) = found(LONG, *tokens)
    bill = sum(LONG.of(Usage(input=i, output=7, cached_read=r, cached_write=w)) for i, r, w in tokens)
    uncached = sum(LONG.of(Usage(input=i, output=7)) for i, _, _ in tokens)
    assert table.rows[0]["saved_pico_usd"] == PicoUsd(uncached - bill)
