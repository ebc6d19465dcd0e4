"""A failing seed made as small as it stays failing: fewer disturbances, fewer lives."""

from tests.sim.scenario import LIVES, Scenario, scenario
from tests.sim.seed import Lived, live_through
from tests.sim.sweeps import SWEEPS


def shrunk(failing: Scenario) -> tuple[Scenario, Lived]:
    """The smallest scenario found that breaks a promise of the same kind, and what happens in it."""
    best, lived = failing, live_through(failing)
    assert lived.broken, "the seed breaks no promise"
    kind = _kind(lived.broken)
    lives = len(failing.lives)
    for fewer in range(1, lives):
        found = _tried(failing, best.without, fewer, kind)
        if found is not None:
            best, lived = found
            lives = fewer
            break
    for name in sorted(failing.active):
        found = _tried(failing, best.without | {name}, lives if lives < len(failing.lives) else LIVES, kind)
        if found is not None:
            best, lived = found
    return best, lived


def _tried(failing: Scenario, without: frozenset[str], lives: int, kind: str) -> tuple[Scenario, Lived] | None:
    least = scenario(failing.seed, len(SWEEPS), without, lives, always=failing.always)
    lived = live_through(least)
    return (least, lived) if lived.broken and _kind(lived.broken) == kind else None


def _kind(broken: str) -> str:
    """What was broken, numbers and names aside."""
    return "".join(letter for letter in broken if not letter.isdigit())[:40]
