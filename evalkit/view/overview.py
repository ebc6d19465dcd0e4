"""A run at a glance: how far it is, what it cost and who leads. In one file also every table and figure.

Else each table has a page: the whole of a small one, which the browser sorts, or a part of a large one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from evalkit.errors import RunError, UsageError, nearest
from evalkit.money import show_usd
from evalkit.report.quotes import quotes_table
from evalkit.report.report import ANSWERS
from evalkit.report.scores import REFUSED
from evalkit.report.tables import Column, Table, without_shared_packs, written
from evalkit.results.cells import Cell
from evalkit.text import many
from evalkit.view.grid import NUMBERS, Grid, Href, Paging, Plot, RowOrder, grid, paged, plot, sort_value, sql_command
from evalkit.view.leaderboard import Leaderboard, leaderboard
from evalkit.view.listing import page_number
from evalkit.view.reading import Reading
from evalkit.view.render import Frame, PageLink, figure_address, with_query


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number of a run at a glance."""

    title: str
    value: str
    note: str = ""
    share: float | None = None
    """From 0 to 1, drawn as a bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the page's template shows."""

    name: str
    word: str
    """The run's state: that of a glance, `decided`, or `damaged`."""
    began: str
    facts: Sequence[Fact]
    query: str
    """Of the facts."""
    command: str
    warnings: Sequence[str]
    simulated: str = ""
    """Whether the money is real, as of the manifest."""
    leaderboard: Leaderboard | None = None
    """None: the page is not that of one run."""
    answers: Grid | None = None
    """What the run is to find out; None: it asks nothing."""
    scores: str = ""
    """Where the table of scores is; empty: on this page, or nowhere."""
    figures: Sequence[Plot] = ()
    tables: Sequence[Grid] = ()


