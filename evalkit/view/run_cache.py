"""The runs that are shown, and what has been read of each: once a state of its log, in the background, in two parts.

A page never waits long: what is not read yet is said to be computed, and what has changed since is shown as it was
until the new is there.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from evalkit.errors import RunError, nearest
from evalkit.frozen.manifests import manifest_file, runs_in
from evalkit.nightly.history_files import FOLDER as NIGHTS
from evalkit.nightly.history_files import is_night, nights
from evalkit.view.reading import Glance, LogState, Reading, completed, log_state, read_run

PATIENCE_S = 0.6
"""How long a page waits for what is being read before it says so."""
REST = 4.0
"""A run that is being written is read again when this many times the last reading's time has passed."""


KEPT = 200_000
"""Episodes of the readings that are kept; of those not asked for lately the numbers of a glance are."""


@dataclass(slots=True)
class _Slot:
    """One run's readings."""

    done: Reading | None = None
    """None: it was never read, or has been let go."""
    glance: Glance | None = None
    flaw: BaseException | None = None
    """Why the last reading failed."""
    coming: "Future[Reading] | Future[Glance] | None" = None
    tried: LogState | None = None
    """The log's state when the last reading was begun."""
    began: float = 0.0
    """When what is coming was asked for, by the monotonic clock."""
    in_front: bool = False
    """Whether somebody waits for what is coming."""


