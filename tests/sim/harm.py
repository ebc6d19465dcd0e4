"""A disk that loses what had lasted: the last files of a folder are gone, or one bit of a file is another.

No log can promise much then. What it does promise: no command breaks off, `verify` names the damage unless nobody
could have noticed it, where it names none every command works, and a repaired run goes on to the steps that it would
have had.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.seeds import Stream
from evalkit.store.files.layout import newest_object
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import claim, money_of
from evalkit.store.reading.index import read_index
from evalkit.store.writing.opening import refuse_damage
from tests.sim.players import Asks
from tests.sim.scenario import Harm

LOG = ("steps", "ledger", "log")
"""Folders of the log."""
KEPT = ("lock", "live.json")
"""Files that are of no run that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What readers find in a log."""

    steps: Mapping[tuple[str, int], bytes]
    """Digests of the rows in effect, by episode and step."""
    episodes: Mapping[str, tuple[int, str, int]]
    """Steps, ending and cost."""
    ledger: Sequence[LedgerRecord]
    totals: Mapping[str, int]
    asks: Asks


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

    def money(self, run: Path, *, workers: bool) -> bool:
        """Whether money may be among what is lost of which no footer tells: that of the newest object of its journal,
        and what a coordinator has lent to workers."""
        return not all(self._told(run, path) and not (workers and path.parent.name != "steps") for path in self.before)

    def _told(self, run: Path, path: Path) -> bool:
        in_journal, parts = path.parent.parent.name == "log", path.stem.rsplit("-", 2)
        newest = newest_object(run, path.parent.name if in_journal else parts[0])
        if newest is None or newest.path in self.before:
            return False
        return not in_journal or newest.path.name > path.name

    def unnoticed(self, run: Path) -> bool:
        """Whether nothing may tell of what is lost: the last objects of a journal of which others are left, or all that
        there was of one."""
        for journal in {path.parent for path in self.before}:
            if journal.parent.name != "log":
                return False
            compacted = [
                path for name in ("steps", "ledger") for path in (run / name).glob(f"{journal.name}-*.parquet")
            ]
            if compacted and not any(journal.glob("*.parquet")):
                return False
        return True

    def explains(self, before: Held, after: Held) -> bool:
        """Whether a log holds just what it held before, but for rows that lay in what is lost."""
        lost, money = set[tuple[str, int]](), Counter[LedgerRecord]()
        for held in self.before.values():
            with pq.ParquetFile(pa.BufferReader(held)) as file:
                columns = file.read(columns=["episode", "step"]).to_pydict()
                money.update(money_of(claim(file.metadata), "it"))
            lost.update(zip(columns["episode"], columns["step"], strict=True))
        gone = before.steps.keys() - after.steps.keys()
        return (
            gone <= lost
            and after.steps.items() <= before.steps.items()
            and Counter(after.ledger) <= Counter(before.ledger) <= Counter(after.ledger) + money
            and after.asks.items() <= before.asks.items()
            and {(episode, step) for episode, step, _ in before.asks.keys() - after.asks.keys()} <= lost
        )

    def undo(self) -> None:
        """Put everything back."""
        for path, held in self.before.items():
            path.write_bytes(held)


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
    return _lose(run, harm.gone, draws) if harm.gone else _flip(run, draws)


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


def _flip(run: Path, draws: Stream) -> Done | None:
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name not in KEPT and path.stat().st_size)
    log = [path for path in files if path.suffix == ".parquet"]
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
