"""What a table is: titled columns with units, rows of plain values, notes; and how it reads as Markdown, CSV and JSON.

A row holds raw numbers by column key; only a renderer rounds them. `terminal.py` renders for people.
"""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from evalkit.money import show_usd
from evalkit.text import html_table, seconds, visible

Kind = Literal[
    "text", "score", "percent", "interval", "count", "tokens", "number", "fine", "p", "usd", "seconds", "counts"
]
"""`score` and `percent` are 0 to 100; `interval` is a (low, high) pair of scores; `fine` is a number whose
third decimal matters; `p` is a p-value; `usd` is whole pico-dollars; `counts` is a mapping from names to counts. Any
value may be None: there is none."""

MISSING = "–"

PROMPTS = "prompts"
"""Key of a column that names prompt packs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    key: str
    """Its name in JSON and CSV; fixed by the schema's version."""
    title: str
    kind: Kind = "text"
    unit: str = ""
    digits: int | None = None
    """Decimals of scores, shares, intervals and numbers; None: the kind's own."""
    group: bool = False
    """Whether a value that repeats the row above is left blank in the terminal."""
    as_share: bool = False
    """Whether people read a percentage as a share of 1."""
    equal: float | None = None
    """Of an interval of differences: what is closer to 0 counts as equal."""
    over_agents: bool = False
    """Whether its mean over a group of agents has an interval although its own has none."""
    inside: "tuple[Column, ...]" = ()
    """Columns whose values people read in parentheses after this one's, as papers print them: of one, its value; of
    two, the share of counts `(2/12)`, or `(0)`. In JSON and CSV they stand for themselves."""

    @property
    def bare(self) -> str:
        """Its title without a unit in parentheses."""
        return self.title.removesuffix(" (%)")

    @property
    def told(self) -> str:
        """The unit that people read: a share of 1 is no percentage."""
        return self.unit.replace("%", "share").strip() if self.as_share else self.unit

    @property
    def numeric(self) -> bool:
        """Whether it is set flush right."""
        return self.kind not in {"text", "counts"}


def columns_of(kind: Kind = "text", unit: str = "", **titles: str) -> tuple[Column, ...]:
    """Columns of one kind and unit; `titles`: by key."""
    return tuple(Column(key=key, title=title, kind=kind, unit=unit) for key, title in titles.items())


def estimated(column: Column, key: str = "", title: str = "95 %") -> tuple[Column, Column, Column]:
    """A column, its interval's (`key`; empty: its own with `_interval`), and that of the interval's method."""
    key = key or f"{column.key}_interval"
    interval = Column(key=key, title=title, kind="interval", unit=column.unit, digits=column.digits)
    return column, interval, method_of(interval)


def method_of(interval: Column) -> Column:
    """The column after an interval's that says by which method each of them is: `ned_kind` of `ned_interval`."""
    stem = interval.key.removesuffix("interval") if interval.key.endswith("interval") else f"{interval.key}_"
    return Column(key=f"{stem}kind", title="By")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table, as values."""

    name: str
    """Its key in JSON, its file's name as CSV; fixed by the schema's version."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    packs: tuple[str, ...]
    """Names of the prompt packs that its agents read."""
    notes: tuple[str, ...] = ()
    """What a reader must know, a sentence each."""
    bold: frozenset[tuple[int, str]] = frozenset()
    """(place of a row, key of a column) of the values that are set in bold."""
    query: str = ""
    """SQL over the views of `evalkit sql` that gives the numbers, with the method of whatever SQL cannot say as comment
    lines (`-- interval: ...`); empty if the numbers are not a run's (published ones)."""

    @property
    def outer(self) -> tuple[Column, ...]:
        """The columns that people read: without those that stand inside of others."""
        within = {inner.key for column in self.columns for inner in column.inside}
        return tuple(column for column in self.columns if column.key not in within)

    @property
    def lines_below(self) -> tuple[str, ...]:
        """The notes; first the prompt packs, unless a column names them."""
        if any(column.key == PROMPTS for column in self.columns):
            return self.notes
        return (f"prompts: {', '.join(self.packs) or MISSING}", *self.notes)

    def _repr_html_(self) -> str:
        """For notebooks."""
        table = without_empty(without_shared_packs(self))
        columns = table.outer
        rows = ([written(column, row) for column in columns] for row in table.rows)
        return html_table(table.title, [column.title for column in columns], rows, table.lines_below)

    def to_json(self) -> dict[str, Any]:
        """Title, columns, rows by column key, prompt packs and notes."""
        return {
            "title": self.title,
            "columns": [
                {"key": column.key, "title": column.title, "kind": column.kind, "unit": column.unit}
                for column in self.columns
            ],
            "rows": [{column.key: _plain(row.get(column.key)) for column in self.columns} for row in self.rows],
            "prompts": list(self.packs),
            "notes": list(self.notes),
            "query": self.query,
        }