def overview(reading: Reading, name: str, *, offline: bool = False) -> Overview:
    """The page of a run. `name`: how the pages call it; `offline`: with all tables and figures, and nothing leads to
    other pages."""
    run = str(reading.directory)
    page = Overview(
        name=name,
        word="decided" if _decided(reading) else reading.word,
        began=datetime.fromtimestamp(reading.report.manifest.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        facts=_facts(reading),
        query=FACTS,
        command=sql_command(run, FACTS),
        warnings=warnings(reading),
        simulated=reading.report.manifest.simulated,
        leaderboard=leaderboard(reading.report, run, "" if offline else run_address(name)),
        answers=_answers(reading, run),
        scores="" if offline else f"{run_address(name)}/table/scores",
    )
    if not offline:
        return page
    numbered = [table for key, table in run_tables(reading).items() if not key.endswith(NUMBERS) and key != ANSWERS]
    return replace(
        page, figures=[plot(figure, run) for figure in reading.figures], tables=[grid(table, run) for table in numbered]
    )


def _answers(reading: Reading, run: str) -> Grid | None:
    found = [table for table in reading.report.tables if table.name == ANSWERS]
    return grid(found[0], run) if found else None


FACTS = """\
select (select count(*) from episodes where finished) as ended,
    (select count(*) from steps) as steps,
    (select sum(tokens_in + tokens_out) from steps) as tokens,
    (select coalesce(sum(cost), 0) from log)
        + (select coalesce(sum(case when kind in ('charge', 'crash') then amount
                                    when kind = 'release' then -amount else 0 end), 0) from ledger) as spent_pico_usd
-- planned: agents x instances x replicates, from the manifest; budget: the last start in events.jsonl"""


def _facts(reading: Reading) -> list[Fact]:
    report, status = reading.report, reading.status
    steps = sum(cell.steps for cell in status.cells)
    tokens = [sum(row[key] for row in report.table("money").rows[:-1] or ()) for key in ("tokens_in", "tokens_out")]
    budget = reading.budget
    facts = [
        Fact(
            title="Episodes ended",
            value=f"{report.ended:,}",
            note=f"of {report.planned:,}",
            share=report.ended / report.planned if report.planned else None,
        ),
        Fact(title="Remaining", value=f"{report.planned - report.ended:,}", note=_begun(reading)),
        Fact(
            title="Spent",
            value=show_usd(status.spent),
            note="no budget" if budget is None else f"of {show_usd(budget)}",
            share=min(1.0, status.spent / budget) if budget else None,
        ),
        Fact(title="Steps", value=f"{steps:,}"),
        Fact(title="Tokens", value=f"{sum(tokens):,}", note=f"{tokens[0]:,} in, {tokens[1]:,} out"),
        Fact(title="Agents", value=f"{len(report.manifest.agents):,}", note=many(len(report.manifest.suites), "suite")),
    ]
    if report.planned > report.ended and status.to_finish.expected:
        low, high = (show_usd(round(end)) for end in (status.to_finish.low, status.to_finish.high))
        facts.insert(
            3, Fact(title="To finish", value=show_usd(round(status.to_finish.expected)), note=f"{low} to {high}")
        )
    return facts


def _begun(reading: Reading) -> str:
    begun, refused = sum(cell.started for cell in reading.status.cells), reading.report.refused
    return ", ".join([f"{begun:,} begun"] * bool(begun) + [f"{refused:,} refused"] * bool(refused))


def _decided(reading: Reading) -> bool:
    return reading.word == "partial" and reading.stopped == "decided"


def warnings(reading: Reading) -> list[str]:
    """What a reader must know before he trusts a number of the run."""
    report, status = reading.report, reading.status
    messages, left = [], report.planned - report.ended
    if _decided(reading):
        messages.append(
            f"Every question is answered, so {many(left, 'episode was', 'episodes were')} not played. Each cell is "
            "estimated from its longest prefix of ended episodes (see Completeness)."
        )
    elif report.planned > report.ended:
        cells = f"{sum(bool(cell.remaining) for cell in report.cells):,} of {many(len(report.cells), 'cell')}"
        messages.append(
            f"Partial. {many(left, 'episode remains', 'episodes remain')} in {cells}; each cell is "
            "estimated from its longest prefix of ended episodes (see Completeness)."
        )
        messages += [] if reading.word == "running" else (*status.why.splitlines(), *reading.messages)
    if status.crash_charges:
        messages.append(f"{show_usd(status.crash_charges)} of the cost are unconfirmed crash charges.")
    for table in report.tables:
        messages += [note for note in table.notes if note.startswith(("drift:", "void", REFUSED))]
    return list(dict.fromkeys([*messages, *([reading.flaw] if reading.flaw else [])]))


def overview_frame(page: Overview, name: str, *, offline: bool = False) -> Frame:
    """What surrounds it. A page that holds tables and figures names them as its sections."""
    plots = [PageLink(title="Figures", href="#figures")] if page.figures else []
    tables = [PageLink(title=table.title, href=f"#{table.name}") for table in page.tables]
    sections = [PageLink(title="Summary", href="#summary"), *tables[:1], *plots, *tables[1:]]
    return Frame(
        title=page.name,
        run=page.name,
        simulated=page.simulated,
        links=() if offline else run_links(name, "overview"),
        sections=sections if page.tables else (),
        figures=bool(page.figures),
        offline=offline,
    )


def run_address(name: str) -> str:
    """Where the pages of a run are."""
    return f"/run/{quote(name, safe='')}"


TABS: Mapping[str, tuple[str, str]] = {
    "overview": ("Overview", "/"),
    "tables": ("Tables", "/tables"),
    "figures": ("Figures", "/figures"),
    "episodes": ("Episodes", "/episodes"),
    "live": ("Live", "/live"),
}
"""The pages of a run: (title, address)."""


def run_links(name: str, active: str) -> list[PageLink]:
    """The pages of a run. `active`: the key of the one that is shown."""
    prefix = run_address(name)
    links = [PageLink(title=title, href=prefix + path, active=key == active) for key, (title, path) in TABS.items()]
    return [*links, PageLink(title="Compare", href=f"/compare?{urlencode({'first': name})}")]


def run_frame(name: str, active: str, title: str, **more: Any) -> Frame:
    """What surrounds a page of a run. `active`: as of `run_links`; `more`: further fields."""
    return Frame(title=title, run=name, links=run_links(name, active), **more)


@dataclass(frozen=True, slots=True)
class ComingFigure:
    """A figure that is fetched when it scrolls near."""

    name: str
    title: str
    source: str
    """Its address."""


def coming_figures(reading: Reading, name: str) -> list[ComingFigure]:
    """The figures of a run, as its page of figures names them."""
    prefix = run_address(name)
    return [ComingFigure(one.name, one.title, figure_address(prefix, one.name)) for one in reading.figures]


PER_PAGE = 200
"""Rows of a page; a table of no more is there as a whole."""

EPISODES = "episodes"
"""The column whose numbers lead to the episodes they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """Which rows of a table, in which order, which page of them."""

    order: str = ""
    """A column's key, after `-` if descending; empty: the order of the table."""
    contains: str = ""
    """Words that a row has, all of them, in any case."""
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """What the page's template shows."""

    grid: Grid
    wanted: TableQuery
    whole: bool
    """Whether all rows are there, so that the browser sorts and filters them."""
    paging: Paging
    others: Sequence[PageLink]
    """The tables of the run, this one marked."""


def read_query(query: Mapping[str, str]) -> TableQuery:
    """What an address asks for. Raises UsageError for a page that is not a number from 1."""
    contains = query.get("contains", "").strip()
    return TableQuery(order=query.get("order", ""), contains=contains, page=page_number(query))


def run_tables(reading: Reading) -> dict[str, Table]:
    """The tables of a run by name: those of its report, the quoted errors, and the numbers of each figure."""
    tables = {table.name: table for table in reading.report.tables}
    if reading.quotes:
        tables["quotes"] = quotes_table(reading.quotes, reading.report.cells, str(reading.directory))
    for figure in reading.figures:
        name = f"{figure.name}{NUMBERS}"
        tables[name] = replace(figure.table, name=name, query=figure.query)
    return tables


def table_of(reading: Reading, name: str) -> Table:
    """A table of a run. Raises RunError if there is none of that name."""
    tables = run_tables(reading)
    if name not in tables:
        raise RunError(f"The run has no table {name!r}.{nearest(name, list(tables))}")
    return tables[name]


def table_page(reading: Reading, name: str, wanted: TableQuery, prefix: str) -> TablePage:
    """A page of one table. `prefix`: the address of the run's pages.

    Raises RunError if there is no such table, UsageError for an order by a column that it does not have.
    """
    table = table_of(reading, name)
    address = f"{prefix}/table/{quote(name, safe='')}"
    href = table_href(reading, table, prefix)
    run = str(reading.directory)
    others = [
        PageLink(title=other.title, href=f"{prefix}/table/{quote(key, safe='')}", active=key == name)
        for key, other in run_tables(reading).items()
        if key == name or not key.endswith(NUMBERS)
    ]
    shown = {"order": wanted.order, "contains": wanted.contains}
    kept, paging = paged(
        _places(table, wanted), wanted.page, PER_PAGE, lambda page: with_query(address, {**shown, "page": page})
    )
    whole = len(table.rows) <= PER_PAGE and wanted == TableQuery()
    ordered = RowOrder(order=wanted.order, address=lambda order: with_query(address, {**shown, "order": order}))
    return TablePage(
        grid=grid(_part(table, kept), run, csv=f"{address}.csv", href=href, ordered=None if whole else ordered),
        wanted=wanted,
        whole=whole,
        paging=paging,
        others=others,
    )


def _places(table: Table, wanted: TableQuery) -> list[int]:
    """The places of the rows that are wanted, in the wanted order."""
    words = wanted.contains.casefold().split()
    columns = without_shared_packs(table).outer
    places = [index for index, row in enumerate(table.rows) if not words or _has(columns, row, words)]
    key = wanted.order.removeprefix("-")
    if not key:
        return places
    by_key = {column.key: column for column in columns}
    if key not in by_key:
        raise UsageError(f"order: {key!r} is not a column of this table.{nearest(key, list(by_key))}")
    value_of = _value_of(by_key[key])
    with_value = [index for index in places if table.rows[index].get(key) is not None]
    with_value.sort(key=lambda index: value_of(table.rows[index]), reverse=wanted.order.startswith("-"))
    return with_value + [index for index in places if table.rows[index].get(key) is None]


def _has(columns: Sequence[Column], row: Mapping[str, Any], words: Sequence[str]) -> bool:
    text = "\n".join(written(column, row) for column in columns).casefold()
    return all(word in text for word in words)


def _value_of(column: Column) -> Callable[[Mapping[str, Any]], Any]:
    """What a column's rows are ordered by: numbers by size, names with their numbers by size."""

    def value(row: Mapping[str, Any]) -> Any:
        number = sort_value(column, row[column.key])
        if number is not None:
            return number
        parts = re.split(r"(\d{1,15})", str(row[column.key]).casefold())
        return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]

    return value


