"""One episode on one page: what it came to, the charts of what it did, and its conversation, period by period.

A long conversation is bounded: its periods are folded, and where all their texts together are too much for one page,
most of them come when they are opened.
"""

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalkit.errors import QUIT, RunError
from evalkit.money import show_usd
from evalkit.report.charts.drawing import episode_figures
from evalkit.report.extras import extras_of
from evalkit.report.queries import text
from evalkit.report.vega import Figure
from evalkit.results.episodes import EpisodeResult
from evalkit.results.moves import Move
from evalkit.results.show import ReplayedEpisode, open_episode
from evalkit.text import BOUND, many, seconds
from evalkit.view.chat import (
    PeriodView,
    TurnView,
    bounded_to,
    pending_of,
    period_address,
    periods_of,
)
from evalkit.view.grid import Plot, plot, sql_command
from evalkit.view.listing import Around
from evalkit.view.overview import ComingFigure, Fact, run_address, run_frame
from evalkit.view.reading import LogState, log_state
from evalkit.view.render import Frame, PageLink, episode_address, figure_address, place_of, titled, with_query

INLINE = 100_000
"""Characters of conversation that one page holds; of more, periods come when they are opened."""

OFFLINE = 120_000
"""The same where many episodes share one file."""

FULL = 200_000
"""Characters of one text where a period is shown in full."""

KEPT = 6
"""Episodes that are kept replayed."""

STEPS_NAMED = 8
"""Steps that a warning names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePage:
    """What the page of an episode shows."""

    id: str
    heading: str
    """`agent on instance`, with the replicate behind the first."""
    place: str
    """`agent:suite:instance:replicate`, as `evalkit show` takes it."""
    cell: str
    """Where the episodes of the same agent and suite are listed; empty: nowhere."""
    around: Around | None
    """None: nothing leads to other pages, or the run's episodes are not known yet."""
    word: str
    """Its ending, or `remaining`."""
    facts: Sequence[Fact]
    query: str
    command: str
    warnings: Sequence[str]
    figures: Sequence[Plot | ComingFigure]
    """Of a served page, each comes when it scrolls near."""
    drawable: bool
    """Whether episodes of its environment have charts."""
    solved: bool
    metrics: Mapping[str, str]
    """Secondary metrics by name."""
    metrics_query: str
    metrics_command: str
    periods: Sequence[PeriodView]
    pending: TurnView | None
    """What an agent's code has asked since its last act."""
    chat: bool
    """Whether the episode is one chat alone."""
    show: str
    """The command that prints it in a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodPage:
    """What the page of one period shows."""

    heading: str
    episode: str
    """Where the page of its episode is."""
    before: str
    """Where the period before is; empty: it is the first."""
    after: str
    full: str
    """Where its texts are shown in full; empty: they are."""
    period: PeriodView


def episode_page(
    directory: Path, name: str, episode: str, *, around: Around | None = None, offline: bool = False
) -> EpisodePage:
    """The page of one episode. `name`: how the pages call the run; `episode`: its id, or what else `show` takes.

    `offline`: nothing leads to other pages, so that periods that are too much are left out. Raises RunError if there
    is no such episode, CorruptLogError if its rows cannot be read.
    """
    state = log_state(directory)
    replayed, figures = _opened(directory, episode, state), _figures(directory, episode, state)
    result, run = replayed.result, str(directory)
    prefix = "" if offline else run_address(name)
    address = episode_address(prefix, result) if prefix else ""
    query, metrics = _query(result), _metrics_query(result)
    return EpisodePage(
        id=result.id,
        heading=titled(result),
        place=place_of(result),
        cell=with_query(f"{prefix}/episodes", {"agent": result.agent, "suite": result.suite}) if prefix else "",
        around=around,
        word=result.ending or "remaining",
        facts=_facts(replayed),
        query=query,
        command=sql_command(run, query),
        warnings=_warnings(replayed.moves),
        figures=[plot(figure, run) for figure in figures]
        if offline
        else [ComingFigure(one.name, one.title, figure_address(address, one.name)) for one in figures],
        drawable=extras_of(result.environment).charts is not None,
        solved=result.solved,
        metrics={metric: _rounded(value) for metric, value in result.metrics.items()},
        metrics_query=metrics,
        metrics_command=sql_command(run, metrics),
        periods=bounded_to(list(periods_of(replayed, address)), OFFLINE if offline else INLINE),
        pending=pending_of(replayed),
        chat=result.periods == 1,
        show=f"evalkit show {shlex.quote(run)} {shlex.quote(place_of(result))}",
    )


def episode_figure(directory: Path, episode: str, name: str) -> Plot:
    """One chart of an episode. Raises RunError if there is no such episode or chart, CorruptLogError if its rows cannot
    be read."""
    for figure in _figures(directory, episode, log_state(directory)):
        if figure.name == name:
            return plot(figure, str(directory))
    raise RunError(f"The episode has no chart {name!r}.")


def period_page(directory: Path, name: str, episode: str, number: int, *, full: bool = False) -> PeriodPage:
    """The page of one period. `full`: its texts are not cut, but for those beyond all measure.

    Raises RunError if there is no such episode or period, CorruptLogError if its rows cannot be read.
    """
    replayed = _opened(directory, episode, log_state(directory))
    result = replayed.result
    address = episode_address(run_address(name), result)
    if not 0 <= number < result.periods:
        raise RunError(f"The episode has periods 0 to {result.periods - 1}, so there is no period {number} to show.")
    (period,) = periods_of(replayed, address, only=number, most=FULL if full else BOUND)
    return PeriodPage(
        heading=f"{titled(result)}, period {number}",
        episode=f"{address}#{period.anchor}",
        before=period_address(address, number - 1) if number else "",
        after=period_address(address, number + 1) if number + 1 < result.periods else "",
        full="" if full else f"{period.href}?full=1",
        period=period,
    )


def episode_frame(page: EpisodePage, name: str) -> Frame:
    """What surrounds the page of an episode. `name`: how the pages call the run."""
    plots = [PageLink(title=figure.title, href=f"#figure-{figure.name}") for figure in page.figures]
    return run_frame(
        name,
        "episodes",
        page.heading,
        sections=[
            PageLink(title="Summary", href="#summary"),
            *plots,
            *([PageLink(title="Metrics", href="#metrics")] if page.metrics else []),
            PageLink(title="Conversation", href="#conversation"),
        ],
        figures=bool(page.figures),
    )


@functools.lru_cache(maxsize=KEPT)
def _opened(directory: Path, episode: str, state: LogState) -> ReplayedEpisode:
    """The episode, replayed once a state of the run's log."""
    del state
    return open_episode(directory, episode)


