"""What lies around an episode: the one before and after it in the list that led to it, and its instance's others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.view.listing import ALL, ListingQuery, neighbours, read_wanted
from evalkit.view.render import PageLink, episode_address, instance_address, titled, with_query

MOST = 24
"""Other episodes that stand beside the heading; the page of the instance has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEpisode:
    """An episode on the same instance."""

    title: str
    href: str
    score: str
    active: bool
    """Whether it is the one that is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the page of an episode shows of others."""

    before: PageLink | None
    after: PageLink | None
    listing: str
    """Address of the list that it stands in."""
    where: str
    """`3 of 72 episodes of noisy on costbench/basic`."""
    instance: str
    """Address of the page of its instance."""
    others: Sequence[OtherEpisode]


def around(cells: Sequence[Cell], episode: EpisodeResult, prefix: str, query: Mapping[str, str]) -> Around:
    """The episode's neighbours. `query`: what its address says of the list that led to it; without a word of that its
    cell is the list. Raises UsageError where that is no list."""
    wanted = read_wanted(query)
    came_from: Mapping[str, object] = wanted.parameters or ({ALL: "all"} if ALL in query else {})
    stands = neighbours(cells, wanted, episode.id) if came_from else None
    if stands is None:
        came_from, wanted = {}, ListingQuery(agent=episode.agent, suite=episode.suite)
        stands = neighbours(cells, wanted, episode.id)
    assert stands is not None
    on_instance = [
        other
        for cell in cells
        for other in cell.episodes
        if (other.suite, other.instance) == (episode.suite, episode.instance)
    ]
    # Of many the first replicates, and the one that is shown.
    on_instance.sort(key=lambda other: (other.replicate, other.id != episode.id))
    return Around(
        before=_link(stands.before, prefix, came_from),
        after=_link(stands.after, prefix, came_from),
        listing=with_query(f"{prefix}/episodes", wanted.parameters),
        where=f"{stands.number:,} of {stands.found:,} {_list_words(wanted)}",
        instance=instance_address(prefix, episode.suite, episode.instance),
        others=[
            OtherEpisode(
                title=other.agent if not other.replicate else f"{other.agent}, replicate {other.replicate}",
                href=episode_address(prefix, other),
                score=score_words(other),
                active=other.id == episode.id,
            )
            for other in on_instance[:MOST]
        ],
    )


def score_words(episode: EpisodeResult) -> str:
    """The score times 100, as pages show it."""
    return "remaining" if episode.score is None else f"{100 * episode.score:.1f}"


def _link(episode: EpisodeResult | None, prefix: str, came_from: Mapping[str, object]) -> PageLink | None:
    if episode is None:
        return None
    return PageLink(title=titled(episode), href=with_query(episode_address(prefix, episode), came_from))


def _list_words(wanted: ListingQuery) -> str:
    """What the list holds, in words."""
    of = " on ".join(name for name in (wanted.agent, wanted.suite) if name)
    further = wanted.parameters.keys() - {"agent", "suite", "order"}
    ordered = f" by {wanted.order.removeprefix('-')}" if wanted.order else ""
    whose = f" {'of' if wanted.agent else 'on'} {of}" if of else ""
    return f"episodes{whose}{', filtered' if further else ''}{ordered}"
