"""Runs, or two agents, beside each other: what the page asks for, and the comparison's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.table import ENVIRONMENTS, is_litmus, score_unit
from evalkit.errors import EvalkitError, RunError, UsageError, nearest
from evalkit.frozen.manifest import load_target
from evalkit.frozen.manifests import read_manifest
from evalkit.nightly.history_files import among, is_night, several
from evalkit.report.charts.drawing import line_specs, lines_of
from evalkit.report.comparing.compare import Side, compare, narrowed, same_agents, together
from evalkit.report.extras import EpisodeLine, LinePlots
from evalkit.report.figures.marks import suite_of
from evalkit.report.queries import text
from evalkit.report.scores import REFUSED, in_unit, litmus_of
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.results.show import open_episode
from evalkit.store.reading.reader import facts_of
from evalkit.view.chat import PeriodView, bounded_to, periods_of
from evalkit.view.grid import Grid, grid
from evalkit.view.leaderboard import ranked
from evalkit.view.listing import COLUMNS as LISTED
from evalkit.view.listing import Card, card_of, row_of
from evalkit.view.overview import run_address
from evalkit.view.reading import Reading
from evalkit.view.render import episode_address, place_of, titled, with_query
from evalkit.view.run_cache import night_name

# Two or three trajectories beside each other, period by period.

MOST = 3
"""Trajectories on one page."""

INLINE = 60_000
"""Characters of each one's conversation that the page holds; further periods come when they are opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePage:
    """What the page shows."""

    columns: Sequence[Card]
    rows: Sequence[Sequence[PeriodView | None]]
    """A period a row, a trajectory a column; None: it has no such period."""


def beside_page(directory: Path, name: str, episodes: Sequence[str]) -> BesidePage:
    """The page of some episodes, named as for `show`. Raises UsageError for fewer than two or more than three."""
    wanted = list(dict.fromkeys(filter(None, episodes)))
    if not 2 <= len(wanted) <= MOST:
        raise UsageError(f"Choose two or three trajectories to see beside each other, not {len(wanted)}.")
    columns, periods = list[Card](), list[Sequence[PeriodView]]()
    for episode in wanted:
        replayed = open_episode(directory, episode)
        columns.append(card_of(replayed.result, titled(replayed.result), run_address(name)))
        periods.append(bounded_to(list(periods_of(replayed, columns[-1].href)), INLINE))
    return BesidePage(columns=columns, rows=list(zip_longest(*periods)))


LOOKED_AT = 8
"""The newest runs, among which two are looked for that have something in common."""

MOST_RUNS = 12
"""Runs on one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAgents:
    """What is compared: two runs by name, and an agent of each; empty: all of the same name."""

    first: str
    second: str
    first_agent: str = ""
    second_agent: str = ""
    more: tuple[str, ...] = ()
    """Further runs: then each has a column, and no two are paired."""

    @property
    def runs(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((self.first, self.second, *self.more)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage:
    """What the page's template shows."""

    asked: ComparedAgents
    runs: Sequence[str]
    agents: Mapping[str, Sequence[str]]
    """Of the runs that are compared, by run."""
    heading: str
    text: str
    """Why there is nothing to show; empty if there is."""
    tables: Sequence[Grid]
    summary: Sequence[str] = ()
    """What it comes to over all suites, in words; nothing for a single one."""


def read_compared(query: Mapping[str, Sequence[str]], runs: Mapping[str, Path]) -> ComparedAgents:
    """What an address asks for (values by key), of runs by name, newest first. Raises UsageError.

    Where it does not say: the two newest runs with something in common; of a run that is named alone, the newest other
    one that has something in common with it; else that run with itself.
    """
    if not runs:
        raise UsageError("There is no run to compare.")
    chosen = list(dict.fromkeys(name for name in query.get("run", ()) if name))
    keys = ("first", "second", "first_agent", "second_agent")
    first, second, *agents = (next(iter(query.get(key, ())), "") for key in keys)
    if chosen:
        first, second = chosen[0], chosen[1] if len(chosen) > 1 else ""
    for name in filter(None, (first, second, *chosen)):
        if name not in runs and (chosen or not named(name, runs)):
            raise UsageError(f"There is no run {name!r} here.{nearest(name, list(runs))}")
    if len(chosen) > MOST_RUNS:
        raise UsageError(f"Choose at most {MOST_RUNS} runs to compare, not {len(chosen)}.")
    if not (first and second) and any(agents):
        first = second = first or second or next(iter(runs))
    elif not (first and second):
        first, second = _in_common(runs, first or second)
    return ComparedAgents(
        first=first, second=second, first_agent=agents[0], second_agent=agents[1], more=tuple(chosen[2:])
    )


def named(name: str, runs: Mapping[str, Path]) -> list[str]:
    """The runs that a name means: itself, or nights as of `history_files.several`; none if there are none."""
    sweep, which = several(name)
    if not sweep:
        return [name] if name in runs else []
    dates = sorted(run.removeprefix(f"{sweep}/") for run in runs if run.startswith(f"{sweep}/"))
    return [night_name(sweep, night) for night in among(which, dates)]


