"""The nested fields of a suite's line: queries, costs, a schedule, a source; read with care, and written back.

Money in a line is in the benchmark's units with at most two decimals, as a number or a string; inside it is cents.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation, Overflow
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.catalogue_files import parse_catalogue
from evalkit.envs.costbench.domain.ids import combinations, has_context, preference_number, split_values
from evalkit.envs.costbench.domain.query import Query, QuerySource
from evalkit.envs.costbench.domain.world import World, context_type
from evalkit.envs.costbench.instances.blocks import check_schedule
from evalkit.envs.costbench.instances.parameters import NAME, Settings
from evalkit.envs.parameters import parameters_of, written
from evalkit.errors import UsageError, nearest

MOST_COST = 10**9
"""Units a tool may cost; below it every count of cents has a float of its own."""

Whole = Annotated[int, Meta(ge=0)]


class PlanningLine(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line as it is written."""

    catalogue: Annotated[
        str | dict[str, Any],
        Meta(
            description="domain: a shipped catalogue's name, or a file .toml",
            title="a catalogue's name, or a catalogue as an object",
        ),
    ] = "travel"
    query: Query
    alternatives: Annotated[tuple[Query, ...], Meta(title="a list of queries")] = ()
    alternatives_seed: Whole | None = None
    costs: dict[str, Any] = msgspec.field(default_factory=dict)
    schedule: Annotated[
        tuple[dict[str, Any], ...], Meta(title="a list of events like {'at': 2, 'kind': 'ban_tool'}")
    ] = ()
    source: QuerySource | None = None
    id: str = ""
    environment: Literal["costbench"] = NAME
    digest: str = ""
    optimum: Whole | None = None


_KNOWN = parameters_of(PlanningLine, catalogue=parse_catalogue)
PARAMETERS = {name: _KNOWN[name] for name in ("catalogue", *_KNOWN)}


@lru_cache(maxsize=1024)
def given_types(catalogue: Catalogue, task: str) -> tuple[str, ...]:
    """The types of the ids that a user's text holds: the constants, then the context's preference."""
    graph = catalogue.tasks[task].graph
    constants = [name for name in catalogue.constants if graph is None or name in graph.start]
    return (*constants, *([context_type(catalogue)] if has_context(catalogue, task) else []))


def read_query(query: Query, catalogue: Catalogue, task: str, split: str, where: str) -> Query:
    """A query whose wishes are the split's, its number found where it was left out. Raises UsageError."""
    preferences = _preferences(query.preferences, catalogue, task, split, f"{where}.preferences")
    given = _given(query.given, catalogue, task, split, f"{where}.given")
    context = given[context_type(catalogue)] if has_context(catalogue, task) else None
    number = preference_number(catalogue, task, split, preferences, context)
    if query.number not in (-1, number):
        raise UsageError(f"{where}.number: these preferences come to {number}, the line says {query.number}.")
    return msgspec.structs.replace(query, preferences=preferences, given=given, number=number)


def show_query(query: Query) -> dict[str, Any]:
    """A query as a line holds it."""
    return written(query, Query.__struct_fields__, ("message", "truncated"))


def _preferences(
    preferences: Mapping[str, str], catalogue: Catalogue, task: str, split: str, where: str
) -> dict[str, str]:
    values = split_values(catalogue, task, split)
    _check_keys(preferences, catalogue.keys, where)
    for key in catalogue.keys:
        if preferences[key] not in values[key]:
            raise UsageError(
                f"{where}.{key}: the {split} split of {task!r} has no value {preferences[key]!r}."
                f"{nearest(preferences[key], values[key])}"
            )
    return {key: preferences[key] for key in catalogue.keys}


def _given(given: Mapping[str, int], catalogue: Catalogue, task: str, split: str, where: str) -> dict[str, int]:
    wanted = given_types(catalogue, task)
    _check_keys(given, wanted, where)
    for name in wanted:
        of_context = name not in catalogue.constants
        most = combinations(catalogue, catalogue.context, split) if of_context else 10 ** catalogue.digits[split] - 1
        if not 1 <= given[name] <= most:
            raise UsageError(f"{where}.{name}: expected a whole number from 1 to {most}, got {given[name]!r}.")
    return {name: given[name] for name in wanted}


def _check_keys(values: Mapping[str, object], wanted: Iterable[str], where: str) -> None:
    _check_known(values, wanted, where, "field")
    for name in wanted:
        if name not in values:
            raise UsageError(f"{where}.{name}: is missing.")


def _check_known(values: Mapping[str, object], known: Iterable[str], where: str, what: str) -> None:
    for name in values:
        if name not in known:
            raise UsageError(f"{where}.{name}: there is no such {what}.{nearest(name, known)}")


def read_costs(costs: Mapping[str, object], world: World, where: str) -> dict[str, int]:
    """Explicit costs: cents by tool, in the order the tools are offered. Raises UsageError naming the tool."""
    names = [tool.name for tool in world.tools]
    _check_known(costs, names, where, "tool")
    return {name: _cents(costs[name], f"{where}.{name}") for name in names if name in costs}


def show_costs(costs: Mapping[str, int]) -> dict[str, float]:
    """Explicit costs as a line holds them."""
    return {name: cents / 100 for name, cents in costs.items()}


def _cents(value: object, where: str) -> int:
    refused = UsageError(f"{where}: expected a cost from 0.01 to {MOST_COST} with at most 2 decimals, got {value!r}.")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refused
    try:
        # A float's shortest text is what its writer meant: 20.1 is not a binary fraction.
        cents = Decimal(value if isinstance(value, int) else str(value)) * 100
    except (InvalidOperation, Overflow):
        raise refused from None
    if not cents.is_finite() or not 1 <= cents <= 100 * MOST_COST or cents != int(cents):
        raise refused
    return int(cents)


def read_schedule(
    schedule: Iterable[Mapping[str, Any]], world: World, alternatives: int
) -> tuple[Mapping[str, Any], ...]:
    """Explicit events as the line says them, costs in cents. Raises UsageError naming place and field."""
    events = []
    for i, entry in enumerate(schedule):
        costs = entry.get("costs", {})
        if not isinstance(costs, Mapping):
            raise UsageError(f"schedule[{i}].costs: expected an object, got {costs!r}.")
        own = read_costs(costs, world, f"schedule[{i}].costs")
        events.append({**entry, **({"costs": own} if "costs" in entry else {})})
    check_schedule(events, world, alternatives, "schedule")
    return tuple(events)


def show_schedule(schedule: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Explicit events as a line holds them."""
    return [{**event, **({"costs": show_costs(event["costs"])} if "costs" in event else {})} for event in schedule]
