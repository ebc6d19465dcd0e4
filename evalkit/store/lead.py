"""One writer per run in a bucket: who leads says so by new objects in `lead/`, every few seconds.

No lock is released when a process dies far away, so there is none. A starter watches whether numbers still appear; if
not, it takes the next one, which exactly one process can. Nothing compares the clocks of two machines. What makes the
log safe is not this but its journals, which every new leader seals: this keeps two processes from fighting, and tells
one that stood still that its time has passed before it sends anything.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import FencedError, RunError, StorageError, UsageError
from evalkit.store.bucket import BEAT_S, BucketPath
from evalkit.store.files.journal import is_running
from evalkit.store.files.segment import NUMBER, claim, encode_object, object_name

FOLDER = "lead"
TAKEOVER, BEAT, CLOSE = "takeover", "beat", "close"

WATCH_S = 15.0
"""How long a leader counts as there after a sign. A starter watches for as long."""
LOOK_S = 1.0
AT_ONCE = 8
"""Creations of one object by which a store's conditions are tried."""


class Leader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that writes a run in a bucket."""

    host: str
    machine: str
    """The machine since it was started, and what it takes for its processes: another has another one."""
    pid: int
    started_at: float


@dataclass(frozen=True, slots=True)
class _Sign:
    """The newest object."""

    number: int
    kind: str
    leader: Leader


class Lead:
    """A run in a bucket that this process leads."""

    descriptors = ()

    def __init__(self, run: BucketPath, number: int, sent: float, leader: Leader) -> None:
        self.run, self.me = run, leader
        self._number, self._sent = number, sent
        self._kinds = {number: TAKEOVER}
        self._deposed = False
        self._pending: bytes | None = None
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beats, name="evalkit-lead", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise FencedError if another process leads now; asks the store if that is not known to be untrue."""
        if not self.is_current:
            with suppress(StorageError):
                self._beat()
        if self._deposed:
            raise FencedError(
                f"Another process has taken {self.run} over. Nothing more is sent or written here; what was durable "
                "before is valid."
            )

    @property
    def is_current(self) -> bool:
        """Whether no other process can lead yet: for as long after a sign as starters watch."""
        return not self._deposed and boot_time() < self._sent + WATCH_S

    def close(self) -> None:
        """Lead no longer."""
        self._stop.set()
        self._thread.join()
        with suppress(StorageError):
            self._beat(CLOSE)

    def _beats(self) -> None:
        while not self._stop.wait(BEAT_S):
            with suppress(StorageError):  # the same sign is given again next time
                self._beat()

    def _beat(self, kind: str = BEAT) -> None:
        """Create the next number. One whose answer is not known is tried again with the same bytes."""
        with self._lock:
            if self._deposed:
                return
            began = boot_time()
            number = self._number + 1
            if self._pending is None:
                self._pending = _encode(kind, number, self.me)
            place = _object(self.run, number)
            try:
                place.create_once(self._pending)
            except FileExistsError:
                there = place.now()
                if there is None:
                    return
                if there != self._pending:
                    self._deposed = True
                    return
            self._number, self._sent, self._pending = number, began, None
            self._kinds[number] = kind
            old = number - 2
            if self._kinds.pop(old, TAKEOVER) == BEAT:
                _object(self.run, old).unlink(missing_ok=True)


@contextmanager
def lead_run(run: BucketPath) -> Iterator[Lead]:
    """Be the only writer of a run in a bucket for as long as the context lasts.

    Raises UsageError for a store that ignores conditions, RunError naming the process that leads, StorageError.
    """
    refuse_unconditional(run)
    last = _watched(run)
    number = 0 if last is None else last.number + 1
    leader = Leader(host=socket.gethostname(), machine=_machine(), pid=os.getpid(), started_at=time.time())
    sent = boot_time()
    try:
        _object(run, number).create(_encode(TAKEOVER, number, leader))
    except FileExistsError:
        raise RunError(_refusal(run, newest(run))) from None
    lead = Lead(run, number, sent, leader)
    try:
        yield lead
    finally:
        lead.close()


