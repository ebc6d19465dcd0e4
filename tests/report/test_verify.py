from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evalkit.digests import step_digest
from evalkit.env import table
from evalkit.errors import RunError
from evalkit.report.verify import Finding, verify
from evalkit.store.manifest import write_manifest
from evalkit.store.record import StepRecord
from evalkit.store.segment import segment_name
from tests.guessing import calls, guess, hint, say
from tests.logs import write_tails
from tests.playing import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows

MANIFEST = a_manifest([an_agent("a"), an_agent("b", pack="d1")], [a_suite("s", [4, 5, 6])], 2)
REPLIES = [say("hm"), calls(("fly", "{}"), ("guess", "{")), hint(), guess(7), hint(), guess(2)]


def write_run(run: Path, commits: Iterable[Sequence[StepRecord]]) -> None:
    """A run directory as sessions leave it before compaction: one segment a commit."""
    write_manifest(run, MANIFEST)
    write_tails(run, commits)


def commits() -> list[list[StepRecord]]:
    """Two episodes side by side, a row of each a commit."""
    pairs = zip(rows(MANIFEST, "a", "s", "i0", 0, REPLIES), rows(MANIFEST, "b", "s", "i1", 1, REPLIES), strict=True)
    return [list(pair) for pair in pairs]


@pytest.fixture(autouse=True)
def guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ENVIRONMENTS", ENVIRONMENTS)


def test_an_untouched_run_has_no_findings(tmp_path: Path) -> None:
    write_run(tmp_path, commits())
    assert verify(tmp_path) == []


@pytest.mark.parametrize("field", ["reply", "facts"])
def test_a_changed_byte_is_named_with_segment_episode_and_step(tmp_path: Path, field: str) -> None:
    log = commits()
    row = log[3][1]
    value: bytes = getattr(row, field)
    log[3][1] = replace(row, **{field: value.replace(b"7", b"8")})
    write_run(tmp_path, log)
    (found,) = verify(tmp_path)
    assert (found.segment, found.episode, found.step) == ("tail/000000003.parquet", row.episode, 3)
    assert str(found).startswith(f"tail/000000003.parquet: episode {row.episode}, step 3: does not agree")


def test_a_row_forged_with_its_digest_is_found_by_replay(tmp_path: Path) -> None:
    log = commits()
    row = log[3][1]
    facts = row.facts.replace(b"7", b"8")
    digest = step_digest(row.request_digest, row.reply, facts, row.observation_digest)
    log[3][1] = replace(row, facts=facts, step_digest=digest)
    write_run(tmp_path, log)
    (found,) = verify(tmp_path)
    assert (found.segment, found.step, found.place) == ("tail/000000003.parquet", 3, "b:s:i1:1")
    assert "replay gives another facts" in found.problem


def test_a_removed_row_is_named_once_by_its_step(tmp_path: Path) -> None:
    log = commits()
    removed = log[2].pop(0)
    write_run(tmp_path, log)
    (found,) = verify(tmp_path)
    assert (found.episode, found.step) == (removed.episode, 2)
    assert "tail/000000002.parquet" in found.segment
    assert "missing" in found.problem


def test_rows_out_of_order_are_found_by_replay(tmp_path: Path) -> None:
    log = commits()
    log[2], log[3] = log[3], log[2]
    write_run(tmp_path, log)
    found = verify(tmp_path)
    assert [(one.segment, one.step) for one in found] == [("tail/000000002.parquet", 2)] * 2


def test_swapped_segments_are_named_and_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path, commits())
    one, two, aside = (tmp_path / "tail" / name for name in (segment_name(1), segment_name(4), "x"))
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    assert {found.segment for found in verify(tmp_path)} == {"tail/000000001.parquet", "tail/000000004.parquet"}


def test_a_torn_file_is_named_with_the_steps_it_held(tmp_path: Path) -> None:
    log = commits()
    write_run(tmp_path, log)
    path = tmp_path / "tail" / segment_name(4)
    path.write_bytes(path.read_bytes()[:-100])
    found = verify(tmp_path)
    assert {one.segment for one in found} == {"tail/000000004.parquet"}
    assert {(one.episode, one.step) for one in found if one.episode} == {(row.episode, 4) for row in log[4]}


def test_a_flipped_byte_is_found_or_changes_nothing_that_is_read(tmp_path: Path) -> None:
    """Some bytes of a page's header only repeat what others say. (The footer is the store's own matter.)"""
    write_run(tmp_path, commits())
    path = tmp_path / "tail" / segment_name(2)
    sound, rows_as_written = path.read_bytes(), pq.read_table(path).to_pylist()
    found_at = []
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for at in range(4, footer, 53):
        data = bytearray(sound)
        data[at] ^= 0xFF
        path.write_bytes(data)
        if any(one.segment == "tail/000000002.parquet" for one in verify(tmp_path)):
            found_at.append(at)
        else:
            assert pq.read_table(path).to_pylist() == rows_as_written
    assert len(found_at) > 20
    path.write_bytes(sound)
    assert verify(tmp_path) == []


def test_a_file_that_moves_meanwhile_says_that_the_run_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalkit.store import check

    def gone(run: Path) -> None:
        raise FileNotFoundError(run / "tail" / "x.parquet")

    write_run(tmp_path, commits())
    monkeypatch.setattr(check, "check_log", gone)
    with pytest.raises(RunError, match="is being written"):
        verify(tmp_path)


def test_a_finding_about_a_file_names_the_file() -> None:
    assert str(Finding(segment="tail/000000003.parquet", problem="is missing")) == "tail/000000003.parquet: is missing"
