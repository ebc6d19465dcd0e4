import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.store import disk
from evalkit.store.files.journal import new_writer, open_journal
from evalkit.store.files.layout import journal_object, journals, lay_out
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import KINDS, Kind
from evalkit.store.lock import hold_run
from evalkit.store.reading.accounts import accounts
from evalkit.store.reading.accounts import spent as spent_by
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger, replay_rows, scan, scan_all
from evalkit.store.reading.sums import COLUMNS, read_totals, totals_of
from evalkit.store.reading.totals import Totals
from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.repair import GivenUp, Repair, repair
from tests.support.damaged_logs import ALL, Write, flip, replaced, rewrite
from tests.support.handmade_logs import append, begin, compact, contents
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.run_directories import write_run, write_tails


def path_of(run: Path, number: int) -> Path:
    """A file of steps."""
    return lay_out(run, "steps").segments[number].path


def steps_of(run: Path) -> dict[str, int]:
    return {episode: held.steps for episode, held in read_index(run).episodes.items()}


def spent(run: Path) -> int:
    index = read_index(run)
    return index.totals["cost"] + sum(row.amount for row in index.ledger if row.kind == "charge")


def mended(run: Path) -> Repair:
    """Repair, and see that the log is whole afterwards, goes on, and needs no second repair."""
    told: list[Repair] = []
    done = repair(run, told.append)
    assert told == [done]
    assert check_log(run) == []
    again = repair(run, told.append)
    assert again.flaws == ()
    assert again.lines() == ["The log is whole: nothing to repair."]
    write_run(run, [[a_step("later", 0)]])
    assert steps_of(run)["later"] == 1
    return done


@pytest.mark.parametrize("write", ALL)
def test_a_whole_log_is_left_alone(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    assert repair(run, lambda plan: None).flaws == ()
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before


def test_an_episode_is_cut_at_its_lost_step_and_others_keep_their_rows_of_the_same_page(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 5))
    paid = spent(run)
    files = [path_of(run, number) for number in (2, 3, 4)]
    flip(files[0], b"answer 2 of a")
    with pytest.raises(CorruptLogError):
        scan(run, ["reply"])
    done = mended(run)
    lost_cost = 1002 + 1003 + 1004
    assert done.given_up == (
        GivenUp(episode="a", place="knuth:scheduling/basic:seed-0:0", step=2, rows=3, cost=lost_cost),
    )
    assert done.quarantined == tuple(path.relative_to(run).as_posix() for path in files)
    assert (run / "quarantine" / f"{files[0].parent.name}-{files[0].name}").is_file()
    assert steps_of(run) == {"a": 2, "b": 5, "later": 1}
    assert spent(run) == paid + 1000
    assert [(row.kind, row.session, row.episode, row.step, row.amount) for row in read_ledger(run)] == [
        ("charge", "host:1", "a", 2, lost_cost)
    ]
    assert "cut off at step 2" in "\n".join(done.lines())


def test_it_says_what_is_given_up_before_it_changes_anything(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    flip(path_of(run, 1), b"answer 1 of a")
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}

    class Declined(Exception):
        pass

    def decline(plan: Repair) -> None:
        assert plan.given_up[0].step == 1
        raise Declined

    with pytest.raises(Declined):
        repair(run, decline)
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before


@pytest.mark.parametrize("column", ["reply", "step_digest"])
def test_a_changed_value_cuts_its_episode(tmp_path: Path, column: str) -> None:
    run = write_run(tmp_path / "run", rounds(["a", "b"], 4))
    rewrite(run, 0, replaced(column, 3, "{}" if column == "reply" else b"x" * 16))
    mended(run)
    assert steps_of(run) == {"a": 4, "b": 1, "later": 1}


def test_swapped_files_are_put_in_order_and_nothing_is_given_up(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 4))
    want = replay_rows(run, {"a"})["a"]
    one, two = path_of(run, 1), path_of(run, 3)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    done = mended(run)
    assert done.given_up == ()
    assert replay_rows(run, {"a"})["a"] == want


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("harm", ["tear", "remove"])
def test_lost_files_cut_every_episode_they_held(tmp_path: Path, harm: str) -> None:
    run = write_tails(tmp_path / "run", [*rounds(["a", "b"], 3), [a_step("c", 0)], [a_step("c", 1)]])
    if harm == "tear":
        path_of(run, 1).write_bytes(b"PAR1 torn")
    else:
        path_of(run, 1).unlink()
    done = mended(run)
    assert steps_of(run) == {"a": 1, "b": 1, "c": 2, "later": 1}
    assert len(done.unreadable) == 1


