"""Playing pricing by hand in tests: start an episode, reply with tool calls, look at what it says back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalkit.dialogue import Message, Reply
from evalkit.env.environment import Facts, Kit, Observation
from evalkit.env.pricing.generate import DIFFICULTIES
from evalkit.env.pricing.pricing import ACTION, HISTORY, PRICING
from evalkit.env.rules import State
from evalkit.spec.packs import read_pack
from tests.submitting import replying

PACK = read_pack("standard", "pricing")
KIT = Kit(pack=PACK)
SMALL = {"id": "small", "environment": "pricing", "generator": "native", "seed": 3, "products": 3, "groups": 2}


def reference(difficulty: str, seed: int, **more: Any) -> dict[str, Any]:
    """The line of a reference instance."""
    line = {"id": "r", "environment": "pricing", "generator": "reference", "seed": seed}
    return {**line, "products": DIFFICULTIES[difficulty.lower()], **more}


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    """A golden file's rows."""
    return [json.loads(row) for row in (shared / "goldens/econagentbench" / name).read_text().splitlines()]


def setting(prices: object) -> Reply:
    """A reply that sets prices: a mapping (as a Python literal), or any other value as it is."""
    said = repr(dict(prices)) if isinstance(prices, Mapping) else prices
    return replying((ACTION, {"prices_dict_str": said}))


def priced(*prices: object) -> dict[str, object]:
    """A mapping of prices by product: `priced(2, 3.5)` is Product_1 at 2, Product_2 at 3.5."""
    return {f"Product_{i}": price for i, price in enumerate(prices, 1)}


@dataclass
class Play:
    """One episode, its state moved by `say`."""

    line: Mapping[str, Any]
    kit: Kit = KIT
    facts: list[Facts] = field(default_factory=list)
    state: State[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.instance = PRICING.load(self.line)
        self.state = PRICING.start(self.instance, self.kit)

    def say(self, reply: Reply) -> Observation:
        self.state, seen = PRICING.step(self.state, reply)
        self.facts.append(seen.facts)
        return seen

    def call(self, name: str, arguments: object = "{}") -> str:
        """What one call is answered with."""
        return self.say(replying((name, arguments))).messages[0].text

    def submit(self, prices: object) -> Facts:
        return self.say(setting(prices)).facts

    def history(self) -> str:
        return self.call(HISTORY)

    def tools(self) -> list[str]:
        return [tool.name for tool in PRICING.tools(self.state)]

    def opening(self) -> tuple[Message, ...]:
        return PRICING.opening(self.state).messages

    @property
    def outcome(self) -> str:
        """The outcome of the last reply's last call."""
        outcome: str = self.facts[-1]["calls"][-1]["outcome"]
        return outcome
