"""A run at a glance: how far it is, what it cost and who leads. In one file also every table and figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from evalkit.money import show_usd
from evalkit.report.report import ANSWERS
from evalkit.report.scores import REFUSED
from evalkit.text import many
from evalkit.view.grid import NUMBERS, Grid, Plot, grid, plot, sql_command
from evalkit.view.leaderboard import Leaderboard, leaderboard
from evalkit.view.reading import Reading
from evalkit.view.render import Frame, PageLink, figure_address
from evalkit.view.tables import run_tables


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
        cells = f"{sum(bool(cell.owed) for cell in report.cells):,} of {many(len(report.cells), 'cell')}"
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
