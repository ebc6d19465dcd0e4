"""The episodes of a run: chosen, ordered and given a page at a time."""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from evalkit.errors import UsageError
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.view.grid import Grid, grid

PER_PAGE = 100
REMAINING = "remaining"
"""In place of an ending: episodes that have begun and not ended."""

ORDERS = {
    "": "admission",
    "score": "score",
    "-score": "score desc",
    "-cost": "cost desc",
    "-steps": "steps desc",
}
"""How episodes can be ordered: the word in the address, and in SQL."""

COLUMNS = (
    Column(key="episode", title="Episode"),
    Column(key="agent", title="Agent"),
    Column(key="suite", title="Suite"),
    Column(key="instance", title="Instance"),
    Column(key="replicate", title="Repl.", kind="count"),
    Column(key="score", title="Score", kind="score", unit="100 = optimum"),
    Column(key="ending", title="Ending"),
    Column(key="periods", title="Periods", kind="count"),
    Column(key="steps", title="Steps", kind="count"),
    Column(key="cost", title="Cost", kind="usd"),
    Column(key="tokens_in", title="Tokens in", kind="tokens"),
    Column(key="tokens_out", title="Tokens out", kind="tokens"),
    Column(key="latency_s", title="Replies took", kind="seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingQuery:
    """Which episodes, in which order, which page of them."""

    agent: str = ""
    suite: str = ""
    ending: str = ""
    instance: str = ""
    """A part of its id."""
    least: float | None = None
    most: float | None = None
    """Of the score, 100 the optimum."""
    order: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the page's template shows."""

    wanted: ListingQuery
    agents: Sequence[str]
    suites: Sequence[str]
    endings: Sequence[str]
    orders: Mapping[str, str]
    found: int
    first: int
    """Number of the page's first episode, from 1; 0: there is none."""
    last: int
    before: str
    """Address of the page before; empty: there is none."""
    after: str
    grid: Grid


def read_wanted(query: Mapping[str, str]) -> ListingQuery:
    """What an address asks for. Raises UsageError for a number that is none, or an unknown order."""
    order = query.get("order", "")
    if order not in ORDERS:
        raise UsageError(f"order: {order!r} is not one of {', '.join(repr(name) for name in ORDERS)}.")
    return ListingQuery(
        agent=query.get("agent", ""),
        suite=query.get("suite", ""),
        ending=query.get("ending", ""),
        instance=query.get("instance", "").strip(),
        least=_number(query, "least"),
        most=_number(query, "most"),
        order=order,
        page=_page(query.get("page", "1")),
    )


def _number(query: Mapping[str, str], key: str) -> float | None:
    text = query.get(key, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"-?\d{1,9}(\.\d{0,9})?", text):
        raise UsageError(f"{key}: {text!r} is not a number.")
    return float(text)


def _page(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise UsageError(f"page: {text!r} is not a page number; pages count from 1.")
    return int(text)


def listing(cells: Sequence[Cell], wanted: ListingQuery, run: str, prefix: str) -> Listing:
    """One page of the episodes of a run's cells. `run`: how `evalkit sql` calls it; `prefix`: its address."""
    episodes = [episode for cell in cells for episode in cell.episodes if _asked(episode, wanted)]
    _sort(episodes, wanted.order)
    pages = max(1, -(-len(episodes) // PER_PAGE))
    page = min(wanted.page, pages)
    first = (page - 1) * PER_PAGE
    shown = episodes[first : first + PER_PAGE]
    table = Table(
        name="episodes",
        title="Episodes",
        columns=COLUMNS,
        rows=tuple(_row(episode) for episode in shown),
        packs=(),
        query=query_of(wanted, first),
    )

    def to_episode(row: Mapping[str, object], key: str) -> str:
        return f"{prefix}/episode/{quote(str(row['id']), safe='')}" if key == "episode" else ""

    def address(number: int) -> str:
        parameters = {
            name: getattr(wanted, name) for name in ("agent", "suite", "ending", "instance", "least", "most", "order")
        }
        kept = {name: value for name, value in parameters.items() if value not in ("", None)}
        return f"{prefix}/episodes?{urlencode({**kept, 'page': number})}"

    return Listing(
        wanted=wanted,
        agents=list(dict.fromkeys(cell.agent for cell in cells)),
        suites=list(dict.fromkeys(cell.suite.name for cell in cells)),
        endings=[*sorted({episode.ending for cell in cells for episode in cell.episodes if episode.ending}), REMAINING],
        orders=ORDERS,
        found=len(episodes),
        first=first + 1 if shown else 0,
        last=first + len(shown),
        before=address(page - 1) if page > 1 else "",
        after=address(page + 1) if page < pages else "",
        grid=grid(table, run, href=to_episode),
    )


def _asked(episode: EpisodeResult, wanted: ListingQuery) -> bool:
    if (wanted.agent and episode.agent != wanted.agent) or (wanted.suite and episode.suite != wanted.suite):
        return False
    if wanted.ending and wanted.ending != (episode.ending or REMAINING):
        return False
    if wanted.instance not in episode.instance:
        return False
    if wanted.least is None and wanted.most is None:
        return True
    if episode.score is None:
        return False
    score = 100 * episode.score
    return (wanted.least is None or score >= wanted.least) and (wanted.most is None or score <= wanted.most)


def _sort(episodes: list[EpisodeResult], order: str) -> None:
    if order in ("score", "-score"):
        sign = -1 if order == "-score" else 1
        episodes.sort(key=lambda episode: (episode.score is None, sign * (episode.score or 0.0)))
    elif order:
        episodes.sort(key=operator.attrgetter(order.removeprefix("-")), reverse=True)


def _row(episode: EpisodeResult) -> dict[str, object]:
    same = (
        "agent",
        "suite",
        "instance",
        "replicate",
        "periods",
        "steps",
        "cost",
        "tokens_in",
        "tokens_out",
        "latency_s",
    )
    return {
        **{name: getattr(episode, name) for name in same},
        "id": episode.id,
        "episode": episode.id[:10],
        "score": None if episode.score is None else 100 * episode.score,
        "ending": episode.ending or REMAINING,
    }


def query_of(wanted: ListingQuery, offset: int = 0) -> str:
    """The SQL that gives the page."""
    tests = [f"{name} = {_quoted(getattr(wanted, name))}" for name in ("agent", "suite") if getattr(wanted, name)]
    if wanted.ending:
        tests.append("ending = ''" if wanted.ending == REMAINING else f"ending = {_quoted(wanted.ending)}")
    if wanted.instance:
        tests.append(f"contains(instance, {_quoted(wanted.instance)})")
    tests += [f"100 * score >= {wanted.least:g}"] if wanted.least is not None else []
    tests += [f"100 * score <= {wanted.most:g}"] if wanted.most is not None else []
    lines = [
        "select episode, agent, suite, instance, replicate, 100 * score as score, ending, periods, steps,",
        "    cost, tokens_in, tokens_out, latency_s",
        "from episodes",
    ]
    lines += [f"where {' and '.join(tests)}"] if tests else []
    lines += [f"order by {ORDERS[wanted.order]} nulls last"] if wanted.order else []
    lines.append(f"limit {PER_PAGE}" + (f" offset {offset}" if offset else ""))
    return "\n".join(lines) + ("" if wanted.order else "\n-- the page shows them in the order of admission")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
