"""Logs damaged by hand: another table under valid checksums, a flipped bit; and what writes a log to damage."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from evalkit.store.files.layout import lay_out
from evalkit.store.files.schema import STEPS, conform
from evalkit.store.files.segment import Segment, claim, encode_compacted, encode_object, open_file, read_segment
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
    with open_file(segment) as file:
        says = {name: value for name, value in claim(file).items() if name not in ("rows", "check", "format")}
    if segment.is_object:
        return bytes(memoryview(encode_object(table, says)))
    facts = {str(name): says[name] for name in ("before", "object", "heads") if name in says}
    data = encode_compacted(table, segment.kind, segment.first, segment.last, writer=segment.writer, facts=facts)
    return bytes(memoryview(data))


def replaced(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        place = table.schema.get_field_index(column)
        return table.set_column(place, STEPS.field(column), pa.array(values, STEPS.field(column).type))

    return change


def flip(path: Path, text: bytes) -> None:
    """Change the last letter of a text that lies in the file as it is (compression copies earlier parts of it)."""
    data = bytearray(path.read_bytes())
    place = data.index(text) + len(text) - 1
    data[place] ^= 0x20
    path.write_bytes(data)
