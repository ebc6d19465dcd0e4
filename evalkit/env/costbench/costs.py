"""What every tool costs: drawn once for a seed, for all the tools of a world.

The reference draws the atomic costs one after the other from one stream, over all tasks, so a tool's cost depends on
its place in that order and on the length of the chain. Natively each tool has a stream of its own, keyed by its name.

Source: specification, sections 2.1 to 2.3; section 3.1 and appendix B.1 of the paper (costs keyed by tool).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from evalkit.env.costbench.catalogue import Catalogue
from evalkit.env.costbench.world import ToolSpec, World, registry
from evalkit.env.mersenne import Mersenne
from evalkit.seeds import Stream

if TYPE_CHECKING:
    from evalkit.env.costbench.instance import Instance

DISTRIBUTIONS = ("uniform", "normal", "exponential", "two_point")
"""How atomic costs are drawn natively; the reference's are always uniform."""

LEAST_CENTS = 1
"""A native tool costs at least this."""


def hash31(text: str) -> int:
    """A text as a number of 31 bits: its SHA-256 modulo 2^31 - 1 (`H` of the specification)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % (2**31 - 1)


def query_seed(seed: int, query_id: str) -> int:
    """The seed of everything drawn for one query under a global seed; the id with its angle brackets."""
    return hash31(f"{seed}:{query_id}")


def show_cost(cents: int) -> str:
    """A cost as the reference prints it: 2050 is `20.5`; 100 is `1`, since its least cost of a composite is no float."""
    return "1" if cents == 100 else repr(cents / 100)


def costs_of(
    instance: "Instance", world: World, draw_seed: int | None = None, *, foreign: bool = True
) -> tuple[int, ...]:
    """Cents by place in `world.tools + world.foreign`; without `foreign`, of `world.tools` alone, in half the time.

    `draw_seed` is a cost change's own seed: all costs are drawn with it, the instance's explicit ones too. None: the
    costs at the start, with the query's seed; there, explicit costs stand in for those drawn, tool by tool.
    """
    seed = query_seed(instance.seed, instance.query.id) if draw_seed is None else draw_seed
    if instance.generator == "reference" and world.chain:
        found = reference_costs(world, seed, instance.low, instance.high, instance.noise, foreign=foreign)
    else:
        found = _native_costs(instance, world, seed, foreign)
    if draw_seed is not None or not instance.costs:
        return tuple(found)
    for name, cents in instance.costs.items():
        found[world.place[name]] = cents
    return tuple(found)


def reference_costs(
    world: World, draw_seed: int, low: float, high: float, noise: float, *, foreign: bool = True
) -> list[int]:
    """The reference's costs in cents, draw for draw, by place in `world.tools + world.foreign`.

    Its floats are rounded to two decimals, so cents hold them exactly; sums run from left to right over those floats.
    """
    catalogue, context = world.catalogue, world.catalogue.context
    draws = _Draws(draw_seed, low, high, noise)
    found = draws.of(world.tools, _places(catalogue, world.task, world.length))
    if foreign and world.foreign:
        found += draws.of(world.foreign, _places(catalogue, context, world.length))
    return found


@lru_cache(maxsize=256)
def _places(catalogue: Catalogue, task: str, length: int) -> tuple[int, ...]:
    """By position of the task's chain: which of the atomic draws is its tool's."""
    found = {(name, first): place for place, (name, first, _) in enumerate(registry(catalogue, length)) if name == task}
    return tuple(found[task, position] for position in range(length))


class _Draws:
    """One table of the reference: its one stream of atomic costs, and a stream for each composite."""

    __slots__ = ("_drawn", "_high", "_low", "_noise", "_seed", "_stream")

    def __init__(self, seed: int, low: float, high: float, noise: float) -> None:
        self._seed, self._low, self._high, self._noise = seed, low, high, noise
        self._stream = Mersenne(seed)
        self._drawn: list[float] = []

    def of(self, tools: Sequence[ToolSpec], places: Sequence[int]) -> list[int]:
        """Cents of spans of one chain whose positions have these places among the atomic draws."""
        while len(self._drawn) <= places[-1]:
            self._drawn.append(round(self._stream.uniform(self._low, self._high), 2))
        atomic = [self._drawn[place] for place in places]
        sums: dict[tuple[int, int], float] = {}
        for first in range(len(atomic)):
            total = 0.0
            for last in range(first, len(atomic)):
                total += atomic[last]
                sums[first, last] = total
        found = []
        for tool in tools:
            cost = sums[tool.first, tool.last]
            if tool.first != tool.last:
                cost = round(max(1.0, cost + self._deviation(tool)), 2)
            found.append(round(cost * 100))
        return found

    def _deviation(self, tool: ToolSpec) -> float:
        if self._noise == 0:
            return 0.0
        from numpy.random import PCG64, Generator

        # What `default_rng(seed).normal(0, scale)` computes, without what it does besides: half the time.
        normal = Generator(PCG64(hash31(f"{self._seed}:{tool.name}"))).standard_normal()
        return float(self._noise * math.sqrt(tool.size) * normal)


def _native_costs(instance: "Instance", world: World, draw_seed: int, foreign: bool) -> list[int]:
    tools = (*world.tools, *world.foreign) if foreign else world.tools
    found: dict[str, int] = {}
    # Atomic tools first: in a graph a composite may stand before its components.
    for tool in sorted(tools, key=lambda tool: tool.size > 1):
        stream = Stream(draw_seed, "cost", tool.name)
        if tool.size == 1:
            drawn = _atomic_cost(stream, instance.distribution, instance.low, instance.high)
            found[tool.name] = max(LEAST_CENTS, round(100 * drawn))
        else:
            found[tool.name] = _composite_cost(stream, tool, found, instance.noise)
    return [found[tool.name] for tool in tools]


def _atomic_cost(stream: Stream, distribution: str, low: float, high: float) -> float:
    """One draw in [low, high]."""
    width = high - low
    if distribution == "normal":
        return min(high, max(low, (low + high) / 2 + width / 6 * _normal(stream)))
    if distribution == "exponential":
        return min(high, low - width / 4 * math.log(1 - stream.uniform()))
    if distribution == "two_point":
        return low if stream.uniform() < 0.5 else high
    return low + width * stream.uniform()


def _composite_cost(stream: Stream, tool: ToolSpec, atomic: Mapping[str, int], noise: float) -> int:
    total = sum(atomic[name] for name in tool.components)
    if noise:
        total += round(100 * noise * math.sqrt(tool.size) * _normal(stream))
    return max(LEAST_CENTS, total)


def _normal(stream: Stream) -> float:
    """A standard normal draw (Box and Muller, 1958), from two uniform ones."""
    radius = math.sqrt(-2 * math.log(1 - stream.uniform()))
    return radius * math.cos(2 * math.pi * stream.uniform())
