"""`evalkit report`: a run's tables on the terminal, as Markdown, LaTeX, CSV or JSON; its figures; or one page."""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from evalkit.cli.choosing import run_of
from evalkit.errors import UsageError, nearest
from evalkit.files import write_whole
from evalkit.frozen.manifest import Manifest
from evalkit.playing.specs import run_directory
from evalkit.report.report import Report
from evalkit.report.report import report as build
from evalkit.report.tables import Column, Kind, Table, as_csv, estimated, markdown, method_of
from evalkit.stats.intervals import LEAST_INSTANCES, estimate
from evalkit.text import many


def report(args: argparse.Namespace) -> int:
    """Print the tables."""
    directory = run_of(args.run)
    if args.html:
        return _write_page(directory, Path(args.html))
    full = build(directory, judged=_judged(directory, args.judged))
    run = _chosen(args, directory, full)
    if args.json:
        print(orjson.dumps(run.to_json(), option=orjson.OPT_INDENT_2).decode())
    elif args.markdown:
        print("\n\n".join(markdown(table) for table in run.tables))
    elif args.latex:
        from evalkit.report.render.latex import latex

        print("\n".join(latex(table) for table in run.tables), end="")
    elif args.csv:
        _write_csv(Path(args.csv), run.tables)
    elif args.figures:
        _write_figures(directory, full, Path(args.figures))
    else:
        from evalkit.report.render.terminal import print_report

        print_report(run)
    return 0


def _write_page(directory: Path, file: Path) -> int:
    from evalkit.view.offline import write_page

    size, trajectories = write_page(directory, file)
    kept = many(trajectories, "trajectory", "trajectories")
    print(f"Wrote {file}: {size / 1e6:.1f} MB, every table and figure, {kept}. It opens offline.")
    return 0


def _write_csv(folder: Path, tables: Sequence[Table]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables:
            write_whole(folder / f"{table.name}.csv", as_csv(table).encode())
    except OSError as flaw:
        raise UsageError(f"--csv: {folder} cannot be written: {flaw.strerror}.") from flaw
    print(f"Wrote {many(len(tables), 'table')} to {folder}.")


def _write_figures(directory: Path, run: Report, folder: Path) -> None:
    if find_spec("vl_convert") is None:
        raise UsageError(
            "--figures: draws files with vl-convert, which is not installed: pip install 'evalkit-econ[figures]'. "
            "`--html` and `evalkit view` draw in the browser, and need nothing."
        )
    from rich.progress import track

    from evalkit.report.figures.build import run_figures
    from evalkit.report.figures.draw import write_figures
    from evalkit.report.render.terminal import Output

    figures = run_figures(directory, run)
    if not figures:
        print("There is nothing to plot yet: no episode that counts for a score has ended.")
        return
    try:
        shown = track(figures, "drawing", console=Output(stderr=True), transient=True, disable=not sys.stderr.isatty())
        write_figures(folder, run.manifest.name, shown)
    except OSError as flaw:
        raise UsageError(f"--figures: {folder} cannot be written: {flaw.strerror}.") from flaw
    print(f"Wrote {many(len(figures), 'figure')} to {folder}; {folder / 'index.html'} shows all.")


def _chosen(args: argparse.Namespace, directory: Path, run: Report) -> Report:
    """The report with the requested tables instead of the standard ones; unchanged if none were requested."""
    tables: list[Table] = []
    if args.beside:
        from evalkit.report.published.papers import beside_tables

        beside = beside_tables(run.tables)
        if not beside:
            print("--beside paper: the papers have published nothing that this run has too.", file=sys.stderr)
        tables += beside
    if args.by:
        tables += grouped_tables(run.manifest, run.tables, args.by)
    if args.quotes:
        from evalkit.report.quotes import quotes_table, run_quotes

        quotes = run_quotes(directory, run.manifest, run.cells)
        tables.append(quotes_table(quotes, run.cells, args.run or str(directory)))
    for name in args.table or ():
        known = {table.name: table for table in run.tables}
        if name not in known:
            near = nearest(name, known).partition(" Valid:")[0]
            raise UsageError(f"--table: the run has no table {name!r}.{near} Its tables: {', '.join(known)}.")
        tables.append(known[name])
    return replace(run, tables=tuple(tables)) if tables else run


def _judged(directory: Path, names: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """What judges' runs counted in this run's texts, by kind of count and by episode.

    Prints to standard error how many texts have no count. Raises UsageError if two runs counted the same.
    """
    counts: dict[str, dict[str, int]] = {}
    for name in names or ():
        from evalkit.tasks.suites import judged_paths

        kind, by_episode, unread = judged_paths(directory, run_directory(name))
        if kind in counts:
            raise UsageError(f"--judged: {name} counted the same as the one before ({kind}): name one of them.")
        counts[kind] = by_episode
        if unread:
            texts = f"{unread:,} of {len(by_episode) + unread:,} texts"
            print(f"judged: {texts} were not judged, or have no readable count.", file=sys.stderr)
    return counts


# Tables by the tags of agents (`family:qwen`, `size:32b`, `open`): the mean over the agents of a group.
#
# A tag is a word, or a name and a value. What is drawn is an agent: the interval says how the mean would vary with
# other agents of the kind, not with other instances.

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
                notes.append(f"fewer: {column.title} of {row_name}: over {known_agents:,} of {many(agents, 'agent')}")
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
                interval, method = _interval(values)
                row |= {f"{column.key}_over_agents": interval, f"{column.key}_over_agents_kind": method}
        elif column.kind == "count":
            row[column.key] = sum(values.values()) if values else None
        elif column.kind == "counts":
            row[column.key] = dict(sum((Counter(counts) for counts in values.values()), Counter()))
    return row


def _interval(values: Mapping[str, float]) -> tuple[tuple[float, float] | None, str | None]:
    if len(values) < LEAST_INSTANCES:
        return None, None
    mean = estimate({name: [value] for name, value in values.items()})
    return (None, None) if mean.interval is None else ((mean.interval.low, mean.interval.high), mean.method)
