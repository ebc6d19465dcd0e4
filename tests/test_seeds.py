"""Draws by place: the same in every process, and spread as they should be."""

import math
from collections import Counter

import pytest

from evalkit.seeds import Permutation, Stream, fractions


def test_fractions_are_those_of_the_place_and_frozen() -> None:
    assert fractions(1, "cost", "A") == fractions(1, "cost", "A") == (0.8883171287648931, 0.07854029250028371)
    assert fractions(1, "cost", "B") != fractions(1, "cost", "A") != fractions(2, "cost", "A")


def test_fractions_fill_the_unit_square_evenly() -> None:
    drawn = [fractions(0, "place", i) for i in range(20_000)]
    assert all(0 <= one < 1 and 0 <= other < 1 for one, other in drawn)
    # Of 16 cells, 1250 each; a count's deviation is 34.
    counts = [0] * 16
    for one, other in drawn:
        counts[4 * int(4 * one) + int(4 * other)] += 1
    assert all(abs(count - 1250) < 5 * 34 for count in counts)


def listed(n: int, seed: int, *place: str | int) -> list[int]:
    order = Permutation(n, seed, *place)
    return [order.at(i) for i in range(n)]


def test_a_permutation_is_one_of_every_size() -> None:
    for n in (*range(1, 130), 255, 256, 257, 1023, 1024, 1025, 20_011):
        for seed in (0, 1):
            assert sorted(listed(n, seed, "order")) == list(range(n)), n
    with pytest.raises(ValueError, match="at least one element"):
        Permutation(0, 1)


def test_a_permutation_is_that_of_its_place_and_frozen() -> None:
    assert listed(12, 1, "linear") == listed(12, 1, "linear") == FROZEN
    different = {tuple(listed(12, *place)) for place in ((1, "linear"), (2, "linear"), (1, "periodic"))}
    assert len(different) == 3
    assert listed(13, 1, "linear")[:12] != FROZEN


FROZEN = [0, 7, 10, 3, 6, 2, 4, 8, 11, 9, 1, 5]


def test_a_place_is_found_without_the_others() -> None:
    n = 10**15
    order = Permutation(n, 7, "order")
    found = {order.at(i) for i in (*range(1000), *range(n - 1000, n))}
    assert len(found) == 2000
    assert min(found) < n / 100
    assert max(found) > n - n / 100
    assert not hasattr(order, "__dict__")  # what it holds is the same for any n
    assert len(order._rounds) <= len(Permutation(5, 7)._rounds)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_all_orders_of_few_values_come_equally_often(n: int) -> None:
    orders, each = math.factorial(n), 20 if n > 5 else 60
    counts = Counter(tuple(listed(n, seed, "few")) for seed in range(orders * each))
    assert len(counts) == orders
    # Chi squared has mean `degrees` and variance 2 `degrees`; five deviations above it.
    chi2, degrees = sum((count - each) ** 2 / each for count in counts.values()), orders - 1
    assert chi2 < degrees + 5 * math.sqrt(2 * degrees) + 5


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("n", [12, 37, 300])
def test_each_value_and_each_pair_of_values_comes_equally_often_at_each_place(n: int) -> None:
    keys = 6000
    singles, pairs = [[0] * n for _ in range(4)], [0] * 144
    for seed in range(keys):
        order = Permutation(n, seed, "many")
        first = [order.at(i) for i in (0, 1, n // 2, n - 1)]
        for at, value in enumerate(first):
            singles[at][value] += 1
        # Which twelfths of the range two neighbours come from.
        pairs[12 * (12 * first[0] // n) + 12 * first[1] // n] += 1
    for counts in singles:
        chi2 = sum((count - keys / n) ** 2 / (keys / n) for count in counts)
        assert chi2 < n - 1 + 5 * math.sqrt(2 * (n - 1))
    size = Counter(12 * value // n for value in range(n))
    expected = [size[a] * (size[b] - (a == b)) * keys / (n * (n - 1)) for a in range(12) for b in range(12)]
    chi2 = sum((count - mean) ** 2 / mean for count, mean in zip(pairs, expected, strict=True) if mean)
    assert not any(count for count, mean in zip(pairs, expected, strict=True) if not mean)
    assert chi2 < 143 + 5 * math.sqrt(286)


def test_a_stream_draws_the_same_whenever_its_first_draw_is() -> None:
    early, late = Stream(3, "place", 1), Stream(3, "place", 1)
    first = early.word()
    assert Stream(3, "place", 2).word() != first
    assert [first, early.word()] == late.words(2).tolist()
    assert [early.word(), early.word()] == late.words(2).tolist()