def _part(table: Table, places: Sequence[int]) -> Table:
    bold = {(here, key) for here, place in enumerate(places) for at, key in table.bold if at == place}
    return replace(table, rows=tuple(table.rows[place] for place in places), bold=frozenset(bold))


def table_href(reading: Reading, table: Table, prefix: str) -> Href | None:
    """Where a table's cells lead: counts of episodes to these, quotes to their places; None: nowhere."""
    if table.name == "quotes":
        places = {
            id(row): f"{prefix}/episode/{quote(quoted.example.id, safe='')}#p{quoted.period}t{quoted.turn}"
            for row, quoted in zip(table.rows, reading.quotes, strict=True)
        }
        return lambda row, key: places[id(row)] if key == "kind" else ""
    return _to_episodes(table, reading.report.cells, prefix)


def _to_episodes(table: Table, cells: Sequence[Cell], prefix: str) -> Href | None:
    """From a row that is a cell's to its episodes; None if rows are not those of cells."""
    if len(table.rows) != len(cells) or any(
        row.get("agent") != cell.agent for row, cell in zip(table.rows, cells, strict=True)
    ):
        return None
    links = {
        id(row): f"{prefix}/episodes?{urlencode({'agent': cell.agent, 'suite': cell.suite.name})}"
        for row, cell in zip(table.rows, cells, strict=True)
    }
    return lambda row, key: links[id(row)] if key == EPISODES else ""
