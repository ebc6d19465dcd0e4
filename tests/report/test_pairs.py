import itertools

import numpy as np
import pytest
from scipy import stats

from evalkit.seeds import Stream
from evalkit.stats.contrasts import NO_DIFFERENCE
from evalkit.stats.intervals import estimate
from evalkit.stats.pairs import LEAST_DRAWS, Pairs, _dealt, change, holm, least_p, pair, relabelled, sign_flips

PLACE = ("suite", "a", "b")


def named(values: np.ndarray) -> dict[str, list[float]]:
    return {f"i{i:03}": [float(one)] for i, one in enumerate(values)}


def test_a_pair_is_an_instance_and_the_others_are_counted() -> None:
    pairs = pair({"a": [1.0, 0.0], "b": [0.2], "x": [1.0]}, {"b": [0.6], "a": [1.0], "y": [0.0], "z": [0.0]})
    assert (pairs.names, pairs.only_first, pairs.only_second) == (("a", "b"), 1, 2)
    assert pairs.differences == {"a": 0.5, "b": pytest.approx(0.4)}
    found = change(pairs, place=PLACE)
    assert (found.first, found.second) == (pytest.approx(0.35), pytest.approx(0.8))
    assert found.difference.mean == pytest.approx(0.45)


@pytest.mark.parametrize("n", [30, 381])
@pytest.mark.parametrize("shift", [0.0, 0.02, 0.2])
def test_drawn_signs_come_near_the_normal_limit_and_repeat(n: int, shift: float) -> None:
    values = np.random.Generator(np.random.Philox(n)).normal(shift, 0.2, n)
    found, exact = sign_flips(values.tolist(), place=PLACE)
    assert not exact
    assert found.p is not None
    limit = 2 * stats.norm.sf(abs(values.sum()) / np.sqrt((values**2).sum()))
    assert found.p == pytest.approx(limit, abs=0.02)
    assert found.p >= 1 / (LEAST_DRAWS + 1)
    assert sign_flips(values.tolist(), place=PLACE)[0] == found
    finer, _ = sign_flips(values.tolist(), place=PLACE, tests=1000)
    assert finer.p is not None
    assert finer.p >= 1 / 100_000
    assert finer.p == pytest.approx(limit, abs=0.01)


def test_few_pairs_try_all_signs() -> None:
    found, exact = sign_flips([0.1, 0.2, 0.3, 0.4], place=PLACE)
    assert (found.p, exact) == (2 / 16, True)
    found, exact = sign_flips([0.0] * 30, place=PLACE)
    assert (found.p, found.why, exact) == (None, NO_DIFFERENCE, False)


def several(values: np.ndarray) -> dict[str, list[float]]:
    return {f"i{i:03}": [float(one) for one in row] for i, row in enumerate(values)}


def like_agents(draws: np.random.Generator, p: float, n: int, first: int, second: int) -> Pairs:
    """One agent on both sides, with unequal replicates."""
    return pair(*(several((draws.random((n, r)) < p) * 1.0) for r in (first, second)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("p", "n", "replicates"), [(0.9, 12, (10, 1)), (0.95, 36, (1, 5)), (0.5, 6, (4, 2))])
def test_more_replicates_on_one_side_make_no_difference(p: float, n: int, replicates: tuple[int, int]) -> None:
    draws = np.random.Generator(np.random.Philox(21))
    wrong = held = 0
    for _ in range(studies := 300):
        found = change(like_agents(draws, p, n, *replicates), place=PLACE, width=1.0)
        wrong += found.test.p is not None and found.test.p <= 0.05
        assert found.difference.interval is not None
        held += found.difference.interval.low <= 0 <= found.difference.interval.high
    # Three standard errors of 300 studies are 3.8 points.
    assert wrong / studies <= 0.05 + 0.038
    assert held / studies >= 0.95 - 0.038


def test_dealing_replicates_anew_is_the_definition() -> None:
    first, second = [[0.0, 1.0], [0.3, 0.4]], [[1.0], [0.9]]
    pairs = pair(several(np.array(first)), several(np.array(second)))
    seen = abs(sum(pairs.differences.values()))
    every = [
        abs(
            sum(
                whole[k] - (sum(whole) - whole[k]) / 2
                for whole, k in zip([a + b for a, b in zip(first, second, strict=True)], chosen, strict=True)
            )
        )
        for chosen in itertools.product(range(3), repeat=2)
    ]
    want = sum(one >= seen - 1e-9 for one in every) / len(every)
    found = relabelled(pairs, place=PLACE)
    assert found.p == pytest.approx(want, abs=0.02)
    assert relabelled(pairs, place=PLACE) == found
    assert least_p(pairs) == pytest.approx(1 / 9)
    rare = pair({name: [1.0] * 3 for name in "abc"}, {name: [0.0] for name in "abc"})
    drawn = [relabelled(rare, place=("rare", str(number))).p or 0.0 for number in range(6)]
    assert min(drawn) == least_p(rare) == 1 / 64
    same = pair(several(np.full((4, 2), 0.5)), several(np.full((4, 1), 0.5)))
    assert relabelled(same, place=PLACE).why == NO_DIFFERENCE


@pytest.mark.parametrize("counts", [(1, 1), (3, 1), (2, 5), (4, 4), (5, 4), (10, 8)])
def test_replicates_are_dealt_in_the_order_of_their_draws(counts: tuple[int, int]) -> None:
    first, second = counts
    pool = np.random.Generator(np.random.Philox(23)).random((7, first + second))
    order = Stream(0, "dealt").uniforms(50 * pool.size).reshape(50, *pool.shape).argsort(axis=2)
    dealt = np.take_along_axis(pool[None], order, axis=2)
    wanted = (dealt[:, :, :second].mean(axis=2) - dealt[:, :, second:].mean(axis=2)).sum(axis=1)
    np.testing.assert_allclose(_dealt(pool, counts, Stream(0, "dealt"), 50), wanted, atol=1e-12)


@pytest.mark.exhaustive
def test_more_replicates_on_one_side_still_show_a_difference() -> None:
    draws = np.random.Generator(np.random.Philox(22))
    found = 0
    for _ in range(40):
        pairs = pair(*(several((draws.random((30, r)) < p) * 1.0) for r, p in ((8, 0.9), (2, 0.5))))
        p = change(pairs, place=PLACE, width=1.0).test.p
        found += p is not None and p <= 0.05
    assert found >= 38


def test_who_wins_more_often_is_tested_by_signs_of_as_many_replicates() -> None:
    first, second = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 0]), np.array([0, 1, 1, 1, 1, 1, 1, 1, 1, 0])
    found = change(pair(named(first), named(second)), place=PLACE, width=1.0)
    assert (found.losses, found.wins) == (1, 6)
    assert found.signs.p == pytest.approx(stats.binomtest(1, 7).pvalue)
    # The mean of more replicates loses a little on most instances, and is no worse for that.
    more = {name: [*values, 1.0 - values[0]] for name, values in named(second).items()}
    assert change(pair(named(second), more), place=PLACE, width=1.0).losses == 0


