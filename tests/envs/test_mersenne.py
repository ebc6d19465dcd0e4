"""The library's own `random` is the oracle: its draws are compared as they are in the Python that runs the tests."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.mersenne import Mersenne

SEEDS = st.integers(-(2**130), 2**130)


@given(SEEDS)
def test_doubles_are_those_of_python(seed: int) -> None:
    ours, theirs = Mersenne(seed), random.Random(seed)
    # More than two of numpy's blocks, and more than the generator's own state of 624 words.
    assert [ours.random() for _ in range(330)] == [theirs.random() for _ in range(330)]
    assert [ours.uniform(15, 25) for _ in range(5)] == [theirs.uniform(15, 25) for _ in range(5)]
    assert [ours.uniform(-1.5, 0.1) for _ in range(5)] == [theirs.uniform(-1.5, 0.1) for _ in range(5)]


@given(SEEDS, st.lists(st.integers(1, 2**100), max_size=8))
def test_integers_are_those_of_python(seed: int, bounds: list[int]) -> None:
    ours, theirs = Mersenne(seed), random.Random(seed)
    for bound in bounds:
        assert ours.bits(bound.bit_length()) == theirs.getrandbits(bound.bit_length())
        assert ours.below(bound) == theirs.randrange(bound)
        assert ours.randint(-bound, 7) == theirs.randint(-bound, 7)
    assert ours.choice(range(1, 10000)) == theirs.choice(range(1, 10000))
    assert ours.choice("abc") == theirs.choice("abc")
    assert ours.random() == theirs.random()


@given(SEEDS, st.integers(0, 400), st.data())
def test_samples_are_those_of_python_from_a_pool_and_from_a_set(seed: int, n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, min(n, 90)))
    ours, theirs = Mersenne(seed), random.Random(seed)
    assert ours.sample(n, size) == theirs.sample(range(n), size)
    assert ours.random() == theirs.random()


@pytest.mark.parametrize(("n", "size"), [(21, 5), (22, 5), (85, 6), (86, 6), (277, 21), (278, 22), (12_497_500, 5000)])
def test_samples_at_the_sizes_where_the_way_of_drawing_changes(n: int, size: int) -> None:
    assert Mersenne(42).sample(n, size) == random.Random(42).sample(range(n), size)


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31 - 2, 2**32 - 1, 2**32, 2**64 + 5, -42])
def test_seeds_of_any_number_of_words(seed: int) -> None:
    assert Mersenne(seed).random() == random.Random(seed).random()


def test_draws_from_nothing_are_refused() -> None:
    stream = Mersenne(1)
    for draw in (
        lambda: stream.below(0),
        lambda: stream.bits(0),
        lambda: stream.randint(2, 1),
        lambda: stream.choice([]),
        lambda: stream.sample(3, 4),
        lambda: stream.sample(3, -1),
    ):
        with pytest.raises(ValueError, match="needs"):
            draw()
