from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalkit.digests import step_digest
from evalkit.envs import table
from evalkit.errors import RunError
from evalkit.frozen.manifests import write_manifest
from evalkit.results.verify import Finding, verify
from evalkit.store.files.record import StepRecord
from evalkit.store.files.segment import object_name
from tests.support.guessing_game import calls, guess, hint, say
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows
from tests.support.log_contents import new_log

MANIFEST = a_manifest([an_agent("a"), an_agent("b", pack="d1")], [a_suite("s", [4, 5, 6])], 2)
REPLIES = [say("hm"), calls(("fly", "{}"), ("guess", "{")), hint(), guess(7), hint(), guess(2)]


class Log:
    """A run directory as sessions leave it before compaction, one file a commit."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def write(self, commits: Iterable[Sequence[StepRecord]]) -> None:
        write_manifest(self.run, MANIFEST)
        new_log(self.run, commits)

    def path(self, number: int) -> Path:
        """The file of a commit."""
        (folder,) = (self.run / "log").iterdir()
        return folder / object_name(number)

    def name(self, number: int) -> str:
        """The same as messages name it."""
        return self.path(number).relative_to(self.run).as_posix()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def commits() -> list[list[StepRecord]]:
    """Two episodes side by side, a row of each a commit."""
    pairs = zip(rows(MANIFEST, "a", "s", "i0", 0, REPLIES), rows(MANIFEST, "b", "s", "i1", 1, REPLIES), strict=True)
    return [list(pair) for pair in pairs]


@pytest.fixture(autouse=True)
def guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)


def test_an_untouched_run_has_no_findings(log: Log) -> None:
    log.write(commits())
    assert verify(log.run) == []


@pytest.mark.parametrize("field", ["reply", "facts"])
def test_a_changed_byte_is_named_with_segment_episode_and_step(log: Log, field: str) -> None:
    made = commits()
    row = made[3][1]
    value: bytes = getattr(row, field)
    changed: dict[str, Any] = {field: value.replace(b"7", b"8")}
    made[3][1] = replace(row, **changed)
    log.write(made)
    (found,) = verify(log.run)
    assert (found.segment, found.episode, found.step) == (log.name(3), row.episode, 3)
    assert str(found).startswith(f"{log.name(3)}: episode {row.episode} (b:s:i1:1), step 3: was changed after it was")


def test_a_row_forged_with_its_digest_is_found_by_replay(log: Log) -> None:
    made = commits()
    row = made[3][1]
    facts = row.facts.replace(b"7", b"8")
    digest = step_digest(row.request_digest, row.reply, facts, row.observation_digest)
    made[3][1] = replace(row, facts=facts, step_digest=digest)
    log.write(made)
    (found,) = verify(log.run)
    assert (found.segment, found.step, found.place) == (log.name(3), 3, "b:s:i1:1")
    assert "replay gives another facts" in found.problem


def test_a_removed_row_is_named_once_by_its_step(log: Log) -> None:
    made = commits()
    removed = made[2].pop(0)
    log.write(made)
    (found,) = verify(log.run)
    assert (found.episode, found.step) == (removed.episode, 2)
    assert found.segment == f"{log.name(1)} to {log.name(3)}"
    assert "missing" in found.problem


def test_rows_out_of_order_are_found_by_replay(log: Log) -> None:
    made = commits()
    made[2], made[3] = made[3], made[2]
    log.write(made)
    found = verify(log.run)
    assert [(one.segment, one.step) for one in found] == [(log.name(2), 2)] * 2


def test_swapped_segments_are_named_and_nothing_else(log: Log) -> None:
    log.write(commits())
    one, two, aside = log.path(1), log.path(4), log.run / "aside"
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    assert {found.segment for found in verify(log.run) if not found.episode} == {log.name(1), log.name(4)}


def test_a_torn_file_is_named_with_the_steps_it_held(log: Log) -> None:
    made = commits()
    log.write(made)
    path = log.path(4)
    path.write_bytes(path.read_bytes()[:-100])
    found = verify(log.run)
    assert {one.segment for one in found if not one.episode} == {log.name(4)}
    assert {(one.episode, one.step) for one in found if one.episode} == {(row.episode, 4) for row in made[4]}


@pytest.mark.exhaustive
def test_a_flipped_byte_is_found_or_changes_nothing_that_is_read(log: Log) -> None:
    """Some bytes of a page's header only repeat what others say. (The footer is the store's own matter.)"""
    log.write(commits())
    path = log.path(2)
    sound, rows_as_written = path.read_bytes(), pq.read_table(path).to_pylist()
    found_at = []
    footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for at in range(4, footer, 53):
        data = bytearray(sound)
        data[at] ^= 0xFF
        path.write_bytes(data)
        if any(one.segment == log.name(2) for one in verify(log.run)):
            found_at.append(at)
        else:
            assert pq.read_table(path).to_pylist() == rows_as_written
    assert len(found_at) > 20
    path.write_bytes(sound)
    assert verify(log.run) == []


def test_a_file_that_moves_meanwhile_says_that_the_run_is_being_written(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalkit.store.recovery import check

    def gone(run: Path, look: object) -> None:
        raise FileNotFoundError(run / "steps" / "x.parquet")

    log.write(commits())
    monkeypatch.setattr(check, "check_log", gone)
    with pytest.raises(RunError, match="is being written"):
        verify(log.run)


def test_a_finding_about_a_file_names_the_file() -> None:
    assert str(Finding(segment="log/w/000000003.parquet", problem="is lost")) == "log/w/000000003.parquet: is lost"
