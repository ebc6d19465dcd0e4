"""Many small cases as one test: every case is tried, and each that fails is named.

As a test of its own, a case of a millisecond costs several times that: each worker collects it, and it is set up,
reported and torn down.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def check_each(cases: Iterable[tuple[object, Case]], check: Callable[[Case], object]) -> None:
    """Check all cases, which come with their names; raise what every failing one raised, with its name as a note."""
    tried, flaws = 0, {}
    for name, case in cases:
        tried += 1
        try:
            check(case)
        except Exception as flaw:  # noqa: BLE001 - whatever it is, it is told beside those of the other cases
            flaw.add_note(f"in the case {name}")
            flaws[str(name)] = flaw
    assert tried, "there is no case to check"
    if flaws:
        raise ExceptionGroup(f"{len(flaws)} of {tried} cases failed: {', '.join(flaws)}", list(flaws.values()))
