"""What is planned to go wrong in an episode: kinds and parameters of its blocks, drawn before anything is played.

The paper's (B.6.2): under one kind of block, block i's parameters come from a seed of its own, S_q + 100 i. Where
paper and reference part, the reference's draws count (specification, section 5.1). Ours: `mixed` blocks as a setting
(the reference has the code, but no way to call it), explicit schedules, calls that fail for once, and the native
generator, which draws by the same rules from streams keyed by place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.envs.costbench.domain.world import World
from evalkit.envs.costbench.instances.costs import hash31, query_seed
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import KINDS
from evalkit.envs.mersenne import Mersenne
from evalkit.errors import UsageError, nearest
from evalkit.seeds import Stream

TOOL_FAILURE = "tool_failure"
"""Ours: the turn's call fails and is charged, and the tool can be called again."""

EVENT_KINDS = (*KINDS, TOOL_FAILURE)

ON_CALL = frozenset({"ban_tool", TOOL_FAILURE})
"""Kinds that take the place of the turn's call; the others come after it."""

SEED_STEP = 100
"""Between the seeds of two blocks."""

MOST_SEED = 9999
"""Cost changes draw their seed from 1 to this."""

MOST_WHOLE = 2**63 - 1
"""Of a number in a schedule."""

LEAST_SIZE = 2
"""Of tools that are removed: atomic ones never are."""

TRIES = 100
"""Draws of a range that may overlap earlier ones before the next one is taken as it comes."""

SENTENCES = 10
"""Ways in which a ban or a change is put into words."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "ban_tool": (),
    "preference_change": (),
    "remove_tools": ("size",),
    "cost_change": ("seed", "costs"),
    TOOL_FAILURE: (),
}
"""What an entry of a schedule may say besides `at` and `kind`; what it does not say is drawn as if it were planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One planned block."""

    kind: str
    at: int = 0
    """The turn at which it fires, from 1; 0: the length of the ground truth decides."""
    seed: int | None = None
    """Of a cost change: what the new table is drawn with; None: no new table is drawn."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """Of a cost change in a schedule: cents by tool that replace what holds or is drawn."""
    size: int = 0
    """Of removed tools: how many components they have."""
    reach: tuple[int, int] = (0, 0)
    """Of removed tools: the range that was drawn, both ends included; only its left end matters."""
    alternative: int = -1
    """Of a preference change: place in the instance's alternatives."""


def draws(generator: str, base: int, what: str, index: int = 0) -> Mersenne | Stream:
    """The stream of one block: the reference knows its seed alone, ours also what is drawn.

    `base` is the query's seed S_q, `index` the block's number from 0.
    """
    return Mersenne(base + SEED_STEP * index) if generator == "reference" else Stream(base, what, index)


def kinds_of(generator: str, base: int, block: str, count: int) -> tuple[str, ...]:
    """The kind of each block, in order. `block`: `none`, a kind, or `mixed`: each drawn from all four (ours)."""
    if block == "none":
        return ()
    if block != "mixed":
        return (block,) * count
    stream = draws(generator, base, "mixed")
    return tuple(KINDS[stream.below(len(KINDS))] for _ in range(count))


def table_seed(generator: str, base: int, index: int) -> int:
    """The seed of block `index`'s new costs: used as it is, so that queries may come to the same table."""
    return 1 + draws(generator, base, "cost_change", index).below(MOST_SEED)


def removed_ranges(generator: str, base: int, count: int, length: int) -> list[tuple[int, int]]:
    """Ranges of sizes for `count` removals in a chain of `length`, from one stream.

    They are disjoint where there is room for that by count; where a hundred draws overlap, the next one counts.
    """
    if not count:
        return []
    stream = draws(generator, base, "remove_tools")
    low, high = LEAST_SIZE, max(length, LEAST_SIZE)
    width = high // 2 if low + high // 2 <= high else high - low

    def drawn() -> tuple[int, int]:
        left = low + stream.below(high - width - low + 1)
        return left, left + width + stream.below(high - left - width + 1)

    if high - low + 1 < 2 * count:
        return [drawn() for _ in range(count)]
    ranges: list[tuple[int, int]] = []
    for _ in range(count):
        candidate = drawn()
        for _ in range(TRIES):
            if all(candidate[1] < left or right < candidate[0] for left, right in ranges):
                break
            candidate = drawn()
        ranges.append(candidate)
    return ranges


