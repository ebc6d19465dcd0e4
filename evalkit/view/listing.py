"""The episodes of a run: chosen, ordered and given a page at a time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from evalkit.errors import UsageError
from evalkit.report.scores import in_unit, litmus_of
from evalkit.report.tables import Column, Table, as_csv
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.view.grid import Grid, RowOrder, grid
from evalkit.view.render import PageLink, episode_address, instance_address, titled, with_query

PER_PAGE = 100
REMAINING = "remaining"
"""In place of an ending: episodes that have begun and not ended."""

COLUMNS = (
    Column(key="agent", title="Episode"),
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
"""What a row shows; an episode is named by its agent and instance, and so ordered by its agent."""

WRITTEN = (Column(key="episode", title="Episode"), Column(key="agent", title="Agent"), *COLUMNS[1:])
"""What the CSV of a page holds."""

ORDERS = {
    "": "",
    **{column.key: column.key for column in COLUMNS},
    **{f"-{column.key}": f"{column.key} desc" for column in COLUMNS},
}
"""How episodes can be ordered: the word in the address, and in SQL; empty: as they were admitted."""

ALL = "in"
"""What an address of an episode has if it was found in the list of all, as they were admitted."""


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
    """Of the score, times 100."""
    order: str = ""
    page: int = 1

    @property
    def parameters(self) -> dict[str, object]:
        """What an address says of it, but for the page."""
        names = ("agent", "suite", "ending", "instance", "least", "most", "order")
        kept = {name: getattr(self, name) for name in names}
        return {name: value for name, value in kept.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
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
    plain: str
    """Address of the list of all; empty: it is."""
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Where an episode stands in a list."""

    number: int
    """From 1."""
    found: int
    before: EpisodeResult | None
    after: EpisodeResult | None


def read_wanted(query: Mapping[str, str]) -> ListingQuery:
    """What an address asks for. Raises UsageError for a number that is none, or an unknown order."""
    order = query.get("order", "")
    if order not in ORDERS:
        columns = ", ".join(column.key for column in COLUMNS)
        raise UsageError(f"order: {order!r} is not one of {columns}, each with - before it for the reverse.")
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


def listing(cells: Sequence[Cell], wanted: ListingQuery, run: str, prefix: str) -> ListPage:
    """One page of the episodes of a run's cells. `run`: how `evalkit sql` calls it; `prefix`: its address."""
    episodes = _found(cells, wanted)
    pages = max(1, -(-len(episodes) // PER_PAGE))
    page = min(wanted.page, pages)
    first = (page - 1) * PER_PAGE
    shown = episodes[first : first + PER_PAGE]
    rows = tuple(_row(episode) for episode in shown)
    table = Table(
        name="episodes",
        title="Episodes",
        columns=in_unit(COLUMNS, litmus_of(cells)),
        rows=rows,
        packs=(),
        query=query_of(wanted, first),
    )
    by_row = {id(row): episode for row, episode in zip(rows, shown, strict=True)}
    came_from = wanted.parameters or {ALL: "all"}

    def to_page(row: Mapping[str, object], key: str) -> str:
        episode = by_row[id(row)]
        if key == "instance":
            return instance_address(prefix, episode.suite, episode.instance)
        return with_query(episode_address(prefix, episode), came_from) if key == "agent" else ""

    def address(parameters: Mapping[str, object]) -> str:
        return with_query(f"{prefix}/episodes", parameters)

    csv_text = as_csv(Table(name="", title="", columns=WRITTEN, rows=tuple(map(_written, shown)), packs=()))
    return ListPage(
        wanted=wanted,
        agents=list(dict.fromkeys(cell.agent for cell in cells)),
        suites=list(dict.fromkeys(cell.suite.name for cell in cells)),
        endings=[*sorted({episode.ending for cell in cells for episode in cell.episodes if episode.ending}), REMAINING],
        orders={name: _in_words(name) for name in ORDERS},
        found=len(episodes),
        first=first + 1 if shown else 0,
        last=first + len(shown),
        before=address({**wanted.parameters, "page": page - 1}) if page > 1 else "",
        after=address({**wanted.parameters, "page": page + 1}) if page < pages else "",
        plain=address({}) if wanted.parameters else "",
        grid=grid(
            table,
            run,
            csv=f"data:text/csv;charset=utf-8,{quote(csv_text, safe='')}",
            href=to_page,
            ordered=RowOrder(order=wanted.order, address=lambda order: address({**wanted.parameters, "order": order})),
        ),
    )


def neighbours(cells: Sequence[Cell], wanted: ListingQuery, episode: str) -> Neighbours | None:
    """Where the episode with this id stands in a list; None: it is not in it."""
    episodes = _found(cells, wanted)
    place = next((place for place, one in enumerate(episodes) if one.id == episode), None)
    if place is None:
        return None
    return Neighbours(
        number=place + 1,
        found=len(episodes),
        before=episodes[place - 1] if place else None,
        after=episodes[place + 1] if place + 1 < len(episodes) else None,
    )


def _in_words(order: str) -> str:
    titles = {column.key: column.title.lower() for column in COLUMNS}
    if not order:
        return "as admitted"
    return f"{titles[order.removeprefix('-')]} {'↓' if order.startswith('-') else '↑'}"


def _found(cells: Sequence[Cell], wanted: ListingQuery) -> list[EpisodeResult]:
    """The episodes that are asked for, in that order."""
    episodes = [episode for cell in cells for episode in cell.episodes if _asked(episode, wanted)]
    key = wanted.order.removeprefix("-")
    if not key:
        return episodes
    known = [episode for episode in episodes if getattr(episode, key) is not None]
    known.sort(key=lambda episode: getattr(episode, key), reverse=wanted.order.startswith("-"))
    return known + [episode for episode in episodes if getattr(episode, key) is None]


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


def _row(episode: EpisodeResult) -> dict[str, object]:
    return {**_written(episode), "agent": titled(episode)}


def _written(episode: EpisodeResult) -> dict[str, object]:
    names = (column.key for column in COLUMNS)
    return {
        **{name: getattr(episode, name) for name in names},
        "episode": episode.id,
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


# What lies around an episode: the one before and after it in the list that led to it, and its instance's others.

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
