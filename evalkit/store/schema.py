"""The columns of `steps/*.parquet` and `ledger/*.parquet`, with units, and records as such columns.

A new column is a new format number; renaming or retyping one is not done. Texts are UTF-8 strings, so that `reply` and
`facts` read as JSON in any tool; digests are 16 raw bytes.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from evalkit.store.columns import column_of
from evalkit.store.record import LedgerRecord, StepRecord

FORMAT = 1
"""Number of this layout of columns, segments and directories; in every segment's metadata."""


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
        _field("worker", _TEXT, "host:pid"),
    ]
)

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
    *("attempts", "served_model", "fingerprint", "finish", "ending", "worker"),
)
"""Columns of STEPS that repeat few values: compacted files hold them by dictionary."""


def steps_table(records: Sequence[StepRecord]) -> pa.Table:
    """The rows as a table of schema STEPS. Refuses nothing: see `columns.py`."""
    return _table(records, STEPS, _step_values)


def ledger_table(records: Sequence[LedgerRecord]) -> pa.Table:
    """The rows as a table of schema LEDGER."""
    return _table(records, LEDGER, _ledger_values)


def ledger_records(table: pa.Table) -> list[LedgerRecord]:
    """The rows of a table of schema LEDGER."""
    return [LedgerRecord(**row) for row in table.select(LEDGER.names).to_pylist()]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under the schema with its units; segments in `tail/` are stored without them."""
    return pa.Table.from_arrays([table.column(name) for name in schema.names], schema=schema)


_step_values: Callable[[StepRecord], tuple[Any, ...]] = attrgetter(*STEPS.names)
_ledger_values: Callable[[LedgerRecord], tuple[Any, ...]] = attrgetter(*LEDGER.names)


def _table(records: Sequence[Any], schema: pa.Schema, values: Callable[[Any], tuple[Any, ...]]) -> pa.Table:
    columns = zip(*map(values, records), strict=True) if records else [()] * len(schema)
    arrays = [column_of(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
