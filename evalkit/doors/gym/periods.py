"""What the environments of periods share: a step is a period, by one call of the tool that acts."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from evalkit.dialogue import ToolCall
from evalkit.doors.gym.episode import GameEnv
from evalkit.envs.replay import Turn
from evalkit.envs.rules import Rules
from evalkit.policy.conversation import action_arguments


class PeriodsEnv(GameEnv):
    """A suite whose episodes are periods; a step is a period."""

    rules: ClassVar[Rules[Any]]

    def submitting(self, mapping: Mapping[str, object]) -> tuple[ToolCall, ...]:
        """The reply that acts, in the form that the tool asks for."""
        tool = next(tool for tool in self.game.tools if tool.name == self.rules.action)
        return self.acting(tool.name, action_arguments(tool, mapping))

    def period(self, turn: Turn | None) -> np.int64:
        """The period that comes next; at the end, how many there were."""
        return np.int64(self.game.period if turn is None or not turn.ending else turn.period + 1)
