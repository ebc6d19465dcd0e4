"""Nothing is sent before what it depends on is on the disk: the trace of a run, and of runs that cheat."""

import io
import os
import shutil
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalkit.client import retry
from evalkit.client.budget import Budget
from evalkit.engine.outcome import RunOutcome
from evalkit.envs.table import ENVIRONMENTS
from evalkit.store import disk
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import ledger_table, steps_table
from evalkit.store.files.segment import NO_MONEY, Segment, encode_compacted, encode_object, money_text
from evalkit.store.writing.compact import Compactor
from evalkit.store.writing.writer import Store
from tests.engine.snapshot import snapshot_at
from tests.engine.tracing import Event, recording, rows_in, rules, surviving, violations
from tests.support.run_directories import a_step
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget

MAX_TOKENS = ENVIRONMENTS["scheduling"].defaults.max_tokens
PRICE_IN, PRICE_OUT = 1_000_000, 4_000_000
BUDGET = 2 * 10**12
FAULTY = {"fault_reset": 0.08, "fault_truncated": 0.05}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause before a retry would give its charge the time to become durable by itself."""
    monkeypatch.setattr(retry, "FIRST_S", 1e-4)


def traced(work: Path, run: Path) -> tuple[RunOutcome, list[Event]]:
    """Run a sweep beside a provider whose replies are sometimes lost, and record it."""
    sweep = with_budget(resolved(work, served(periods=4)), BUDGET)
    with recording(PRICE_IN, PRICE_OUT, MAX_TOKENS) as trace:
        outcome, _ = go_served(sweep, run, FAULTY)
    return outcome, trace


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died in the middle of its requests."""
    work = tmp_path_factory.mktemp("crashed")
    sweep = with_budget(resolved(work, served(periods=4)), BUDGET)
    with snapshot_at(work / "run", work / "copy", 25):
        go_served(sweep, work / "run", FAULTY)
    return work / "copy"


def test_whatever_a_request_depends_on_is_durable_before_it_is_sent(tmp_path: Path) -> None:
    outcome, trace = traced(tmp_path, tmp_path / "run")
    assert outcome.exit_code == 0
    assert violations(trace) == []
    sends = [event for event in trace if event.what == "send"]
    assert sum(event.request[1] > 0 for event in sends) > 30
    assert sum(event.request[2] > 0 for event in sends) > 3
    kept = {(row["episode"], row["step"]) for event in trace for row in event.rows if "kind" not in row}
    assert len(kept) == outcome.steps


def test_a_crash_is_charged_durably_before_the_next_session_sends(tmp_path: Path, crashed: Path) -> None:
    shutil.copytree(crashed, tmp_path / "run")
    before = surviving(tmp_path / "run")
    outcome, trace = traced(tmp_path, tmp_path / "run")
    assert outcome.exit_code == 0
    assert outcome.unconfirmed > 0
    assert violations([*before, *trace]) == []
    money = [row for event in trace for row in event.rows if "kind" in row]
    without_crash = [Event(**_without(event, {"crash", "close"})) for event in trace]
    assert {row["kind"] for row in money} >= {"crash", "close", "open", "lease"}
    assert rules(violations([*before, *without_crash])) == {"crash"}


def _without(event: Event, kinds: set[str]) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in Event.__dataclass_fields__}
    return {**values, "rows": tuple(row for row in event.rows if row.get("kind") not in kinds)}


def nothing(*_: object) -> None:
    """An fsync that does not happen."""


