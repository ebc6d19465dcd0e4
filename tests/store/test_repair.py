"""A repair makes any damaged log whole, cuts what lost a step, and leaves the books no lower than the bill."""

import errno
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.store import disk
from evalkit.store.files.layout import journals, lay_out
from evalkit.store.files.segment import KINDS, Kind, SessionMoney
from evalkit.store.lock import hold_run
from evalkit.store.reading.accounts import accounts, spent
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import cuts, facts_of, read_ledger, replay_rows, scan, scan_all
from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.repair import Repair, repair
from evalkit.store.writing.opening import take_over
from tests.store.test_crashes import Died, Mortal
from tests.support.damaged_logs import ALL, Write, flip, flip_at, rewrite, swap
from tests.support.handmade_logs import append, begin, compact, contents, discard, said
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.run_directories import write_run

Harm = Callable[[Path], None]


def steps_of(run: Path) -> dict[str, int]:
    return {episode: held.steps for episode, held in read_index(run).episodes.items()}


def books(run: Path) -> int:
    """All that counts against the budget."""
    index = read_index(run)
    return spent(index.totals["cost"], index.books().values())


def mended(run: Path) -> Repair:
    """Repair, and see that the log is whole afterwards, goes on, and needs no second repair."""
    told: list[Repair] = []
    done = repair(run, told.append)
    assert told == [done]
    assert check_log(run) == []
    before = contents(run)
    again = repair(run, told.append)
    assert (again.flaws, again.lines()) == ((), ["The log is whole: nothing to repair."])
    assert contents(run) == before
    return done


def goes_on(run: Path) -> None:
    """All that is remaining is played to its end."""
    index = read_index(run)
    rows = []
    for name, held in index.episodes.items():
        if not held.ended:
            of_it = {"take": held.take, "agent": held.agent, "suite": held.suite}
            rows += [a_step(name, held.steps, **of_it), a_step(name, held.steps + 1, **of_it, ending="done")]
    with hold_run(run):
        journal = take_over(run, "s").journal
        append(journal, rows)
        journal.close(said(journal))
    assert check_log(run) == []
    after = read_index(run)
    assert after.remaining() == set()
    played = replay_rows(run, after.episodes)
    for name, held in index.episodes.items():
        assert after.episodes[name].steps == held.steps + (0 if held.ended else 2)
        assert len(played[name]) == after.episodes[name].steps


def many_lives(run: Path) -> Path:
    """A run that ended once and died twice: compacted, compacted in part with some objects left, not at all."""
    one = begin(run)
    append(one, *rounds(["a", "b"], 3), [a_step("z", 0, ending="done")], money=[a_charge(3, session=one.writer)])
    compact(one, 0, 3)
    one.close(said(one))
    discard(one, 0, 3)
    two = begin(run)
    lease = a_charge(9000, kind="lease", session=two.writer)
    append(two, *rounds(["a", "b"], 3, first=3), [a_step("c", 0)], money=[lease])
    compact(two, 0, 1)
    compact(two, 2, 2, ["steps"])
    discard(two, 0, 0)
    three = begin(run)
    append(three, [a_step("a", 6, ending="done"), a_step("c", 1)], [a_step("b", 4, take=1)], [a_step("d", 0)])
    append(three, [a_step("d", 1)], money=[a_charge(5, session=three.writer)])
    return run


def path_of(run: Path, name: str) -> Path:
    """The first file of a run that begins so."""
    return next(run / one for one in contents(run) if one.startswith(name))