def test_a_missing_or_doubled_row_is_mended(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 3))
    rewrite(run, 1, lambda table: table.slice(0, 1))
    done = mended(run)
    assert [(one.episode, one.step, one.rows) for one in done.given_up] == [("b", 1, 1)]
    assert steps_of(run) == {"a": 3, "b": 1, "later": 1}
    doubled = write_tails(tmp_path / "other", [*rounds(["a"], 2), [a_step("a", 1)], [a_step("a", 2)]])
    mended(doubled)
    assert steps_of(doubled) == {"a": 3, "later": 1}


def test_a_lost_step_of_a_retry_does_not_bring_the_old_take_back(tmp_path: Path) -> None:
    old = [a_step("a", step, ending="refusal" if step == 4 else "") for step in range(5)]
    new = [[a_step("a", step, take=1, reply=b'{"take":1,"text":"retry %d"}' % step)] for step in (2, 3, 4)]
    run = write_tails(tmp_path / "run", [old, *new])
    flip(path_of(run, 1), b"retry 2")
    mended(run)
    assert [(row.step, row.take) for row in replay_rows(run, {"a"})["a"]] == [(0, 0), (1, 0)]
    assert read_index(run).episodes["a"].ending == ""


def test_damaged_money_and_foreign_files_go_to_quarantine(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 2), [a_charge(reason="because of a timeout")])
    (money,) = (run / "ledger").iterdir()
    write_run(run, [], [a_charge(8)])
    paid = books(run)
    flip(money, b"because of")
    (run / "steps" / "notes.parquet").write_bytes(b"mine")
    done = mended(run)
    assert f"ledger/{money.name}" in done.quarantined
    assert [row.reason for row in read_ledger(run) if row.amount == 8] == [""]
    assert books(run) == paid + 1000  # of the step that `mended` has played
    assert (run / "quarantine" / "steps-notes.parquet").read_bytes() == b"mine"
    assert not (run / "steps" / "notes.parquet").exists()


def test_a_journal_whose_objects_are_gone_is_ended_behind_what_is_compacted(tmp_path: Path) -> None:
    """Compaction and the close left one object of it: nothing else says that there was a journal."""
    run = write_run(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    before, paid = steps_of(run), books(run)
    for path in (run / "log").glob("*/*.parquet"):
        path.unlink()
    assert check_log(run) != []
    mended(run)
    assert {name: steps for name, steps in steps_of(run).items() if name != "later"} == before
    assert books(run) >= paid


def test_money_in_a_file_of_which_only_the_digest_is_wrong_is_kept_and_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    paid, (path,) = books(run), (run / "ledger").glob("*.parquet")
    data = path.read_bytes()
    assert data.count(b"parquet-cpp-arrow") == 1
    path.write_bytes(data.replace(b"parquet-cpp-arrow", b"parquet-cpp-arroW"))
    assert check_log(run) != []
    repair(run, lambda plan: None)
    assert check_log(run) == []  # running totals are compared with the rows
    assert books(run) == paid


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("kinds", [("steps",), ("steps", "ledger"), ("ends",)])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_compaction_that_was_cut_short_is_completed_though_its_objects_are_gone(
    tmp_path: Path, kinds: tuple[Kind, ...], gone: int
) -> None:
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a"], 4), money=[a_charge()])
    compact(journal, 0, 3)
    for kind in set(KINDS) - set(kinds):
        for path in (run / kind).glob("*.parquet"):
            path.unlink()
    for number in range(4 - gone, 4):
        journal_object(run, journal.writer, number).path.unlink()
    assert check_log(run) != []
    mended(run)
    scan_all(run, ("episode",))
    index = read_index(run)
    assert index.episodes["a"].steps == (4 if "steps" in kinds else 4 - gone)
    rows = {episode: len(found) for episode, found in replay_rows(run, ["a"]).items()}
    assert rows == {"a": index.episodes["a"].steps}


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("lost", KINDS)
@pytest.mark.parametrize("gone", [{4, 5}, {2, 3}, {3, 4}, {2, 5}, {2, 3, 4, 5}, {0, 1, 4, 5}])
@pytest.mark.parametrize("behind", [True, False])
def test_a_compacted_file_is_made_anew_where_some_of_its_objects_have_come_back(
    tmp_path: Path, lost: Kind, gone: set[int], behind: bool
) -> None:
    """Power was lost while objects were being deleted, of which only some deletions had lasted."""
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a"], 2), money=[a_charge()])
    compact(journal, 0, 1)
    append(journal, *([a_step("a", number)] for number in range(2, 6)), money=[a_charge()])
    compact(journal, 2, 5)
    append(journal, [a_step("a", 6)])
    compact(journal, 6, 6)
    if behind:
        append(journal, [a_step("a", 7)])
    paid = books(run)
    for path in sorted((run / lost).glob("*.parquet"))[1:]:
        path.unlink()
    for number in gone:
        journal_object(run, journal.writer, number).path.unlink(missing_ok=True)
    assert check_log(run) != []
    mended(run)
    assert books(run) >= paid
    scan_all(run, ("episode",))
    assert steps_of(run)["a"] == (min(gone - {0, 1}) if lost == "steps" else 7 + behind)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("missing", [("ends",), ("ledger", "ends"), ("steps",)])
def test_rows_that_are_given_up_do_not_come_back_from_objects_that_are_compacted_in_part(
    tmp_path: Path, missing: tuple[Kind, ...]
) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 2))
    journal = begin(run)
    append(journal, [a_step("a", 2), a_step("b", 2)], [a_step("a", 3, ending="done")], money=[a_charge()])
    compact(journal, 0, 1)
    for kind in missing:
        (file,) = (run / kind).glob("*.parquet")
        file.unlink()
    path_of(run, 1).unlink()  # step 1 of both
    assert {(cut.episode, cut.step) for cut in mended(run).given_up} == {("a", 1), ("b", 1)}
    assert check_log(run) == []  # also when the next writer has completed what was compacted in part
    assert {name: steps for name, steps in steps_of(run).items() if name != "later"} == {"a": 1, "b": 1}


