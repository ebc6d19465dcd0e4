"""Tables by the tags of agents (`family:qwen`, `size:32b`, `open`): the mean over the agents of a group.

A tag is a word, or a name and a value. What is drawn is an agent: the interval says how the mean would vary with other
agents of the kind, not with other instances.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.errors import UsageError, nearest
from evalkit.report.tables import Column, Kind, Table, estimated, method_of
from evalkit.stats.bootstrap import LEAST_INSTANCES
from evalkit.stats.intervals import estimate
from evalkit.store.manifest import Manifest

UNTAGGED = "(none)"

MEANS: frozenset[Kind] = frozenset({"score", "percent", "fine", "number"})
FEWER_NAMED = 6
"""Means over fewer agents than their group has that are named one by one."""

APART: frozenset[Kind] = frozenset({"p", "usd", "seconds"})
"""Tables with such columns are of single agents: tests, money, speed."""


def grouped_tables(manifest: Manifest, tables: Iterable[Table], by: str) -> tuple[Table, ...]:
    """Those of a report's tables that have figures by agent, by group of agents instead.

    by   names of tags, split by commas: a group is the values its agents have of them (`family` of `family:qwen`,
         `open` of a word)

    Raises UsageError if no agent has such a tag.
    """
    groups = groups_of(manifest, by)
    return tuple(_grouped(table, groups, by) for table in tables if _fits(table))


def groups_of(manifest: Manifest, by: str) -> dict[str, str]:
    """By agent: its group. Raises UsageError if no agent has a tag of such a name."""
    names = [name.strip() for name in by.split(",")]
    tag_names = {tag.partition(":")[0] for agent in manifest.agents.values() for tag in agent.tags}
    for name in names:
        if name not in tag_names and len(names) == 1:
            hint = (
                nearest(name, sorted(tag_names)) if tag_names else " No agent of this run has tags; a sweep gives them."
            )
            raise UsageError(f"--by {by}: no agent has a tag {name!r} or {name + ':...'!r}.{hint}")
    if not tag_names & set(names):
        raise UsageError(f"--by {by}: no agent has one of these tags.{nearest(names[0], sorted(tag_names))}")
    return {agent.name: _group(agent.tags, names) for agent in manifest.agents.values()}


def _group(tags: Sequence[str], names: Sequence[str]) -> str:
    parts = [tag.partition(":") for tag in tags]
    values = [value or name for wanted in names for name, _, value in parts if name == wanted]
    return ", ".join(dict.fromkeys(values)) or UNTAGGED


def _fits(table: Table) -> bool:
    """Whether a table has figures of single agents that a mean makes sense of."""
    kinds = {column.kind for column in table.columns}
    return any(column.key == "agent" for column in table.columns) and bool(kinds & MEANS) and not kinds & APART


def _grouped(table: Table, groups: Mapping[str, str], by: str) -> Table:
    columns, spread = _columns(table, by)
    rows: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    methods = _methods(table)
    places = [
        column.key
        for column in table.columns
        if column.kind == "text" and column.key != "agent" and column.key not in methods
    ]
    order = {group: position for position, group in enumerate(dict.fromkeys(groups.values()))}
    for row in table.rows:
        if row["agent"] in groups:
            rows.setdefault((*(str(row.get(key)) for key in places), groups[row["agent"]]), []).append(row)
    # Places keep their order; within one, groups are in that of the run's agents.
    first: dict[tuple[Any, ...], int] = {}
    for key in rows:
        first.setdefault(key[:-1], len(first))
    ordered = sorted(rows, key=lambda key: (first[key[:-1]], order[key[-1]]))
    return Table(
        name=f"{table.name}_by_{by.replace(',', '_')}",
        title=f"{table.title}, by {by}",
        columns=columns,
        rows=tuple(_row(table, key, rows[key], places, spread) for key in ordered),
        packs=table.packs,
        notes=(
            f"means over the agents of a group; 95 %: interval over agents, from {LEAST_INSTANCES} agents on; counts "
            "are sums",
            *_fewer_notes(columns, [(key, rows[key]) for key in ordered]),
            *table.notes,
        ),
        query=f"-- mean over the agents of a group (tags in the view agents) of:\n{table.query}" if table.query else "",
    )


def _fewer_notes(
    columns: Sequence[Column], groups: Sequence[tuple[tuple[Any, ...], Sequence[Mapping[str, Any]]]]
) -> list[str]:
    """Which means are over fewer agents than their group has, since the others have no such figure."""
    notes = []
    for key, rows in groups:
        agents = len({row["agent"] for row in rows})
        for column in columns:
            known_agents = len({row["agent"] for row in rows if row.get(column.key) is not None})
            if column.kind in MEANS and 0 < known_agents < agents:
                row_name = ", ".join(part for part in key if part != "None")
                notes.append(f"fewer: {column.title} of {row_name}: over {known_agents:,} of {agents:,} agents")
    if len(notes) > FEWER_NAMED:
        notes[FEWER_NAMED:] = [f"fewer: {len(notes) - FEWER_NAMED:,} more means are over a part of their agents"]
    return notes


def _columns(table: Table, by: str) -> tuple[tuple[Column, ...], list[str]]:
    """(columns of the grouped table, keys of the figures that get an interval).

    Those that have one in the table, or are to have one all the same; where none has, all shares.
    """
    keys = [column.key for column in table.columns]
    behind = {column.key: _measured(column.key, keys) for column in table.columns if column.kind == "interval"}
    spread = [column.key for column in table.columns if column.over_agents or column.key in behind.values()]
    if not behind:
        spread = [column.key for column in table.columns if column.kind in ("score", "percent")]
    columns: list[Column] = []
    for column in table.columns:
        if column.kind == "interval" or column.key in _methods(table):
            continue
        if column.key == "agent":
            columns += [Column(key="group", title=by.capitalize()), Column(key="agents", title="Agents", kind="count")]
            continue
        columns.append(column)
        if column.key in spread:
            columns += estimated(column, f"{column.key}_over_agents")[1:]
    return tuple(columns), spread


def _methods(table: Table) -> set[str]:
    """Keys of the columns that name an interval's method."""
    return {method_of(column).key for column in table.columns if column.kind == "interval"}


