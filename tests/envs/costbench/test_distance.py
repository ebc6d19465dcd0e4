from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.costbench.score import edit_distance, normalised

PATHS = st.lists(st.sampled_from(["a", "ab", "b", "Decide", "Select"]), max_size=7)


def by_definition(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return len(one) + len(other)
    replaced = by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, by_definition(one[1:], other) + 1, by_definition(one, other[1:]) + 1)


@given(one=PATHS, other=PATHS)
def test_distance_is_the_fewest_edits(one: list[str], other: list[str]) -> None:
    assert edit_distance(one, other) == by_definition(one, other)
    assert edit_distance(tuple(one), tuple(one)) == 0


@given(one=PATHS, other=PATHS)
def test_normalised_distance_is_a_share_of_the_longer_path(one: list[str], other: list[str]) -> None:
    share = normalised(one, other)
    assert 0 <= share <= 1
    assert (share == 0) == (one == other)
    assert round(share * max(len(one), len(other))) == by_definition(one, other)


def test_two_empty_paths_are_the_same() -> None:
    assert normalised([], ()) == 0.0
    assert normalised(["a"], ["b"]) == normalised([], ["b"]) == 1.0


def test_more_names_than_letters_of_an_alphabet() -> None:
    names = [f"tool{i}" for i in range(5000)]
    assert edit_distance(names, names[1:]) == 1
