"""Playing procurement by hand in tests: start an episode, reply with tool calls, look at what it says back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.env.environment import Facts, Kit, Observation
from evalkit.env.procurement.generate import DIFFICULTIES
from evalkit.env.procurement.procurement import ACTION, HISTORY, PROCUREMENT
from evalkit.env.rules import State
from evalkit.spec.packs import read_pack

PACK = read_pack("standard", "procurement")
KIT = Kit(pack=PACK)
# Two categories of two items. Within 20.00, one of `one` and eight of `three` are best: 26 * 101.
MENU = [
    {"id": "one", "kind": "basic", "price": 2, "contents": [["A1", 2], ["B2", 1]]},
    {"id": "two", "kind": "two_part_tariff", "price": "1.50", "fixed": 7, "contents": [["A2", 4]]},
    {"id": "three", "kind": "bulk_discount", "price": 2.25, "least": 3, "contents": [["B1", 1], ["A2", 1], ["B2", 2]]},
]
ITEMS = [[["A1", 1], ["A2", 3]], [["B1", 2], ["B2", 5]]]
SMALL: dict[str, Any] = {
    "id": "small",
    "environment": "procurement",
    "generator": "explicit",
    "items": ITEMS,
    "menu": MENU,
    "budget": 20,
}
NATIVE: dict[str, Any] = {"id": "native", "environment": "procurement", "generator": "native", "seed": 4}


def reference(difficulty: str, seed: int, **more: Any) -> dict[str, Any]:
    """The line of a reference instance."""
    shape = DIFFICULTIES[difficulty]
    names = ("categories", "products", "p_items", "p_quantity", "p_budget", "effectiveness_most")
    line = {"id": f"{difficulty}-{seed}", "environment": "procurement", "generator": "reference", "seed": seed}
    return {**line, **{name: getattr(shape, name) for name in names}, **more}


def replying(*calls: tuple[str, object]) -> Reply:
    """A reply with these calls: (tool, arguments), the latter an object or raw text."""
    return Reply(
        calls=tuple(
            ToolCall(id=f"c{i}", name=name, arguments=said if isinstance(said, str) else json.dumps(said))
            for i, (name, said) in enumerate(calls)
        )
    )


def buying(plan: object) -> Reply:
    """A reply that submits a mapping (as a Python literal), or any other value as it is."""
    said = repr(dict(plan)) if isinstance(plan, Mapping) else plan
    return replying((ACTION, {"purchase_plan": said}))


@dataclass
class Play:
    """One episode, its state moved by `say`."""

    line: Mapping[str, Any]
    kit: Kit = KIT
    facts: list[Facts] = field(default_factory=list)
    state: State[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.instance = PROCUREMENT.load(self.line)
        self.state = PROCUREMENT.start(self.instance, self.kit)

    def say(self, reply: Reply) -> Observation:
        self.state, seen = PROCUREMENT.step(self.state, reply)
        self.facts.append(seen.facts)
        return seen

    def call(self, name: str, arguments: object = "{}") -> str:
        """What one call is answered with."""
        return self.say(replying((name, arguments))).messages[0].text

    def buy(self, plan: object) -> Any:
        """The facts of a plan that is accepted."""
        return self.say(buying(plan)).facts["action"]

    def history(self) -> str:
        return self.call(HISTORY)

    def tools(self) -> list[str]:
        return [tool.name for tool in PROCUREMENT.tools(self.state)]

    def opening(self) -> tuple[Message, ...]:
        return PROCUREMENT.opening(self.state).messages

    @property
    def outcome(self) -> str:
        """The outcome of the last reply's last call."""
        outcome: str = self.facts[-1]["calls"][-1]["outcome"]
        return outcome