def refuse_unconditional(run: BucketPath) -> None:
    """Raise UsageError if the store creates an object that is there already: one by one, or several at once."""
    once, many = (run / f".probe-{secrets.token_hex(8)}" for _ in range(2))

    def creates(place: BucketPath, data: bytes) -> bool:
        try:
            place.create_once(data)
        except FileExistsError:
            return False
        return True

    try:
        won = [creates(once, b"first"), creates(once, b"second")]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            at_once = list(pool.map(lambda number: creates(many, b"%d" % number), range(AT_ONCE)))
    finally:
        for place in (once, many):
            with suppress(StorageError):
                place.unlink(missing_ok=True)
    if won[1] or sum(at_once) > 1:
        raise UsageError(
            f"{run}: this store replaces objects that must not exist yet (it ignores `If-None-Match`), so two "
            "processes could write one run. It can hold a finished run, but not be written to: play on a disk, then "
            "copy the run there."
        )


def leads(run: BucketPath) -> Leader | None:
    """Who seems to lead a run, for people: by the store's clock and ours."""
    sign = newest(run)
    if sign is None or sign.kind == CLOSE or _is_gone(sign.leader):
        return None
    with suppress(FileNotFoundError):
        age_s = time.time() - _object(run, sign.number).stat().st_mtime
        return sign.leader if age_s < WATCH_S + BEAT_S else None
    return sign.leader


def newest(run: BucketPath) -> _Sign | None:
    """The newest sign of a leader; None if nobody has led yet. Raises StorageError."""
    while True:
        names = [NUMBER.fullmatch(entry.name) for entry in (run / FOLDER).entries()]
        numbers = [int(name[1]) for name in names if name]
        if not numbers:
            return None
        data = _object(run, max(numbers)).now()
        if data is not None:  # else it was deleted just now, and there is a newer one
            return _decode(max(numbers), data)


def _watched(run: BucketPath) -> _Sign | None:
    """The newest sign, once nobody leads. Raises RunError if somebody does."""
    last = newest(run)
    until = boot_time() + WATCH_S
    while last is not None and last.kind != CLOSE and not _is_gone(last.leader) and boot_time() < until:
        time.sleep(LOOK_S)
        now = newest(run)
        if now is not None and now.number > last.number and now.kind != CLOSE:
            raise RunError(_refusal(run, now))
        last = now
    return last


def _refusal(run: Path, sign: _Sign | None) -> str:
    who = f"process {sign.leader.pid} on {sign.leader.host}" if sign else "another process"
    return f"{run} is being run by {who}. Wait until it has ended, stop it, or choose another place."


def _object(run: BucketPath, number: int) -> BucketPath:
    return run / FOLDER / object_name(number)


def _encode(kind: str, number: int, leader: Leader) -> bytes:
    facts = {"kind": kind, "number": str(number), "nonce": secrets.token_hex(8)}
    return bytes(encode_object(None, {**facts, "leader": msgspec.json.encode(leader).decode()}))


def _decode(number: int, data: bytes) -> _Sign:
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            says = claim(file.metadata)
        return _Sign(number, says["kind"], msgspec.json.decode(says["leader"], type=Leader))
    except (pa.ArrowException, OSError, KeyError, msgspec.MsgspecError) as flaw:
        raise StorageError(
            f"{FOLDER}/{object_name(number)} cannot be read ({flaw}). Delete it if no process runs."
        ) from flaw


def _is_gone(leader: Leader) -> bool:
    """Whether it was a process of this machine and has ended: nobody need watch for it."""
    return leader.machine == _machine() and not is_running(leader.pid)


def _machine() -> str:
    """What is the same for processes that see each other by their numbers, and for no others."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    return secrets.token_hex(8)


def boot_time() -> float:
    """Seconds on a clock that goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
