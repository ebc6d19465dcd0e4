"""A repair that dies at any disk operation, and is started again: it ends well, and the books never fall."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.repair import Repair, repair
from tests.store.test_crashes import Died, Mortal
from tests.store.test_repair import books, flip_footer, flip_page, steps_of, totals_of_rows, totals_said, zero
from tests.support.damaged_logs import flip
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.run_directories import write_run, write_tails

Harm = Callable[[Path], None]


def a_log(run: Path) -> Path:
    """Of a session that died, one that ended, and one that died again."""
    write_tails(run, rounds(["a", "b"], 2), [a_charge(3)])
    write_run(run, [[a_step("a", 2)], [a_step("c", 0, ending="done")]], [a_charge(4)])
    write_tails(run, [[a_step("a", 3), a_step("b", 2)], [a_step("d", 0)], [a_step("d", 1)]], [a_charge(5)])
    return run


def steps_and_ends(run: Path) -> None:
    for folder in ("steps", "ends", "ledger"):
        zero(min((run / folder).glob("*-*-*.parquet")))


def first_object(run: Path) -> None:
    flip(_objects(run)[0], b"answer 3 of a")


def newest_object(run: Path) -> None:
    zero(_objects(run)[-1])


def newest_object_in_part(run: Path) -> None:
    """A row and the totals: nothing but the charge for the row says then what it had cost."""
    flip(_objects(run)[-1], b"answer 1 of d")
    flip_footer(_objects(run)[-1])


def two_objects(run: Path) -> None:
    one, two = _objects(run)[:2]
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    flip_page(_first_steps(run))


def a_lost_one(run: Path) -> None:
    _objects(run)[1].unlink()


def _first_steps(run: Path) -> Path:
    """The compacted file of the first session."""
    return min((run / "steps").iterdir(), key=lambda path: path.name.split("-")[3])


def _objects(run: Path) -> list[Path]:
    return sorted(max((run / "log").iterdir(), key=lambda path: path.name.rpartition("-")[2]).iterdir())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "harm", [steps_and_ends, first_object, newest_object, newest_object_in_part, two_objects, a_lost_one]
)
def test_a_repair_that_dies_anywhere_ends_well_when_it_is_started_again(tmp_path: Path, harm: Harm) -> None:
    whole = a_log(tmp_path / "whole")
    unharmed = Path(shutil.copytree(whole, tmp_path / "unharmed"))
    harm(unharmed)
    repair(unharmed, lambda plan: None)
    wanted, least = steps_of(unharmed), books(unharmed)
    # Of a session without a budget nobody knows what rows cost that only its newest object knew of.
    assert least >= books(whole) - (1001 if harm is newest_object else 0)
    operations = counted(harm, Path(shutil.copytree(whole, tmp_path / "counted")))
    # What a file holds is the same before a sync and after it.
    changes = [number for number, name in enumerate(operations) if not name.startswith("sync")]
    assert len(operations) > len(changes) > 7
    for last in changes[:: 1 if harm is a_lost_one else 2]:
        run = Path(shutil.copytree(whole, tmp_path / "run"))
        harm(run)
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, last)
            with pytest.raises(Died):
                repair(run, lambda plan: None)
        repair(run, lambda plan: None)
        assert check_log(run) == []
        assert steps_of(run) == wanted
        assert books(run) >= least
        assert totals_said(run) == totals_of_rows(run)
        shutil.rmtree(run)


def counted(harm: Harm, run: Path) -> list[str]:
    """The disk operations that a repair takes."""
    harm(run)
    with pytest.MonkeyPatch.context() as patch:
        mortal = Mortal(patch, 10**6)
        repair(run, lambda plan: None)
    return mortal.done


@pytest.mark.exhaustive
def test_repairs_that_die_one_after_another_charge_no_more_than_one(tmp_path: Path) -> None:
    whole = a_log(tmp_path / "whole")
    _first_steps(whole).unlink()
    at_once = Path(shutil.copytree(whole, tmp_path / "at once"))
    repair(at_once, lambda plan: None)
    for first, second in product(range(2, 50, 12), range(5, 60, 12)):
        run, plans = Path(shutil.copytree(whole, tmp_path / "run")), list[Repair]()
        for last in (first, second):
            with pytest.MonkeyPatch.context() as patch, suppress(Died):
                Mortal(patch, last)
                repair(run, plans.append)
        repair(run, plans.append)
        assert not any(plan.uncounted for plan in plans)
        assert books(run) == books(at_once)
        shutil.rmtree(run)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("last", range(6, 42, 5))
def test_ends_of_journals_that_a_repair_did_not_come_to_write_are_not_taken_for_lost_money(
    tmp_path: Path, last: int
) -> None:
    """Each repair ends the journals of those before it, and names these ends."""
    run = write_run(tmp_path / "run", rounds(["a", "b"], 2), [a_charge(9000, kind="lease")])
    flip_page(next((run / "steps").glob("*.parquet")))
    plans = list[Repair]()
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch, suppress(Died):
            Mortal(patch, last)
            repair(run, plans.append)
    repair(run, plans.append)
    assert check_log(run) == []
    assert not any(plan.uncounted for plan in plans)
