import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.pcg import first_normals


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_each_seed_gives_the_first_draw_of_a_generator_of_its_own(seeds: list[int]) -> None:
    assert first_normals(seeds) == [np.random.default_rng(seed).standard_normal() for seed in seeds]


def test_a_thousand_seeds_some_of_which_take_the_slow_branch() -> None:
    seeds = [0, 1, 2**31 - 2, 2**32 - 1, *range(2, 1000)]
    found = first_normals(seeds)
    assert found == [np.random.default_rng(seed).normal(0, 1) for seed in seeds]
    # The draws outside the generator's fast path are among them: beyond 3.65 lies its tail.
    assert max(map(abs, found)) > 3
