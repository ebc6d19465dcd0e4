"""A log that somebody has changed, with all checksums in order where that is possible: `verify` names segment, episode
and step, and `run` does not build on it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evalkit.digests import step_digest
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.errors import CorruptLogError
from evalkit.results.verify import check_rows, verify
from evalkit.store.files.journal import new_writer, open_journal
from evalkit.store.files.layout import lay_out
from evalkit.store.files.segment import KINDS, LOG, Segment, read_segment
from evalkit.store.reading.reader import read_ledger, scan
from tests.engine.snapshot import snapshot_at
from tests.support.damaged_logs import reencoded
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served

Change = Callable[[list[dict[str, Any]], int], list[dict[str, Any]]]
"""(rows of a segment, which of them) -> the rows as they are put back."""

SPEC = served(periods=4, width=4, replicates=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`whole` has ended and is compacted; `torn` died with half its episodes ended, the others under way."""
    work = tmp_path_factory.mktemp("runs")
    with snapshot_at(work / "whole", work / "torn", 104):
        outcome, _ = go_served(resolved(work, SPEC), work / "whole", {"latency": "uniform:1ms:9ms"})
    assert outcome.exit_code == 0
    return work


@pytest.fixture(params=["whole", "torn"])
def run(request: pytest.FixtureRequest, runs: Path, tmp_path: Path) -> Path:
    """A copy of either run."""
    return Path(shutil.copytree(runs / request.param, tmp_path / request.param))


def find(run: Path, wanted: Callable[[dict[str, Any]], bool]) -> tuple[Segment, int, dict[str, Any]]:
    """The first row of the log that is wanted: segment, place in it, values."""
    for segment in lay_out(run, "steps").segments:
        for place, row in enumerate(read_segment(segment).to_pylist()):
            if wanted(row):
                return segment, place, row
    raise AssertionError("no such row")


def in_the_middle(run: Path) -> tuple[Segment, int, dict[str, Any]]:
    """A row with others of its episode on both sides; the episode goes on where some do."""
    rows = [row for segment in lay_out(run, "steps").segments for row in read_segment(segment).to_pylist()]
    ended = {row["episode"] for row in rows if row["ending"]}
    long = {row["episode"] for row in rows if row["step"] == 2}
    chosen = min((long - ended) or long)
    return find(run, lambda row: row["episode"] == chosen and row["step"] == 1)


def rewrite(segment: Segment, place: int, change: Change) -> None:
    """Put a changed segment back, its checksums and metadata in order."""
    table = read_segment(segment)
    changed = pa.Table.from_pylist(change(table.to_pylist(), place), schema=table.schema)
    segment.path.write_bytes(reencoded(segment, changed))


def forge(run: Path, order: Callable[[list[pa.Table]], list[pa.Table]]) -> None:
    """Write the run's log anew, each file of steps as an object, in another order; all names fit."""
    steps = [read_segment(one) for one in lay_out(run, "steps").segments]
    steps, ledger = [table for table in steps if table.num_rows], read_ledger(run)
    for name in (LOG, *KINDS):
        shutil.rmtree(run / name)
        (run / name).mkdir()
    journal = open_journal(run, new_writer())
    for number, table in enumerate(order(steps)):
        journal.commit(table, ledger if not number else ())


def set_to(**values: Callable[[dict[str, Any]], Any]) -> Change:
    """Change columns of one row."""

    def change(rows: list[dict[str, Any]], place: int) -> list[dict[str, Any]]:
        new = {name: make(rows[place]) for name, make in values.items()}
        return [*rows[:place], {**rows[place], **new}, *rows[place + 1 :]]

    return change


def other_letter(row: dict[str, Any]) -> str:
    """The reply with one byte flipped in the middle of its longest word, still JSON."""
    reply: str = row["reply"]
    at = reply.index('"finish":"') + len('"finish":"')
    return reply[:at] + chr(ord(reply[at]) ^ 1) + reply[at + 1 :]


def another_assignment(row: dict[str, Any]) -> str:
    """The reply with two tasks exchanged: as good an assignment as before."""
    reply: str = row["reply"]
    assert "'T1'" in reply
    return reply.replace("'T1'", "'T?'").replace("'T2'", "'T1'").replace("'T?'", "'T2'")


def forged(row: dict[str, Any]) -> bytes:
    """The digest that the row with `another_assignment` would have."""
    reply, facts = another_assignment(row).encode(), row["facts"].encode()
    return step_digest(row["request_digest"], reply, facts, row["observation_digest"])


CHANGES: dict[str, Change] = {
    "a flipped reply byte": set_to(reply=other_letter),
    "another reply": set_to(reply=another_assignment),
    "another reply with its digest": set_to(reply=another_assignment, step_digest=forged),
    "another fact": set_to(facts=lambda row: row["facts"].replace('"ok"', '"no"', 1)),
    "a removed row": lambda rows, place: [*rows[:place], *rows[place + 1 :]],
}


def named(run: Path, segment: Segment, row: dict[str, Any]) -> bool:
    """Whether `verify` names the very place, and no other episode.

    Of a row that is missing nobody can tell in which of the files between its neighbours it was: those are named then.
    """
    found = verify(run)
    assert {one.episode for one in found if one.episode} == {row["episode"]}, [str(one) for one in found]
    places = [one.segment.split(" to ") for one in found if one.step == row["step"]]
    return any(place[0] <= segment.name <= place[-1] for place in places)