def _measured(interval: str, keys: Sequence[str]) -> str:
    """The figure that an interval's column belongs to: that of its name, else the one before it."""
    stem = interval.removesuffix("_interval")
    return stem if stem in keys and stem != interval else keys[keys.index(interval) - 1]


def _row(
    table: Table,
    key: tuple[Any, ...],
    members: Sequence[Mapping[str, Any]],
    places: Sequence[str],
    spread: Sequence[str],
) -> dict[str, Any]:
    row: dict[str, Any] = {name: members[0].get(name) for name in places}
    row |= {"group": key[-1], "agents": len({member["agent"] for member in members})}
    for column in table.columns:
        values = {member["agent"]: member[column.key] for member in members if member.get(column.key) is not None}
        if column.kind in MEANS:
            row[column.key] = math.fsum(values.values()) / len(values) if values else None
            if column.key in spread:
                interval, method = _interval((table.name, column.key, *key), values)
                row |= {f"{column.key}_over_agents": interval, f"{column.key}_over_agents_kind": method}
        elif column.kind == "count":
            row[column.key] = sum(values.values()) if values else None
        elif column.kind == "counts":
            row[column.key] = dict(sum((Counter(counts) for counts in values.values()), Counter()))
    return row


def _interval(place: Sequence[Any], values: Mapping[str, float]) -> tuple[tuple[float, float] | None, str | None]:
    if len(values) < LEAST_INSTANCES:
        return None, None
    mean = estimate({name: [value] for name, value in values.items()}, place=[str(part) for part in place])
    return (None, None) if mean.interval is None else ((mean.interval.low, mean.interval.high), mean.method)
