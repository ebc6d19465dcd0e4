"""Playing scheduling by hand in tests: start an episode, reply with tool calls, look at what it says back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.env.environment import Facts, Kit, Observation
from evalkit.env.rules import State
from evalkit.env.scheduling.scheduling import ACTION, HISTORY, SCHEDULING
from evalkit.spec.packs import read_pack

PACK = read_pack("standard", "scheduling")
KIT = Kit(pack=PACK)
SMALL = {"id": "small", "environment": "scheduling", "generator": "native", "seed": 3, "n": 5, "k": 2}


def replying(*calls: tuple[str, object]) -> Reply:
    """A reply with these calls: (tool, arguments), the latter an object or raw text."""
    return Reply(
        calls=tuple(
            ToolCall(id=f"c{i}", name=name, arguments=said if isinstance(said, str) else json.dumps(said))
            for i, (name, said) in enumerate(calls)
        )
    )


def submitting(assignment: object) -> Reply:
    """A reply that submits a mapping (as a Python literal), or any other value as it is."""
    said = repr(dict(assignment)) if isinstance(assignment, Mapping) else assignment
    return replying((ACTION, {"assignment": said}))


def matched(*tasks: int) -> dict[str, str]:
    """An assignment by the workers' tasks, counted from 1: `matched(2, 1)` is W1 on T2, W2 on T1."""
    return {f"W{w}": f"T{t}" for w, t in enumerate(tasks, 1)}


@dataclass
class Play:
    """One episode, its state moved by `say`."""

    line: Mapping[str, Any]
    kit: Kit = KIT
    facts: list[Facts] = field(default_factory=list)
    state: State[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.instance = SCHEDULING.load(self.line)
        self.state = SCHEDULING.start(self.instance, self.kit)

    def say(self, reply: Reply) -> Observation:
        self.state, seen = SCHEDULING.step(self.state, reply)
        self.facts.append(seen.facts)
        return seen

    def call(self, name: str, arguments: object = "{}") -> str:
        """What one call is answered with."""
        return self.say(replying((name, arguments))).messages[0].text

    def submit(self, assignment: object) -> Facts:
        return self.say(submitting(assignment)).facts

    def history(self) -> str:
        return self.call(HISTORY)

    def tools(self) -> list[str]:
        return [tool.name for tool in SCHEDULING.tools(self.state)]

    def opening(self) -> tuple[Message, ...]:
        return SCHEDULING.opening(self.state).messages

    @property
    def outcome(self) -> str:
        """The outcome of the last reply's last call."""
        outcome: str = self.facts[-1]["calls"][-1]["outcome"]
        return outcome