@pytest.mark.parametrize("write", ALL)
def test_a_whole_log_is_left_alone(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    before = contents(run)
    assert repair(run, lambda plan: None).flaws == ()
    assert contents(run) == before


def test_an_episode_is_cut_at_its_lost_step_and_what_it_had_cost_stays_charged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a", "b"], 3), *rounds(["a"], 2, first=3))
    paid, (lost, writer) = books(run), (lay_out(run, "steps").segments[1], journal.writer)
    flip(lost.path, b"answer 1 of a")
    with pytest.raises(CorruptLogError):
        scan(run, ["reply"])
    done = mended(run)
    assert (done.quarantined, done.lost, done.charged, done.uncounted) == ((lost.name,), (lost.name,), 2002, ())
    assert (run / "quarantine" / f"{writer}-{lost.path.name}").is_file()
    assert (steps_of(run), cuts(run).to_pylist()) == (
        {"a": 1, "b": 1},
        [{"episode": name, "take": 1, "step": 1} for name in "ab"],
    )
    assert books(run) == paid
    rows = [(row.kind, row.session, row.amount) for row in read_ledger(run)]
    assert rows == [("charge", writer, 2002), ("crash", writer, 0)]
    words = "\n".join(done.lines())
    assert "Episode a is cut off at step 1, and goes on there: the step is missing." in words
    assert "$0.000000002 stay charged" in words or "stay charged: sessions had spent them" in words
    goes_on(run)


def test_row_groups_that_can_be_read_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalkit.store.files.segment.ROW_GROUP", 2)
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a", "b"], 4))
    compact(journal, 0, 3)
    journal.close()
    discard(journal, 0, 3)
    path = path_of(run, "steps/")
    flip_at(path, path.read_bytes().index(b"answer 2 of a") if b"answer 2 of a" in path.read_bytes() else 3000)
    done = mended(run)
    assert all(0 < steps < 4 for steps in steps_of(run).values()), steps_of(run)
    assert 0 < done.charged < books(run)
    goes_on(run)


def test_rows_that_a_compacted_file_has_as_well_are_not_listed_as_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a"], 3))
    compact(journal, 0, 1)
    zero(run / "log" / journal.writer / "000000000.parquet")
    done = mended(run)
    assert (len(done.quarantined), done.lost, done.cut) == (1, (), {})
    goes_on(run)


def test_a_repair_that_has_nothing_to_cut_and_to_charge_writes_no_journal(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 3))
    before = list(journals(run))
    flip_footer(path_of(run, "ledger/"))
    mended(run)
    assert list(journals(run)) == before


def test_a_session_is_named_as_its_rows_name_it_and_only_if_it_did_not_end(tmp_path: Path) -> None:
    """Its journal has another name where a clock was set back."""
    for ended in (False, True):
        run = tmp_path / f"ended {ended}"
        journal = begin(run)
        rows = [a_charge(3, kind=kind, session="mine") for kind in (["lease", "close"] if ended else ["lease"])]
        journal.commit(None, rows, SessionMoney(session="mine", leased=3))
        journal.commit(None, [a_charge(1, session="mine")], SessionMoney(session="mine", leased=3, spent=1))
        zero(run / "log" / journal.writer / "000000001.parquet")
        assert mended(run).uncounted == (() if ended else ("mine",))


def test_a_session_that_has_closed_its_books_is_charged_what_it_spent_although_its_row_of_it_is_lost(
    tmp_path: Path,
) -> None:
    """Others may have leased since what it set free."""
    run = tmp_path / "run"
    journal = begin(run)
    journal.commit(None, [a_charge(9, kind="lease", session="mine")], SessionMoney(session="mine", leased=9))
    closed = SessionMoney(session="mine", leased=9, spent=4, closed=True)
    journal.commit(None, [a_charge(4, session="mine"), a_charge(4, kind="close", session="mine")], closed)
    journal.close(closed)
    zero(run / "log" / journal.writer / "000000001.parquet")
    assert mended(run).charged == 4
    books = accounts(read_index(run).ledger, {})["mine"]
    assert (books.ended, books.charged, books.crashed) == (True, 4, 0)


def test_it_says_what_is_lost_before_it_changes_anything(tmp_path: Path) -> None:
    run = many_lives(tmp_path / "run")
    flip_at(path_of(run, "steps/"), 60)
    before = contents(run)

    class Declined(Exception):
        pass

    def decline(plan: Repair) -> None:
        assert plan.cut
        raise Declined

    with pytest.raises(Declined):
        repair(run, decline)
    assert contents(run) == before


def test_a_missing_or_doubled_row_under_valid_digests_is_mended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    append(begin(run), *rounds(["a", "b"], 3))
    rewrite(run, 1, lambda table: table.slice(0, 1))
    assert {episode: one.step for episode, one in mended(run).cut.items()} == {"b": 1}
    assert steps_of(run) == {"a": 3, "b": 1}
    doubled = tmp_path / "other"
    append(begin(doubled), *rounds(["a"], 2), [a_step("a", 1)], [a_step("a", 2)])
    mended(doubled)
    assert steps_of(doubled) == {"a": 1}
    goes_on(doubled)