class RunCache:
    """Some runs, by name."""

    def __init__(self, runs: Sequence[Path], folder: Path | None = None, sweeps: Sequence[Path] = ()) -> None:
        """`runs`: these, and the nights of `sweeps`; or whatever runs and nights lie in `folder` at the time."""
        self._fixed, self._folder = _named(runs), folder
        self._sweeps = {path.resolve().name: path / NIGHTS for path in sweeps}
        self._slots: dict[Path, _Slot] = {}
        self._front = ThreadPoolExecutor(1, thread_name_prefix="reading")
        self._back = ThreadPoolExecutor(1, thread_name_prefix="reading")

    def close(self) -> None:
        """Begin no further reading."""
        for pool in (self._front, self._back):
            pool.shutdown(wait=False, cancel_futures=True)

    @property
    def busy(self) -> bool:
        """Whether a run is being read at this moment."""
        return any(slot.coming is not None and not slot.coming.done() for slot in self._slots.values())

    def runs(self) -> Mapping[str, Path]:
        """The runs by name, newest first where they are those of a folder; without nights that a sweep has."""
        if self._folder is None:
            return self._fixed
        times = {path: _written(manifest_file(path) or path) for path in runs_in(self._folder)}
        return _named(sorted(times, key=lambda path: times[path], reverse=True))

    def sweeps(self) -> Mapping[str, Path]:
        """Where sweeps have their nights, by the sweep's name."""
        if self._folder is None:
            return self._sweeps
        return {path.parent.name: path for path in sorted(self._folder.glob(f"*/{NIGHTS}")) if path.is_dir()}

    def everything(self) -> Mapping[str, Path]:
        """All runs by name, those of nights too, after the others and newest first."""
        everything = dict(self.runs())
        for name, folder in self.sweeps().items():
            everything |= {night_name(name, night): folder / night for night in reversed(nights(folder))}
        return everything

    def nights(self, sweep: str) -> Path:
        """Where a sweep's nights lie. Raises RunError."""
        sweeps = self.sweeps()
        if sweep not in sweeps:
            raise RunError(f"There are no nights of {sweep!r} here.{nearest(sweep, list(sweeps))}")
        return sweeps[sweep]

    def directory(self, name: str) -> Path:
        """Where a run lies. Raises RunError."""
        runs = self.everything()
        if name not in runs:
            raise RunError(f"There is no run {name!r} here.{nearest(name, list(runs))}")
        return runs[name]

    async def reading(self, directory: Path) -> Reading | None:
        """What the run's log holds, or None while that is read for the first time.

        Raises what `read_run` raises.
        """
        slot = self._slots[directory] = self._slots.pop(directory, _Slot())  # behind the others: it was asked for last
        self._look(slot, directory, front=True)
        if slot.done is None and slot.coming is not None:
            await asyncio.wait([asyncio.wrap_future(slot.coming)], timeout=PATIENCE_S)
            self._look(slot, directory, front=True)
        if slot.done is None and slot.flaw is not None:
            raise slot.flaw
        return slot.done

    def glance(self, directory: Path) -> Glance | None:
        """The numbers of what has been read so far; what has not is read when nobody waits for anything else."""
        slot = self._slots.setdefault(directory, _Slot())
        self._look(slot, directory, front=False)
        return slot.glance

    def elapsed_s(self, directory: Path) -> float:
        """How long the run has been read so far."""
        slot = self._slots.get(directory)
        return 0.0 if slot is None or slot.coming is None else time.monotonic() - slot.began

    def flaw(self, directory: Path) -> str:
        """Why the run could not be read; empty if it could, or has not been tried."""
        slot = self._slots.get(directory)
        return "" if slot is None or slot.flaw is None else str(slot.flaw)

    def _look(self, slot: _Slot, directory: Path, *, front: bool) -> None:
        """Read what is not read of the log as it is, or not whole; what waits in the back comes in front."""
        self._take(slot)
        if slot.coming is not None:
            if not front or slot.in_front or not slot.coming.cancel():
                return
            slot.coming = None
        pool, slot.in_front = self._front if front else self._back, front
        shown = slot.done if front else slot.glance
        if shown is None or _stale(shown):
            state = log_state(directory)
            if slot.flaw is None or slot.tried != state:
                slot.tried, slot.began = state, time.monotonic()
                slot.coming = (
                    pool.submit(read_run, directory) if front else pool.submit(lambda: read_run(directory).glance)
                )
        elif isinstance(shown, Reading) and not shown.whole and slot.flaw is None:
            slot.coming = pool.submit(completed, shown)

    def _take(self, slot: _Slot) -> None:
        """Keep what has come."""
        if slot.coming is None or not slot.coming.done():
            return
        coming, slot.coming = slot.coming, None
        if coming.cancelled():
            return
        slot.flaw = coming.exception()
        if slot.flaw is not None:
            return
        computed, before = coming.result(), slot.done
        if isinstance(computed, Glance):
            slot.glance = computed
            return
        if not computed.whole and before is not None:
            computed = replace(computed, figures=before.figures, quotes=before.quotes)
        slot.done, slot.glance = computed, computed.glance
        self._let_go(slot)

    def _let_go(self, kept: _Slot) -> None:
        """Of more episodes than are kept, those of the runs that nobody has asked for the longest."""
        filled = [slot for slot in self._slots.values() if slot.done is not None]
        room = KEPT - sum(slot.glance.ended for slot in filled if slot.glance is not None)
        for slot in filled:
            if room >= 0:
                break
            if slot is not kept and slot.glance is not None:
                room += slot.glance.ended
                slot.done = None


def _stale(done: Reading | Glance) -> bool:
    if time.time() < done.at + (1 + REST) * done.took_s:
        return False
    return log_state(done.directory) != done.state


def _written(path: Path) -> float:
    """When a file was written, seconds since 1970; 0.0: it is gone meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def night_name(sweep: str, night: str) -> str:
    """What a night's run is called: `nightly/2026-11-21`."""
    return f"{sweep}/{night}"


def run_name(run: Path) -> str:
    """What a run is called: its directory's name, after its sweep's if it is a night."""
    resolved = run.resolve()
    return night_name(resolved.parent.parent.name, resolved.name) if is_night(run) else resolved.name


def _named(runs: Sequence[Path]) -> dict[str, Path]:
    """By the runs' names; of two that share it, the second has a number after it."""
    by_name: dict[str, Path] = {}
    for path in runs:
        base = run_name(path)
        name, number = base, 1
        while name in by_name:
            number += 1
            name = f"{base}-{number}"
        by_name[name] = path
    return by_name
