"""CostBench in numbers: which tool is called in, what can be called and what is held out."""

import json
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.events import world_of
from evalkit.envs.replay import Turn
from evalkit.integrations.gym.episode import GameEnv
from evalkit.policy.conversation import calling
from evalkit.policy.costbench.offers import Offer
from evalkit.policy.costbench.playing import ChatState, arguments, read_chat

MOST = 1e9
"""The bound of costs in observations, which they do not reach."""


class CostBenchEnv(GameEnv):
    """A suite of CostBench; a step is one call.

    Action 0 answers, and i calls the i-th tool that the episode began with; the arguments are the user's wishes and the
    newest ids. All are read from the chat alone, as a policy reads it.

    Observations: `mask`, the actions that lead on (0 where the goal is held, or nothing else can be done); `cost` of
    each action; `held`, the types that are held; and `step`. `info["action_mask"]` is the mask again. A tool that is
    not offered, or lacks its inputs, may be called: the environment refuses it.
    """

    environment = "costbench"

    def __init__(self, suite: str = "costbench/basic", **others: Any) -> None:
        """As `GameEnv`."""
        super().__init__(suite, **others)
        tools = self.largest(COSTBENCH.offers)
        types = self.largest(lambda one: len(world_of(one).types))
        # Where the goal must be held, one more reply follows the last step.
        steps = self.largest(lambda one: one.steps) + 1
        self.action_space = Discrete(tools + 1)
        self.observation_space = Dict(
            mask=MultiBinary(tools + 1),
            cost=Box(0.0, MOST, (tools + 1,), np.float64),
            held=MultiBinary(types),
            step=Discrete(steps + 1),
        )
        self._tools, self._types_most = tools, types
        self._chat: ChatState | None = None

    def begun(self) -> None:
        """What is offered at the beginning."""
        chat = read_chat(self._request())
        self._offers: tuple[Offer, ...] = chat.offers.tools if chat else ()
        self._places = {tool.name: place for place, tool in enumerate(self._offers, 1)}
        names = (name for tool in self._offers for name in (*tool.inputs, tool.output))
        self._types = {name: place for place, name in enumerate(dict.fromkeys(names))}

    def answer(self, action: Any) -> Reply:
        """The reply that answers, or calls a tool."""
        request, chat, place = self._request(), self._chat, int(action)
        if place == 0 or chat is None:
            held = chat.ids.get(chat.goal, "") if chat else ""
            return calling(request, [], f"<answer> {held} </answer>")
        if place > len(self._offers):
            return calling(request, [(f"tool_{place}", "{}")])
        tool = self._offers[place - 1]
        return calling(request, [(tool.name, json.dumps(arguments(chat, tool)))])

    def observed(self, turn: Turn | None) -> dict[str, Any]:
        """What can be called and what is held."""
        del turn
        self._chat = chat = read_chat(self._request())
        mask, held = np.zeros(self._tools + 1, np.int8), np.zeros(self._types_most, np.int8)
        cost = np.zeros(self._tools + 1)
        if chat is not None:
            for tool, cents in zip(chat.offers.tools, chat.offers.cents, strict=True):
                cost[self._places[tool.name]] = cents / 100
            for tool in () if chat.done else chat.open():
                mask[self._places[tool.name]] = 1
            held[[self._types[name] for name in chat.held if name in self._types]] = 1
        mask[0] = not mask.any()
        self._mask = mask
        return {"mask": mask, "cost": cost, "held": held, "step": np.int64(self.game.step)}

    def told(self, turn: Turn | None) -> dict[str, Any]:
        """The mask."""
        del turn
        return {"action_mask": self._mask.copy()}

    def _request(self) -> Request:
        return Request(
            messages=self.game.messages, tools=self.game.tools, sampling=COSTBENCH.defaults, seed=self.game.step
        )
