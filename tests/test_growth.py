"""What the tests of linear readers call linear is: a square is told from a line, whatever a byte of either costs."""

import pytest

from tests.support.growth import MOST, WIDER, assert_linear


def bytes_of(n: int) -> bytes:
    return b"x" * n


def looked_at(given: bytes) -> None:
    for _ in given:
        pass


def cut_from_the_front(given: bytes) -> None:
    """A square whose single step costs a copy at the memory's own speed."""
    while given:
        given = given[64:]


def searched_for_each(given: bytes) -> None:
    seen: list[int] = []
    for place in range(len(given) // 40):
        if place not in seen:
            seen.append(place)


def test_a_line_passes() -> None:
    assert_linear(bytes_of, looked_at)


@pytest.mark.parametrize("work", [cut_from_the_front, searched_for_each], ids=lambda work: work.__name__)
def test_a_square_is_found(work) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AssertionError, match="bytes took"):
        assert_linear(bytes_of, work)


def test_a_square_lies_far_from_what_is_allowed() -> None:
    assert WIDER * 8 < MOST < WIDER**2 / 4