def test_a_mean_is_shown_to_differ_by_its_interval_alone() -> None:
    """Gains of a point on all of twelve instances: signs are sure, and the mean may hang on a loss not met yet."""
    gains = np.random.Generator(np.random.Philox(3)).normal(0.01, 0.001, 12)
    small = change(pair(named(np.full(12, 0.8)), named(0.8 + gains)), place=PLACE, width=1.0)
    assert (small.test.p, small.signs.p, small.wins, small.shown) == (2 / 4096, 2 / 4096, 12, False)
    great = change(pair(named(np.full(12, 0.2)), named(0.8 + 9 * gains)), place=PLACE, width=1.0)
    assert (great.test.p, great.shown) == (2 / 4096, True)


def test_failures_that_neither_side_met_are_not_excluded_by_pairs_that_agree() -> None:
    """Nearly optimal agents, of which the second one fails more often: neither has failed yet."""
    draws = np.random.Generator(np.random.Philox(5))
    first, second = (named(draws.uniform(0.95, 1, 12)) for _ in range(2))
    made = change(pair(first, second), place=PLACE, width=1.0)
    found, seen = made.difference, made.seen
    sides = [estimate(side, least=0.0, most=1.0) for side in (first, second)]
    assert found.interval is not None
    assert seen is not None
    for side, end in zip(
        reversed(sides), (seen.low - found.interval.low, found.interval.high - seen.high), strict=True
    ):
        assert side.cautious is not None
        assert side.interval is not None
        # Upwards neither side can go on.
        assert end == pytest.approx(side.interval.low - side.cautious.low)
        assert end > 0.1
    # Sides that vary far from the optimum go on nowhere, and nor does the difference.
    first, second = (named(draws.normal(0.5, 0.1, 12)) for _ in range(2))
    plain = change(pair(first, second), place=PLACE, width=1.0)
    assert plain.difference.interval == plain.seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [4, 12, 36])
def test_rare_failures_of_one_side_are_covered(n: int) -> None:
    draws = np.random.Generator(np.random.Philox(6))
    held = 0
    for _ in range(studies := 400):
        sides = [np.where(draws.random(n) < part, 0.0, draws.uniform(0.95, 1, n)) for part in (0.02, 0.06)]
        found = change(pair(*map(named, sides)), place=PLACE, width=1.0).difference.interval
        assert found is not None
        held += found.low <= -0.04 * 0.975 <= found.high
    # Three standard errors of 400 studies are 3.3 points.
    assert held / studies >= 0.95 - 0.033


def test_holms_values_are_those_by_hand() -> None:
    assert holm([0.04, 0.01, None, 0.03, 0.005]) == [
        pytest.approx(0.06),
        pytest.approx(0.03),
        None,
        pytest.approx(0.06),
        pytest.approx(0.02),
    ]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def studies(draws: np.random.Generator, effect: float, n: int, families: int, tests: int) -> list[list[float | None]]:
    """Families of `tests` comparisons on `n` instances; the first of each has the effect."""
    found = []
    for _ in range(families):
        easy = draws.beta(4, 2, (tests, n))
        values = np.clip(draws.normal(0, 0.12, (2, tests, n)) + easy, 0, 1)
        values[1, 0] += effect
        ps = [sign_flips((values[1, i] - values[0, i]).tolist(), place=PLACE)[0].p for i in range(tests)]
        found.append(holm(ps))
    return found


def test_a_planted_difference_is_found() -> None:
    draws = np.random.Generator(np.random.Philox(11))
    found = [family[0] for family in studies(draws, 0.15, 36, 60, 6)]
    assert np.mean([p is not None and p <= 0.05 for p in found]) > 0.9


def test_no_difference_is_invented() -> None:
    draws = np.random.Generator(np.random.Philox(12))
    families = studies(draws, 0.0, 12, 600, 6)
    wrong = np.mean([any(p is not None and p <= 0.05 for p in family) for family in families])
    # 5 % and three standard errors of 600 families.
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
