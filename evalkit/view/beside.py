"""Two or three trajectories beside each other, period by period."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.results.show import open_episode
from evalkit.view.around import score_words
from evalkit.view.chat import PeriodView, bounded_to, periods_of
from evalkit.view.overview import run_address, run_links
from evalkit.view.places import episode_address, titled
from evalkit.view.render import Frame

MOST = 3
"""Trajectories on one page."""

INLINE = 60_000
"""Characters of each one's conversation that the page holds; further periods come when they are opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTrajectory:
    """One trajectory."""

    title: str
    href: str
    suite: str
    score: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePage:
    """What the page shows."""

    columns: Sequence[SideTrajectory]
    rows: Sequence[Sequence[PeriodView | None]]
    """A period a row, a trajectory a column; None: it has no such period."""


def beside_page(directory: Path, name: str, episodes: Sequence[str]) -> BesidePage:
    """The page of some episodes, named as for `show`. Raises UsageError for fewer than two or more than three."""
    wanted = list(dict.fromkeys(filter(None, episodes)))
    if not 2 <= len(wanted) <= MOST:
        raise UsageError(f"Choose two or three trajectories to see beside each other, not {len(wanted)}.")
    columns, periods = list[SideTrajectory](), list[Sequence[PeriodView]]()
    for episode in wanted:
        replayed = open_episode(directory, episode)
        result = replayed.result
        address = episode_address(run_address(name), result)
        columns.append(
            SideTrajectory(
                title=titled(result),
                href=address,
                suite=result.suite,
                score=score_words(result),
                word=(result.ending or "remaining").replace("_", " "),
            )
        )
        periods.append(bounded_to(list(periods_of(replayed, address)), INLINE))
    return BesidePage(columns=columns, rows=list(zip_longest(*periods)))


def beside_frame(page: BesidePage, name: str) -> Frame:
    """What surrounds it."""
    return Frame(
        title=" and ".join(column.title for column in page.columns), run=name, links=run_links(name, "episodes")
    )
