"""Several logs as one: every row once, every cent once, nothing half done, the originals untouched."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError, UsageError
from evalkit.money import PicoUsd
from evalkit.store import disk
from evalkit.store.files.record import ASK, LedgerRecord, StepRecord
from evalkit.store.lock import hold_run
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import write_manifest
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger, scan
from evalkit.store.recovery import merge
from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.merge import Merged, merge_runs
from evalkit.store.void import Void, add_voids, read_voids
from tests.support.command_line import tree
from tests.support.guessing_runs import a_manifest
from tests.support.run_directories import a_charge, a_step, write_run, write_tails

MANIFEST: Manifest = a_manifest([], [])
ENDED = {"ending": "complete"}


def a_run(folder: Path, rows: Iterable[StepRecord], ledger: Iterable[LedgerRecord] = ()) -> Path:
    write_manifest(folder, MANIFEST)
    return write_run(folder, [list(rows)], ledger)


def episode(name: str, steps: int, **changes: object) -> list[StepRecord]:
    return [a_step(name, step, **(changes | (ENDED if step == steps - 1 else {}))) for step in range(steps)]


def join(folder: Path, *runs: Path, prefer_first: bool = False) -> Merged:
    return merge_runs(runs, MANIFEST, folder / "out", prefer_first=prefer_first)


def test_episodes_of_all_runs_are_in_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "SEGMENT_ROWS", 3)
    one = a_run(tmp_path / "a", [*episode("e0", 3), *episode("e1", 2)])
    two = a_run(tmp_path / "b", episode("e2", 4))
    before = tree(one), tree(two)
    made = join(tmp_path, one, two)
    assert (made.episodes, made.rows, made.shared, made.charged) == (3, 9, 0, 0)
    assert check_log(tmp_path / "out") == []
    assert len(list((tmp_path / "out" / "steps").iterdir())) == 2
    assert {name: held.steps for name, held in read_index(tmp_path / "out").episodes.items()} == {
        "e0": 3,
        "e1": 2,
        "e2": 4,
    }
    assert (tree(one), tree(two)) == before


def test_what_a_crash_left_in_tails_is_taken_too(tmp_path: Path) -> None:
    write_manifest(tmp_path / "a", MANIFEST)
    one = write_tails(tmp_path / "a", [[row] for row in episode("e0", 3)])
    two = a_run(tmp_path / "b", episode("e1", 1))
    assert join(tmp_path, one, two).rows == 4


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_one_that_is_the_others_beginning_the_longer_is_taken(tmp_path: Path, order: str) -> None:
    rows = episode("e0", 4)
    runs = {"a": a_run(tmp_path / "a", rows[:2]), "b": a_run(tmp_path / "b", rows)}
    made = join(tmp_path, *(runs[name] for name in order))
    assert (made.rows, made.shared, made.differing, made.charged) == (4, 1, 0, 0)
    assert read_index(tmp_path / "out").episodes["e0"].ending == "complete"


def test_episodes_that_differ_are_refused_by_name(tmp_path: Path) -> None:
    one = a_run(tmp_path / "a", episode("e0", 3))
    two = a_run(tmp_path / "b", episode("e0", 3, reply=b'{"calls":[],"finish":"stop","text":"else"}'))
    with pytest.raises(RunError, match=r"(?s)1 episodes .* differ:\n  e0 in .*--prefer first") as flaw:
        join(tmp_path, one, two)
    assert "Nothing was written" in str(flaw.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_another_ending_is_a_difference(tmp_path: Path) -> None:
    one = a_run(tmp_path / "a", [a_step("e0", 0, ending="complete")])
    two = a_run(tmp_path / "b", [a_step("e0", 0, ending="unresponsive")])
    with pytest.raises(RunError, match="differ"):
        join(tmp_path, one, two)


def test_the_first_is_preferred_on_request_and_what_the_others_cost_is_charged(tmp_path: Path) -> None:
    one = a_run(tmp_path / "a", episode("e0", 2))
    other = episode("e0", 3, reply=b'{"calls":[],"finish":"stop","text":"else"}', response_id="another", cost=700)
    two = a_run(tmp_path / "b", [*other, *episode("e1", 1)])
    made = join(tmp_path, one, two, prefer_first=True)
    assert (made.rows, made.differing, made.charged) == (3, 1, 2100)
    (charge,) = read_ledger(tmp_path / "out")
    assert (charge.kind, charge.amount, charge.agent, charge.episode) == ("charge", 2100, "knuth", "e0")
    assert charge.session == other[0].worker  # who paid: what it leased and what it spent still agree
    kept = scan(tmp_path / "out", ("episode", "reply")).to_pylist()
    assert not any("else" in row["reply"] for row in kept)


def test_superseded_takes_come_along_and_were_paid_for(tmp_path: Path) -> None:
    rows = [*episode("e0", 2), *(a_step("e0", step, take=1, **(ENDED if step else {})) for step in range(2))]
    one, two = a_run(tmp_path / "a", rows), a_run(tmp_path / "b", episode("e1", 1))
    join(tmp_path, one, two)
    index = read_index(tmp_path / "out")
    assert (index.episodes["e0"].take, index.rows) == (1, 5)
    assert index.totals["cost"] == read_index(one).totals["cost"] + read_index(two).totals["cost"]


def test_of_runs_that_have_come_equally_far_the_one_that_has_asked_more_is_taken(tmp_path: Path) -> None:
    steps = [a_step("e0", step, cost=0, ask_n=1) for step in range(2)]
    asked = [a_step("e0", step, row_kind=ASK, turn=0, cost=10, ask_key="a") for step in range(3)]
    more = a_step("e0", 2, row_kind=ASK, turn=1, cost=7, ask_key="b")
    only = a_step("e1", 0, row_kind=ASK, cost=5, ask_key="a")
    rows = [asked[0], steps[0], asked[1], steps[1], asked[2], only]
    one, two = a_run(tmp_path / "a", rows), a_run(tmp_path / "b", [*rows, more])
    for number, (first, second) in enumerate(((one, two), (two, one))):
        made = merge_runs((first, second), MANIFEST, tmp_path / f"out{number}", prefer_first=False)
        assert (made.shared, made.differing, made.rows, made.charged) == (2, 0, 7, 0)
        index = read_index(tmp_path / f"out{number}")
        assert {name: (held.steps, held.cost) for name, held in index.episodes.items()} == {"e0": (2, 37), "e1": (0, 5)}
        assert check_log(tmp_path / f"out{number}") == []


def test_sessions_of_one_name_are_kept_apart_with_their_rows(tmp_path: Path) -> None:
    opened = [LedgerRecord(kind="open", session="host:1", amount=PicoUsd(0), at=at) for at in (1.0, 2.0)]
    one = a_run(tmp_path / "a", episode("e0", 1, cost=100), [opened[0], a_charge(5)])
    two = a_run(tmp_path / "b", episode("e1", 1, cost=300), [opened[1], a_charge(7)])
    join(tmp_path, one, two)
    index = read_index(tmp_path / "out")
    assert index.cost_by_worker == {"host:1": 100, "host:1~1": 300}
    assert [(row.session, row.amount) for row in index.ledger if row.kind == "charge"] == [
        ("host:1", 5),
        ("host:1~1", 7),
    ]


def test_a_session_that_two_copies_share_is_there_once(tmp_path: Path) -> None:
    opened = LedgerRecord(kind="open", session="host:1", amount=PicoUsd(0), at=1.0)
    ledger = [opened, a_charge(5), a_charge(5), a_charge(6)]
    one = a_run(tmp_path / "a", episode("e0", 1), ledger[:3])
    two = a_run(tmp_path / "b", episode("e0", 1), ledger)
    join(tmp_path, one, two)
    assert read_ledger(tmp_path / "out") == ledger


def test_decisions_on_void_episodes_come_along(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 1)), a_run(tmp_path / "b", episode("e1", 1))
    said = {"agent": "knuth", "suite": "s", "instance": "i", "replicate": 0, "reason": "x", "by": "u@h"}
    add_voids(one, [Void(episode="e0", undo=True, at=2.0, **said)])  # type: ignore[arg-type]
    add_voids(two, [Void(episode="e0", undo=False, at=1.0, **said), Void(episode="e1", undo=False, at=1.0, **said)])  # type: ignore[arg-type]
    join(tmp_path, one, two)
    assert set(read_voids(tmp_path / "out")) == {"e1"}


def test_a_damaged_run_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 200)), a_run(tmp_path / "b", episode("e1", 1))
    (path,) = (one / "steps").iterdir()
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        join(tmp_path, two, one)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 1)), a_run(tmp_path / "b", episode("e1", 1))
    rename = disk.rename

    def refuse(source: Path, target: Path) -> None:
        if target.name == "out":
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(disk, "rename", refuse)
    with pytest.raises(StorageError, match="free some space"):
        join(tmp_path, one, two)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 1)), a_run(tmp_path / "b", episode("e1", 1))
    with hold_run(two), pytest.raises(RunError, match="is being written by process"):
        join(tmp_path, one, two)


def test_a_run_that_grows_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 1)), a_run(tmp_path / "b", episode("e1", 1))
    copy = merge._copy_texts

    def grow(runs: list[Path], folder: Path) -> None:
        copy(runs, folder)
        write_tails(one, [episode("e9", 1)])

    monkeypatch.setattr(merge, "_copy_texts", grow)
    with pytest.raises(RunError, match="was written while it was read"):
        join(tmp_path, one, two)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_places_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "a", episode("e0", 1)), a_run(tmp_path / "b", episode("e1", 1))
    with pytest.raises(UsageError, match="is named twice"):
        join(tmp_path, one, tmp_path / "b" / ".." / "a")
    with pytest.raises(UsageError, match="must not change"):
        merge_runs([one, two], MANIFEST, one / "out", prefer_first=False)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        join(tmp_path, one, two)
