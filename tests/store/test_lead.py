"""Who writes a run in a bucket: one leads, others are refused meanwhile, and one that was deposed writes no more."""

import time
from collections.abc import Iterator

import pytest

from evalkit.errors import FencedError, RunError, UsageError
from evalkit.store import bucket, lead
from evalkit.store.bucket import BucketPath, place_of
from evalkit.store.lead import Leader, lead_run, leads, newest, refuse_unconditional
from tests.support.object_stores import StoreProxy, make_bucket, proxy, reached_at
from tests.support.patience import PATIENCE_S


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    monkeypatch.setattr(bucket, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(lead, "BEAT_S", 0.05)
    monkeypatch.setattr(lead, "LOOK_S", 0.02)
    with proxy() as state, reached_at(state.url):
        yield state


@pytest.fixture
def run(store: StoreProxy) -> BucketPath:
    place = place_of(f"{make_bucket()}/run")
    assert isinstance(place, BucketPath)
    return place


def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What leads is on another machine from now on: its process cannot be looked up."""
    monkeypatch.setattr(lead, "_machine", lambda: "another")


def test_a_leader_says_that_it_is_there_and_when_it_has_ended(run: BucketPath) -> None:
    with lead_run(run) as leader:
        assert leads(run) == leader.me
        began = newest(run)
        assert began is not None
        until = time.monotonic() + PATIENCE_S
        while (now := newest(run)) is not None and now.number < began.number + 4 and time.monotonic() < until:
            time.sleep(0.02)
        leader.check()
        numbers = sorted(int(entry.name[:9]) for entry in (run / "lead").entries())
        assert numbers[0] == 0, "a takeover was deleted"
        assert len(numbers) <= 4, "signs of life pile up"
    assert leads(run) is None
    last = newest(run)
    assert last is not None
    assert last.kind == lead.CLOSE
    with lead_run(run):  # without a watch: the one before said that it had ended
        pass


def test_nobody_leads_beside_a_leader(run: BucketPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead, "WATCH_S", PATIENCE_S)
    with lead_run(run) as leader:
        from_elsewhere(monkeypatch)
        with (
            pytest.raises(RunError, match=f"is being run by process {leader.me.pid} on {leader.me.host}"),
            lead_run(run),
        ):
            pass
        leader.check()


def test_one_that_is_silent_is_taken_over_and_writes_no_more(run: BucketPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead, "WATCH_S", 0.3)
    with lead_run(run) as silent:
        silent._stop.set()  # as if the process stood still
        silent._thread.join()
        from_elsewhere(monkeypatch)
        began = time.monotonic()
        with lead_run(run) as leader:
            assert time.monotonic() - began >= 0.3
            with pytest.raises(FencedError, match="has taken"):
                silent.check()
            assert not silent.is_current
            leader.check()


def test_one_of_this_machine_that_was_killed_need_not_be_watched(
    run: BucketPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lead, "LOOK_S", "never: who watches raises a TypeError")
    gone = Leader(host="here", machine=lead._machine(), pid=2**22 + 1, started_at=0.0)
    (run / "lead" / "000000000.parquet").put(lead._encode(lead.TAKEOVER, 0, gone))
    assert leads(run) is None
    with lead_run(run):
        pass


@pytest.mark.parametrize("fate", ["drop", "409", "503"])
def test_a_sign_whose_answer_is_lost_deposes_nobody(run: BucketPath, store: StoreProxy, fate: str) -> None:
    with lead_run(run) as leader:
        fates = iter([fate] * 8)
        store.fault = lambda method, path: next(fates, "") if method == "PUT" and "/lead/" in path else ""
        before = newest(run)
        assert before is not None
        until = time.monotonic() + PATIENCE_S
        while (now := newest(run)) is not None and now.number < before.number + 3 and time.monotonic() < until:
            time.sleep(0.02)
        leader.check()
        assert leader.is_current


def test_a_store_that_ignores_conditions_is_refused(run: BucketPath, store: StoreProxy) -> None:
    refuse_unconditional(run)
    store.ignores_conditions = True
    with pytest.raises(UsageError, match="can hold a finished run, but not be written to"), lead_run(run):
        pass
    assert run.below() == {}
