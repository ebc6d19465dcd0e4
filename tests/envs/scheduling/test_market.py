import itertools
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.scheduling.instance import DIFFICULTIES, FAMILIES, family_of_seed, native_market, reference_market
from evalkit.envs.scheduling.market import (
    SchedulingMarket,
    blocking_pairs,
    expected_blocking,
    make_market,
    stable_matching,
    task_ids,
    worker_ids,
)

Table = list[list[int]]


def by_definition(worker_prefs: Table, task_prefs: Table, matching: Sequence[int]) -> list[tuple[int, int]]:
    """Every (w, t) where w would rather have t than its task, and t would rather have w than its worker."""
    worker_of = {t: w for w, t in enumerate(matching)}
    pairs = itertools.product(range(len(matching)), repeat=2)
    return [
        (w, t)
        for w, t in pairs
        if worker_prefs[w].index(t) < worker_prefs[w].index(matching[w])
        and task_prefs[t].index(w) < task_prefs[t].index(worker_of[t])
    ]


@st.composite
def markets(draw: st.DrawFn, most: int = 6) -> tuple[Table, Table]:
    n = draw(st.integers(1, most))
    table = st.lists(st.permutations(range(n)), min_size=n, max_size=n)
    return draw(table), draw(table)


@given(markets(), st.data())
def test_blocking_pairs_are_those_of_the_definition_in_its_order(
    prefs: tuple[Table, Table], data: st.DataObject
) -> None:
    market = make_market(*prefs)
    matching = data.draw(st.permutations(range(market.n)))
    expected = by_definition(*prefs, matching)
    assert blocking_pairs(market, matching) == expected


@given(markets())
def test_the_expected_number_is_the_mean_over_all_matchings(prefs: tuple[Table, Table]) -> None:
    market = make_market(*prefs)
    counts = [len(by_definition(*prefs, matching)) for matching in itertools.permutations(range(market.n))]
    assert expected_blocking(market) == Fraction(sum(counts), len(counts))


@given(markets())
def test_deferred_acceptance_gives_each_worker_its_best_stable_task(prefs: tuple[Table, Table]) -> None:
    market = make_market(*prefs)
    matching = stable_matching(market)
    stable = [one for one in itertools.permutations(range(market.n)) if not by_definition(*prefs, one)]
    for w, wishes in enumerate(prefs[0]):
        assert wishes.index(matching[w]) == min(wishes.index(one[w]) for one in stable)


@given(st.integers(1, 9), st.integers(0, 1000))
def test_one_common_order_gives_a_quarter_of_all_pairs(n: int, seed: int) -> None:
    market = native_market(n, seed, FAMILIES["correlated_identical"])
    assert expected_blocking(market) == Fraction(n * (n - 1), 4)


def test_tables_are_ranks_of_16_bits_that_nobody_can_change() -> None:
    market = make_market([[1, 0, 2], [2, 1, 0], [0, 1, 2]], [[2, 0, 1], [0, 1, 2], [1, 2, 0]])
    assert market.worker_rank.tolist() == [[1, 0, 2], [2, 1, 0], [0, 1, 2]]
    assert market.task_rank_t.T.tolist() == [[1, 2, 0], [0, 1, 2], [2, 0, 1]]
    for table in (market.worker_rank, market.task_rank_t):
        assert table.dtype == np.int16
        assert table.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 3


@pytest.mark.parametrize(
    ("worker_prefs", "task_prefs"),
    [([[0, 0], [1, 0]], [[0, 1], [0, 1]]), ([[0, 1]], [[0, 1]]), ([], []), ([[0]], [[0, 1], [1, 0]])],
)
def test_lists_that_are_no_preferences_are_refused(worker_prefs: Table, task_prefs: Table) -> None:
    with pytest.raises(ValueError, match="must"):
        make_market(worker_prefs, task_prefs)


def test_the_digest_tells_markets_apart() -> None:
    one = make_market([[0, 1], [0, 1]], [[0, 1], [1, 0]])
    same = make_market([[0, 1], [0, 1]], [[0, 1], [1, 0]])
    swapped = make_market([[0, 1], [1, 0]], [[0, 1], [0, 1]])
    assert one.digest == same.digest != swapped.digest


def golden_market(case: dict[str, object]) -> SchedulingMarket:
    n, _ = DIFFICULTIES[str(case["difficulty"]).lower()]
    seed = case["seed"]
    assert isinstance(seed, int)
    return reference_market(n, seed, FAMILIES[family_of_seed(seed)])[0]


def test_golden_matchings_have_the_reference_s_blocking_pairs_in_order(shared: Path) -> None:
    rows = (shared / "goldens/econagentbench/scheduling_matchings.jsonl").read_text().splitlines()
    assert len(rows) > 100
    for case in map(json.loads, rows):
        market = golden_market(case)
        matching = [market.tasks.index(case["matching"][worker]) for worker in market.workers]
        named = [[worker_ids(market.n)[w], task_ids(market.n)[t]] for w, t in blocking_pairs(market, matching)]
        assert named == case["blocking_pairs"]
        if case["name"] == "stable_worker_optimal":
            assert stable_matching(market) == matching


def test_golden_denominators_are_equal_as_fractions(shared: Path) -> None:
    rows = (shared / "goldens/econagentbench/scheduling_baselines.jsonl").read_text().splitlines()
    assert len(rows) >= 24
    for case in map(json.loads, rows):
        exact = Fraction(case["exact_numerator"], case["exact_denominator"])
        assert expected_blocking(golden_market(case)) == exact
        assert float(exact) == case["exact_expectation"]
