"""A run on one page: how far it is, what it cost, every table and figure, and the query behind each number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from evalkit.money import show_usd
from evalkit.report.quotes import quotes_table
from evalkit.report.tables import Table
from evalkit.results.cells import Cell
from evalkit.view.grid import Grid, Href, Plot, grid, plot, sql_command
from evalkit.view.reading import Reading
from evalkit.view.render import Frame, PageLink

EPISODES = "episodes"
"""The column whose numbers lead to the episodes they count."""

DRAWING_S = 2
"""Seconds after which a page without its figures is asked for again."""

WHY = {
    "budget": "the budget was reached",
    "deadline": "the deadline has passed",
    "interrupt": "interrupted",
    "limit": "--limit was reached",
    "lane": "a provider failed for good",
    "parked": "a provider did not answer",
    "errors": "too many internal errors",
    "storage": "the disk refused a write",
    "corrupt": "the log has changed or is damaged",
}
"""By the reason of an outcome: why episodes are owed."""


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
    """The run's state: that of a glance, or `damaged`."""
    began: str
    facts: Sequence[Fact]
    query: str
    """Of the facts."""
    command: str
    warnings: Sequence[str]
    figures: Sequence[Plot]
    tables: Sequence[Grid]
    drawing: bool = False
    """Whether figures are still being made."""


def overview(reading: Reading, name: str, *, offline: bool = False) -> Overview:
    """The page of a run. `name`: how the pages call it; `offline`: nothing leads to other pages."""
    run = str(reading.directory)
    prefix = f"/run/{quote(name, safe='')}"

    def csv(table: Table) -> str:
        return "" if offline else f"{prefix}/table/{quote(table.name, safe='')}.csv"

    return Overview(
        name=name,
        word=reading.word,
        began=datetime.fromtimestamp(reading.report.manifest.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        facts=_facts(reading),
        query=FACTS,
        command=sql_command(run, FACTS),
        warnings=warnings(reading),
        figures=[plot(figure, run) for figure in reading.figures],
        tables=[
            grid(
                table, run, csv=csv(table), href=None if offline else _to_episodes(table, reading.report.cells, prefix)
            )
            for table in reading.report.tables
        ]
        + _quoted(reading, run, "" if offline else prefix),
        drawing=not reading.whole and not reading.figures,
    )


def _quoted(reading: Reading, run: str, prefix: str) -> list[Grid]:
    """The table of quoted errors, each leading to the place it is quoted from; none where there is no error."""
    if not reading.quotes:
        return []
    table = quotes_table(reading.quotes, reading.report.cells, run)
    places = {
        id(row): f"{prefix}/episode/{quote(quoted.example.id, safe='')}#p{quoted.period}t{quoted.turn}"
        for row, quoted in zip(table.rows, reading.quotes, strict=True)
    }
    return [grid(table, run, href=(lambda row, key: places[id(row)] if key == "kind" else "") if prefix else None)]


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
        Fact(title="Owed", value=f"{report.planned - report.ended:,}", note=_begun(reading)),
        Fact(
            title="Spent",
            value=show_usd(status.spent),
            note="no budget" if budget is None else f"of {show_usd(budget)}",
            share=min(1.0, status.spent / budget) if budget else None,
        ),
        Fact(title="Steps", value=f"{steps:,}"),
        Fact(title="Tokens", value=f"{sum(tokens):,}", note=f"{tokens[0]:,} in, {tokens[1]:,} out"),
        Fact(title="Agents", value=f"{len(report.manifest.agents):,}", note=_count(report.manifest.suites, "suite")),
    ]
    if report.planned > report.ended and status.to_finish.expected:
        low, high = (show_usd(round(end)) for end in (status.to_finish.low, status.to_finish.high))
        facts.insert(
            3, Fact(title="To finish", value=show_usd(round(status.to_finish.expected)), note=f"{low} to {high}")
        )
    return facts


def _begun(reading: Reading) -> str:
    begun = sum(cell.started for cell in reading.status.cells)
    return f"{begun:,} begun" if begun else ""


def _count(things: Mapping[str, Any], word: str) -> str:
    return f"{len(things):,} {word}{'' if len(things) == 1 else 's'}"


def warnings(reading: Reading) -> list[str]:
    """What a reader must know before he trusts a number of the run."""
    report, status = reading.report, reading.status
    messages = []
    if report.planned > report.ended:
        why = WHY.get(reading.stopped, "")
        because = f": {why}" if why and reading.word != "running" else ""
        cells = f"{sum(not cell.complete for cell in report.cells):,} of {len(report.cells):,} cells"
        messages.append(
            f"Partial{because}. {report.planned - report.ended:,} episodes remain in {cells}; each cell is "
            "estimated from its longest prefix of ended episodes (see Completeness)."
        )
        messages += [] if reading.word == "running" else reading.messages
    if status.crash_charges:
        messages.append(f"{show_usd(status.crash_charges)} of the cost are unconfirmed crash charges.")
    for table in report.tables:
        messages += [note for note in table.notes if note.startswith(("drift:", "void"))]
    return list(dict.fromkeys([*messages, *([reading.flaw] if reading.flaw else [])]))


def _to_episodes(table: Table, cells: Sequence[Cell], prefix: str) -> Href | None:
    """From a row that is a cell's to its episodes; None where rows are not those of cells."""
    if len(table.rows) != len(cells) or any(
        row.get("agent") != cell.agent for row, cell in zip(table.rows, cells, strict=True)
    ):
        return None
    links = {
        id(row): f"{prefix}/episodes?{urlencode({'agent': cell.agent, 'suite': cell.suite.name})}"
        for row, cell in zip(table.rows, cells, strict=True)
    }
    return lambda row, key: links[id(row)] if key == EPISODES else ""


def overview_frame(page: Overview, name: str, *, offline: bool = False) -> Frame:
    """What surrounds it."""
    plots = [PageLink(title="Figures", href="#figures")] if page.figures else []
    tables = [PageLink(title=table.title, href=f"#{table.name}") for table in page.tables]
    return Frame(
        title=page.name,
        run=page.name,
        links=() if offline else run_links(name, "overview"),
        sections=[PageLink(title="Summary", href="#summary"), *tables[:1], *plots, *tables[1:]],
        figures=bool(page.figures),
        offline=offline,
        refresh_s=DRAWING_S if page.drawing else 0,
    )


def run_links(name: str, active: str) -> list[PageLink]:
    """The pages of a run. `active`: the key of the one that is shown."""
    prefix = f"/run/{quote(name, safe='')}"
    places = {"overview": ("Overview", "/"), "episodes": ("Episodes", "/episodes"), "live": ("Live", "/live")}
    links = [PageLink(title=title, href=prefix + path, active=key == active) for key, (title, path) in places.items()]
    return [*links, PageLink(title="Compare", href=f"/compare?{urlencode({'first': name})}")]