def _in_common(runs: Mapping[str, Path], named: str) -> tuple[str, str]:
    """Two runs that play a suite in common with an agent of the same name; the older one is A."""
    newest = list(dict.fromkeys([*([named] if named else []), *list(runs)[:LOOKED_AT]]))
    played = {name: _played(runs[name]) for name in newest}
    for newer, older in combinations(newest, 2):
        if named and named not in (newer, older):
            break
        if played[newer] & played[older]:
            return older, newer
    return newest[0], newest[0]


def _played(directory: Path) -> set[tuple[str, str]]:
    """(agent, suite) of a run; nothing of one that cannot be read."""
    try:
        manifest = read_manifest(directory)
    except EvalkitError:
        return set()
    return {(agent, suite) for agent in manifest.agents for suite in manifest.suites}


def comparing(asked: ComparedAgents, readings: Sequence[Sequence[Reading]], runs: Sequence[str]) -> ComparePage:
    """The comparison; `readings`: by `asked.runs`, of what each means. Raises UsageError for an agent that a
    run does not have."""
    if asked.more:
        return ComparePage(
            asked=asked,
            runs=runs,
            agents={},
            heading=", ".join(asked.runs),
            text="",
            tables=[_several(asked.runs, [reading for (reading,) in readings])],
        )
    return _pair(asked, readings[0], readings[-1], runs)


def _pair(
    asked: ComparedAgents, firsts: Sequence[Reading], seconds: Sequence[Reading], runs: Sequence[str]
) -> ComparePage:
    first, second = firsts[-1], seconds[-1]
    first_side = together([_side(one, asked.first) for one in firsts], asked.first)
    second_side = together([_side(one, asked.second) for one in seconds], asked.second)
    for side, name in ((first_side, asked.first_agent), (second_side, asked.second_agent)):
        if name and name not in side.manifest.agents:
            raise UsageError(f"{side.label} has no agent {name!r}.{nearest(name, list(side.manifest.agents))}")
    agents = {asked.first: list(first_side.manifest.agents), asked.second: list(second_side.manifest.agents)}
    if asked.first == asked.second and not (asked.first_agent or asked.second_agent):
        best = _two_best(first)
        asked = replace(asked, first_agent=best[0], second_agent=best[1]) if best else asked
    first_agent, second_agent = asked.first_agent or asked.second_agent, asked.second_agent or asked.first_agent
    text, tables, summary = "", list[Grid](), list[str]()
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
        tables = [
            grid(table, str(first.directory), apart="measure", every=True) for table in comparison.tables if table.rows
        ]
        summary = [whole.words for whole in comparison.overall if whole.suites > 1]
        if not comparison.tables[0].rows:
            text, tables = "They have no played instance in common, so nothing can be compared.", []
        if asked.first != asked.second and not first_agent and len(firsts) == len(seconds) == 1:
            tables = [_several(asked.runs, (first, second)), *tables]
    return ComparePage(
        asked=asked,
        runs=[*(name for name in asked.runs if name not in runs), *runs],
        agents=agents,
        heading=_heading(asked.first, first_agent) + " and " + _heading(asked.second, second_agent),
        text=text,
        tables=tables,
        summary=summary,
    )


def _two_best(reading: Reading) -> tuple[str, str] | None:
    """The best agent of a run as B, and the one after it as A: of those that have a score on every suite; else on one
    suite, the widest; None: there are no two on any."""
    first = ranked(reading.report)[:2]
    if len(first) == 2:
        return first[1], first[0]
    by_suite: dict[str, list[tuple[float, str]]] = {}
    for row in reading.report.table("scores").rows:
        if row["score"] is not None:
            by_suite.setdefault(suite_of(row), []).append((row["score"], row["agent"]))
    widest = max(by_suite.values(), key=len, default=[])
    best = sorted(widest, key=lambda scored: -scored[0])[:2]
    return (best[1][1], best[0][1]) if len(best) == 2 else None


