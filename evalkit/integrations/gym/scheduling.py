"""Scheduling in numbers: weights in, of which the matching with the highest sum is submitted; blocking pairs out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from scipy.optimize import linear_sum_assignment

from evalkit.dialogue import ToolCall
from evalkit.envs.replay import Turn
from evalkit.envs.scheduling.market import task_ids, worker_ids
from evalkit.envs.scheduling.scheduling import RULES
from evalkit.integrations.gym.episode import PeriodsEnv


class SchedulingEnv(PeriodsEnv):
    """A suite of scheduling; a step is a period.

    An action gives each worker and task a weight: an array (n, n), from -1 to 1. The matching with the highest sum of
    weights is submitted, so every action is valid.

    Observations: `period`, that comes next; `assignment`, by worker the task of the last assignment; `blocking`, the
    pairs shown that block it, an array (k, 2) of worker and task. Workers and tasks count from 1, and 0 is none.
    """

    environment = "scheduling"
    rules = RULES

    def __init__(self, suite: str = "scheduling/basic", **others: Any) -> None:
        """As `GameEnv`."""
        super().__init__(suite, **others)
        self._n, self._k, periods = self.same("n, k or periods", lambda one: (one.n, one.k, one.periods))
        self._k = min(self._k, self._n**2)
        self.action_space = Box(-1.0, 1.0, (self._n, self._n), np.float32)
        self.observation_space = Dict(
            period=Discrete(periods + 1),
            assignment=MultiDiscrete(np.full(self._n, self._n + 1)),
            blocking=MultiDiscrete(np.full((self._k, 2), self._n + 1)),
        )
        self._workers = {name: place for place, name in enumerate(worker_ids(self._n), 1)}
        self._tasks = {name: place for place, name in enumerate(task_ids(self._n), 1)}
        self._last: Any = None

    def begun(self) -> None:
        """Nothing is assigned."""
        self._last = np.zeros(self._n, np.int64)

    def answer(self, action: Any) -> Sequence[ToolCall]:
        """The reply that submits the matching."""
        weights = np.nan_to_num(np.asarray(action, np.float64).reshape(self._n, self._n))
        _, places = linear_sum_assignment(weights, maximize=True)
        self._last = places.astype(np.int64) + 1
        tasks = task_ids(self._n)
        return self.submitting({worker: tasks[place] for worker, place in zip(self._workers, places, strict=True)})

    def observed(self, turn: Turn | None) -> dict[str, Any]:
        """The last assignment and what blocks it."""
        blocking = np.zeros((self._k, 2), np.int64)
        for place, (worker, task) in enumerate(turn.facts.get("action", {}).get("shown", ()) if turn else ()):
            blocking[place] = self._workers[worker], self._tasks[task]
        return {"period": self.period(turn), "assignment": self._last.copy(), "blocking": blocking}
