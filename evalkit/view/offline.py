"""A run in one HTML file that opens anywhere: all tables and figures, and some trajectories. It asks for nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evalkit.envs.table import is_litmus
from evalkit.errors import EvalkitError, UsageError
from evalkit.files import write_whole
from evalkit.report.quotes import Quote
from evalkit.report.scores import in_unit
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.view.episode import EpisodePage, episode_page
from evalkit.view.grid import Plot, grid
from evalkit.view.listing import WRITTEN, row_of
from evalkit.view.overview import overview, overview_frame
from evalkit.view.reading import completed, read_run
from evalkit.view.render import PageLink, environment, packed, render
from evalkit.view.run_cache import run_name

MOST_BYTES = 900_000
"""Of all trajectories together, packed."""
MOST = 40
"""Trajectories."""

COLUMNS = (
    Column(key="why", title="Chosen as"),
    *(column for column in WRITTEN[:9] if column.key != "periods"),
)

QUERY = """\
select episode, agent, suite, instance, replicate, 100 * score as score, ending, steps from episodes where used
-- chosen: the quoted one of each kind of error; then of each agent on each suite the worst, the best and the median
-- score, of equal ones the first in the order of admission; last one of each cell whose scores are all the same"""


NEUTRAL = {"worst": "lowest", "best": "highest"}
"""What is said where no score is better than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTrajectory:
    """A trajectory that the file holds."""

    episode: EpisodeResult
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPart:
    """A figure or a trajectory as the file holds it: unpacked when it is looked at."""

    id: str
    packed: str
    """Rendered, and so escaped; base64 of gzip."""


def write_page(directory: Path, file: Path) -> tuple[int, int]:
    """Write the file; (its bytes, how many trajectories it holds). Raises UsageError if it cannot be written, else
    as `offline_page`."""
    text, trajectories = offline_page(directory)
    data = text.encode()
    try:
        write_whole(file, data)
    except OSError as flaw:
        raise UsageError(f"--html: {file} cannot be written: {flaw.strerror}.") from flaw
    return len(data), trajectories


def offline_page(directory: Path) -> tuple[str, int]:
    """(the file's text, how many trajectories it holds). Raises RunError, CorruptLogError."""
    reading = completed(read_run(directory))
    name = run_name(directory)
    episode_count = sum(len(cell.episodes) for cell in reading.report.cells)
    page = overview(reading, name, offline=True)
    parts = [_figure(plot) for plot in page.figures]
    kept = list[SavedTrajectory]()
    room = MOST_BYTES
    for trajectory in chosen(reading.report.cells, reading.quotes):
        html = _trajectory(directory, name, trajectory.episode.id)
        if not html:
            continue
        part = PackedPart(id=f"episode-{trajectory.episode.id}", packed=packed(html))
        room -= len(part.packed)
        if room < 0:
            break
        kept.append(trajectory)
        parts.append(part)
        if len(kept) == MOST:
            break
    frame = overview_frame(page, name, offline=True)
    frame = replace(frame, sections=(*frame.sections, PageLink(title="Trajectories", href="#trajectories")))
    table = _table(kept, episode_count)
    chosen_grid = grid(table, str(directory), href=lambda row, key: f"#episode-{row['id']}" if key == "episode" else "")
    return render("offline.html", frame, page=page, parts=parts, chosen=chosen_grid), len(kept)


def _figure(plot: Plot) -> PackedPart:
    return PackedPart(id=f"part-{plot.name}", packed=packed(environment().get_template("figure.html").render(one=plot)))


def chosen(cells: Sequence[Cell], quotes: Sequence[Quote]) -> list[SavedTrajectory]:
    """The trajectories worth a place, in order: those quoted for errors; cells' worst, best and median; then one
    of each cell whose scores are all the same."""
    by_episode: dict[str, SavedTrajectory] = {}
    for quote in quotes:
        by_episode.setdefault(quote.example.id, SavedTrajectory(episode=quote.example, why=f"error: {quote.kind}"))
    ranked = [sorted((episode for episode in cell.prefix if episode.score is not None), key=_score) for cell in cells]
    varied = [
        cell_episodes
        for cell_episodes in ranked
        if cell_episodes and _score(cell_episodes[0]) != _score(cell_episodes[-1])
    ]
    alike = [
        cell_episodes
        for cell_episodes in ranked
        if cell_episodes and _score(cell_episodes[0]) == _score(cell_episodes[-1])
    ]
    for why, share, ranked_cells in (
        ("worst", 0.0, varied),
        ("best", 1.0, varied),
        ("median", 0.5, varied),
        ("any", 0.0, alike),
    ):
        for cell_episodes in ranked_cells:
            score = _score(cell_episodes[round(share * (len(cell_episodes) - 1))])
            episode = next(episode for episode in cell_episodes if _score(episode) == score)
            words = NEUTRAL.get(why, why) if is_litmus(episode.environment) else why
            by_episode.setdefault(episode.id, SavedTrajectory(episode=episode, why=f"{words} of its cell"))
    return list(by_episode.values())


def _score(episode: EpisodeResult) -> float:
    return episode.score if episode.score is not None else float("-inf")


def _trajectory(directory: Path, name: str, episode: str) -> str:
    """The episode's page without what surrounds it; empty if this evalkit cannot replay it."""
    try:
        page: EpisodePage = episode_page(directory, name, episode, offline=True)
    except EvalkitError:
        return ""
    return environment().get_template("trajectory.html").render(page=page)


def _table(kept: Sequence[SavedTrajectory], episode_count: int) -> Table:
    return Table(
        name="chosen",
        title="Trajectories",
        columns=in_unit(COLUMNS, [is_litmus(trajectory.episode.environment) for trajectory in kept]),
        rows=tuple(
            {
                **row_of(trajectory.episode),
                "why": trajectory.why,
                "id": trajectory.episode.id,
                "episode": trajectory.episode.id[:10],
            }
            for trajectory in kept
        ),
        packs=("",),
        notes=(
            f"this file has {len(kept):,} of the run's {episode_count:,} trajectories, and only parts of "
            "long ones; `evalkit view` and `evalkit show` show all of them, and the run directory has "
            "every reply",
        ),
        query=QUERY,
    )
