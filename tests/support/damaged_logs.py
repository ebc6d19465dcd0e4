"""Logs damaged by hand: another table under valid checksums, a flipped bit; and what writes a log to damage."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from evalkit.store.files.layout import lay_out
from evalkit.store.files.schema import STEPS, conform
from evalkit.store.files.segment import (
    Segment,
    encode_compacted,
    encode_object,
    read_claim,
    read_segment,
    session_money,
)
from tests.support.run_directories import write_run, write_tails

Write = Callable[..., Path]
"""Writes a run's log."""
ALL = [write_run, write_tails]


def rewrite(run: Path, number: int, change: Callable[[pa.Table], pa.Table]) -> str:
    """Put a changed table into a segment, with valid checksums and metadata; returns its name."""
    segment = lay_out(run, "steps").segments[number]
    segment.path.write_bytes(reencoded(segment, conform(change(read_segment(segment)), STEPS)))
    return segment.name


def reencoded(segment: Segment, table: pa.Table) -> bytes:
    """A file that says what it said, of other rows."""
    says = read_claim(segment)
    if segment.is_object:
        return encode_object(table, {name: value for name, value in says.items() if name not in ("rows", "format")})
    return encode_compacted(segment, table, session_money(says))


def replaced(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        place = table.schema.get_field_index(column)
        return table.set_column(place, STEPS.field(column), pa.array(values, STEPS.field(column).type))

    return change


def flip(path: Path, text: bytes) -> None:
    """Change the last letter of a text that lies in the file as it is (compression copies earlier parts of it)."""
    data = path.read_bytes()
    flip_at(path, data.index(text) + len(text) - 1, 0x20)


def flip_at(path: Path, place: int, bits: int = 1) -> None:
    """Change bits of a byte."""
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


def swap(one: Path, other: Path) -> None:
    """Each gets the other's bytes."""
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
