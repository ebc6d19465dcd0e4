"""Playing scheduling by hand in tests."""

from evalkit.envs.scheduling.scheduling import ACTION, HISTORY, SCHEDULING
from tests.support.episode_loop import kit
from tests.support.period_episodes import Game

KIT = kit("scheduling")
PACK = KIT.pack
SMALL = {"id": "small", "environment": "scheduling", "generator": "native", "seed": 3, "n": 5, "k": 2}


def matched(*tasks: int) -> dict[str, str]:
    """An assignment by the workers' tasks, counted from 1: `matched(2, 1)` is W1 on T2, W2 on T1."""
    return {f"W{w}": f"T{t}" for w, t in enumerate(tasks, 1)}


class Play(Game):
    """One episode of scheduling."""

    environment, action, argument, getter = SCHEDULING, ACTION, "assignment", HISTORY


submitting = Play.acting
