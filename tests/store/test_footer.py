"""Bytes outside the pages' checksums: a flip is noticed, or nothing that is read differs for it."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalkit.errors import CorruptLogError, EvalkitError
from evalkit.store.files.layout import lay_out
from evalkit.store.files.schema import STEPS, steps_table
from evalkit.store.files.segment import (
    COMMIT,
    Kind,
    Segment,
    compacted_name,
    encode_compacted,
    encode_object,
    object_name,
    read_claim,
    read_segment,
)
from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.examine import footer_flaw
from tests.support.damaged_logs import ALL, Write
from tests.support.log_rows import a_charge, rounds
from tests.support.run_directories import write_run, write_tails

FLIPS = 250
WRITER = "aaaaaaaa-host-1-100.000"
MANY = [f"e{number:03d}" for number in range(40)]


def footer_of(data: bytes) -> range:
    return range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["steps", "ledger"])
def test_a_flip_in_a_footer_is_noticed_or_changes_nothing(tmp_path: Path, kind: Kind) -> None:
    run = write_run(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3), a_charge(4)])
    segment = lay_out(run, kind).segments[0]
    data, wanted = segment.path.read_bytes(), read_segment(segment)
    noticed = 0
    random = Random(7)
    for place in random.sample(footer_of(data), FLIPS):
        changed = bytearray(data)
        changed[place] ^= 1 << random.randrange(8)
        segment.path.write_bytes(changed)
        flaws = check_log(run)
        noticed += bool(flaws)
        if not flaws:
            assert read_segment(segment).equals(wanted), place
    assert noticed > FLIPS / 2


@pytest.mark.parametrize("write", ALL)
def test_a_changed_number_of_the_format_is_damage_and_no_other_evalkit(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3)])
    for segment in lay_out(run, "steps").segments:
        data = segment.path.read_bytes()
        place = data.rindex(b"evalkit.format") + len(b"evalkit.format") + 2  # behind the value's type and length
        assert data[place : place + 1] == b"1"
        for other in (b"0", b"3"):
            segment.path.write_bytes(data[:place] + other + data[place + 1 :])
            with pytest.raises(CorruptLogError, match=r"was changed.*--repair"):
                read_claim(segment)
            assert [flaw for flaw in check_log(run) if segment.path.name in str(flaw)]
        segment.path.write_bytes(data)


TYPES = """
import re, sys
from pathlib import Path
from evalkit.store.recovery.check import check_log
from evalkit.store.files.layout import lay_out

segment = lay_out(Path(sys.argv[1]), "steps").segments[0]
data = segment.path.read_bytes()
footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
found = 0
# In Thrift's compact encoding: the first field of a column's metadata, and the beginning of the second.
for match in re.compile(rb"\x15([\x02\x0c])\x19").finditer(data, footer):
    for kind in (1, 2, 12, 58):
        if kind != match[1][0]:
            segment.path.write_bytes(data[: match.start(1)] + bytes([kind]) + data[match.end(1) :])
            assert check_log(Path(sys.argv[1])), match.start()
            found += 1
