"""Which part of a sweep to play: compared with every other way there is, on small cases."""

import itertools
import math

import numpy as np
import pytest

from evalkit.engine.planning.propose import Share, SuiteShare, half_width, propose, rotate, student, worst


def part(
    suite: str, instances: int, replicates: int, cost: float, *scatter: tuple[float, float], done: int = 0
) -> SuiteShare:
    return SuiteShare(
        suite=suite,
        instances=instances,
        replicates=replicates,
        done=done,
        cost=cost,
        scatter=tuple((f"agent-{n}", *one) for n, one in enumerate(scatter or ((0.4, 0.3),))),
    )


def best(parts: list[SuiteShare], amount: float) -> float:
    """The narrowest widest interval, by looking at all numbers of episodes that can be paid."""
    ways = itertools.product(*(range(one.done, one.most + 1) for one in parts))
    return min(
        max(one.width(count) for one, count in zip(parts, way, strict=True))
        for way in ways
        if sum(one.cost * (count - one.done) for one, count in zip(parts, way, strict=True)) <= amount
    )


@pytest.mark.exhaustive(but=12)
@pytest.mark.parametrize("case", range(60))
def test_nobody_does_better(case: int) -> None:
    rng = np.random.default_rng(case)
    parts = [
        part(
            name,
            int(rng.integers(3, 6)),
            int(rng.integers(1, 3)),
            float(rng.integers(1, 12)),
            *((float(rng.choice([0.0, 0.2, 0.5])), float(rng.choice([0.0, 0.1, 0.6]))) for _ in range(2)),
            done=int(rng.integers(0, 3)),
        )
        for name in "abc"
    ]
    total = sum(one.cost * one.most for one in parts)
    for amount in (0.2 * total, 0.5 * total, 0.8 * total):
        shares = propose(parts, amount)
        assert sum(one.cost for one in shares) <= amount + 1e-9
        assert all(one.part.done <= one.episodes <= one.part.most for one in shares)
        assert worst(shares) == pytest.approx(best(parts, amount))


def test_a_dear_suite_that_scatters_gets_its_money_before_a_cheap_one_that_does_not() -> None:
    shares = propose([part("still", 20, 1, 1.0, (0.05, 0.0)), part("wild", 20, 1, 5.0, (0.5, 0.0))], 60.0)
    still, wild = shares
    assert wild.episodes == 11
    assert still.episodes == 5


def test_what_nothing_helps_is_paid_last() -> None:
    # More replicates of the same instances say nothing new here.
    shares = propose([part("a", 3, 5, 1.0, (0.5, 0.0)), part("b", 20, 1, 1.0, (0.5, 0.5))], 20.0)
    assert [one.episodes for one in shares] == [3, 17]


def test_enough_money_plays_it_all_and_free_suites_always_are() -> None:
    parts = [part("a", 4, 2, 2.0), part("free", 5, 3, 0.0)]
    assert all(one.whole for one in propose(parts, 16.0))
    assert [one.episodes for one in propose(parts, 0.0)] == [0, 15]


@pytest.mark.parametrize(("free", "quantile"), [(2, 4.303), (3, 3.182), (7, 2.365), (11, 2.201), (30, 2.042)])
def test_students_quantile_is_near(free: int, quantile: float) -> None:
    assert student(free) == pytest.approx(quantile, rel=0.035 if free == 2 else 0.01)


def test_replicates_narrow_an_interval_by_their_noise_alone() -> None:
    once, twice = half_width(10, 10, 0.3, 0.4), half_width(20, 10, 0.3, 0.4)
    assert once == pytest.approx(student(9) * 0.5 / math.sqrt(10))
    assert twice == pytest.approx(student(9) * math.sqrt((0.09 + 0.08) / 10))
    widths = [part("a", 7, 3, 1.0).width(count) for count in range(22)]
    assert widths == sorted(widths, reverse=True)
    assert widths[2] == math.inf > widths[3]


def test_nights_end_with_the_whole_and_narrow_from_night_to_night() -> None:
    parts = [part("a", 6, 2, 3.0), part("b", 4, 1, 7.0), part("c", 9, 1, 1.0, done=4)]
    nights = rotate(parts, 10.0)
    assert all(one.whole for one in nights[-1])
    assert not all(one.whole for one in nights[-2])
    widths = [worst(night) for night in nights]
    assert widths == sorted(widths, reverse=True)
    paid = [sum(one.cost for one in night) for night in nights]
    assert all(cost <= 10.0 * (number + 1) for number, cost in enumerate(paid))
    assert paid == sorted(paid)
    assert paid[-1] == 12 * 3 + 4 * 7 + 5
    assert len(nights) == math.ceil(paid[-1] / 10)
    assert rotate(parts, 0.0) == []


def test_a_share_in_words() -> None:
    one = part("a", 12, 3, 1.0)
    assert [Share(part=one, episodes=count).words() for count in (5, 12, 16, 36)] == [
        "5 of 12 x 1",
        "12 x 1",
        "12 x 1, 4 x 1 more",
        "12 x 3",
    ]
