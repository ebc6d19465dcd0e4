"""Seeds lived through, and what the simulation itself promises: the same story each time, the shortest one told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evalkit.engine import sweep
from evalkit.engine.outcome import RunOutcome
from evalkit.errors import StorageError
from evalkit.seeds import Stream
from evalkit.store import disk
from evalkit.store.files.damage import first_flaw
from evalkit.store.files.journal import new_writer, newest_claim
from evalkit.store.files.layout import journals
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import NO_MONEY
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from evalkit.store.writing.compact import Tail, compact
from evalkit.store.writing.opening import announce, end_journal, join, take_over
from evalkit.store.writing.writer import Store
from tests.sim.crew_plan import PARTS, peaceful
from tests.sim.disk import Plan, SimDisk
from tests.sim.found import FOUND_BY
from tests.sim.harm import Done, Held
from tests.sim.loop import Died
from tests.sim.mutants import MUTANTS, PROJECT
from tests.sim.process import Second
from tests.sim.scenario import DISTURBANCES, Scenario, scenario, undisturbed
from tests.sim.seed import Lived, live_through
from tests.sim.shrink import shrunk
from tests.sim.sweeps import NIGHT, NIGHT_S, SWEEPS, resolved
from tests.sim.taking_over import TakingOver
from tests.sim.world import World
from tests.support.run_directories import a_charge, a_step

SEEDS = 40
"""The first of those that `make sim` lives through; `.ci/run` asks it for 20."""

RARE = (50, 61, 81, 84, 97, 99, 105, 155, 325)
"""Seeds in which something happens that none of the first has, such as a reply without usage."""

WORKERS = (10, 11, 19)
"""Seeds in which all that may befall workers does."""


@cache
def lived(seed: int) -> Lived:
    return live_through(scenario(seed, len(SWEEPS)))


@cache
def workers_lived(seed: int) -> Lived:
    return live_through(scenario(seed, len(SWEEPS), always=frozenset({"workers"})))


@pytest.mark.exhaustive(but=["(50, 61, 81, 84, 97, 99, 105, 155, 325)"])
@pytest.mark.parametrize("seeds", [*(range(first, first + 10) for first in range(0, SEEDS, 10)), RARE], ids=str)
def test_every_promise_holds(seeds: Sequence[int]) -> None:
    for seed in seeds:
        found = lived(seed)
        assert not found.broken, "\n".join((*found.story, found.broken, f"python -m tests.sim --seed {seed}"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [2034, 2259, 2617, 2694, 3000, 4147])
def test_what_once_broke_a_promise_does_not_any_more(seed: int) -> None:
    found = lived(seed)
    assert not found.broken, "\n".join((*found.story, found.broken))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [22, 41, 171])
def test_every_promise_holds_of_agents_that_are_code(seed: int) -> None:
    found = live_through(scenario(seed, len(SWEEPS), always=frozenset({"agents"})))
    assert not found.broken, "\n".join((*found.story, found.broken))
    assert found.counts["asks"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_every_promise_holds_of_sweeps_that_ask_something(seed: int) -> None:
    found = live_through(scenario(seed, len(SWEEPS), always=frozenset({"asking"})))
    assert not found.broken, "\n".join((*found.story, found.broken))
    assert found.counts["answers"] > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("seed", [4, 5, 8])
def test_every_promise_holds_of_a_model_with_several_servers(seed: int) -> None:
    found = live_through(scenario(seed, len(SWEEPS), always=frozenset({"servers"})))
    assert not found.broken, "\n".join((*found.story, found.broken))
    assert found.counts["server_away"] > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("seed", WORKERS)
def test_every_promise_holds_of_a_run_that_workers_play(seed: int) -> None:
    found = workers_lived(seed)
    assert not found.broken, "\n".join((*found.story, found.broken))


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("with_workers", [True, False])
@pytest.mark.parametrize("seed", [3, 5])
def test_every_promise_holds_of_requests_that_go_by_tiers(seed: int, with_workers: bool) -> None:
    always = frozenset({"tiers", "workers"} if with_workers else {"tiers"})
    found = live_through(scenario(seed, len(SWEEPS), always=always))
    assert not found.broken, "\n".join((*found.story, found.broken))
    assert found.counts["by_flex"] > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("times", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("workers", [3, 2, 1])
def test_a_night_ends_in_time_however_many_processes_play_it(tmp_path: Path, workers: int, times: float) -> None:
    alone_s = NIGHT_S / 8
    life = replace(undisturbed(), crew=replace(peaceful(1), workers=workers) if workers > 1 else None)
    night, found = Scenario(seed=1, sweep=NIGHT, budget_share=None, width=12, lives=(life,)), resolved(NIGHT)
    found = replace(found, sweep=replace(found.sweep, width=night.width, deadline_s=times * alone_s))
    world = World(scenario=night, folder=tmp_path, resolved=found)
    outcome = world.live(life, 0)
    world.end_all()
    assert isinstance(outcome, RunOutcome)
    assert outcome.reason == "complete"
    assert world.now - 1 <= times * alone_s
    share = world.network.counts["by_flex"] / outcome.episodes
    print(f"{workers} processes, {times} of the time: {share:.2f} requests by flex for each episode")


@pytest.mark.exhaustive
def test_a_lost_end_of_a_workers_journal_is_noticed_before_another_is_written() -> None:
    """All that the journal held was compacted, and no other journal names its end."""
    found = live_through(scenario(1014, len(SWEEPS), always=frozenset({"workers", "comes_late", "worker_dies"})))
    assert not found.broken, "\n".join((*found.story, found.broken))
    assert found.counts["files_gone"] > 0


@pytest.mark.exhaustive
def test_all_that_may_befall_workers_does() -> None:
    counts = sum((Counter(workers_lived(seed).counts) for seed in WORKERS), Counter[str]())
    assert {part for part in (*PARTS, "fenced") if not counts[part]} == set()


@pytest.mark.exhaustive
def test_everything_that_may_go_wrong_does() -> None:
    counts = sum((Counter(lived(seed).counts) for seed in (*range(SEEDS), *RARE)), Counter[str]())
    assert {name for name in DISTURBANCES if not counts[name]} == set()
    for looked_at in ("peeks", "reports", "commands", "unnoticed", "refused", "overtaken", "lost_to_garbage"):
        assert counts[looked_at], looked_at


def test_a_seed_is_the_same_each_time() -> None:
    one, other = lived(5), live_through(scenario(5, len(SWEEPS)))
    assert (one.lives, one.requests) == (other.lives, other.requests)
    assert one.story == other.story
    assert one.counts == other.counts


@pytest.mark.exhaustive
def test_what_is_missed_is_told_in_its_shortest_story() -> None:
    with mock.patch.object(sweep, "charge_crashes", list_nothing):
        failing = next(one for one in (scenario(seed, len(SWEEPS)) for seed in range(60)) if live_through(one).broken)
        least, lived = shrunk(failing)
    assert least.active < failing.active
    assert len(least.lives) <= len(failing.lives)
    assert any(words in lived.broken for words in ("on the books", "the bill is", "the budget is"))


def test_what_breaks_in_a_callback_of_a_second_process_is_told() -> None:
    second_lives, step, commit = [False], TakingOver._step, Store._ripe

    def noted(taking: TakingOver, second: Second[Any]) -> bool:
        second_lives[0] = True
        try:
            return step(taking, second)
        finally:
            second_lives[0] = False

    def breaks(store: Store) -> None:
        if second_lives[0]:
            raise ValueError("only asyncio has heard of this")
        commit(store)

    with mock.patch.object(TakingOver, "_step", noted), mock.patch.object(Store, "_ripe", breaks):
        assert "only asyncio has heard of this" in live_through(scenario(2694, len(SWEEPS))).broken


def test_each_mutant_s_text_stands_in_its_file_once() -> None:
    for mutant in MUTANTS:
        text = (PROJECT / "evalkit" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, mutant.name
        assert mutant.old != mutant.new


def test_only_mutants_are_remembered_as_found() -> None:
    assert FOUND_BY.keys() <= {mutant.name for mutant in MUTANTS}


def list_nothing(*_: object, **__: object) -> list[object]:
    """In place of what crashed lives are charged."""
    return []


def _disk(folder: Path) -> SimDisk:
    made = SimDisk(folder, say=lambda _: None, slept=lambda _: None)
    made.begin(Plan())
    return made


def test_what_was_written_durably_outlives_a_loss_of_power(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = _disk(folder)
        with made.in_force():
            disk.write_durably(folder / "a", b"one")
            disk.write_durably(folder / "a", b"two")
        made.lose_power(Stream(number, "test"))
        assert (folder / "a").read_bytes() == b"two"


def test_what_was_not_synced_may_be_lost_in_every_way(tmp_path: Path) -> None:
    left = set()
    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = _disk(folder)
        with made.in_force():
            disk.write_durably(folder / "a", b"old!")
            with disk.write(folder / ".a.tmp", b"new!"):
                pass
            disk.rename(folder / ".a.tmp", folder / "a")
        made.lose_power(Stream(number, "test"))
        left.add((folder / "a").read_bytes() if (folder / "a").exists() else None)
    assert {b"old!", b"new!", b"", bytes(4)} < left
    assert len(left) > 6  # prefixes and garbage too


def test_a_process_that_died_touches_the_disk_no_more(tmp_path: Path) -> None:
    made = _disk(tmp_path)
    made.begin(Plan(die_at=1))
    with made.in_force():
        with pytest.raises(Died):
            disk.write_durably(tmp_path / "a", b"one")
        with pytest.raises(Died):
            disk.write_durably(tmp_path / "b", b"two")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_an_end_that_its_writer_has_not_waited_for_lasts_where_others_build_on_it(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = _disk(folder)
        with made.in_force():
            own = take_over(folder / "run", new_writer()).journal
            own.commit(steps_table([a_step()]))
            made.built_on = lambda names: True
            made.begin(Plan(dies_naming=0))
            with pytest.raises(Died):
                own.close()
            made.begin(Plan())
            end_journal(folder / "run", own.writer, by=new_writer([own.writer]))
        made.lose_power(Stream(number, "test"))
        last = newest_claim(folder / "run", own.writer)
        assert last is not None
        assert last["kind"] == "close"


@pytest.fixture
def crew_log(tmp_path: Path) -> Path:
    """The log of two coordinators, one after the other: each was killed, and so was a worker of each."""
    run = tmp_path / "run"
    for number in range(2):
        names = [f"0000000{2 * number + one}-host-1-170000000{2 * number + one}.000" for one in range(2)]
        first = take_over(run, names[0]).journal
        first.commit(None, [a_charge(1)])
        announce(run, names[1])
        own = join(run, names[1]).journal
        own.commit(steps_table([a_step(f"e{number}", 0)]))
        own.commit(steps_table([a_step(f"e{number}", 1)]), [a_charge(7)])
    return run


def _lost(run: Path, writer: str, count: int) -> Done:
    gone = sorted((run / "log" / writer).glob("*.parquet"))[-count:]
    before = {path: path.read_bytes() for path in gone}
    for path in gone:
        path.unlink()
    return Done(words="", before=before)


def test_the_last_objects_of_a_journal_may_be_lost_unnoticed_while_older_ones_are_there(crew_log: Path) -> None:
    former, worker, _, beside = journals(crew_log)
    for writer in (former, worker):  # the next coordinator has compacted what they held, and left their last objects
        done = _lost(crew_log, writer, 1)
        assert not done.unnoticed(crew_log)
        assert first_flaw(crew_log)
        done.undo()
    done = _lost(crew_log, beside, 1)
    assert done.unnoticed(crew_log)
    assert not first_flaw(crew_log)


def test_no_more_may_be_missing_than_what_was_lost(crew_log: Path) -> None:
    def held() -> Held:
        index = read_index(crew_log)
        table = scan(crew_log, ("episode", "step", "step_digest")).to_pydict()
        steps = {(name, step): digest for name, step, digest in zip(*table.values(), strict=True)}
        return Held(steps=steps, episodes={}, ledger=index.ledger, totals=dict(index.totals), asks={})

    before, beside = held(), list(journals(crew_log))[-1]
    done = _lost(crew_log, beside, 1)
    after = held()
    assert before != after
    assert done.explains(before, after)
    assert not done.explains(before, replace(after, steps={}))
    assert not done.explains(before, replace(after, ledger=()))
    assert not done.explains(after, before)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["died", "refused"])
def test_an_end_that_nobody_has_waited_for_lasts_whatever_came_behind_it(tmp_path: Path, how: str) -> None:
    """Two take a run over at once, the end that the earlier one gave to a third is on no disk, and both are gone."""
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = _disk(folder)
        first, second = "0aaaaaaa-host-1-1700000000.000", "0bbbbbbb-host-2-1700000001.000"
        with made.in_force():
            take_over(folder / "run", "00000000-host-1-1600000000.000")
            for name in (first, second):
                announce(folder / "run", name)
            made.built_on = lambda names: True
            # Its first operations write, sync and link the seal; the fourth makes the link last.
            made.begin(Plan(dies_naming=0) if how == "died" else Plan(errors={3: "EROFS"}))
            with pytest.raises(Died if how == "died" else StorageError):
                end_journal(folder / "run", first, by=second)
            made.begin(Plan())
            end_journal(folder / "run", second, by=new_writer([second]))
            own = take_over(folder / "run", new_writer([second])).journal
            own.commit(steps_table([a_step()]))
        made.lose_power(Stream(number, "test"))
        assert not first_flaw(folder / "run")
        assert newest_claim(folder / "run", first) is not None


def test_a_larger_file_that_a_lost_worker_has_not_waited_for_lasts_before_it_is_named(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        run, made = folder / "run", _disk(folder)
        with made.in_force():
            coordinator = take_over(run, new_writer()).journal
            writer = new_writer([coordinator.writer])
            announce(run, writer)
            rows = steps_table([a_step()])
            one = join(run, writer).journal.commit(rows)
            made.built_on = lambda names: names[0].parent.name == "steps"
            made.begin(Plan(dies_naming=0))
            with pytest.raises(Died):
                compact(run, [Tail(segment=one, table=rows, entries=(), money=NO_MONEY, bytes=0)])
            made.begin(Plan())
            end_journal(run, writer, by=coordinator.writer)
        made.lose_power(Stream(number, "test"))
        assert not first_flaw(run)
        assert read_index(run).rows == 1


def test_a_process_that_dies_naming_leaves_a_name_that_a_loss_of_power_may_take(tmp_path: Path) -> None:
    left = set()
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = _disk(folder)
        made.built_on = lambda names: any(path.name == "b" for path in names)
        made.begin(Plan(dies_naming=0))
        with made.in_force():
            disk.write_durably(folder / "a", b"one")
            with pytest.raises(Died):
                disk.write_durably(folder / "b", b"two")
        assert (folder / "b").read_bytes() == b"two"
        made.lose_power(Stream(number, "test"))
        assert (folder / "a").exists()
        left.add((folder / "b").exists())
    assert left == {True, False}
