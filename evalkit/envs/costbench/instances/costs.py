"""What every tool costs: drawn once for a seed, for all the tools of a world.

The reference draws the atomic costs one after the other from one stream, over all tasks, so a tool's cost depends on
its place in that order and on the length of the chain. Natively each tool has a stream of its own, keyed by its name.

Source: specification, sections 2.1 to 2.3; section 3.1 and appendix B.1 of the paper (costs keyed by tool).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.world import ToolSpec, World, registry
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import SQUARE_ROOT
from evalkit.envs.mersenne import Mersenne
from evalkit.seeds import fractions

LEAST_CENTS = 1
"""A native tool costs at least this."""


def hash31(text: str) -> int:
    """A text as a number of 31 bits: its SHA-256 modulo 2^31 - 1 (`H` of the specification)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % (2**31 - 1)


def query_seed(seed: int, query_id: str) -> int:
    """The seed of everything drawn for one query under a global seed; the id with its angle brackets."""
    return hash31(f"{seed}:{query_id}")


def show_cost(cents: int) -> str:
    """A cost as the reference prints it: 2050 is `20.5`; 100 is `1`, as for the least composite."""
    return "1" if cents == 100 else repr(cents / 100)


@lru_cache(maxsize=1024)
def costs_of(instance: PlanningProblem, world: World, draw_seed: int | None = None) -> tuple[int, ...]:
    """Cents by place in `world.tools`; of the reference's generator in `world.tools + world.foreign`, for its ties.

    `draw_seed` is a cost change's own seed: all costs are drawn with it, the instance's explicit ones too. None: the
    costs at the start, with the query's seed; there, explicit costs stand in for those drawn, tool by tool.
    """
    seed = query_seed(instance.seed, instance.query.id) if draw_seed is None else draw_seed
    if instance.generator == "reference" and world.chain:
        costs = reference_costs(world, seed, instance.low, instance.high, instance.noise, power=instance.noise_power)
    else:
        costs = _native_costs(instance, world, seed)
    if draw_seed is None:
        for name, cents in instance.costs.items():
            costs[world.place[name]] = cents
    return tuple(costs)


def reference_costs(
    world: World,
    draw_seed: int,
    low: float,
    high: float,
    noise: float,
    *,
    power: float = SQUARE_ROOT,
    foreign: bool = True,
) -> list[int]:
    """The reference's costs in cents, draw for draw, by index in `world.tools + world.foreign`.

    Its floats are rounded to two decimals, so cents hold them exactly; sums run from left to right over those floats.
    """
    from evalkit.envs.pcg import first_normals

    catalogue = world.catalogue
    tools = (*world.tools, *world.foreign) if foreign else world.tools
    own = _places(catalogue, world.task, world.length)
    others = _places(catalogue, catalogue.context, world.length) if foreign and world.foreign else ()
    stream = Mersenne(draw_seed)
    atomic_costs = [round(stream.uniform(low, high), 2) for _ in range(max(*own, *others) + 1)]
    costs = _sums(world.tools, [atomic_costs[index] for index in own])
    if others:
        costs += _sums(world.foreign, [atomic_costs[index] for index in others])
    composite = [index for index, tool in enumerate(tools) if tool.first != tool.last]
    deviations = [0.0] * len(composite)
    if noise:
        deviations = first_normals([hash31(f"{draw_seed}:{tools[index].name}") for index in composite])
    for index, deviation in zip(composite, deviations, strict=True):
        scale = noise * _grown(tools[index].last - tools[index].first + 1, power)
        costs[index] = round(max(1.0, costs[index] + scale * deviation), 2)
    return [round(cost * 100) for cost in costs]


@lru_cache(maxsize=256)
def _places(catalogue: Catalogue, task: str, length: int) -> tuple[int, ...]:
    """By position of the task's chain: which of the atomic draws is its tool's."""
    index_of = {
        (name, first): index for index, (name, first, _) in enumerate(registry(catalogue, length)) if name == task
    }
    return tuple(index_of[task, position] for position in range(length))


def _sums(tools: Sequence[ToolSpec], atomic: Sequence[float]) -> list[float]:
    """What each span of one chain costs without noise, added up from left to right."""
    sums: dict[tuple[int, int], float] = {}
    for first in range(len(atomic)):
        total = 0.0
        for last in range(first, len(atomic)):
            total += atomic[last]
            sums[first, last] = total
    return [sums[tool.first, tool.last] for tool in tools]


def _native_costs(instance: PlanningProblem, world: World, seed: int) -> list[int]:
    costs: dict[str, int] = {}
    atomic, composite = _by_kind(world)
    for tool in atomic:
        cost = _atomic_cost(fractions(seed, "cost", tool.name), instance)
        costs[tool.name] = max(LEAST_CENTS, round(100 * cost))
    for tool in composite:
        scale = instance.noise * _grown(tool.size, instance.noise_power)
        costs[tool.name] = _composite_cost(fractions(seed, "cost", tool.name), tool, costs, scale)
    return [costs[tool.name] for tool in world.tools]


@lru_cache(maxsize=256)
def _by_kind(world: World) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Atomic tools and composites. In a graph a composite may stand before its components."""
    atomic = tuple(tool for tool in world.tools if tool.size == 1)
    return atomic, tuple(tool for tool in world.tools if tool.size > 1)


def _grown(size: int, power: float) -> float:
    """How noise grows with the size of a tool."""
    return math.sqrt(size) if power == SQUARE_ROOT else math.pow(size, power)


@lru_cache(maxsize=64)
def _listed(costs: str) -> tuple[float, ...]:
    return tuple(map(float, costs.split(",")))


def _atomic_cost(draws: tuple[float, float], instance: PlanningProblem) -> float:
    """One draw in [low, high], or of the costs that are listed."""
    distribution, low, high = instance.distribution, instance.low, instance.high
    if instance.listed is not None:
        costs = _listed(instance.listed)
        return costs[int(draws[0] * len(costs))]
    width = high - low
    if distribution == "lognormal":
        middle, spread = (math.log(low) + math.log(high)) / 2, math.log(high / low)
        return min(high, max(low, math.exp(middle + spread / 6 * _normal(draws))))
    if distribution == "normal":
        return min(high, max(low, (low + high) / 2 + width / 6 * _normal(draws)))
    if distribution == "exponential":
        return min(high, low - width / 4 * math.log(1 - draws[0]))
    if distribution == "two_point":
        return low if draws[0] < 0.5 else high
    return low + width * draws[0]


def _composite_cost(draws: tuple[float, float], tool: ToolSpec, atomic: Mapping[str, int], scale: float) -> int:
    total = sum(atomic[name] for name in tool.components)
    if scale:
        total += round(100 * scale * _normal(draws))
    return max(LEAST_CENTS, total)


def _normal(draws: tuple[float, float]) -> float:
    """A standard normal draw (Box and Muller, 1958), from two uniform ones."""
    radius = math.sqrt(-2 * math.log(1 - draws[0]))
    return radius * math.cos(2 * math.pi * draws[1])
