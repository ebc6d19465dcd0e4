"""How a table fits the page of a LaTeX document: sizes, headings, columns that wrap, parts below each other.

Widths are estimated from those of Computer Modern, the widest of the usual fonts. What is too wide is set, in this
order: with what leads it as headings above the rows; closer; smaller; with texts that wrap, and its columns in parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from evalkit.report.render.narrow import Section, even_groups, headed, pieces
from evalkit.report.tables import MISSING, Column, Table, written
from evalkit.text import visible

TEXT_WIDTH, TEXT_HEIGHT = 345.0, 550.0
"""Of a page of `article` with 10 points, in points."""

SIZES: Mapping[str, tuple[float, float]] = {"small": (0.926, 11.0), "footnotesize": (0.851, 9.5)}
"""By size: how wide its letters are in those of 10 points, and how far its lines stand apart in points."""

_SETTINGS = (("small", 6.0), ("small", 4.0), ("footnotesize", 3.0))
"""(size, half the space between two columns in points), roomiest first."""

MOST_NAMES = 6
"""Columns of names that every part repeats."""

LEAST_TEXT = 90.0
"""Points that a text which wraps gets at least."""

RULES, CAPTION, NOTE = 24.0, 40.0, 9.5
"""Points that the rules and the head of a tabular, the caption of a float, and a line of notes take."""

# fmt: off
_WIDTHS = (
    278, 500, 833, 500, 833, 778, 278, 389, 389, 500, 778, 278, 333, 278, 500, 500, 500, 500, 500, 500,
    500, 500, 500, 500, 500, 278, 278, 778, 778, 778, 472, 778, 750, 708, 722, 764, 681, 653, 785, 750,
    361, 514, 778, 625, 917, 750, 778, 681, 778, 736, 556, 722, 750, 750, 1028, 750, 750, 611, 278, 500,
    278, 500, 500, 500, 500, 556, 444, 556, 444, 306, 500, 556, 278, 306, 528, 278, 833, 556, 500, 556,
    528, 392, 394, 389, 556, 528, 722, 528, 528, 444, 500, 278, 500, 500,
)
# fmt: on
"""Of the letters from `!` to `~` in Computer Modern, in thousandths of 10 points; commands in place of their letters.
"""

_SPACE, _OTHER, _BOLD = 333, 800, 1.17


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabular:
    """One tabular."""

    columns: Mapping[Column, float]
    """The width of each in points; 0: as wide as its texts."""
    sections: tuple[Section, ...]
    heading: float
    """The width of headings that wrap; 0: they need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A table that fits."""

    size: str
    gap: float
    """Half the space between two columns, in points."""
    floats: tuple[tuple[Tabular, ...], ...]
    """By float: its tabulars."""
    notes_apart: bool
    """Whether the notes are so long that they stand after the last float, as text that pages may break."""


@lru_cache(maxsize=1 << 14)
def text_width(text: str) -> float:
    """How wide a text is in points at 10 points."""
    plain = visible(text)
    return sum(_letter(char) for char in plain) / 100


def _letter(char: str) -> float:
    if char in " \u00a0\n":
        return _SPACE
    if "!" <= char <= "~":
        return _WIDTHS[ord(char) - 33]
    if char == MISSING:
        return 500
    # What LaTeX has no command for is written by its code point.
    return _OTHER if char in "—…±×µ·→" else sum(map(_letter, f"[U+{ord(char):04X}]"))


def fit(table: Table) -> Fit:
    """How the table is set so that it is no wider than the text and no float higher than a page."""
    plain = Section(heading="", places=tuple(range(len(table.rows))))
    choices: list[tuple[Sequence[Column], tuple[Section, ...], str, float]] = [
        (table.outer, (plain,), *_SETTINGS[0]),
        *((*headed(table), *setting) for setting in _SETTINGS),
    ]
    broad = {column: natural(table, column) for column in table.outer}
    tried = [({column: SIZES[size][0] * broad[column] for column in columns}, gap) for columns, _, size, gap in choices]
    fitting = (i for i, (whole, gap) in enumerate(tried) if _fits(whole, gap))
    chosen = next(fitting, len(choices) - 1)
    (_, sections, size, gap), (whole, _) = choices[chosen], tried[chosen]
    parts = [_TabularPart(widths=part, whole=whole, gap=gap) for part in _parts(whole, gap)]
    return _fit(table, parts, sections, size)


def _fits(whole: Mapping[Column, float], gap: float) -> bool:
    return sum(whole.values()) + 2 * gap * (len(whole) - 1) <= TEXT_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class _TabularPart:
    """Columns of one tabular."""

    widths: Mapping[Column, float]
    """As of `Block.columns`."""
    whole: Mapping[Column, float]
    """How wide each is if nothing in it is broken."""
    gap: float

    @property
    def width(self) -> float:
        """Of all, in points."""
        widths = [width or self.whole[column] for column, width in self.widths.items()]
        return sum(widths) + 2 * self.gap * (len(widths) - 1)


def _fit(table: Table, parts: Sequence[_TabularPart], sections: Sequence[Section], size: str) -> Fit:
    notes = NOTE * (1 + sum(_lines(note, TEXT_WIDTH, "footnotesize") for note in table.lines_below))
    notes_apart = notes > TEXT_HEIGHT / 2
    floats, left = _floats(table, parts, sections, size, TEXT_HEIGHT - CAPTION)
    if left < notes and not notes_apart:
        floats, _ = _floats(table, parts, sections, size, TEXT_HEIGHT - CAPTION - notes)
    return Fit(size=size, gap=parts[0].gap, floats=floats, notes_apart=notes_apart)


def natural(table: Table, column: Column) -> float:
    """How wide a column is in points at 10 points if nothing in it is broken."""
    widest = text_width(column.title)
    for index, row in enumerate(table.rows):
        text = written(column, row)
        if column.kind == "interval":
            text = f"[{text.replace(f' {MISSING} ', ', ')}]"
        width = text_width(text.replace("-", "+", 1) if column.numeric else text)
        widest = max(widest, width * (_BOLD if (index, column.key) in table.bold else 1))
    return widest


def _parts(whole: Mapping[Column, float], gap: float) -> list[dict[Column, float]]:
    """The columns in groups that fit, each after the names; with widths of those that wrap."""
    columns = list(whole)
    if _fits(whole, gap):
        return [dict.fromkeys(columns, 0.0)]
    lead = next((index for index, column in enumerate(columns) if column.numeric), len(columns))
    # Names take a half of the width at most, so that something stands after them; a table of texts alone wraps all.
    names = columns[:lead] if lead < len(columns) and lead <= MOST_NAMES else columns[:1]
    most = TEXT_WIDTH / (2 * len(names)) - 2 * gap if names else 0.0
    shares = {column: whole[column] if whole[column] <= most else most for column in names}
    room = TEXT_WIDTH - sum(share + 2 * gap for share in shares.values())
    rest = columns[len(names) :]
    needed = {column: whole[column] if column.numeric else min(whole[column], LEAST_TEXT) for column in rest}
    parts = even_groups(rest, needed, room, 2 * gap)
    left = [room - sum(part.values()) - 2 * gap * (len(part) - 1) for part in parts]
    # What no part needs goes to names that wrap, then in each part to its texts.
    wider = _widened(shares, whole, max(0.0, min(left)))
    taken = sum(wider.values()) - sum(shares.values())
    fitted = []
    for part, spare in zip(parts, left, strict=True):
        widths = {**wider, **_widened(part, whole, max(0.0, spare - taken))}
        fitted.append({column: 0.0 if width >= whole[column] - 1e-6 else width for column, width in widths.items()})
    return fitted


def _widened(widths: Mapping[Column, float], whole: Mapping[Column, float], spare: float) -> dict[Column, float]:
    """The widths with `spare` points more for those that are not whole, as evenly as can be."""
    wider = dict(widths)
    short = sorted(
        (column for column in wider if wider[column] < whole[column]), key=lambda column: whole[column] - wider[column]
    )
    for number, column in enumerate(short):
        more = min(spare / (len(short) - number), whole[column] - wider[column])
        wider[column] += more
        spare -= more
    return wider


def _floats(
    table: Table, parts: Sequence[_TabularPart], sections: Sequence[Section], size: str, height: float
) -> tuple[tuple[tuple[Tabular, ...], ...], float]:
    """(the parts below each other, cut between rows where a page ends; what is left of the last one's height)."""
    line = SIZES[size][1]
    widest = max((text_width(section.heading) for section in sections), default=0.0) * SIZES[size][0]
    pages: list[list[Tabular]] = [[]]
    left = height
    for part in parts:
        width = part.width
        block = Tabular(columns=part.widths, sections=(), heading=width if widest > width else 0.0)
        top = RULES + line * _head_lines(part.widths, size)
        left -= top
        for section in sections:
            above = line * (0.6 + (_lines(section.heading, width, size) if section.heading else 0))
            heights = [line * _row_lines(table, part.widths, row, size) for row in section.places]
            whole = above + sum(heights) if above + sum(heights) <= height - top else 0.0
            for number, row in enumerate(section.places):
                taken = heights[number] + (0.0 if number else above)
                # A section that fits a page is not parted.
                if (taken if number else max(taken, whole)) > left and (block.sections or pages[-1]):
                    pages[-1] += [block] if block.sections else []
                    pages.append([])
                    block = replace(block, sections=())
                    left = height - top - (above if number else 0.0)
                block = _with(block, section, row)
                left -= taken
        pages[-1].append(block)
        left -= line
    return tuple(tuple(page) for page in pages), left


def _with(block: Tabular, section: Section, row: int) -> Tabular:
    """The block with one more row of a section."""
    if block.sections and block.sections[-1].heading == section.heading and block.sections[-1].places[-1] + 1 == row:
        last = block.sections[-1]
        return replace(block, sections=(*block.sections[:-1], replace(last, places=(*last.places, row))))
    return replace(block, sections=(*block.sections, Section(heading=section.heading, places=(row,))))


def _head_lines(part: Mapping[Column, float], size: str) -> int:
    return max((_lines(column.title, width, size) for column, width in part.items() if width), default=1)


def _row_lines(table: Table, part: Mapping[Column, float], row: int, size: str) -> int:
    lines = (_lines(written(column, table.rows[row]), width, size) for column, width in part.items() if width)
    return max(lines, default=1)


def _lines(text: str, width: float, size: str) -> int:
    """How many lines a text takes that wraps at a width in points."""
    lines, position = 1, 0.0
    for piece in pieces(visible(text)):
        wide = text_width(piece) * SIZES[size][0]
        if position + wide > width and position:
            lines, position = lines + 1, 0.0
        position += wide
        lines += int(position / width) if position > width else 0
        position %= width
    return lines