def _several(names: Sequence[str], readings: Sequence[Reading]) -> Grid:
    """Agents by suites, with a column of each run."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    columns = [Column(key="suite", title="Suite", group=True), Column(key="agent", title="Agent")]
    unit = score_unit(so for reading in readings for so in litmus_of(reading.report.cells))
    for number, (name, reading) in enumerate(zip(names, readings, strict=True)):
        columns.append(Column(key=f"score_{number}", title=name, kind="score", unit=unit))
        columns.append(Column(key=f"interval_{number}", title="95 % interval", kind="interval", unit=unit))
        for row in reading.report.table("scores").rows:
            place = suite_of(row), row["agent"]
            held = rows.setdefault(place, {"suite": place[0], "agent": place[1]})
            held |= {f"score_{number}": row["score"], f"interval_{number}": row["interval"]}
    known = {suite: max(map(len, (row for row in rows.values() if row["suite"] == suite))) for suite, _ in rows}
    suites = sorted(known, key=lambda suite: -known[suite])  # first what most of the runs have
    table = Table(
        name="runs",
        title="Scores by run",
        columns=tuple(columns),
        rows=tuple(sorted(rows.values(), key=lambda row: suites.index(row["suite"]))),
        packs=("",),
        notes=(f"{unit}; mean over instances; each run on the instances that it has played",),
        query=readings[0].report.table("scores").query,
    )
    return grid(table, str(readings[0].directory), every=True)


def _heading(run: str, agent: str) -> str:
    return f"{run}: {agent}" if agent else run


def _side(reading: Reading, name: str) -> Side:
    said = ("drift:", REFUSED)
    notes = dict.fromkeys(note for one in reading.report.tables for note in one.notes if note.startswith(said))
    report = reading.report
    return Side(
        label=name,
        manifest=report.manifest,
        cells=report.cells,
        notes=tuple(f"{name}: {note}" for note in notes),
        night=is_night(reading.directory),
    )


# One instance across agents: what each scored, spent and did, on one scale with the optimum.

DRAWN = 24
"""Episodes whose lines are drawn: the first replicates of all agents come first."""

COLUMNS = (Column(key="agent", title="Agent"), *LISTED[3:9])
"""Of the list of all episodes those from the replicate to the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    """What the page shows."""

    suite: str
    instance: str
    listing: str
    cards: Sequence[Card]
    beside: str
    """Where chosen trajectories are opened beside each other."""
    grid: Grid
    drawn: str
    """What the plots show, in words; empty: there are none."""
    note: str
    """What is left out; empty: nothing."""


def instance_page(reading: Reading, name: str, place: str) -> InstancePage:
    """The page of one instance; `place`: its suite and id, with a stroke between. Raises RunError."""
    cells, prefix = reading.report.cells, run_address(name)
    episodes = [
        episode for cell in cells for episode in cell.episodes if f"{episode.suite}/{episode.instance}" == place
    ]
    if not episodes:
        raise _unknown(cells, place)
    episodes.sort(key=lambda episode: episode.replicate)
    lines = lines_of(episodes[0].environment)
    drawn = _drawn(reading, lines, episodes[:DRAWN]) if lines else {}
    titles = [place_of(episode) for episode in episodes if episode.id in drawn]
    specs = dict(zip(drawn, line_specs(lines, list(drawn.values()), titles) if lines else (), strict=True))
    first = episodes[0]
    thin = "Thin: the agent" if is_litmus(first.environment) else "Thin: the agent; broad: the optimum"
    return InstancePage(
        suite=first.suite,
        instance=first.instance,
        listing=with_query(f"{prefix}/episodes", {"suite": first.suite, "instance": first.instance}),
        cards=[card_of(episode, "", prefix, specs.get(episode.id)) for episode in episodes],
        beside=f"{prefix}/beside",
        grid=_grid(episodes, str(reading.directory), prefix),
        drawn=f"{lines.up} by {lines.across.lower()}; all plots have one scale. {thin}." if specs and lines else "",
        note=f"Drawn: the first {DRAWN} of {len(episodes):,} episodes." if len(episodes) > DRAWN and lines else "",
    )


def _drawn(reading: Reading, lines: LinePlots, episodes: Sequence[EpisodeResult]) -> dict[str, EpisodeLine]:
    """The lines of those that can be drawn, by id; in one pass over the log."""
    env = ENVIRONMENTS[episodes[0].environment]
    manifest, first = reading.report.manifest, episodes[0]
    target = load_target(env, manifest.targets([(first.suite, first.instance)])[first.suite, first.instance][1])
    by_id = {episode.id: episode for episode in episodes}
    drawn = {}
    for name, facts in facts_of(reading.directory, by_id).items():
        episode = by_id[name]
        periods = getattr(target, "periods", 1) if episode.finished else episode.periods
        drawn[name] = lines.line(target, [orjson.loads(fact) for fact in facts], periods)
    return {episode.id: drawn[episode.id] for episode in episodes if episode.id in drawn}


def _unknown(cells: Sequence[Cell], place: str) -> RunError:
    known = {f"{episode.suite}/{episode.instance}" for cell in cells for episode in cell.episodes}
    return RunError(f"The run holds no episode on the instance {place!r}.{nearest(place, sorted(known))}")


def _grid(episodes: Sequence[EpisodeResult], run: str, prefix: str) -> Grid:
    rows = [row_of(episode) for episode in episodes]
    by_row = {id(row): episode for row, episode in zip(rows, episodes, strict=True)}
    suite, instance = text(episodes[0].suite), text(episodes[0].instance)
    query = (
        "select agent, replicate, 100 * score as score, ending, periods, steps, cost\n"
        f"from episodes where suite = {suite} and instance = {instance}\n"
        "order by replicate"
    )
    columns = in_unit(COLUMNS, [is_litmus(episode.environment) for episode in episodes])
    table = Table(name="instance", title="Numbers", columns=columns, rows=tuple(rows), packs=(), query=query)
    return grid(table, run, href=lambda row, key: episode_address(prefix, by_row[id(row)]) if key == "agent" else "")
