"""A run's figures beside the papers' own, with every setting in which the two differ.

A row of ours stands beside the published rows of the same table that agree with it in the table's keys (difficulty,
prompts, length, ...), the row of the same model directly below it. Settings are those of the manifest and of its
instances, compared with what `published/*.toml` says; nothing here knows a table or an environment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from evalkit.envs.table import ENVIRONMENTS
from evalkit.report.markets.econ_queries import labels, level_of
from evalkit.report.published.papers import Paper, PublishedModel, PublishedTable, as_printed, published_papers
from evalkit.report.scores import packs_of
from evalkit.report.tables import PROMPTS, Column, Table
from evalkit.results.cells import Cell
from evalkit.store.manifest import Manifest

HERE, THERE, SAME = "this run", "paper", "same model"
NOT_SAID, NOT_SET = "not said", "not set"
NAMES_SHOWN = 6
DIGEST_SHOWN = 12

FROM = Column(key="from", title="From")
AGENT = Column(key="agent", title="Agent, model")
DIFFERS = Column(key="differs", title="Differs in", kind="count", unit="settings")

Pair = tuple[dict[str, Any], list[Mapping[str, Any]]]
"""A row of ours with the published rows that agree with it."""

_UNSAID = frozenset({"extra", "seed"})
"""Settings of requests that say nothing of how a model answers on average, or are shown elsewhere."""


def beside_tables(manifest: Manifest, cells: Sequence[Cell], tables: Sequence[Table]) -> tuple[Table, ...]:
    """Published tables with this run's rows, and the settings that differ; none if the run has no such table.

    `tables`: the report's, made of the same cells.
    """
    by_name = {table.name: table for table in tables}
    shown_tables: list[Table] = []
    differences: dict[tuple[Any, ...], dict[str, dict[str, None]]] = {}
    beside: list[Cell] = []
    for paper in published_papers():
        for published in paper.tables:
            sides = _Sides(manifest, cells, paper, published)
            run_tables = [by_name[name] for name in published.ours if name in by_name]
            rows = [row for table in run_tables for row in sides.ours(table)]
            if not rows:
                continue
            shown_tables.append(_table(paper, published, run_tables, rows, sides))
            beside += sides.used
            for cell, settings in sides.differences():
                for name, theirs, ours in settings:
                    occurrences = differences.setdefault(
                        (paper.paper, name, theirs, ours), {"of": {}, "suites": {}, "agents": {}}
                    )
                    occurrences["of"][published.number] = occurrences["suites"][cell.suite.name] = occurrences[
                        "agents"
                    ][cell.agent] = None
    return (*shown_tables, _settings(differences, beside)) if shown_tables else ()


class _Sides:
    """One published table and the rows of a run that can stand beside its rows."""

    def __init__(self, manifest: Manifest, cells: Sequence[Cell], paper: Paper, published: PublishedTable) -> None:
        self._manifest, self._cells = manifest, cells
        self._paper, self._published = paper, published
        self._named = labels(cells)
        self._differences: dict[int, tuple[Cell, list[tuple[str, str, str]]]] = {}
        self.left_out = 0
        """Rows of ours without a published row of the same keys."""

    @property
    def used(self) -> list[Cell]:
        """The cells behind the rows of ours that found a place."""
        return [cell for cell, _ in self._differences.values()]

    @property
    def exact(self) -> set[str]:
        """The agents that play the optimum."""
        return {cell.agent for cell in self.used if cell.exact}

    @cached_property
    def keys(self) -> list[str]:
        """In what rows must agree."""
        row_keys = [key for row in self._published.rows for key in row if key not in {"model", *self.values}]
        return list(dict.fromkeys((*self._published.keys, *row_keys)))

    @cached_property
    def values(self) -> list[str]:
        """The columns that hold published figures."""
        return list(
            dict.fromkeys(key for row in self._published.rows for key, value in row.items() if _is_figure(value))
        )

    def ours(self, table: Table) -> Iterator[Pair]:
        """(row of ours, published rows of the same keys), that of the same model first."""
        for row in table.rows:
            row_cells = [cell for cell in self._cells if self._is_of(cell, row)]
            if not row_cells:
                continue
            key_values = {key: self._value(row_cells, key) for key in self.keys}
            theirs = [row for row in self._published.rows if self._agrees(row, key_values)]
            if not theirs:
                self.left_out += 1
                continue
            agent = self._manifest.agents[row_cells[0].agent]
            model = self._paper.known_as(agent.model, agent.policy)
            names = dict.fromkeys(name for cell in row_cells for name, _, _ in self._compared(cell, model))
            name = model.name if model else ""
            ordered = sorted(theirs, key=lambda row: row["model"] != name)
            yield {**row, **key_values, "agent": row_cells[0].agent, "same": name, "differs": len(names)}, ordered

    def differences(self) -> Iterable[tuple[Cell, list[tuple[str, str, str]]]]:
        """By cell: (setting, the paper's, ours)."""
        return self._differences.values()

    def _is_of(self, cell: Cell, row: Mapping[str, Any]) -> bool:
        """Whether a row of a report's table is about a cell."""
        agent = row.get("played_by", row.get("agent"))
        suite = row.get("suite", cell.suite.base)
        axes = {key[5:]: value for key, value in row.items() if key.startswith("axis:") and value is not None}
        return (
            agent == cell.agent
            and cell.suite.environment in self._published.environments
            and suite in (cell.suite.base, cell.suite.name)
            and row.get("environment", cell.suite.environment) == cell.suite.environment
            and row.get("difficulty", self._named[cell.suite.base]) == self._named[cell.suite.base]
            and axes == dict(cell.suite.axes)
            and any(row.get(key) is not None for key in self.values)
        )

    def _value(self, cells: Sequence[Cell], key: str) -> Any:
        match key:
            case "difficulty":
                return level_of(cells[0])
            case "environment":
                return cells[0].suite.environment
            case "prompts":
                return cells[0].pack
            case _:
                return parameter_of(cells[0], key)

    def _agrees(self, published: Mapping[str, Any], key_values: Mapping[str, Any]) -> bool:
        wanted = {**self._published.keys, **published}
        return all(_same(wanted[key], key_values[key]) for key in self.keys)

    def _compared(self, cell: Cell, model: PublishedModel | None) -> list[tuple[str, str, str]]:
        if id(cell) not in self._differences:
            theirs = self._paper.settings_for(cell.suite.environment, level_of(cell))
            theirs = {key: value for key, value in theirs.items() if key not in self.keys}
            differences = list(differing(self._manifest, cell, theirs, model))
            self._differences[id(cell)] = (
                cell,
                [difference for difference in differences if difference[0] not in self.keys],
            )
        return self._differences[id(cell)][1]


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(wanted: Any, value: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _table(
    paper: Paper,
    published: PublishedTable,
    run_tables: Sequence[Table],
    pairs: Sequence[Pair],
    sides: _Sides,
) -> Table:
    columns = {column.key: column for table in run_tables for column in table.columns}
    shown = {f"{key}{end}" for key in sides.values for end in ("", "_interval", "_kind", "_runs")}
    values = [key for key in columns if key in shown]
    rows: list[dict[str, Any]] = []
    groups: dict[str, list[Pair]] = {}
    for row, theirs in pairs:
        groups.setdefault(repr([row[key] for key in sides.keys]), []).append((row, theirs))
    for group in groups.values():
        same_models: set[str] = set()
        for row, theirs in group:
            rows.append({**row, "from": HERE})
            same = [entry for entry in theirs if entry["model"] and entry["model"] == row["same"]]
            same_models |= {entry["model"] for entry in same}
            rows += [_published_row(row, entry, sides.keys, True, published.runs) for entry in same]
        row, theirs = group[0]
        rows += [
            _published_row(row, entry, sides.keys, False, published.runs)
            for entry in theirs
            if entry["model"] not in same_models
        ]
    axes = [
        replace(columns[key], group=False) for key in columns if key.startswith("axis:") and key[5:] not in sides.keys
    ]
    suite = [Column(key="suite", title="Suite")] if "suite" in columns else []
    keys = [Column(key=key, title=key.capitalize(), group=True) for key in sides.keys]
    left = f"{sides.left_out:,} rows of this run have no counterpart in the paper's table and are left out"
    table = Table(
        name=f"beside_{published.name}",
        title=f"{paper.paper}, {published.number} ({published.place}): {published.title}",
        columns=(*keys, FROM, AGENT, *suite, *axes, *(columns[key] for key in values), DIFFERS),
        rows=tuple(rows),
        packs=packs_of(sides.used),
        notes=(
            f"rows from the paper: {paper.source}, {published.number}, {published.place}",
            *published.notes,
            *([left] if sides.left_out else []),
        ),
        query="\n".join(dict.fromkeys(table.query for table in run_tables if table.query)),
    )
    # Bold among the paper's rows as in the paper, and among ours apart.
    return as_printed(
        table,
        published.name,
        lambda row: (
            None
            if row["from"] == HERE and row["agent"] in sides.exact
            else [row["from"] == HERE, *(row[key] for key in sides.keys)]
        ),
    )


def _published_row(
    row: Mapping[str, Any], published: Mapping[str, Any], keys: Iterable[str], same: bool, runs: int | None
) -> dict[str, Any]:
    """A published row, in the place of one of ours; `runs`: how many its counts of solved ones are of."""
    key_values = {key: row[key] for key in keys}
    figures = {key: value for key, value in published.items() if _is_figure(value)}
    counted = {key.replace("_solved", "_runs"): runs for key in figures if key.endswith("_solved")} if runs else {}
    return {**figures, **counted, **key_values, "from": SAME if same else THERE, "agent": published["model"] or "any"}


def differing(
    manifest: Manifest, cell: Cell, theirs: Mapping[str, Any], model: PublishedModel | None = None
) -> Iterator[tuple[str, str, str]]:
    """(setting, the paper's, ours) for each in which a cell differs from published settings.

    Where the paper says nothing, ours is named only if it is not the environment's default.
    """
    ours, defaults = settings_of(manifest, cell), _defaults(cell)
    if model is not None and model.version:
        ours["model"] = manifest.agents[cell.agent].lane
        theirs = {**theirs, "model": f"{model.name}, version {model.version}"}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours:
            continue
        value = ours[name]
        if name in theirs:
            wanted = theirs[name]
            same = value in wanted if name == PROMPTS else value == _several(wanted)
            if not same:
                yield name, _shown(wanted), _shown(value)
        elif name not in _UNSAID and name in defaults and value != defaults[name]:
            yield name, NOT_SAID, _shown(value)
    agent = manifest.agents[cell.agent]
    for mark in agent.marks if not agent.policy else ():
        yield "as asked", NOT_SAID, mark


def settings_of(manifest: Manifest, cell: Cell) -> dict[str, Any]:
    """What a cell was played with, by name: run, agent, requests, instances. Several values are a sorted tuple.

    What concerns requests, prompts and notes is left out for policies, which are not asked and do not read.
    """
    agent, suite = manifest.agents[cell.agent], cell.suite
    settings: dict[str, Any] = {
        "environment version": f"evalkit's version {suite.environment_version}",
        "replicates": manifest.replicates,
        "instances": len(suite.instances),
    }
    if not agent.policy:
        settings |= {PROMPTS: cell.pack, "notes": agent.notes, **agent.sampling.get(suite.environment, {})}
    sources = {(target.line.get("source") or {}).get("sha256", "")[:DIGEST_SHOWN] for target in suite.instances} - {""}
    settings["query file"] = _several(sources) if sources else None
    return settings | {name: parameter_of(cell, name) for name in ENVIRONMENTS[suite.environment].parameters}


def parameter_of(cell: Cell, name: str) -> Any:
    """The value of a parameter in a cell's instances, by default where a line does not say; several: a sorted tuple."""
    known = ENVIRONMENTS[cell.suite.environment].parameters.get(name)
    default = known.default if known else None
    return _several([instance.line.get(name, default) for instance in cell.suite.instances])


def _defaults(cell: Cell) -> dict[str, Any]:
    """What settings are where nobody says otherwise."""
    env = ENVIRONMENTS[cell.suite.environment]
    sampling = {name: getattr(env.defaults, name) for name in type(env.defaults).__slots__}
    return {"notes": True, **sampling, **{name: known.default for name, known in env.parameters.items()}}


def _several(values: Any) -> Any:
    """One value alone, or a sorted tuple of the different ones."""
    if isinstance(values, str | int | float) or values is None:
        return values
    distinct = sorted(set(values), key=lambda value: (str(type(value)), value))
    return distinct[0] if len(distinct) == 1 else tuple(distinct)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return NOT_SET
    if not isinstance(value, tuple | list):
        return (
            f"{value:g}" if isinstance(value, float) else str(value).lower() if value in (True, False) else str(value)
        )
    if len(value) > 2 and all(isinstance(item, int) for item in value) and value[-1] - value[0] == len(value) - 1:
        return f"{value[0]} to {value[-1]}"
    if len(value) > NAMES_SHOWN:
        return f"{len(value)} others"
    return ", ".join(map(_shown, value))


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + more


def _settings(differences: Mapping[tuple[Any, ...], Mapping[str, Iterable[str]]], cells: Sequence[Cell]) -> Table:
    rows = [
        {
            "paper": paper,
            "setting": name,
            "theirs": theirs,
            "ours": ours,
            **{key: _listed(occurrences[key]) for key in occurrences},
        }
        for (paper, name, theirs, ours), occurrences in differences.items()
    ]
    return Table(
        name="beside_settings",
        title="Settings that differ from the papers'",
        columns=(
            Column(key="paper", title="Paper", group=True),
            Column(key="setting", title="Setting", group=True),
            Column(key="theirs", title="There"),
            Column(key="ours", title="Here"),
            Column(key="of", title="Tables"),
            Column(key="suites", title="Suites"),
            Column(key="agents", title="Agents"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            *(f"{paper.paper}: settings from {paper.settings_from}" for paper in published_papers()),
            "what a paper does not say is named only where this run has other than the environment's default",
        ),
    )