def shown(column: Column, value: Any) -> str:
    """A value for people: rounded, and with nothing in it that a terminal or a page would obey."""
    if value is None:
        return MISSING
    match column.kind:
        case "score" | "percent" if column.as_share:
            return f"{value / 100:.{2 if column.digits is None else column.digits}f}"
        case "score" | "percent":
            return _hundred(value, column.digits)
        case "interval":
            return " – ".join(_hundred(end, column.digits) for end in value)
        case "count":
            return f"{value:,}"
        case "tokens":
            return _tokens(value)
        case "number":
            return f"{value:.2f}"
        case "fine":
            return f"{value:.3f}"
        case "p":
            return f"{value:.3f}" if value >= 0.0005 else "< 0.001"
        case "usd":
            return show_usd(value)
        case "seconds":
            return seconds(value)
        case "counts":
            return ", ".join(f"{visible(name)} {count:,}" for name, count in value.items()) or MISSING
        case _:
            return visible(str(value))


def written(column: Column, row: Mapping[str, Any]) -> str:
    """What people read of a row in a column: its value, and in parentheses what stands inside of it."""
    value = row.get(column.key)
    text = shown(column, value)
    within = [row.get(inner.key) for inner in column.inside]
    if value is None or not within or any(part is None for part in within):
        return text
    if len(within) == 1:
        return f"{text} ({shown(column.inside[0], within[0])})"
    return f"{text} ({within[0]}/{within[1]})" if within[0] else f"{text} (0)"


def marked(table: Table, simulated: str) -> Table:
    """The table with a note that its money is not real; as it is where it is real, or has none. `simulated`: as of a
    manifest."""
    if not simulated or not any(column.kind == "usd" for column in table.columns):
        return table
    return replace(table, notes=(*table.notes, f"{simulated} money"))


def without_shared_packs(table: Table) -> Table:
    """The table without the column of prompt packs if all rows share one: then a line below says it."""
    if len(table.packs) != 1:
        return table
    return replace(table, columns=tuple(column for column in table.columns if column.key != PROMPTS))


def without_empty(table: Table) -> Table:
    """The table without the columns that have a value in none of its rows; without intervals no method is said."""
    empty = {
        one.key
        for column in table.outer
        if table.rows and all(shown(column, row.get(column.key)) in ("", MISSING) for row in table.rows)
        for one in (column, *column.inside, *([method_of(column)] if column.kind == "interval" else []))
    }
    return replace(table, columns=tuple(column for column in table.columns if column.key not in empty))


def _hundred(value: float, digits: int | None) -> str:
    digits = 1 if digits is None else digits
    text = f"{value:.{digits}f}"
    # What is not 100 must not read as 100: a single unsolved instance among many matters.
    if value < 100 and float(text) == 100:
        return f"{100 - 10**-digits:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _tokens(value: int) -> str:
    for least, size, letter in ((10**9, 10**9, "G"), (10**6, 10**6, "M"), (10**4, 10**3, "k")):
        if value >= least:
            return f"{value / size:,.1f} {letter}"
    return f"{value:,}"


def markdown(table: Table) -> str:
    """A GitHub table with its title above and its notes below."""
    lines = [f"### {_cell(table.title)}", ""]
    columns = table.outer
    lines.append("| " + " | ".join(_cell(column.title) for column in columns) + " |")
    lines.append("|" + "|".join("---:" if column.numeric else ":---" for column in columns) + "|")
    for index, row in enumerate(table.rows):
        cells = [(_cell(written(column, row)), (index, column.key) in table.bold) for column in columns]
        lines.append("| " + " | ".join(f"**{text}**" if bold else text for text, bold in cells) + " |")
    lines += ["", *(f"- {_cell(note)}" for note in table.lines_below), ""]
    return "\n".join(lines)


def as_cell_text(text: str) -> str:
    """Text of which Markdown reads nothing as markup, and a terminal nothing as a command."""
    return _cell(visible(text))


def _cell(text: str) -> str:
    for special in "\\|<>*_`[]":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")


def as_csv(table: Table) -> str:
    """The rows with full precision under the columns' keys; an interval takes two columns, counts one a name.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    names = {
        column.key: sorted({name for row in table.rows for name in row.get(column.key) or ()})
        for column in table.columns
        if column.kind == "counts"
    }
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field for column in table.columns for field in _fields(column, names)])
    for row in table.rows:
        writer.writerow([part for column in table.columns for part in _parts(column, row.get(column.key), names)])
    return out.getvalue()


def _fields(column: Column, names: Mapping[str, list[str]]) -> list[str]:
    if column.kind == "interval":
        return [f"{column.key}_low", f"{column.key}_high"]
    if column.kind == "counts":
        return [f"{column.key}:{visible(name)}" for name in names[column.key]]
    return [column.key]


def _parts(column: Column, value: Any, names: Mapping[str, list[str]]) -> list[Any]:
    if column.kind == "interval":
        return ["", ""] if value is None else list(value)
    if column.kind == "counts":
        return [(value or {}).get(name, 0) for name in names[column.key]]
    return [as_cell(value) if isinstance(value, str) else "" if value is None else value]


def as_cell(text: str) -> str:
    """A text as a cell of CSV: visible, and with an apostrophe before what a spreadsheet takes for a formula."""
    text = visible(text)
    return f"'{text}" if text[:1] in _FORMULA else text


_FORMULA = frozenset("=+-@\n＝＋－＠")
"""What formulas begin with, in full width too; tabs and carriage returns are escapes by then."""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
