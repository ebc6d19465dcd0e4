"""The nested fields of a suite's line: queries, costs, a schedule, a source; read with care, and written back.

Money in a line is in the benchmark's units with at most two decimals, as a number or a text; inside it is cents.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, Overflow
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.ids import combinations, has_context, preference_number, split_values
from evalkit.envs.costbench.domain.query import Query, QuerySource
from evalkit.envs.costbench.domain.world import World, context_type
from evalkit.envs.costbench.instances.blocks import check_schedule
from evalkit.errors import UsageError, nearest

MOST_COST = 10**9
"""Units a tool may cost; below it every count of cents has a float of its own."""

_QUERY = ("id", "preferences", "given", "number", "text", "message", "truncated")
_SOURCE = ("file", "sha256", "row")


def given_types(catalogue: Catalogue, task: str) -> tuple[str, ...]:
    """The types of the ids that a user's text holds: the constants, then the context's preference."""
    graph = catalogue.tasks[task].graph
    constants = [name for name in catalogue.constants if graph is None or name in graph.start]
    return (*constants, *([context_type(catalogue)] if has_context(catalogue, task) else []))


def read_query(value: object, catalogue: Catalogue, task: str, split: str, where: str) -> Query:
    """A query. Raises UsageError naming the field that is wrong; its number may be left out."""
    fields = _object(value, _QUERY, where)
    preferences = _preferences(fields.get("preferences"), catalogue, task, split, f"{where}.preferences")
    given = _given(fields.get("given", {}), catalogue, task, split, f"{where}.given")
    context = given[context_type(catalogue)] if has_context(catalogue, task) else None
    number = preference_number(catalogue, task, split, preferences, context)
    stated = fields.get("number", number)
    if type(stated) is not int or stated != number:
        raise UsageError(f"{where}.number: these preferences come to {number}, the line says {stated!r}.")
    return Query(
        id=_some_text(fields, "id", where),
        preferences=preferences,
        given=given,
        number=number,
        text=_text(fields, "text", where),
        message=_text({"message": "", **fields}, "message", where),
        truncated=_truth(fields.get("truncated", False), f"{where}.truncated"),
    )


def show_query(query: Query) -> dict[str, Any]:
    """A query as a line holds it."""
    fields: dict[str, Any] = {
        "id": query.id,
        "preferences": dict(query.preferences),
        "given": dict(query.given),
        "number": query.number,
        "text": query.text,
    }
    if query.message:
        fields["message"] = query.message
    if query.truncated:
        fields["truncated"] = True
    return fields


def _preferences(value: object, catalogue: Catalogue, task: str, split: str, where: str) -> dict[str, str]:
    preferences, values = _object(value, catalogue.keys, where), split_values(catalogue, task, split)
    for key in catalogue.keys:
        if key not in preferences:
            raise UsageError(f"{where}.{key}: is missing.")
        if preferences[key] not in values[key]:
            raise UsageError(
                f"{where}.{key}: the {split} split of {task!r} has no value {preferences[key]!r}."
                f"{nearest(str(preferences[key]), values[key])}"
            )
    return {key: preferences[key] for key in catalogue.keys}


def _given(value: object, catalogue: Catalogue, task: str, split: str, where: str) -> dict[str, int]:
    wanted = given_types(catalogue, task)
    given = _object(value, wanted, where)
    for name in wanted:
        if name not in given:
            raise UsageError(f"{where}.{name}: is missing.")
        of_context = name not in catalogue.constants
        most = combinations(catalogue, catalogue.context, split) if of_context else 10 ** catalogue.digits[split] - 1
        if type(given[name]) is not int or not 1 <= given[name] <= most:
            raise UsageError(f"{where}.{name}: expected a whole number from 1 to {most}, got {given[name]!r}.")
    return {name: given[name] for name in wanted}


def read_costs(value: object, world: World, where: str) -> dict[str, int]:
    """Explicit costs: cents by tool, in the order the tools are offered. Raises UsageError naming the tool."""
    names = [tool.name for tool in world.tools]
    costs = _object(value, names, where, "tool")
    return {name: _cents(costs[name], f"{where}.{name}") for name in names if name in costs}


def show_costs(costs: Mapping[str, int]) -> dict[str, float]:
    """Explicit costs as a line holds them."""
    return {name: cents / 100 for name, cents in costs.items()}


def _cents(value: object, where: str) -> int:
    refused = UsageError(f"{where}: expected a cost from 0.01 to {MOST_COST} with at most 2 decimals, got {value!r}.")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refused
    try:
        # A float's shortest text is what its writer meant: 20.1 is no binary fraction.
        cents = Decimal(value if isinstance(value, int) else str(value)) * 100
    except (InvalidOperation, Overflow):
        raise refused from None
    if not cents.is_finite() or not 1 <= cents <= 100 * MOST_COST or cents != int(cents):
        raise refused
    return int(cents)


def read_schedule(value: object, world: World, alternatives: int) -> tuple[Mapping[str, Any], ...]:
    """Explicit events as the line says them, costs in cents. Raises UsageError naming place and field."""
    if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
        raise UsageError(f"schedule: expected a list of events like {{'at': 2, 'kind': 'ban_tool'}}, got {value!r}.")
    events = []
    for i, entry in enumerate(value):
        event = dict(entry)
        if "costs" in event:
            event["costs"] = read_costs(event["costs"], world, f"schedule[{i}].costs")
        events.append(event)
    check_schedule(events, world, alternatives, "schedule")
    return tuple(events)


def show_schedule(schedule: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Explicit events as a line holds them."""
    return [{**event, **({"costs": show_costs(event["costs"])} if "costs" in event else {})} for event in schedule]


def read_source(value: object) -> QuerySource:
    """Where an imported query comes from. Raises UsageError."""
    source = _object(value, _SOURCE, "source")
    row = source.get("row", 0)
    if type(row) is not int or row < 0:
        raise UsageError(f"source.row: expected a whole number from 0, got {row!r}.")
    return QuerySource(
        file=_some_text(source, "file", "source"), sha256=_some_text(source, "sha256", "source"), row=row
    )


def show_source(source: QuerySource) -> dict[str, Any]:
    """A source as a line holds it."""
    return {"file": source.file, "sha256": source.sha256, "row": source.row}


def _object(value: object, known: Iterable[str], where: str, what: str = "field") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: {'is missing' if value is None else f'expected an object, got {value!r}'}.")
    for key in value:
        if key not in known:
            raise UsageError(f"{where}.{key}: there is no such {what}.{nearest(str(key), known)}")
    return value


def _text(value: Mapping[str, Any], name: str, where: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise UsageError(f"{where}.{name}: {'is missing' if text is None else f'expected a text, got {text!r}'}.")
    return text


def _some_text(value: Mapping[str, Any], name: str, where: str) -> str:
    text = _text(value, name, where)
    if not text:
        raise UsageError(f"{where}.{name}: must not be empty.")
    return text


def _truth(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where}: expected true or false, got {value!r}.")
    return value