def test_a_lost_step_of_a_retry_does_not_bring_the_old_take_back(tmp_path: Path) -> None:
    old = [a_step("a", step, ending="refusal" if step == 4 else "") for step in range(5)]
    run = tmp_path / "run"
    append(begin(run), old, *([a_step("a", step, take=1)] for step in (2, 3, 4)))
    lay_out(run, "steps").segments[1].path.write_bytes(b"")
    mended(run)
    assert [(row.step, row.take) for row in replay_rows(run, {"a"})["a"]][:2] == [(0, 0), (1, 0)]
    assert read_index(run).episodes["a"].ending == ""


def test_foreign_files_and_files_in_place_of_folders_are_set_aside(tmp_path: Path) -> None:
    run = many_lives(tmp_path / "run")
    before = steps_of(run)
    (run / "steps" / "notes.parquet").write_bytes(b"mine")
    (run / "log" / "notes").write_bytes(b"mine")
    shutil.rmtree(run / "ledger")
    (run / "ledger").write_bytes(b"mine")
    assert {"steps/notes.parquet", "log/notes", "ledger"} <= {*mended(run).quarantined}
    assert (steps_of(run), (run / "ledger").is_dir()) == (before, True)
    goes_on(run)


def test_a_disk_that_refuses_the_folder_of_what_is_set_aside_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = many_lives(tmp_path / "run")
    flip_at(path_of(run, "steps/"), 60)
    sync = disk.sync_directory

    def refuses(path: Path) -> None:
        if path.name == "quarantine":
            raise OSError(errno.EROFS, "read-only file system")
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", refuses)
    with pytest.raises(StorageError, match="quarantine"):
        repair(run, lambda plan: None)


def test_a_run_that_is_being_written_is_not_repaired(tmp_path: Path) -> None:
    run = many_lives(tmp_path / "run")
    with hold_run(run), pytest.raises(RunError, match="is being written"):
        repair(run, lambda plan: None)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_footer(path: Path) -> None:
    flip_at(path, path.read_bytes().rindex(b"evalkit.rows") + 4)


def flip_page(path: Path) -> None:
    flip_at(path, 60)


