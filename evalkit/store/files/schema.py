"""The columns of `steps/*.parquet` and `ledger/*.parquet`, with units, and records as such columns.

A new column is a new format number; renaming or retyping one is not done. Texts are UTF-8 strings, so that `reply` and
`facts` read as JSON in any tool; digests are 16 raw bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from evalkit.store.files.columns import column_of
from evalkit.store.files.record import STEP, LedgerRecord, StepRecord

FORMAT = 1
"""Number of this layout of columns, files and directories; in every file's metadata."""


def _field(name: str, kind: pa.DataType, unit: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"unit": unit})


_TEXT, _INDEX, _COUNT, _SECONDS, _DIGEST = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.binary(16)

STEPS: pa.Schema = pa.schema(
    [
        _field("episode", _TEXT, "digest, hex"),
        _field("environment", _TEXT, "name"),
        _field("suite", _TEXT, "name"),
        _field("instance", _TEXT, "name"),
        _field("agent", _TEXT, "name"),
        _field("replicate", _INDEX, "index from 0"),
        _field("take", _INDEX, "index from 0"),
        _field("step", _INDEX, "index from 0"),
        _field("period", _INDEX, "index from 0"),
        _field("turn", _INDEX, "index from 0"),
        _field("reply", _TEXT, "JSON", nullable=True),
        _field("raw", pa.binary(), "bytes as received", nullable=True),
        _field("facts", _TEXT, "JSON"),
        _field("observation_digest", _DIGEST, "SHA-256, first 16 bytes"),
        _field("request_digest", _DIGEST, "SHA-256, first 16 bytes"),
        _field("step_digest", _DIGEST, "SHA-256, first 16 bytes"),
        _field("tokens_in", _COUNT, "tokens"),
        _field("tokens_out", _COUNT, "tokens"),
        _field("tokens_cached_read", _COUNT, "tokens"),
        _field("tokens_cached_write", _COUNT, "tokens"),
        _field("tokens_reasoning", _COUNT, "tokens"),
        _field("cost", _COUNT, "1e-12 USD"),
        _field("latency_s", _SECONDS, "s"),
        _field("queue_s", _SECONDS, "s"),
        _field("attempts", _TEXT, "words joined by commas"),
        _field("started_at", _SECONDS, "s since 1970, UTC"),
        _field("served_model", _TEXT, "name"),
        _field("fingerprint", _TEXT, "name"),
        _field("response_id", _TEXT, "name"),
        _field("finish", _TEXT, "word"),
        _field("ending", _TEXT, "word; empty while the episode goes on"),
        _field("worker", _TEXT, "name of the writer"),
        _field("tier", _TEXT, "word"),
        _field("saved", _COUNT, "1e-12 USD"),
        # Seldom anything but one value each in runs without agents that are code.
        _field("row_kind", _TEXT, "word: step, ask or cut"),
        _field("base_take", _INDEX, "index from 0"),
        _field("ask_key", _TEXT, "name"),
        _field("ask_n", _INDEX, "index from 0"),
    ]
)

UNASKED: Mapping[str, Any] = {"row_kind": "step", "base_take": 0, "ask_key": "", "ask_n": 0}
"""Columns with these values in all rows of runs without agents that are code: the kind of row, and the rest of an ask's
address."""

LEDGER: pa.Schema = pa.schema(
    [
        _field("kind", _TEXT, "word"),
        _field("session", _TEXT, "name"),
        _field("amount", _COUNT, "1e-12 USD"),
        _field("lane", _TEXT, "name"),
        _field("agent", _TEXT, "name"),
        _field("episode", _TEXT, "digest, hex"),
        _field("step", _INDEX, "index from 0; -1: none"),
        _field("attempt", _INDEX, "index from 0; -1: none"),
        _field("reason", _TEXT, "words"),
        _field("at", _SECONDS, "s since 1970, UTC"),
    ]
)

FEW_VALUES = (
    *("episode", "environment", "suite", "instance", "agent", "replicate", "take", "step", "period", "turn"),
    *("attempts", "served_model", "fingerprint", "finish", "ending", "worker", "tier", "saved"),
    *UNASKED,
)
"""Columns of STEPS that repeat few values: compacted files hold them by dictionary."""


def steps_table(records: Sequence[StepRecord]) -> pa.Table:
    """The rows as a table of schema STEPS. Accepts every value: see `columns.py`."""
    columns = zip(*map(_step_values, records), strict=True) if records else [()] * len(_WRITTEN)
    arrays = list(map(column_of, columns, _WRITTEN_TYPES))
    asked = any(record.row_kind != STEP or record.ask_n or record.base_take for record in records)
    address = (
        column_of([getattr(record, name) for record in records], STEPS.field(name).type)
        if asked
        else _alike(name, len(records))
        for name in UNASKED
    )
    return pa.Table.from_arrays([*arrays, *address], schema=STEPS)


def _alike(name: str, rows: int) -> pa.Array:
    """A column of rows without asks, with this number of them."""
    if rows > _ALIKE_ROWS:
        return column_of([UNASKED[name]] * rows, STEPS.field(name).type)
    return _alike_rows(name).slice(0, rows)


@cache
def _alike_rows(name: str) -> pa.Array:
    return column_of([UNASKED[name]] * _ALIKE_ROWS, STEPS.field(name).type)


_ALIKE_ROWS = 1024


def memory_of(rows: pa.Table) -> int:
    """Bytes of a table from `steps_table`, without the columns that all tables without asks share. `nbytes` takes 40
    times as long."""
    return int(max(0, rows.get_total_buffer_size() - _shared_bytes()))


@cache
def _shared_bytes() -> int:
    return sum(_alike_rows(name).get_total_buffer_size() for name in UNASKED)


def ledger_table(records: Sequence[LedgerRecord]) -> pa.Table:
    """The rows as a table of schema LEDGER."""
    return _table(records, LEDGER, _ledger_values)


def ledger_records(table: pa.Table) -> list[LedgerRecord]:
    """The rows of a table of schema LEDGER."""
    return [LedgerRecord(**row) for row in table.select(LEDGER.names).to_pylist()]


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table. pyarrow's own way to make one would import pandas."""
    return pa.Table.from_batches([], schema=schema)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under the schema with its units, which commits are stored without."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    return pa.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)


_WRITTEN = [name for name in STEPS.names if name not in UNASKED]
"""Columns that every record fills."""
_WRITTEN_TYPES = [STEPS.field(name).type for name in _WRITTEN]
"""Their types: to ask the schema for them takes a third of a small commit's conversion."""
_step_values: Callable[[StepRecord], tuple[Any, ...]] = attrgetter(*_WRITTEN)
_ledger_values: Callable[[LedgerRecord], tuple[Any, ...]] = attrgetter(*LEDGER.names)


def _table(records: Sequence[Any], schema: pa.Schema, values: Callable[[Any], tuple[Any, ...]]) -> pa.Table:
    columns = zip(*map(values, records), strict=True) if records else [()] * len(schema)
    arrays = [column_of(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