def test_a_disk_that_refuses_the_folder_of_what_is_set_aside_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 3))
    flip_page(next((run / "steps").glob("*.parquet")))
    sync = disk.sync_directory

    def refuses(path: Path) -> None:
        if path.name == "quarantine":
            raise OSError(errno.EROFS, "read-only file system")
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", refuses)
    with pytest.raises(StorageError, match="quarantine"):
        repair(run, lambda plan: None)


def test_a_run_that_is_being_written_is_not_repaired(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 2))
    with hold_run(run), pytest.raises(RunError, match="is being written"):
        repair(run, lambda plan: None)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.rindex(b"evalkit.check") + 40] ^= 1
    path.write_bytes(data)


def flip_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


def double(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


HARMS = [zero, tear, Path.unlink, flip_footer, flip_page, double]


def books(run: Path) -> int:
    """All that counts against the budget."""
    index = read_index(run)
    settled = index.cost_by_worker
    return spent_by(sum(settled.values()), accounts(index.ledger, settled).values())


def many_lives(run: Path) -> Path:
    """A run that was ended twice, died once, and died in its last life."""
    write_run(run, [*rounds(["a", "b"], 2)], [a_charge(3)])
    write_tails(run, [[a_step("a", 2)]])
    write_run(run, [[a_step("a", 3, ending="done")], [a_step("c", 0)]], [a_charge(4)])
    write_tails(run, [[a_step("c", 1)], [a_step("b", 2, take=1)]], [a_charge(5)])
    write_tails(run, [[a_step("c", 2, ending="done"), a_step("d", 0)], [a_step("d", 1)]], [a_charge(6)])
    return run


@pytest.mark.exhaustive
@pytest.mark.parametrize("harm", HARMS)
def test_whichever_file_is_harmed_the_log_is_mended_and_the_books_do_not_fall(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    whole = many_lives(tmp_path / "whole")
    assert check_log(whole) == []
    before, newest = books(whole), journals(whole)[-1].writer
    for number, name in enumerate(contents(whole)):
        if harm not in (zero, Path.unlink) and number % 3 != HARMS.index(harm) % 3:
            continue  # a third of the files for each of these
        run = Path(shutil.copytree(whole, tmp_path / str(number)))
        harm(run / name)
        if not check_log(run):  # the newest, or one whose rows other files have as well
            assert name.startswith(f"log/{newest}/") or steps_of(run) == steps_of(whole), name
            continue
        done = mended(run)
        if name.startswith(f"log/{newest}/"):
            assert books(run) >= before or done.uncounted  # a session without a budget, and no totals behind it
        else:
            assert books(run) >= before, name
        assert name in done.quarantined or harm is Path.unlink
        assert totals_of_rows(run) == totals_said(run)
        shutil.rmtree(run)


def test_a_repair_opens_each_file_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, opened = many_lives(tmp_path / "run"), list[object]()
    files = [name for name in contents(run) if name.endswith(".parquet")]
    flip_page(run / next(name for name in files if name.startswith("steps/")))
    own = pq.ParquetFile

    def counted(source: object, **how: Any) -> pq.ParquetFile:
        opened.append(source)
        return own(source, **how)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    assert repair(run, lambda plan: None).flaws
    # What all files hold is looked at once, then what stays of them; a check alone opens each two or three times.
    assert 2 * len(files) < len(opened) < 6 * len(files)


def totals_said(run: Path) -> Totals:
    return comparable(read_totals(run))


def totals_of_rows(run: Path) -> Totals:
    return comparable(totals_of(scan_all(run, COLUMNS), read_ledger(run)))


def comparable(totals: Totals) -> Totals:
    """Without times and rounding."""
    for cell in totals.cells.values():
        cell.spells, cell.earlier, cell.earlier_s, cell.ended_squares = [], 0, 0.0, round(cell.ended_squares)
        cell.endings = {word: count for word, count in cell.endings.items() if count}
    totals.cells = {place: cell for place, cell in totals.cells.items() if cell.rows}
    totals.workers = {name: cost for name, cost in totals.workers.items() if cost}
    return totals


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("missing", [("ledger", "ends"), ("ends",), ()])
@pytest.mark.parametrize("harmed", ["steps", "ledger", "ends"])
def test_a_damaged_file_that_nobody_names_yet_is_made_anew_of_its_objects(
    tmp_path: Path, harmed: Kind, missing: tuple[Kind, ...]
) -> None:
    if harmed in missing:
        pytest.skip("it is not there")
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a", "b"], 3), money=[a_charge()])
    compact(journal, 0, 1)
    for kind in missing:
        (file,) = (run / kind).glob("*.parquet")
        file.unlink()
    steps, money = steps_of(run), spent(run)
    (file,) = (run / harmed).glob("*.parquet")
    flip_page(file)
    assert mended(run).given_up == ()
    assert {name: count for name, count in steps_of(run).items() if name != "later"} == steps
    assert spent(run) >= money


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("harmed", ["steps", "ledger", "ends", "log"])
@pytest.mark.parametrize("named", [True, False])
def test_a_link_to_nothing_is_mended(tmp_path: Path, harmed: str, named: bool) -> None:
    run = tmp_path / "run"
    journal = begin(run)
    append(journal, *rounds(["a", "b"], 3), money=[a_charge()])
    compact(journal, 0, 1)
    if named:
        append(journal, *rounds(["c"], 1))
    folder = run / "log" / journal.writer if harmed == "log" else run / harmed
    path = sorted(folder.glob("*.parquet"))[-1]
    path.unlink()
    path.symlink_to("nothing")
    mended(run)
    assert not path.is_symlink()


@pytest.mark.parametrize("left", [0, 1])
def test_a_journal_that_has_lost_its_end_is_mended_at_once(tmp_path: Path, left: int) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 4))
    (lost,) = journals(run)
    with hold_run(run):
        open_journal(run, new_writer([lost.writer])).commit(steps_table([a_step("b", 0)]))
    for path in sorted((run / "log" / lost.writer).iterdir())[left:]:
        path.unlink()
    mended(run)
    assert steps_of(run) == {**({"a": left} if left else {}), "b": 1, "later": 1}


def test_names_that_nobody_waited_for_last_before_a_repair_builds_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    flip(path_of(run, 1), b"answer 1 of a")
    waited: list[Path] = []
    linked: list[int] = []
    sync, link = disk.sync_directory, disk.link

    def syncs(path: Path) -> None:
        waited.append(path)
        sync(path)

    def links(source: Path, target: Path) -> None:
        linked.append(len(waited))
        link(source, target)

    monkeypatch.setattr(disk, "sync_directory", syncs)
    monkeypatch.setattr(disk, "link", links)
    (journal,) = journals(run)
    repair(run, lambda plan: None)
    before = waited[: linked[0]]
    assert {run / "log" / journal.writer, run / "log", run / "steps", run / "ledger", run / "ends", run} <= {*before}
