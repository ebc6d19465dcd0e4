"""Logs of format 1, as they were written: they stay readable for ever."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.store.files.layout import MARK, lay_out
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import RESERVED, ledger_table, steps_table
from evalkit.store.files.segment import ROW_GROUP, Kind, compacted_name, encode_compacted, object_name


def encode_first(table: pa.Table, kind: Kind, first: int, last: int, *, compacted: bool) -> bytes:
    """A file's bytes."""
    if compacted:
        return bytes(memoryview(encode_compacted(table, kind, first, last, writer="")))
    facts = {"format": 1, "kind": kind, "first": first, "last": last, "rows": table.num_rows}
    table = table.select([name for name in table.schema.names if name not in RESERVED or kind != "steps"])
    sink = pa.BufferOutputStream()
    settings = {"compression": "lz4", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **settings) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({f"evalkit.{name}": str(value) for name, value in facts.items()})
    return bytes(memoryview(sink.getvalue()))


def encode_first_mark(*, steps: int, ledger: int) -> bytes:
    """The content of `log.json`."""
    return b'{"format":1,"steps":%d,"ledger":%d}\n' % (steps, ledger)


def first_tails(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """A run that died before anything was compacted; `ledger` came with its first rows."""
    for name in ("tail", "steps", "ledger"):
        (run / name).mkdir(parents=True, exist_ok=True)
    begin, money = lay_out(run, "steps").next, lay_out(run, "ledger").next
    if ledger:
        data = encode_first(ledger_table(ledger), "ledger", money, money, compacted=False)
        (run / "ledger" / object_name(money)).write_bytes(data)
    for number, rows in enumerate(commits, begin):
        data = encode_first(steps_table(rows), "steps", number, number, compacted=False)
        (run / "tail" / object_name(number)).write_bytes(data)
    return run


def first_run(run: Path, commits: Iterable[Sequence[StepRecord]], ledger: Sequence[LedgerRecord] = ()) -> Path:
    """A run that ended well: its rows are compacted."""
    first_tails(run, (), ledger)
    rows = [row for commit in commits for row in commit]
    begin = lay_out(run, "steps").next
    if rows:
        data = encode_first(steps_table(rows), "steps", begin, begin, compacted=True)
        (run / "steps" / compacted_name("", begin, begin)).write_bytes(data)
        begin += 1
    (run / MARK).write_bytes(encode_first_mark(steps=begin, ledger=lay_out(run, "ledger").next))
    return run
