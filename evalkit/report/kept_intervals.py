"""Intervals that took many draws are kept: `derived/intervals.json` in the run directory, so that the next report does
not draw again.

Kept are those of complete cells made by resampling, 10^8 draws each with 10,000 instances; others cost little. An entry
holds while the scores, strata and names that it follows from are the same, and the code that makes intervals and numpy
are too. The file is put in place in one step, and ignored where it is stale or damaged; deleting it loses nothing.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import orjson

import evalkit.stats
from evalkit import __version__, seeds
from evalkit.errors import StorageError
from evalkit.report.scores import bounds
from evalkit.results.cells import Cell
from evalkit.results.derived import FOLDER
from evalkit.stats.bootstrap import Interval
from evalkit.store.disk import put, read_whole

FILE = "intervals.json"
KEPT = frozenset({"bootstrap-t", "bootstrap"})
"""Methods that draw."""
LEAST_INSTANCES = 1_000
"""With fewer, drawing takes less than a tenth of a second."""


class _KeptInterval(msgspec.Struct, array_like=True, frozen=True):
    low: float
    high: float
    kind: str


class KeptIntervals:
    """What a run directory has kept."""

    def __init__(self, run: Path) -> None:
        self._path = run / FOLDER / FILE
        self._known: dict[str, _KeptInterval] = {}
        with suppress(StorageError, msgspec.MsgspecError):
            self._known = _DECODER.decode(read_whole(self._path) or b"{}")
        self._keys: dict[tuple[str, str], str] = {}

    def tell(self, cells: Iterable[Cell]) -> None:
        """Tell cells the intervals that are kept of them."""
        mark = b""
        for cell in cells:
            if cell.complete and not cell.exact and len(cell.prefix) >= LEAST_INSTANCES:
                mark = mark or _mark()
                key = self._keys[cell.suite.name, cell.agent] = _key(cell, mark)
                entry = self._known.get(key)
                if entry is not None:
                    cell.intervals[bounds(cell)] = Interval(low=entry.low, high=entry.high), entry.kind

    def keep(self, cells: Iterable[Cell]) -> None:
        """Keep what cells have computed since; where the disk refuses, nothing is kept."""
        now: dict[str, _KeptInterval] = {}
        for cell in cells:
            key = self._keys.get((cell.suite.name, cell.agent))
            interval, kind = cell.intervals.get(bounds(cell), (None, ""))
            if key is not None and interval is not None and kind in KEPT:
                now[key] = _KeptInterval(interval.low, interval.high, kind)
        if now.keys() - self._known.keys():
            put(self._path, orjson.dumps({key: msgspec.to_builtins(entry) for key, entry in now.items()}))


_DECODER = msgspec.json.Decoder(dict[str, _KeptInterval])


def _key(cell: Cell, mark: bytes) -> str:
    """What a complete cell's interval follows from."""
    scores = [(episode.instance, episode.stratum, episode.score) for episode in cell.prefix]
    digest = hashlib.sha256(mark)
    digest.update(orjson.dumps([cell.suite.name, cell.agent, repr(bounds(cell)), scores]))
    return digest.hexdigest()


def _mark() -> bytes:
    """The code that makes intervals."""
    digest = hashlib.sha256(orjson.dumps([__version__, np.__version__]))
    files = [path for folder in evalkit.stats.__path__ for path in Path(folder).glob("*.py")]
    for path in (*sorted(files), Path(seeds.__file__)):
        digest.update(path.read_bytes())
    return digest.digest()