@functools.lru_cache(maxsize=KEPT)
def _figures(directory: Path, episode: str, state: LogState) -> tuple[Figure, ...]:
    """Its charts, made once a state of the run's log."""
    replayed = _opened(directory, episode, state)
    return episode_figures(replayed.result.environment, replayed.target, replayed.result.id, replayed.moves)


def _facts(replayed: ReplayedEpisode) -> list[Fact]:
    result = replayed.result
    score = "none" if result.score is None else f"{100 * result.score:.1f}"
    steps = max(1, sum(move.reply is not None for move in replayed.moves))
    return [
        Fact(
            title="Score", value=score, note="remaining" if result.score is None else "solved" if result.solved else ""
        ),
        Fact(title="Length", value=many(result.periods, "period"), note=many(result.steps, "step")),
        Fact(title="Cost", value=show_usd(result.cost), note=_per(result.cost and show_usd(result.cost // steps))),
        Fact(
            title="Tokens",
            value=f"{result.tokens_in + result.tokens_out:,}",
            note=f"{result.tokens_in:,} in, {result.tokens_out:,} out" if result.tokens_in else "",
        ),
        Fact(
            title="Latency",
            value=seconds(result.latency_s),
            note=_per(seconds(result.latency_s / steps)),
        ),
        Fact(title="Replicate", value=f"{result.replicate}", note=f"prompts: {replayed.pack}"),
    ]


def _per(what: str | int) -> str:
    """`$0.01 a reply`; nothing of nothing."""
    return f"{what} a reply" if what else ""


def _query(result: EpisodeResult) -> str:
    return "\n".join(
        [
            "select 100 * score as score, solved, ending, periods, steps, cost / 1e12 as usd, tokens_in, tokens_out,",
            "    latency_s, replicate",
            f"from episodes where episode = {text(result.id)}",
            "-- a reply's share: divided by the steps that have one",
        ]
    )


def _metrics_query(result: EpisodeResult) -> str:
    chosen = f"where episode = {text(result.id)} and metric not in ('score', 'solved')"
    return "\n".join(["select metric, value from scores", chosen])


def _rounded(value: float) -> str:
    """To three decimals, without zeros at the end."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _warnings(moves: Sequence[Move]) -> list[str]:
    warnings = []
    differing = [move.row["step"] for move in moves if not move.reproduced]
    if differing:
        steps = ", ".join(map(str, differing[:STEPS_NAMED])) + (", ..." if len(differing) > STEPS_NAMED else "")
        warnings.append(
            f"Replay does not reproduce the log at {many(len(differing), 'step')} ({steps}): the text "
            "shown there may differ from what the agent read. `evalkit verify` shows details."
        )
    refused = sum(move.reply is None and move.ending != QUIT for move in moves)
    if refused:
        warnings.append(f"The provider refused {many(refused, 'request')}.")
    if moves and not moves[-1].ending:
        warnings.append("The episode has not ended and has no score yet.")
    return warnings