def double(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


HARMS: list[Harm] = [zero, tear, Path.unlink, flip_footer, flip_page, double, dangle]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("harm", HARMS)
def test_whichever_file_is_harmed_the_log_is_mended_and_the_books_do_not_fall(tmp_path: Path, harm: Harm) -> None:
    whole = many_lives(tmp_path / "whole")
    assert check_log(whole) == []
    before, paid = steps_of(whole), books(whole)
    newest = {objects[-1].name for objects in journals(whole).values()}
    for name in contents(whole):
        run = Path(shutil.copytree(whole, tmp_path / "run"))
        harm(run / name)
        if not check_log(run):  # the newest of several, or one whose rows other files have as well
            assert harm is Path.unlink, name
            assert name in newest or steps_of(run) == before, name
        else:
            done = mended(run)
            assert name in done.quarantined or harm is Path.unlink
            assert books(run) >= paid or done.uncounted, name
            assert bool(done.uncounted) <= (name in newest), name
        goes_on(run)
        shutil.rmtree(run)


@pytest.mark.parametrize("lost", ["steps", "ledger"])
@pytest.mark.parametrize("gone", [(), (0,), (0, 1)])
def test_a_compaction_that_was_cut_short_is_mended_though_objects_are_gone(
    tmp_path: Path, lost: Kind, gone: tuple[int, ...]
) -> None:
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a"], 4), money=[a_charge(session=journal.writer)])
    compact(journal, 0, 2, [kind for kind in KINDS if kind != lost])
    paid = books(run)
    for number in gone:
        discard(journal, number, number)
    assert bool(check_log(run)) == bool(gone)
    mended(run)
    assert books(run) >= paid
    assert steps_of(run).get("a", 0) == (4 if lost == "ledger" or not gone else 0)
    goes_on(run)


def fault(run: Path, random: Random) -> str:
    """Something happens to a file of the log; what, in words."""
    one, other = random.sample(sorted(contents(run)), 2)
    path, size = run / one, (run / one).stat().st_size
    match random.choice(["flip", "flip", "remove", "swap", "truncate", "zero"]):
        case "flip":
            flip_at(path, place := random.randrange(size), 1 << random.randrange(8))
            return f"{one}: a bit of byte {place}"
        case "remove":
            path.unlink()
            return f"{one}: removed"
        case "swap":
            swap(path, run / other)
            return f"{one}: swapped with {other}"
        case "truncate":
            path.write_bytes(path.read_bytes()[: (left := random.randrange(size))])
            return f"{one}: cut to {left} bytes"
        case _:
            zero(path)
            return f"{one}: zeros"


def all_readers(run: Path) -> object:
    index = read_index(run)
    return (
        {name: (held.steps, held.take, held.ending, held.cost) for name, held in index.episodes.items()},
        (index.rows, index.totals, index.cost_by_worker, index.cells, index.ledger),
        scan(run, ["episode", "step", "reply", "cost"]).to_pylist(),
        sorted(map(str, scan_all(run, ["episode", "take", "step", "cost"]).to_pylist())),
        {name: list(rows) for name, rows in replay_rows(run, index.episodes).items()},
        facts_of(run, index.episodes),
    )


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("part", range(6))
def test_any_fault_is_noticed_or_does_no_harm_and_any_is_mended(tmp_path: Path, part: int) -> None:
    """150 faults, 25 of one seed each; `-m soak` plays the 1,000 of forty seeds."""
    noticed_or_harmless(tmp_path, [part])


@pytest.mark.soak
def test_any_of_a_thousand_faults_is_noticed_or_does_no_harm_and_any_is_mended(tmp_path: Path) -> None:
    noticed_or_harmless(tmp_path, range(40))


def noticed_or_harmless(folder: Path, seeds: Iterable[int]) -> None:
    """25 faults of each seed, each in a copy of one log, every fifth repaired. The newest object of several is the only
    file whose removal nothing tells (`layout.py`)."""
    whole = many_lives(folder / "whole")
    newest = {objects[-1].name for objects in journals(whole).values() if len(objects) > 1}
    before, paid = all_readers(whole), books(whole)
    for random, number in ((random, number) for random in map(Random, seeds) for number in range(25)):
        run = Path(shutil.copytree(whole, folder / "run"))
        words = fault(run, random)
        if not check_log(run):
            file = words.removesuffix(": removed")
            assert file in newest or all_readers(run) == before, words
        elif number % 5 == 0:
            done = mended(run)
            assert books(run) >= paid or done.uncounted, words
            goes_on(run)
        shutil.rmtree(run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", range(3))
def test_a_repair_that_dies_anywhere_ends_well_when_it_is_started_again(tmp_path: Path, place: int) -> None:
    """The books are those of one repair that did not die: neither less, nor charged twice."""
    whole = many_lives(tmp_path / "whole")
    for number, name in enumerate(list(contents(whole))[place::6]):
        HARMS[(number + 2 * place) % len(HARMS)](whole / name)
    (whole / "steps" / "notes.parquet").write_bytes(b"mine")
    at_once, counted = (Path(shutil.copytree(whole, tmp_path / name)) for name in ("once", "counted"))
    repair(at_once, lambda plan: None)
    with pytest.MonkeyPatch.context() as patch:
        operations = Mortal(patch, 10**6)
        repair(counted, lambda plan: None)
    assert len(operations.done) > 10
    for last in range(place, len(operations.done), 3):
        run = Path(shutil.copytree(whole, tmp_path / "run"))
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, last)
            with pytest.raises(Died):
                repair(run, lambda plan: None)
        repair(run, lambda plan: None)
        assert check_log(run) == []
        assert (steps_of(run), books(run)) == (steps_of(at_once), books(at_once)), last
        shutil.rmtree(run)
    goes_on(at_once)


def test_a_session_that_ended_after_a_repair_is_charged_nothing_twice(tmp_path: Path) -> None:
    run = many_lives(tmp_path / "run")
    paid = books(run)
    zero(path_of(run, "steps/"))
    mended(run)
    crashed = sum(row.amount for row in read_ledger(run) if row.kind == "crash")
    write_run(run, [])
    assert books(run) == paid + crashed
    assert check_log(run) == []
