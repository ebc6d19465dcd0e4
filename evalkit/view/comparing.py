"""Two runs, or two agents, beside each other: what the page asks for, and the comparison's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.errors import UsageError, nearest
from evalkit.report.comparing.compare import Side, compare, narrowed, same_agents
from evalkit.view.grid import Grid, grid
from evalkit.view.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAgents:
    """What is compared: two runs by name, and an agent of each; empty: all of the same name."""

    first: str
    second: str
    first_agent: str = ""
    second_agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """What the page's template shows."""

    asked: ComparedAgents
    runs: Sequence[str]
    agents: Mapping[str, Sequence[str]]
    """Of the runs that are compared, by run."""
    heading: str
    text: str
    """Why there is nothing to show; empty if there is."""
    tables: Sequence[Grid]


def read_pair(query: Mapping[str, str], runs: Sequence[str]) -> ComparedAgents:
    """What an address asks for; a run is compared with itself where it names one alone. Raises UsageError."""
    if not runs:
        raise UsageError("There is no run to compare.")
    first = query.get("first") or runs[0]
    second = query.get("second") or first
    for name in (first, second):
        if name not in runs:
            raise UsageError(f"There is no run {name!r} here.{nearest(name, runs)}")
    return ComparedAgents(
        first=first,
        second=second,
        first_agent=query.get("first_agent", ""),
        second_agent=query.get("second_agent", ""),
    )


def comparing(asked: ComparedAgents, first: Reading, second: Reading, runs: Sequence[str]) -> Comparing:
    """The comparison. Raises UsageError for an agent that a run does not have."""
    first_side, second_side = _side(first, asked.first), _side(second, asked.second)
    for side, name in ((first_side, asked.first_agent), (second_side, asked.second_agent)):
        if name and name not in side.manifest.agents:
            raise UsageError(f"{side.label} has no agent {name!r}.{nearest(name, list(side.manifest.agents))}")
    agents = {asked.first: list(first_side.manifest.agents), asked.second: list(second_side.manifest.agents)}
    first_agent, second_agent = asked.first_agent or asked.second_agent, asked.second_agent or asked.first_agent
    text, tables = "", list[Grid]()
    if (asked.first, first_agent) == (asked.second, second_agent):
        text = "Choose two runs, or two agents."
    else:
        pairs = [(first_agent, second_agent)] if first_agent else same_agents(first_side, second_side)
        sides = (
            (narrowed(first_side, first_agent), narrowed(second_side, second_agent))
            if first_agent
            else (first_side, second_side)
        )
        comparison = compare(*sides, pairs)
        tables = [grid(table, str(first.directory)) for table in comparison.tables if table.rows]
        if not comparison.tables[0].rows:
            text, tables = "They have no played instance in common, so nothing can be compared.", []
    return Comparing(
        asked=asked,
        runs=runs,
        agents=agents,
        heading=_heading(asked.first, first_agent) + " and " + _heading(asked.second, second_agent),
        text=text,
        tables=tables,
    )


def _heading(run: str, agent: str) -> str:
    return f"{run}: {agent}" if agent else run


def _side(reading: Reading, name: str) -> Side:
    notes = [note for table in reading.report.tables for note in table.notes if note.startswith("drift:")]
    report = reading.report
    return Side(
        label=name, manifest=report.manifest, cells=report.cells, notes=tuple(f"{name}: {note}" for note in notes)
    )
