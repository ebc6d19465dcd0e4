import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.store.files.columns import column_of, column_with_gaps
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.files.schema import FEW_VALUES, LEDGER, STEPS, UNASKED, ledger_records, ledger_table, steps_table
from tests.support.run_directories import a_charge, a_step

KINDS = {
    "str": pa.string(),
    "bytes": (pa.string(), pa.binary(16)),
    "bytes | None": (pa.string(), pa.binary()),
    "int": (pa.int32(), pa.int64()),
    "float": pa.float64(),
    "PicoUsd": pa.int64(),
}


@pytest.mark.parametrize(("schema", "record"), [(STEPS, StepRecord), (LEDGER, LedgerRecord)])
def test_columns_are_the_fields_of_the_record_with_units(schema: pa.Schema, record: type) -> None:
    behind = list(UNASKED) if schema is STEPS else []
    assert schema.names == [*(field.name for field in fields(record) if field.name not in behind), *behind]
    for field in fields(record):
        column = schema.field(field.name)
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        allowed = KINDS[kind]
        assert column.type in (allowed if isinstance(allowed, tuple) else (allowed,)), column.name
        assert column.nullable == ("None" in str(field.type)), column.name
        assert column.metadata[b"unit"]
    for name in behind:
        assert schema.field(name).metadata[b"unit"]
        assert not schema.field(name).nullable
    assert set(FEW_VALUES) <= set(STEPS.names)


def test_rows_come_back_as_they_were() -> None:
    rows = [a_step(step=0), a_step(step=1, reply=None, raw=b"\xff\x00", ending="refusal"), a_step(agent="größer")]
    table = steps_table(rows)
    table.validate(full=True)
    for name in STEPS.names:
        want = [UNASKED.get(name, getattr(row, name, None)) for row in rows]
        got = table.column(name).to_pylist()
        if name in ("reply", "facts"):
            got = [None if text is None else text.encode() for text in got]
        assert got == want, name
    entries = [a_charge(), a_charge(7, lane="p/m", agent="a", episode="e", step=3, attempt=1, reason="timeout")]
    assert ledger_records(ledger_table(entries)) == entries
    assert steps_table([]).num_rows == 0


@given(st.lists(st.none() | st.binary(max_size=9), max_size=300))
def test_bytes_with_gaps_are_what_pyarrow_makes_of_them(values: list[bytes | None]) -> None:
    column = column_of(values, pa.binary())
    column.validate(full=True)
    assert column.to_pylist() == values


@given(st.lists(st.text(max_size=9), max_size=300))
def test_texts_are_what_pyarrow_makes_of_them(values: list[str]) -> None:
    column = column_of(values, pa.string())
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.string()))


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (pa.string(), st.text(max_size=9)),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.bool_(), st.booleans()),
    ],
)
@given(st.data())
def test_columns_with_gaps_are_what_pyarrow_makes_of_them(
    kind: pa.DataType, some: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | some, max_size=300))
    column = column_with_gaps(values, kind)
    column.validate(full=True)
    assert column.equals(pa.array(values, kind))


@pytest.mark.parametrize(
    ("kind", "given_value", "kept"),
    [
        (pa.string(), "half \ud800 pair", "half ? pair"),
        (pa.string(), b"no \xff utf8", "no \N{REPLACEMENT CHARACTER} utf8"),
        (pa.string(), None, None),
        (pa.int64(), 10**30, 2**63 - 1),
        (pa.int32(), -(10**30), -(2**31)),
        (pa.int64(), None, 0),
        (pa.float64(), None, 0.0),
        (pa.binary(4), b"ab", b"ab\0\0"),
    ],
)
def test_what_a_column_cannot_hold_becomes_the_nearest_it_can(
    kind: pa.DataType, given_value: object, kept: object
) -> None:
    assert column_of([given_value], kind).to_pylist() == [kept]


def test_writing_and_reading_a_log_loads_no_pandas(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.support.run_directories import *\n"
        "from evalkit.store.reading.reader import *\n"
        "from evalkit.store.reading.index import read_index\n"
        f"run = write_run(Path({str(tmp_path / 'run')!r}), rounds(['a', 'b'], 3), [a_charge()])\n"
        "index = read_index(run); rows = replay_rows(run, {'a'})['a']\n"
        "table = scan(run, ['episode', 'reply', 'cost'])\n"
        "print(len(index.episodes), len(rows), table.num_rows, len(read_ledger(run)), 'pandas' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout.split() == ["2", "3", "6", "1", "False"], done.stderr