print(found)
"""


@pytest.mark.exhaustive
def test_a_column_of_another_type_in_the_footer_is_noticed_and_ends_no_process(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3)])
    said = subprocess.run([sys.executable, "-c", TYPES, str(run)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert int(said.stdout) > 50


def test_a_group_of_fewer_rows_than_none_is_noticed(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 2))
    segment = lay_out(run, "steps").segments[0]
    data = segment.path.read_bytes()
    true, found = pq.read_metadata(segment.path).row_group(0).num_rows, []
    for place in footer_of(data)[:-8]:
        segment.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            rows = pq.read_metadata(segment.path).row_group(0).num_rows
        except (pa.ArrowException, OSError):
            continue
        if rows != true:
            assert [flaw.segment for flaw in check_log(run)][:1] == [segment.name]
            found.append(rows)
    assert min(found) < 0


def test_more_rows_than_bytes_are_refused_before_anything_is_made_of_them(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, steps_table(rounds(["a"], 1)[0]), compacted=False)
    data = segment.path.read_bytes()
    huge = bytes([0xFE] + [0xFF] * 6 + [0x0F])
    for place in footer_of(data)[:-8]:
        longer = data[:place] + huge + data[place + 1 : -8]
        size = int.from_bytes(data[-8:-4], "little") + len(huge) - 1
        segment.path.write_bytes(longer + size.to_bytes(4, "little") + data[-4:])
        try:
            rows = pq.read_metadata(segment.path).row_group(0).num_rows
        except (pa.ArrowException, OSError, IndexError):
            continue
        if rows > 2**40:
            assert check_log(tmp_path)
            return
    raise AssertionError("no such place")


@pytest.mark.exhaustive
def test_any_flip_is_a_typed_error_of_readers(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 2))
    segment = lay_out(run, "steps").segments[0]
    data, random = segment.path.read_bytes(), Random(11)
    told = []
    for place in random.sample(range(len(data)), FLIPS):
        changed = bytearray(data)
        changed[place] = random.randrange(256)
        segment.path.write_bytes(changed)
        try:
            read_segment(segment)
        except EvalkitError as flaw:
            told.append(str(flaw))
    assert len(told) > FLIPS / 2
    assert [words for words in told if segment.path.name not in words] == []


@pytest.mark.exhaustive
def test_every_flip_in_the_newest_object_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """The only file that no other names."""
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3)])
    segment = lay_out(run, "steps").segments[-1]
    data, wanted, says = segment.path.read_bytes(), read_segment(segment), read_claim(segment)
    random, missed = Random(5), 0
    for place in random.sample(range(len(data)), FLIPS):
        segment.path.write_bytes(data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :])
        flaws = check_log(run)
        missed += not flaws
        if not flaws:
            assert (read_segment(segment).equals(wanted), read_claim(segment)) == (True, says), place
    assert missed < FLIPS / 4


def segment_of(tmp_path: Path, table: pa.Table, *, compacted: bool = True) -> Segment:
    if compacted:
        path = tmp_path / "steps" / compacted_name(WRITER, 0, 0)
        data = encode_compacted(table, "steps", 0, 0, writer=WRITER)
    else:
        path = tmp_path / "log" / WRITER / object_name(0)
        data = encode_object(table, {"kind": COMMIT, "writer": WRITER, "number": "0"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Segment(kind="steps", path=path, first=0, last=0, writer=WRITER)


@pytest.mark.parametrize(
    ("column", "kind", "nullable"),
    [("cost", pa.int32(), False), ("reply", pa.binary(), True), ("agent", pa.string(), True)],
)
def test_a_column_of_another_kind_is_refused(tmp_path: Path, column: str, kind: pa.DataType, nullable: bool) -> None:
    table = steps_table(rounds(["a"], 1)[0])
    place = table.schema.get_field_index(column)
    field = pa.field(column, kind, nullable=nullable)
    other = table.set_column(place, field, table.column(column).cast(kind))
    with pytest.raises(CorruptLogError, match=f"a column {column}"):
        read_segment(segment_of(tmp_path, other), ["episode"])


def test_statistics_that_are_not_those_of_the_values_are_noticed(tmp_path: Path) -> None:
    segment = segment_of(tmp_path, steps_table([row for rows in rounds(MANY, 2) for row in rows]))
    assert footer_flaw(segment) == ""
    data = bytearray(segment.path.read_bytes())
    footer = footer_of(bytes(data))
    place = data.index(b"e039", footer.start)
    data[place : place + 4] = b"e020"
    segment.path.write_bytes(data)
    assert footer_flaw(segment) == "column episode is not what its footer says of it"
    (flaw,) = [one for one in check_log(tmp_path) if "footer" in one.problem]
    assert flaw.segment == segment.name


def test_a_file_of_no_rows_is_sound(tmp_path: Path) -> None:
    for compacted in (True, False):
        assert footer_flaw(segment_of(tmp_path, STEPS.empty_table(), compacted=compacted)) == ""


@pytest.mark.parametrize("name", ["steps", "ledger", "ends", "log"])
def test_a_file_in_place_of_a_folder_is_a_flaw(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert [(flaw.segment, flaw.problem) for flaw in check_log(tmp_path)] == [
        (name, "is not a folder: move it elsewhere")
    ]
