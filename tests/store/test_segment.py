"""Bytes of files: whichever is changed, it is noticed; and what a file says of itself has to fit its name."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from evalkit.errors import CorruptLogError, EvalkitError, RunError
from evalkit.store.files import segment as files
from evalkit.store.files.layout import lay_out
from evalkit.store.files.schema import STEPS, steps_table
from evalkit.store.files.segment import (
    COMMIT,
    KINDS,
    NO_MONEY,
    Segment,
    check_bytes,
    compacted_name,
    encode_compacted,
    encode_object,
    object_name,
    read_claim,
    read_segment,
)
from tests.support.damaged_logs import ALL, Write, flip_at, swap
from tests.support.log_rows import a_charge, rounds
from tests.support.run_directories import write_run, write_tails

WRITER = "aaaaaaaa-host-1-100.000"


def footer_of(data: bytes) -> int:
    """Where a Parquet footer begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def segments_of(run: Path) -> list[Segment]:
    """Each file of a log once."""
    return list({one.name: one for kind in KINDS for one in lay_out(run, kind).segments}.values())


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("write", ALL)
def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path, write: Write) -> None:
    """Pages, their headers, the two digests, the footer, its length, the letters at both ends."""
    run, random = write(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3)]), Random(7)
    for segment in segments_of(run):
        data = segment.path.read_bytes()
        at = footer_of(data)
        places = {*range(at - 64, len(data), 5), len(data) - 1, *random.sample(range(at), min(at, 120))}
        # Parquet's own letter at its beginning is compared by nobody but the digest.
        for place in sorted(places | {0, at - 64, at - 33, at - 32, at - 1, at}):
            flip_at(segment.path, place, 1 << random.randrange(8))
            with pytest.raises(CorruptLogError, match=f"{segment.path.name} is damaged"):
                check_bytes(segment)
            if place >= at - 32:
                with pytest.raises(CorruptLogError, match="damaged"):
                    read_claim(segment)
            segment.path.write_bytes(data)
        check_bytes(segment)


@pytest.mark.exhaustive
def test_what_readers_say_of_any_changed_byte_is_a_typed_error(tmp_path: Path) -> None:
    run, random = write_tails(tmp_path / "run", rounds(["a"], 2)), Random(11)
    segment = lay_out(run, "steps").segments[0]
    data, told = segment.path.read_bytes(), []
    for place in random.sample(range(len(data)), 250):
        segment.path.write_bytes(data[:place] + random.randbytes(1) + data[place + 1 :])
        try:
            read_segment(segment)
        except EvalkitError as flaw:
            told.append(str(flaw))
    assert len(told) > 100
    assert [words for words in told if segment.path.name not in words] == []


@pytest.mark.parametrize("harm", [b"", b"PAR1", b"PAR1 torn", bytes(400), b"x" * 100])
def test_what_is_no_file_of_the_log_is_damage(tmp_path: Path, harm: bytes) -> None:
    segment = segment_of(tmp_path, STEPS.empty_table())
    segment.path.write_bytes(harm)
    for look in (check_bytes, read_segment):
        with pytest.raises(CorruptLogError, match=segment.path.name):
            look(segment)


@pytest.mark.parametrize("look", [check_bytes, read_segment])
def test_a_file_that_is_gone_and_a_link_to_nothing_are_told_apart(tmp_path: Path, look: object) -> None:
    assert callable(look)
    segment = segment_of(tmp_path, STEPS.empty_table())
    segment.path.unlink()
    with pytest.raises(FileNotFoundError):
        look(segment)
    segment.path.symlink_to("nothing")
    with pytest.raises(CorruptLogError, match="link to a missing file"):
        look(segment)


def test_another_format_is_named_with_its_writer_and_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_WRITTEN_BY", {"format": "7", "written_by": "9.1.0"})
    for compacted in (True, False):
        segment = segment_of(tmp_path, steps_table(rounds(["a"], 1)[0]), compacted=compacted)
        for look in (check_bytes, read_claim, read_segment):
            with pytest.raises(
                RunError, match=r"log format 7, written by evalkit 9\.1\.0; this is evalkit .* reads format 1"
            ):
                look(segment)


@pytest.mark.parametrize("write", ALL)
def test_a_changed_number_of_the_format_is_damage_and_no_other_evalkit(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", rounds(["a", "b"], 3), [a_charge(3)])
    for segment in segments_of(run):
        data = segment.path.read_bytes()
        place = data.rindex(b"evalkit.format") + len(b"evalkit.format") + 2  # behind the value's type and length
        assert data[place : place + 1] == b"1"
        for other in (b"0", b"3"):
            segment.path.write_bytes(data[:place] + other + data[place + 1 :])
            with pytest.raises(CorruptLogError, match=r"not the one that was written.*--repair"):
                read_claim(segment)


def test_files_that_were_swapped_or_renamed_are_named(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 3))
    one, _, three = lay_out(run, "steps").segments
    swap(one.path, three.path)
    with pytest.raises(CorruptLogError, match=r"000000000\.parquet is object 2 of .*renamed or swapped"):
        read_segment(one)
    run = write_run(tmp_path / "other", rounds(["a", "b"], 3))
    (steps,), (money,) = ((run / kind).iterdir() for kind in KINDS)
    moved = steps.rename(steps.with_name(steps.name.replace("000000002.parquet", "000000003.parquet")))
    with pytest.raises(CorruptLogError, match="holds numbers 0 to 2: it was renamed"):
        read_segment(lay_out(run, "steps").segments[0])
    moved.rename(steps)
    swap(steps, money)
    with pytest.raises(CorruptLogError, match="is no segment of steps"):
        read_segment(lay_out(run, "steps").segments[0])
    writer = steps.name.partition("-0000")[0]
    steps.rename(steps.with_name(steps.name.replace(writer, WRITER)))
    swap(steps.with_name(steps.name.replace(writer, WRITER)), money)
    with pytest.raises(CorruptLogError, match=f"is of {writer}: it was renamed"):
        read_segment(next(one for one in lay_out(run, "steps").segments if one.writer == WRITER))


def segment_of(run: Path, table: pa.Table, *, compacted: bool = True) -> Segment:
    """A file of steps, whatever its columns."""
    path = run / ("steps" if compacted else f"log/{WRITER}")
    path = path / (compacted_name(WRITER, 0, 0) if compacted else object_name(0))
    segment = Segment(kind="steps", path=path, first=0, last=0, writer=WRITER)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        encode_compacted(segment, table, NO_MONEY)
        if compacted
        else encode_object(table, {"kind": COMMIT, "writer": WRITER, "number": "0"})
    )
    return segment


def test_a_file_without_rows_is_sound(tmp_path: Path) -> None:
    for compacted in (True, False):
        segment = segment_of(tmp_path, STEPS.empty_table(), compacted=compacted)
        check_bytes(segment)
        assert read_segment(segment).num_rows == 0
