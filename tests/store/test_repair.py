from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, RunError
from evalkit.store.accounts import LEASES_LOST
from evalkit.store.check import check_log
from evalkit.store.index import read_index
from evalkit.store.lock import hold_run
from evalkit.store.reader import read_ledger, replay_rows, scan
from evalkit.store.repair import GivenUp, Repair, repair
from evalkit.store.segment import MARK, encode_mark
from tests.logs import a_charge, a_step, rounds, write_run, write_tails
from tests.store.test_check import flip, replaced, rewrite


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


def test_a_whole_log_is_left_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    assert repair(run, lambda plan: None).flaws == ()
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before


def test_an_episode_is_cut_at_its_lost_step_and_others_keep_their_rows_of_the_same_page(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 5))
    paid = spent(run)
    flip(run / "tail" / "000000002.parquet", b"answer 2 of a")
    with pytest.raises(CorruptLogError):
        scan(run, ["reply"])
    done = mended(run)
    lost_cost = 1002 + 1003 + 1004
    assert done.given_up == (
        GivenUp(episode="a", place="knuth:scheduling/basic:seed-0:0", step=2, rows=3, cost=lost_cost),
    )
    assert done.quarantined == tuple(f"tail/00000000{number}.parquet" for number in (2, 3, 4))
    assert (run / "quarantine" / "tail-000000002.parquet").is_file()
    assert steps_of(run) == {"a": 2, "b": 5, "later": 1}
    assert spent(run) == paid + 1000
    assert [(row.kind, row.session, row.episode, row.step, row.amount) for row in read_ledger(run)] == [
        ("charge", "host:1", "a", 2, lost_cost)
    ]
    assert "cut off at step 2" in "\n".join(done.lines())


def test_it_says_what_is_given_up_before_it_changes_anything(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    flip(run / "tail" / "000000001.parquet", b"answer 1 of a")
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
    rewrite(run, 0, replaced(column, 3, "{}" if column == "reply" else b"x" * 16), compacted=True)
    mended(run)
    assert steps_of(run) == {"a": 4, "b": 1, "later": 1}


def test_swapped_files_are_put_in_order_and_nothing_is_given_up(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 4))
    want = replay_rows(run, {"a"})["a"]
    one, two = run / "tail" / "000000001.parquet", run / "tail" / "000000003.parquet"
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    done = mended(run)
    assert done.given_up == ()
    assert replay_rows(run, {"a"})["a"] == want


@pytest.mark.parametrize("harm", ["tear", "remove", "last"])
def test_lost_files_cut_every_episode_they_held(tmp_path: Path, harm: str) -> None:
    run = write_tails(tmp_path / "run", [*rounds(["a", "b"], 3), [a_step("c", 0)], [a_step("c", 1)]])
    if harm == "tear":
        (run / "tail" / "000000001.parquet").write_bytes(b"PAR1 torn")
    elif harm == "remove":
        (run / "tail" / "000000001.parquet").unlink()
    else:
        (run / MARK).write_bytes(encode_mark(steps=5, ledger=0))
        (run / "tail" / "000000004.parquet").unlink()
    done = mended(run)
    kept = {"a": 3, "b": 3, "c": 1} if harm == "last" else {"a": 1, "b": 1, "c": 2}
    assert steps_of(run) == {**kept, "later": 1}
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
    flip(run / "tail" / "000000001.parquet", b"retry 2")
    mended(run)
    assert [(row.step, row.take) for row in replay_rows(run, {"a"})["a"]] == [(0, 0), (1, 0)]
    assert read_index(run).episodes["a"].ending == ""


def test_damaged_money_and_foreign_files_go_to_quarantine(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 2), [a_charge(reason="because of a timeout")])
    write_run(run, [], [a_charge(8)])
    flip(run / "ledger" / "000000000.parquet", b"because of")
    (run / "steps" / "notes.parquet").write_bytes(b"mine")
    done = mended(run)
    assert done.ledger_lost == ("ledger/000000000.parquet",)
    kept, lost = read_ledger(run)
    assert (kept.amount, lost.kind, lost.reason) == (8, "open", LEASES_LOST)
    assert (run / "quarantine" / "steps-notes.parquet").read_bytes() == b"mine"
    assert not (run / "steps" / "notes.parquet").exists()


def test_a_run_that_is_being_written_is_not_repaired(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 2))
    with hold_run(run), pytest.raises(RunError, match="is being written"):
        repair(run, lambda plan: None)