def call(run: Path, work: Path) -> RunOutcome:
    """`evalkit run` on it, beside a provider that would answer."""
    outcome, _ = go_served(resolved(work, SPEC), run)
    return outcome


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named_by_segment_episode_and_step(run: Path, what: str) -> None:
    segment, place, row = in_the_middle(run)
    rewrite(segment, place, CHANGES[what])
    assert named(run, segment, row)


def test_a_changed_reply_in_the_last_step_of_an_episode_is_named(run: Path) -> None:
    """No later request hangs on it: only its own digest and replay can tell."""
    segment, place, row = find(run, lambda row: bool(row["ending"]))
    rewrite(segment, place, CHANGES["another reply"])
    assert named(run, segment, row)
    rewrite(segment, place, set_to(step_digest=row_digest))
    assert named(run, segment, row)


def row_digest(row: dict[str, Any]) -> bytes:
    return step_digest(row["request_digest"], row["reply"].encode(), row["facts"].encode(), row["observation_digest"])


def test_a_flipped_byte_in_a_page_is_named_and_refused(run: Path, tmp_path: Path) -> None:
    segment, _, row = in_the_middle(run)
    data = bytearray(segment.path.read_bytes())
    place = data.index(row["step_digest"])
    data[place] ^= 0x10
    segment.path.write_bytes(data)
    found = verify(run)
    assert found[0].segment == segment.name
    assert "its pages are not those that were written" in found[0].problem
    with pytest.raises(CorruptLogError, match=r"its pages are not those.*`evalkit verify`.*--repair"):
        call(run, tmp_path)


@pytest.mark.exhaustive
def test_two_swapped_segments_are_named_and_refused(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "torn", tmp_path / "torn"))
    one, *_, two = (segment for segment in lay_out(run, "steps").segments if read_segment(segment).num_rows)
    data = one.path.read_bytes()
    one.path.write_bytes(two.path.read_bytes())
    two.path.write_bytes(data)
    found = verify(run)
    assert {flaw.segment for flaw in found if not flaw.episode} == {one.name, two.name}
    with pytest.raises(CorruptLogError, match=r"renamed or swapped.*`evalkit verify`.*--repair"):
        call(run, tmp_path)


def test_two_segments_swapped_with_their_numbers_are_told_by_the_order_of_steps(runs: Path, tmp_path: Path) -> None:
    """The forger has put the numbers right as well: rows then come before those that they build on."""
    run = Path(shutil.copytree(runs / "torn", tmp_path / "torn"))
    forge(run, lambda tables: tables)
    assert verify(run) == []
    forge(run, lambda tables: [tables[-1], *tables[1:-1], tables[0]])
    found, one = verify(run), lay_out(run, "steps").segments[0]
    assert one.name in {flaw.segment for flaw in found}
    early = {row["episode"] for row in read_segment(one).to_pylist()}
    # One that began in the last segment is whole all the same: episodes do not hang on each other.
    told = [flaw for flaw in found if flaw.segment == one.name and flaw.episode]
    assert set() < {flaw.episode for flaw in told} <= early
    assert all(flaw.step == 0 for flaw in told)


def test_an_untouched_run_has_no_findings_and_goes_on(run: Path, tmp_path: Path) -> None:
    assert verify(run) == []
    assert call(run, tmp_path).exit_code == 0
    assert verify(run) == []


@pytest.mark.exhaustive
def test_a_repaired_run_ends_as_it_would_have(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "torn", tmp_path / "torn"))
    segment, _, row = in_the_middle(run)
    segment.path.write_bytes(bytes(segment.path.stat().st_size))
    outcome, _ = go_served(resolved(tmp_path, SPEC), run, repair=True)
    assert outcome.exit_code == 0
    assert verify(run) == []
    replies = [
        {(one["episode"], one["step"]): one["reply"] for one in scan(where, ("episode", "step", "reply")).to_pylist()}
        for where in (run, runs / "whole")
    ]
    assert replies[0] == replies[1]
    assert (row["episode"], 1) in replies[0]


def test_a_step_that_was_forged_is_played_again_from_there_after_a_repair(runs: Path, tmp_path: Path) -> None:
    """All digests fit: nothing but replay can tell."""
    run = Path(shutil.copytree(runs / "torn", tmp_path / "torn"))
    segment, place, row = in_the_middle(run)
    rewrite(segment, place, CHANGES["another reply with its digest"])
    assert call(run, tmp_path).reason == "corrupt"
    told: list[str] = []
    outcome, _ = go_served(resolved(tmp_path, SPEC), run, repair=True, announce=told.extend)
    assert [f"Episode {row['episode']} is cut off at step 1" in line for line in told] == [False, True]
    assert (outcome.exit_code, verify(run)) == (0, [])
    replies = [
        {(one["episode"], one["step"]): one["reply"] for one in scan(where, ("episode", "step", "reply")).to_pylist()}
        for where in (run, runs / "whole")
    ]
    assert replies[0] == replies[1]


def test_nothing_is_cut_where_evalkit_or_the_manifest_may_be_what_differs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(runs / "torn", tmp_path / "torn"))
    segment, place, _ = in_the_middle(run)
    rewrite(segment, place, CHANGES["another reply with its digest"])
    assert len(check_rows(run)[1]) == 1
    with monkeypatch.context() as patch:
        patch.setattr("evalkit.results.verify.__version__", "9.9.9")
        assert check_rows(run) == ([], ())
    monkeypatch.setattr("evalkit.results.verify.frozen_flaws", lambda *_: ["a text is another"])
    assert check_rows(run) == ([], ())


def test_the_options_of_a_run_do_not_repair_unasked() -> None:
    assert RunOptions(directory=Path("x")).repair is False
