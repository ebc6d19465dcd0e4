"""One instance across agents: what each scored, spent and did, on one scale with the optimum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from evalkit.envs.known import is_litmus
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, nearest
from evalkit.money import show_usd
from evalkit.report.charts.drawing import line_specs, lines_of, quoted
from evalkit.report.extras.record import EpisodeLine, LinePlots
from evalkit.report.scores import in_unit
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.store.manifest import load_target
from evalkit.store.reading.reader import facts_of
from evalkit.view.around import score_words
from evalkit.view.grid import Grid, grid
from evalkit.view.listing import COLUMNS as LISTED
from evalkit.view.overview import run_address, run_links
from evalkit.view.reading import Reading
from evalkit.view.render import Frame, episode_address, place_of, with_query

DRAWN = 24
"""Episodes whose lines are drawn: the first replicates of all agents come first."""

COLUMNS = (Column(key="agent", title="Agent"), *LISTED[3:9])
"""Of the list of all episodes those from the replicate to the cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One episode on the instance."""

    title: str
    place: str
    href: str
    score: str
    solved: bool
    word: str
    """How it ended."""
    numbers: str
    plot: str
    """Name of its plot; empty: it has none."""
    spec: Mapping[str, Any] | None


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
        cards=[_card(episode, prefix, specs.get(episode.id)) for episode in episodes],
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


def instance_frame(page: InstancePage, name: str) -> Frame:
    """What surrounds it."""
    return Frame(
        title=f"{page.instance} across agents",
        run=name,
        links=run_links(name, "episodes"),
        figures=any(card.spec for card in page.cards),
    )


def _unknown(cells: Sequence[Cell], place: str) -> RunError:
    known = {f"{episode.suite}/{episode.instance}" for cell in cells for episode in cell.episodes}
    return RunError(f"The run holds no episode on the instance {place!r}.{nearest(place, sorted(known))}")


def _card(episode: EpisodeResult, prefix: str, spec: Mapping[str, Any] | None) -> Card:
    numbers = [f"{episode.periods:,} period{'s' if episode.periods != 1 else ''}", f"{episode.steps:,} steps"]
    return Card(
        title=episode.agent if not episode.replicate else f"{episode.agent}, replicate {episode.replicate}",
        place=place_of(episode),
        href=episode_address(prefix, episode),
        score=score_words(episode),
        solved=episode.solved,
        word=(episode.ending or "remaining").replace("_", " "),
        numbers=" · ".join([*numbers, *([show_usd(episode.cost)] if episode.cost else [])]),
        plot=f"line-{episode.id}" if spec else "",
        spec=spec,
    )


def _grid(episodes: Sequence[EpisodeResult], run: str, prefix: str) -> Grid:
    by_row: dict[int, EpisodeResult] = {}
    rows = []
    for episode in episodes:
        row = {column.key: getattr(episode, column.key) for column in COLUMNS}
        row |= {
            "score": None if episode.score is None else 100 * episode.score,
            "ending": episode.ending or "remaining",
        }
        by_row[id(row)] = episode
        rows.append(row)
    query = "\n".join(
        [
            "select agent, replicate, 100 * score as score, ending, periods, steps, cost",
            f"from episodes where suite = {quoted(episodes[0].suite)} and instance = {quoted(episodes[0].instance)}",
            "order by replicate",
        ]
    )
    columns = in_unit(COLUMNS, [is_litmus(episode.environment) for episode in episodes])
    table = Table(name="instance", title="Numbers", columns=columns, rows=tuple(rows), packs=(), query=query)
    return grid(table, run, href=lambda row, key: episode_address(prefix, by_row[id(row)]) if key == "agent" else "")
