"""The episodes of a run: chosen, ordered and given a page at a time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from evalkit.errors import UsageError
from evalkit.money import show_usd
from evalkit.report.queries import text
from evalkit.report.scores import in_unit, litmus_of
from evalkit.report.tables import Column, Table, as_csv, columns_of
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.text import many
from evalkit.view.grid import Grid, Paging, RowOrder, grid, paged
from evalkit.view.render import PageLink, episode_address, instance_address, place_of, titled, with_query

PER_PAGE = 100
REMAINING = "remaining"
"""In place of an ending: episodes that have begun and not ended."""

COLUMNS = (
    *columns_of(agent="Episode", suite="Suite", instance="Instance"),
    Column(key="replicate", title="Repl.", kind="count"),
    Column(key="score", title="Score", kind="score", unit="100 = optimum"),
    Column(key="ending", title="Ending"),
    *columns_of("count", periods="Periods", steps="Steps"),
    Column(key="cost", title="Cost", kind="usd"),
    *columns_of("tokens", tokens_in="Tokens in", tokens_out="Tokens out"),
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
    paging: Paging
    plain: str
    """Address of the list of all; empty: it is."""
    grid: Grid


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
        page=page_number(query),
    )


def _number(query: Mapping[str, str], key: str) -> float | None:
    text = query.get(key, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"-?\d{1,9}(\.\d{0,9})?", text):
        raise UsageError(f"{key}: {text!r} is not a number.")
    return float(text)


def page_number(query: Mapping[str, str]) -> int:
    """The page that an address asks for. Raises UsageError."""
    text = query.get("page", "1")
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise UsageError(f"page: {text!r} is not a page number; pages count from 1.")
    return int(text)


def listing(cells: Sequence[Cell], wanted: ListingQuery, run: str, prefix: str) -> ListPage:
    """One page of the episodes of a run's cells. `run`: how `evalkit sql` calls it; `prefix`: its address."""

    def address(parameters: Mapping[str, object]) -> str:
        return with_query(f"{prefix}/episodes", parameters)

    shown, paging = paged(
        _found(cells, wanted), wanted.page, PER_PAGE, lambda page: address({**wanted.parameters, "page": page})
    )
    rows = tuple({**row_of(episode), "agent": titled(episode)} for episode in shown)
    table = Table(
        name="episodes",
        title="Episodes",
        columns=in_unit(COLUMNS, litmus_of(cells)),
        rows=rows,
        packs=(),
        query=query_of(wanted, max(0, paging.first - 1)),
    )
    by_row = {id(row): episode for row, episode in zip(rows, shown, strict=True)}
    came_from = wanted.parameters or {ALL: "all"}

    def to_page(row: Mapping[str, object], key: str) -> str:
        episode = by_row[id(row)]
        if key == "instance":
            return instance_address(prefix, episode.suite, episode.instance)
        return with_query(episode_address(prefix, episode), came_from) if key == "agent" else ""

    csv_text = as_csv(Table(name="", title="", columns=WRITTEN, rows=tuple(map(row_of, shown)), packs=()))
    return ListPage(
        wanted=wanted,
        agents=list(dict.fromkeys(cell.agent for cell in cells)),
        suites=list(dict.fromkeys(cell.suite.name for cell in cells)),
        endings=[*sorted({episode.ending for cell in cells for episode in cell.episodes if episode.ending}), REMAINING],
        orders={name: _in_words(name) for name in ORDERS},
        paging=paging,
        plain=address({}) if wanted.parameters else "",
        grid=grid(
            table,
            run,
            csv=f"data:text/csv;charset=utf-8,{quote(csv_text, safe='')}",
            href=to_page,
            ordered=RowOrder(order=wanted.order, address=lambda order: address({**wanted.parameters, "order": order})),
        ),
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


def row_of(episode: EpisodeResult) -> dict[str, object]:
    """A row of a table with these columns; the score times 100."""
    names = (column.key for column in COLUMNS)
    return {
        **{name: getattr(episode, name) for name in names},
        "episode": episode.id,
        "score": None if episode.score is None else 100 * episode.score,
        "ending": episode.ending or REMAINING,
    }


def query_of(wanted: ListingQuery, offset: int = 0) -> str:
    """The SQL that gives the page."""
    tests = [f"{name} = {text(getattr(wanted, name))}" for name in ("agent", "suite") if getattr(wanted, name)]
    if wanted.ending:
        tests.append("ending = ''" if wanted.ending == REMAINING else f"ending = {text(wanted.ending)}")
    if wanted.instance:
        tests.append(f"contains(instance, {text(wanted.instance)})")
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


# What lies around an episode: the one before and after it in the list that led to it, and its instance's others.

MOST = 24
"""Other episodes that stand beside the heading; the page of the instance has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One episode beside others."""

    id: str
    title: str
    href: str
    place: str
    suite: str
    score: str
    solved: bool
    word: str
    """How it ended."""
    numbers: str
    spec: Mapping[str, Any] | None = None
    """Its plot; None: it has none."""


def card_of(episode: EpisodeResult, title: str, prefix: str, spec: Mapping[str, Any] | None = None) -> Card:
    """The card of an episode, whose page is below `prefix`; `title`: empty if all are on one instance."""
    numbers = [many(episode.periods, "period"), many(episode.steps, "step")]
    return Card(
        id=episode.id,
        title=title or (f"{episode.agent}, replicate {episode.replicate}" if episode.replicate else episode.agent),
        href=episode_address(prefix, episode),
        place=place_of(episode),
        suite=episode.suite,
        score="remaining" if episode.score is None else f"{100 * episode.score:.1f}",
        solved=episode.solved,
        word=(episode.ending or REMAINING).replace("_", " "),
        numbers=" · ".join([*numbers, *([show_usd(episode.cost)] if episode.cost else [])]),
        spec=spec,
    )


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
    others: Sequence[Card]


def around(cells: Sequence[Cell], episode: EpisodeResult, prefix: str, query: Mapping[str, str]) -> Around:
    """The episode's neighbours. `query`: what its address says of the list that led to it; without a word of that its
    cell is the list. Raises UsageError where that is no list."""
    wanted = read_wanted(query)
    came_from: Mapping[str, object] = wanted.parameters or ({ALL: "all"} if ALL in query else {})
    listed = _found(cells, wanted) if came_from else []
    if all(one.id != episode.id for one in listed):
        came_from, wanted = {}, ListingQuery(agent=episode.agent, suite=episode.suite)
        listed = _found(cells, wanted)
    number = [one.id for one in listed].index(episode.id) + 1
    on_instance = [
        other
        for cell in cells
        for other in cell.episodes
        if (other.suite, other.instance) == (episode.suite, episode.instance)
    ]
    # Of many the first replicates, and the one that is shown.
    on_instance.sort(key=lambda other: (other.replicate, other.id != episode.id))
    return Around(
        before=_link(listed[number - 2], prefix, came_from) if number > 1 else None,
        after=_link(listed[number], prefix, came_from) if number < len(listed) else None,
        listing=with_query(f"{prefix}/episodes", wanted.parameters),
        where=f"{number:,} of {len(listed):,} {_list_words(wanted)}",
        instance=instance_address(prefix, episode.suite, episode.instance),
        others=[card_of(other, "", prefix) for other in on_instance[:MOST]],
    )


def _link(episode: EpisodeResult, prefix: str, came_from: Mapping[str, object]) -> PageLink:
    return PageLink(title=titled(episode), href=with_query(episode_address(prefix, episode), came_from))


def _list_words(wanted: ListingQuery) -> str:
    """What the list holds, in words."""
    of = " on ".join(name for name in (wanted.agent, wanted.suite) if name)
    further = wanted.parameters.keys() - {"agent", "suite", "order"}
    ordered = f" by {wanted.order.removeprefix('-')}" if wanted.order else ""
    whose = f" {'of' if wanted.agent else 'on'} {of}" if of else ""
    return f"episodes{whose}{', filtered' if further else ''}{ordered}"
