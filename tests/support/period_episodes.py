"""Playing an environment of the period loop by hand in tests: one episode, its replies, what it says back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.envs.environment import Environment, Facts, Kit, Observation
from evalkit.envs.rules import PeriodsState
from tests.support.episode_loop import kit as standard_kit


def replying(*calls: tuple[str, object], text: str = "") -> Reply:
    """A reply with these calls: (tool, arguments), the latter an object or raw text."""
    return Reply(
        text=text,
        calls=tuple(
            ToolCall(id=f"c{i}", name=name, arguments=said if isinstance(said, str) else json.dumps(said))
            for i, (name, said) in enumerate(calls)
        ),
    )


@dataclass
class Game:
    """One episode, its state moved by `say`. A subclass says of which environment."""

    environment: ClassVar[Environment[Any, Any]]
    action: ClassVar[str]
    """The tool that ends a period."""
    argument: ClassVar[str]
    """The action's argument."""
    getter: ClassVar[str]
    """The tool that shows the history."""

    line: Mapping[str, Any]
    kit: Kit | None = None
    """Without one: evalkit's own wording."""
    facts: list[Facts] = field(default_factory=list)
    state: PeriodsState[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.instance = self.environment.load(self.line)
        self.state = self.environment.start(self.instance, self.kit or standard_kit(self.environment.name))

    def say(self, reply: Reply) -> Observation:
        self.state, seen = self.environment.step(self.state, reply)
        self.facts.append(seen.facts)
        return seen

    def call(self, name: str, arguments: object = "{}") -> str:
        """What one call is answered with."""
        return self.say(replying((name, arguments))).messages[0].text

    @classmethod
    def acting(cls, what: object) -> Reply:
        """A reply that submits a mapping (as a Python literal), or any other value as it is."""
        said = repr(dict(what)) if isinstance(what, Mapping) else what
        return replying((cls.action, {cls.argument: said}))

    def submit(self, what: object) -> Facts:
        return self.say(self.acting(what)).facts

    def history(self) -> str:
        return self.call(self.getter)

    def tools(self) -> list[str]:
        return [tool.name for tool in self.environment.tools(self.state)]

    def opening(self) -> tuple[Message, ...]:
        return self.environment.opening(self.state).messages

    @property
    def outcome(self) -> str:
        """The outcome of the last reply's last call."""
        outcome: str = self.facts[-1]["calls"][-1]["outcome"]
        return outcome
