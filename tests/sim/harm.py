"""A disk that loses what had lasted: the last files of a folder are gone, or one bit of a file is another.

No log can promise much then. What it does promise: no command breaks off, `verify` names the damage unless nobody
could have noticed it, where it names none every command works, and a repaired run goes on to the steps that it would
have had.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.seeds import Stream
from evalkit.store.files.layout import newest_object
from evalkit.store.files.segment import claim, json_of, object_name
from evalkit.store.reading.index import read_index
from evalkit.store.writing.opening import refuse_damage
from tests.sim.scenario import Harm

LOG = ("tail", "steps", "ledger", "log", "ends")
"""Folders of the log."""
KEPT = ("lock", "live.json")
"""Files that are of no run that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done to which files."""

    words: str
    before: Mapping[Path, bytes]
    """What they held."""

    @property
    def in_log(self) -> bool:
        """Whether a repair may mend it: only files of rows."""
        return all(path.suffix == ".parquet" for path in self.before)

    def money(self, run: Path) -> bool:
        """Whether rows of money may be among what is lost, of which no totals tell: these stand in the newest object of
        each journal."""
        rows = (path for path in self.before if path.parent.name not in ("tail", "steps", "ends"))
        return not all(self._told(run, path) for path in rows)

    def _told(self, run: Path, path: Path) -> bool:
        in_journal, parts = path.parent.parent.name == "log", path.stem.rsplit("-", 2)
        if not in_journal and len(parts) < 3:
            return False  # of the first format
        newest = newest_object(run, path.parent.name if in_journal else parts[0])
        if newest is None or newest.path in self.before:
            return False
        return not in_journal or newest.path.name > path.name

    def at_the_end(self, run: Path) -> bool:
        """Whether all were the last of the newest journal, or of a run without any: nothing tells of them.

        A folder without objects is no later journal: its writer died before it named what was before it. Of journals
        that began in one millisecond, those are the newest that no other of them names.
        """
        lost = {path.parent for path in self.before}
        journals = [path for path in (run / "log").glob("*/") if path in lost or any(path.glob("*.parquet"))]
        last = max(map(_began, journals), default=0.0)
        newest = [path for path in journals if _began(path) == last]
        named = {name for path in newest for name in self._heads(path)} if len(newest) > 1 else set()
        return not journals or all(path.parent in newest and path.parent.name not in named for path in self.before)

    def unnamed(self, run: Path) -> bool:
        """Whether the journals of all that is lost are named by none: workers write beside each other, so several
        journals may be the newest."""
        journals = (path for path in (run / "log").glob("*/") if path / object_name(0) not in self.before)
        named = {name for path in journals for name in self._heads(path)}
        return all(path.parent.parent.name == "log" and path.parent.name not in named for path in self.before)

    def _heads(self, journal: Path) -> Iterable[str]:
        """The journals that the first object of one names: those that it continues."""
        path = journal / object_name(0)
        held = self.before.get(path) or (path.read_bytes() if path.exists() else b"")
        if not held:
            return ()
        with pq.ParquetFile(pa.BufferReader(held)) as file:
            heads: dict[str, object] = json_of(claim(file), "heads", path.name)
        return heads

    def undo(self) -> None:
        """Put everything back."""
        for path, held in self.before.items():
            path.write_bytes(held)


def _began(journal: Path) -> float:
    return float(journal.name.rpartition("-")[2])


def readable(run: Path) -> bool:
    """Whether a run's writer finds nothing wrong with its log."""
    try:
        refuse_damage(run)
        read_index(run)
    except CorruptLogError:
        return False
    return True


def do(run: Path, harm: Harm) -> Done | None:
    """Carry it out; None where there is nothing to harm."""
    draws = Stream(harm.place[0], "harm", harm.place[1])
    return _lose(run, harm.gone, draws) if harm.gone else _flip(run, draws, old=harm.old)


def _lose(run: Path, most: int, draws: Stream) -> Done | None:
    folders = sorted(_folders(run))
    if not folders:
        return None
    folder = folders[draws.below(len(folders))]
    gone = sorted(folder.glob("*.parquet"))[-most:]
    before = {path: path.read_bytes() for path in gone}
    for path in gone:
        path.unlink()
    names = ", ".join(path.name for path in gone)
    return Done(words=f"the last files of {folder.relative_to(run)} are gone: {names}", before=before)


def _folders(run: Path) -> Iterator[Path]:
    for name in LOG:
        for folder in (run / name, *(run / name).glob("*/")):
            if any(folder.glob("*.parquet")):
                yield folder


def _flip(run: Path, draws: Stream, *, old: bool) -> Done | None:
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name not in KEPT and path.stat().st_size)
    log = [path for path in files if path.suffix == ".parquet"]
    if old:
        rows = [path for path in files if path.parent.name in ("steps", "tail") and path.stem[:9].isdigit()]
        files = log = [path for path in rows if path.name.count("-") < 2][:-1]
    some = log if log and draws.uniform() < 0.7 else files
    if not some:
        return None
    path = some[draws.below(len(some))]
    held = path.read_bytes()
    # A footer is small beside the pages: half of the flips lie in the last 2,000 bytes.
    least = max(0, len(held) - 2000) if draws.uniform() < 0.5 else 0
    place, bit = least + draws.below(len(held) - least), draws.below(8)
    path.write_bytes(held[:place] + bytes([held[place] ^ 1 << bit]) + held[place + 1 :])
    name = path.relative_to(run)
    return Done(words=f"bit {bit} of byte {place} of {name} ({len(held)} bytes) is another", before={path: held})
