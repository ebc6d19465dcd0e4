"""Where the pages of a run's episodes are: addresses that name what they show."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult

PLAIN = "/:=&,@"
"""What of a place stands in an address as it is."""


def place_of(result: EpisodeResult) -> str:
    """`agent:suite:instance:replicate`, as `evalkit show` takes it."""
    return f"{result.agent}:{result.suite}:{result.instance}:{result.replicate}"


def titled(result: EpisodeResult) -> str:
    """`agent on instance`, with the replicate behind the first."""
    more = f", replicate {result.replicate}" if result.replicate else ""
    return f"{result.agent} on {result.instance}{more}"


def episode_address(prefix: str, result: EpisodeResult) -> str:
    """Where the page of an episode is; `prefix`: the run's."""
    return f"{prefix}/episode/{quote(place_of(result), safe=PLAIN)}"


def figure_address(prefix: str, name: str) -> str:
    """Where one figure is sent alone; `prefix`: the address of what it is a figure of."""
    return f"{prefix}/figure/{quote(name, safe='')}"


def instance_address(prefix: str, suite: str, instance: str) -> str:
    """Where all agents on an instance are beside each other."""
    return f"{prefix}/instance/{quote(f'{suite}/{instance}', safe=PLAIN)}"


def with_query(address: str, parameters: Mapping[str, object]) -> str:
    """The address with what of these is not empty."""
    kept = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{address}?{urlencode(kept)}" if kept else address


def episode_at(cells: Iterable[Cell], named: str) -> EpisodeResult | None:
    """The episode that an id or a place names; None: none is named so in full."""
    episodes = (episode for cell in cells for episode in cell.episodes)
    return next((episode for episode in episodes if named in (episode.id, place_of(episode))), None)
