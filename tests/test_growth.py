"""What the tests of linear readers call linear is: a square is told from a line, whatever a byte of either costs."""

from collections.abc import Callable
from itertools import count

import pytest

from tests.support.growth import FLOOR_S, MOST, WIDER, assert_linear


def bytes_of(n: int) -> bytes:
    return b"x" * n


def looked_at(given: bytes) -> None:
    for _ in given:
        pass


def cut_from_the_front(given: bytes) -> None:
    """A square whose single step costs a copy at the memory's own speed."""
    while given:
        given = given[16:]


def searched_for_each(given: bytes) -> None:
    seen: list[int] = []
    for place in range(len(given) // 32):
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


@pytest.mark.parametrize("disturbed", range(12))
def test_a_square_is_found_whichever_run_the_machine_disturbs(monkeypatch: pytest.MonkeyPatch, disturbed: int) -> None:
    """By a clock of its own: nothing here depends on the machine."""
    with pytest.raises(AssertionError, match=r"^wide: 524288 bytes took"):
        timed(monkeypatch, lambda n: n**2 * 1.5e-13, disturbed)


@pytest.mark.parametrize("disturbed", range(12))
def test_a_square_whose_steps_cost_little_is_found(monkeypatch: pytest.MonkeyPatch, disturbed: int) -> None:
    """In 128 kB most of its time is what calls the steps, and the ratio is 520."""
    with pytest.raises(AssertionError, match=r"^wide: 524288 bytes took"):
        timed(monkeypatch, lambda n: n / 16 * (8e-7 + n * 5e-11), disturbed)


def test_a_square_is_found_where_a_burst_disturbs_all_runs_of_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now, burst = [0.0], [True]

    def work(n: int) -> None:
        now[0] += n**2 * 1.5e-13 * (100 if burst[0] and n < 2**16 else 1)

    monkeypatch.setattr("tests.support.growth.time.thread_time", lambda: now[0])
    monkeypatch.setattr("tests.support.growth.time.sleep", lambda _: burst.clear() or burst.append(False))
    with pytest.raises(AssertionError, match=r"^wide: 524288 bytes took"):
        assert_linear(lambda n: n, work, what="wide")


@pytest.mark.parametrize("disturbed", range(12))
def test_a_line_passes_whichever_run_the_machine_disturbs(monkeypatch: pytest.MonkeyPatch, disturbed: int) -> None:
    timed(monkeypatch, lambda n: n * 1e-7, disturbed)


def timed(monkeypatch: pytest.MonkeyPatch, cost: Callable[[int], float], disturbed: int) -> None:
    """Assert that work is linear that takes `cost` of its bytes, and one run 100 times as long."""
    now, run = [0.0], count()

    def work(n: int) -> None:
        now[0] += cost(n) * (100 if next(run) == disturbed else 1)

    assert cost(2**19) > FLOOR_S
    monkeypatch.setattr("tests.support.growth.time.thread_time", lambda: now[0])
    assert_linear(lambda n: n, work, what="wide")