def planned_blocks(instance: PlanningProblem, world: World) -> tuple[Block, ...]:
    """An instance's blocks in order: those of its schedule with their turns, otherwise those that are drawn.

    Preference changes take the instance's alternatives in order. Raises UsageError if there are too few.
    """
    base = query_seed(instance.seed, instance.query.id)
    entries = sorted(instance.schedule, key=lambda entry: int(entry["at"]))
    kinds = tuple(entry["kind"] for entry in entries)
    if not entries:
        kinds = kinds_of(instance.generator, base, instance.block, instance.blocks)
    changes_wanted = kinds.count("preference_change")
    if changes_wanted > len(instance.alternatives):
        raise UsageError(
            f"alternatives: the preference changes need {changes_wanted}; there are {len(instance.alternatives)}. Ask "
            f"for fewer, or make the suite with more: `evalkit tools queries import --alternatives {changes_wanted}`, "
            f"`evalkit suites generate costbench --block {instance.block} --blocks {changes_wanted}`."
        )
    # As in the reference, the bound on sizes bounds their range even where it lies beyond the chain.
    most = instance.max_tool_length if instance.control_tool_length else world.length
    ranges = iter(removed_ranges(instance.generator, base, kinds.count("remove_tools"), most))
    changes = iter(range(len(kinds)))
    blocks = []
    for i, kind in enumerate(kinds):
        entry = entries[i] if entries else {}
        seed, reach, costs = None, (0, 0), entry.get("costs", {})
        if kind == "cost_change":
            # A schedule's costs change what they name and nothing else, unless a seed stands beside them.
            seed = entry.get("seed") if costs else entry.get("seed", table_seed(instance.generator, base, i))
        elif kind == "remove_tools":
            reach = next(ranges)
        blocks.append(
            Block(
                kind=kind,
                at=entry.get("at", 0),
                seed=seed,
                costs=costs,
                size=entry.get("size", reach[0]),
                reach=reach,
                alternative=next(changes) if kind == "preference_change" else -1,
            )
        )
    return tuple(blocks)


def failing_turns(instance: PlanningProblem) -> tuple[int, ...]:
    """The turns, from 1, whose call fails for once: ours, drawn turn by turn with the instance's probability."""
    if instance.failures <= 0:
        return ()
    base = query_seed(instance.seed, instance.query.id)
    turns = range(1, instance.steps + 1)
    return tuple(turn for turn in turns if Stream(base, "failure", turn).uniform() < instance.failures)


def check_schedule(schedule: Sequence[Mapping[str, Any]], world: World, alternatives: int, where: str) -> None:
    """Raises UsageError for an entry of a schedule that cannot be played, naming its place and field.

    An entry: `at` (turn, from 1), `kind`, and for `cost_change` a `seed` (draws all costs) or `costs` (cents by tool),
    for `remove_tools` a `size` (from 2). Two entries of one turn are refused: one event a turn. Costs were checked when
    they were read.
    """
    turns: set[int] = set()
    for i, entry in enumerate(schedule):
        location = f"{where}[{i}]"
        kind = entry.get("kind")
        if kind not in EVENT_KINDS:
            raise UsageError(f"{location}.kind: there is no kind {kind!r}.{nearest(str(kind), EVENT_KINDS)}")
        allowed = ("at", "kind", *FIELDS[kind])
        for key in entry:
            if key not in allowed:
                raise UsageError(f"{location}: a {kind} has no field {key!r}.{nearest(key, allowed)}")
        _check_whole(entry.get("at"), 1, f"{location}.at")
        if entry["at"] in turns:
            raise UsageError(f"{location}.at: turn {entry['at']} has an event already; one turn has one event.")
        turns.add(entry["at"])
        if "seed" in entry:
            _check_whole(entry["seed"], 0, f"{location}.seed")
        if "size" in entry:
            _check_size(entry["size"], world, f"{location}.size")
    wanted = sum(entry["kind"] == "preference_change" for entry in schedule)
    if wanted > alternatives:
        raise UsageError(
            f"{where}: its preference changes need {wanted} of the line's alternatives; there are {alternatives}."
        )


def ban_sentence(instance: PlanningProblem, step: int, first: bool) -> int:
    """Which of the ten sentences, from 0, says at a turn that the called tool is not available.

    `first`: the ban fires at this very turn; later calls of a banned tool always hear the same sentence.
    """
    base = query_seed(instance.seed, instance.query.id)
    if instance.generator != "reference":
        return Stream(base, "ban_tool_message", step if first else 0).below(SENTENCES)
    seed = hash31(f"{base}:{step}:ban_tool_message") if first else base
    return Mersenne(seed).below(SENTENCES)


def change_sentence(instance: PlanningProblem, step: int) -> int:
    """Which of the ten templates, from 0, announces a preference change that fires at a turn."""
    base = query_seed(instance.seed, instance.query.id)
    if instance.generator != "reference":
        return Stream(base, "preference_change_message", step).below(SENTENCES)
    return Mersenne(hash31(f"{base}:{step}:preference_change_message")).below(SENTENCES)


def _check_whole(value: object, least: int, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{where}: must be a whole number of at least {least}, not {value!r}.")
    if value > MOST_WHOLE:
        raise UsageError(f"{where}: must be at most {MOST_WHOLE}, not {value}.")


def _check_size(value: object, world: World, where: str) -> None:
    _check_whole(value, LEAST_SIZE, where)
    sizes = sorted({tool.size for tool in world.tools} - {1})
    if value not in sizes:
        known = f"; there are some for {', '.join(map(str, sizes))}" if sizes else ""
        raise UsageError(f"{where}: no tool stands for {value} atomic ones{known}.")
