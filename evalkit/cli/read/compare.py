"""`evalkit compare`: compare two runs, or two agents, on the instances that both have played."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import orjson

from evalkit.cli.choosing import run_of
from evalkit.errors import UsageError, nearest
from evalkit.nightly.history_files import among, is_night, nights, several
from evalkit.playing.specs import run_directory
from evalkit.report.behaviour import SERVED_COLUMNS, drift_notes, played_times, versions
from evalkit.report.comparing.compare import Side, narrowed, same_agents, together
from evalkit.report.comparing.compare import compare as build
from evalkit.report.run_data import RunData
from evalkit.results.cells import cells


def compare(args: argparse.Namespace) -> int:
    """Print the comparison."""
    first, second, agents = _sides(args)
    comparison = build(first, second, agents)
    if not comparison.tables[0].rows:
        raise UsageError(
            f"{first.label} and {second.label} have no played instance in common, so nothing can be compared. "
            "`evalkit report` names the suites of each."
        )
    if args.json:
        print(orjson.dumps(comparison.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        from evalkit.report.render.terminal import console, print_table

        to = console()
        for table in comparison.tables:
            print_table(table, to)
    return 0


def _sides(args: argparse.Namespace) -> tuple[Side, Side, list[tuple[str, str]]]:
    """(first, second, which agents are compared with which). Raises UsageError."""
    if args.first is None:
        args.first = str(run_of(None))
    if args.second is None:
        side, agent = _side(args.first)
        if args.agents is None and not agent and len(side.manifest.agents) == 2:
            args.agents = list(side.manifest.agents)
        if args.agents is None or agent:
            raise UsageError(
                f"compare: a second run, or --agents X Y, is missing.{_listed(side)} Example: "
                f"evalkit compare {side.label} --agents {' '.join(list(side.manifest.agents)[:2])}"
            )
        first_agent, second_agent = (_known(name, side) for name in args.agents)
        return narrowed(side, first_agent), narrowed(side, second_agent), [(first_agent, second_agent)]
    if args.agents is not None:
        raise UsageError("--agents: is for a single run. For two runs, write RUN:AGENT RUN:AGENT.")
    (first, first_agent), (second, second_agent) = _side(args.first), _side(args.second)
    if first_agent or second_agent:
        first_agent, second_agent = (
            _only(first, first_agent or second_agent),
            _only(second, second_agent or first_agent),
        )
        return narrowed(first, first_agent), narrowed(second, second_agent), [(first_agent, second_agent)]
    return first, second, _pairs(first, second)


def _pairs(first: Side, second: Side) -> list[tuple[str, str]]:
    pairs = same_agents(first, second)
    if not pairs:
        raise UsageError(
            "compare: no agent has the same name in both runs; write RUN:AGENT for "
            f"each.{_listed(first)}{_listed(second)}"
        )
    return pairs


def _side(text: str) -> tuple[Side, str]:
    """Read RUN or RUN:AGENT as (the run, the agent or nothing); RUN may be several nights."""
    top, slashes, rest = text.rpartition("://")  # of a run in a bucket
    name, _, agent = (text, "", "") if Path(text).is_dir() else rest.partition(":")
    name = name if name == text else f"{top}{slashes}{name}"
    folder, which = several(name)
    names = [f"{folder}/{night}" for night in among(which, nights(run_directory(folder)))] if folder else [name]
    if not names:
        raise UsageError(f"compare: {folder} has no night of {which}.")
    side = together([_read(one) for one in names], name)
    return side, _known(agent, side) if agent else ""


def _read(name: str) -> Side:
    from evalkit.frozen.question_files import read_frozen
    from evalkit.frozen.void import read_voids
    from evalkit.report.scores import refused_notes
    from evalkit.results.derived import read_run
    from evalkit.results.voided import void_notes

    directory = run_directory(name)
    manifest, steps, results = read_run(directory, SERVED_COLUMNS)
    run_cells = tuple(cells(manifest, results, read_voids(directory)))
    source = RunData(manifest, (), {"steps": steps})
    drifts = drift_notes(versions(source))
    return Side(
        label=name,
        manifest=manifest,
        cells=run_cells,
        notes=tuple(f"{name}: {note}" for note in (*drifts, *void_notes(run_cells), *refused_notes(run_cells))),
        asked=read_frozen(directory) is not None,
        night=is_night(directory),
        played=played_times(source),
    )


def _only(side: Side, agent: str) -> str:
    """The chosen agent of a run: the named one, or its only one."""
    names = list(side.manifest.agents)
    return names[0] if len(names) == 1 else _known(agent, side)


def _known(agent: str, side: Side) -> str:
    names: Sequence[str] = list(side.manifest.agents)
    if agent not in names:
        raise UsageError(f"compare: {side.label} has no agent {agent!r}.{nearest(agent, names)}")
    return agent


def _listed(side: Side) -> str:
    return f" Agents of {side.label}: {', '.join(side.manifest.agents)}."
