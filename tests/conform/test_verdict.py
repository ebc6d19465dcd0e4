from typing import Any

import pytest

from tests.conform.compare.goldens import EQUAL, judged, parting


@pytest.mark.parametrize(
    ("golden", "ours", "words"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: golden 2, ours 3"),
        ({"a": 1}, {}, "a: golden 1, ours lacks it"),
        ({}, {"a": 1}, "a: golden lacks it, ours 1"),
        ([1, 2], [1], ": golden has 2 entries, ours 1"),
        (1, True, "golden 1, ours True"),
        (0.1 + 0.2, 0.3, "golden 0.30000000000000004, ours 0.3"),
        ("ab", ["a", "b"], "golden 'ab', ours ['a', 'b']"),
        (None, 0, "golden None, ours 0"),
        ({"a": 1}, [1], "golden {'a': 1}, ours [1]"),
        ("x" * 500, "y", "..."),
    ],
)
def test_the_first_difference_is_said_with_its_place(golden: Any, ours: Any, words: str) -> None:
    assert words in parting(golden, ours)
    assert judged(golden, ours).status == "differing"


@pytest.mark.parametrize(
    ("golden", "ours"),
    [([1, [2]], (1, (2,))), (3, 3.0), (float("nan"), float("nan")), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([], ())],
)
def test_values_that_mean_the_same_are_equal(golden: Any, ours: Any) -> None:
    assert judged(golden, ours) == EQUAL