class Late:
    """A write or a naming that happens only when the second one after it comes, so after the wait has returned."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []
        self.write_now, self.link_now = disk.write, disk.link

    def write(self, path: Path, data: bytes | memoryview) -> FileIO:
        file = FileIO(path, "w")
        if _is_commit(bytes(data)):
            final = path.with_name(path.name.removeprefix(".").split(".parquet")[0] + ".parquet")
            self._later(partial(self._fill, final, bytes(data)))
        else:
            file.close()
            file = self.write_now(path, data)
        return file

    def link(self, source: Path, target: Path) -> None:
        if _is_commit(source.read_bytes()):
            kept = target.with_name(f".{target.name}.kept")
            os.link(source, kept)
            self._later(partial(os.rename, kept, target))
        else:
            self.link_now(source, target)

    def catch_up(self, behind: int = 0) -> None:
        while len(self._due) > behind:
            self._due.pop(0)()

    def _fill(self, path: Path, data: bytes) -> None:
        self.write_now(path, data).close()

    def _later(self, act: Callable[[], None]) -> None:
        self._due.append(act)
        self.catch_up(2)


def _is_commit(data: bytes) -> bool:
    """Whether a file is a commit of a journal, and no seal or close of one."""
    return data.startswith(b"PAR1") and pq.read_metadata(io.BytesIO(data)).metadata[b"evalkit.kind"] == b"commit"


@pytest.mark.exhaustive
@pytest.mark.parametrize("removed", ["write", "sync_file", "link", "sync_directory"])
def test_without_any_one_of_the_four_operations_the_rules_are_broken(
    tmp_path: Path, crashed: Path, removed: str
) -> None:
    """The shim records what is carried out; here one operation is skipped, or comes too late."""
    shutil.copytree(crashed, tmp_path / "torn")
    before = surviving(tmp_path / "torn")
    fresh = cheating(tmp_path, tmp_path / "run", removed)
    resumed = cheating(tmp_path, tmp_path / "torn", removed)
    assert rules(violations(fresh)) >= {"step", "lease", "charge"}
    assert rules(violations([*before, *resumed])) >= {"step", "lease", "charge", "crash"}


def cheating(work: Path, run: Path, removed: str) -> list[Event]:
    """The trace of a run that lacks one operation; its log is as it should be in the end."""
    sweep = with_budget(resolved(work, served(periods=4)), BUDGET)
    with recording(PRICE_IN, PRICE_OUT, MAX_TOKENS) as trace, pytest.MonkeyPatch.context() as patch:
        late = Late()
        patch.setattr(disk, removed, nothing if removed.startswith("sync") else getattr(late, removed))
        # Leaving reads back what was written.
        finish = Compactor.finish

        def caught_up(compactor: Compactor) -> None:
            late.catch_up()
            finish(compactor)

        patch.setattr(Compactor, "finish", caught_up)
        outcome, _ = go_served(sweep, run, FAULTY)
        late.catch_up()
    assert outcome.exit_code == 0
    return trace


@pytest.mark.parametrize(("owner", "broken"), [(Store, {"open", "lease", "charge", "step"}), (Budget, {"charge"})])
def test_an_engine_that_does_not_wait_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, broken: set[str]
) -> None:
    async def at_once(self: object) -> None:
        return

    monkeypatch.setattr(owner, "durable", at_once)
    outcome, trace = traced(tmp_path, tmp_path / "run")
    assert outcome.exit_code == 0
    assert rules(violations(trace)) == broken


def test_the_rules_take_nothing_but_the_whole_order_for_durable() -> None:
    """The checker by hand: one segment, then the request that depends on it."""
    row = {"episode": "e", "step": 0, "worker": "w", "cost": 3}
    money = [
        {"kind": "open", "session": "w", "amount": 0, "episode": "", "step": -1, "attempt": 8},
        {"kind": "lease", "session": "w", "amount": 100, "episode": "", "step": -1, "attempt": -1},
    ]
    files = [("r/manifest/000000.json", ()), ("r/log/w/0", tuple(money))]
    base = [event for name, rows in files for event in _durable(name, rows)]
    segment = _durable("r/log/w/1", (row,))
    base.append(Event(what="session", path="w"))
    send = Event(what="send", request=("e", 1, 0), amount=97)
    assert violations([*base, *segment, send]) == []
    for left_out in range(4):
        rest = [event for place, event in enumerate(segment) if place != left_out]
        assert rules(violations([*base, *rest, send])) == {"step"}
        assert rules(violations([*base, *rest, send, segment[left_out]])) == {"step"}
    for place in range(3):
        swapped = [*segment[:place], segment[place + 1], segment[place], *segment[place + 2 :]]
        assert rules(violations([*base, *swapped, send])) == {"step"}
    assert rules(violations([*base, *segment, Event(what="send", request=("e", 1, 0), amount=101)])) == {"lease"}
    assert rules(violations([*segment, send])) == {"manifest", "open", "lease"}


def _durable(name: str, rows: tuple[dict[str, object], ...]) -> list[Event]:
    return [
        Event(what="write", path=f"{name}.tmp", rows=rows),
        Event(what="sync_file", path=f"{name}.tmp"),
        Event(what="name", path=f"{name}.tmp", target=name),
        Event(what="sync_directory", path=name.rsplit("/", 1)[0]),
    ]


def test_the_shim_reads_from_the_bytes_what_a_segment_holds(tmp_path: Path) -> None:
    row = LedgerRecord(kind="lease", session="s", amount=7)  # type: ignore[arg-type]
    data = encode_object(steps_table([a_step("e", 3)]), {"kind": "commit", "money": money_text([row])})
    place = Segment(kind="ledger", path=tmp_path / "x.parquet", first=0, last=0, writer="w")
    compacted = encode_compacted(place, ledger_table([row]), NO_MONEY)
    step, money = rows_in(bytes(data))
    assert (step["episode"], step["step"], step["cost"]) == ("e", 3, 1003)
    assert (money["kind"], money["session"], money["amount"]) == ("lease", "s", 7)
    assert rows_in(bytes(compacted)) == (money,)
    assert rows_in(b"{}") == ()
