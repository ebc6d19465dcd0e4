"""A disk that loses what had lasted: the last files of a folder are gone, or one bit of a file is another.

No log can promise much then. What it does promise: no command breaks off, `verify` names the damage unless nobody
could have noticed it, where it names none every command works, and a repaired run goes on to the steps that it would
have had.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.seeds import Stream
from evalkit.store.files.journal import carried_of, newest_claims
from evalkit.store.files.layout import began, newest_object
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import CLOSE, SEAL, claim, json_of, money_of, object_name
from evalkit.store.reading.index import read_index
from evalkit.store.writing.opening import refuse_damage
from tests.sim.players import Asks
from tests.sim.scenario import Harm

LOG = ("steps", "ledger", "log", "ends")
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

    def money(self, run: Path) -> bool:
        """Whether rows of money may be among what is lost, of which no totals tell: these stand in the newest object of
        each journal."""
        rows = (path for path in self.before if path.parent.name not in ("steps", "ends"))
        return not all(self._told(run, path) for path in rows)

    def _told(self, run: Path, path: Path) -> bool:
        in_journal, parts = path.parent.parent.name == "log", path.stem.rsplit("-", 2)
        newest = newest_object(run, path.parent.name if in_journal else parts[0])
        if newest is None or newest.path in self.before:
            return False
        return not in_journal or newest.path.name > path.name

    def at_the_end(self, run: Path) -> bool:
        """Whether all were the last of the newest journal: nothing tells of them.

        A folder without objects is no later journal, nor is one that begins with the seal of another: its
        writer died before it named what was before it. Of journals that began in one millisecond, those are the newest
        that no other of them names.
        """
        lost = {path.parent for path in self.before}
        journals = [path for path in (run / "log").glob("*/") if path in lost or self._names_others(path)]
        last = max((_began(path.name) for path in journals), default=0.0)
        newest = [path for path in journals if _began(path.name) == last]
        named = {name for path in newest for name in self._heads(path)} if len(newest) > 1 else set()
        return all(path.parent in newest and path.parent.name not in named for path in self.before)

    def unnamed(self, run: Path) -> bool:
        """Of a run that workers play: whether all that is lost is the end of the newest journal that names others, or
        of one that a worker has written beside it, and nothing tells of that.

        A journal tells of all that began before its writer, and a coordinator's of the larger files that hold what a
        lost worker had left. A worker that has closed its journal has compacted all of it before.
        """
        heads = {path.name: self._heads(path) for path in (run / "log").glob("*/")}
        newest = max((_began(name) for name, named in heads.items() if named), default=0.0)
        told = {name for named in heads.values() for name in named}
        for writer, says in newest_claims(run).items():
            told |= carried_of(says, writer).compacted.keys() - {writer}
        lost = {path.parent for path in self.before}
        return (
            all(journal.parent.name == "log" and journal.name not in told for journal in lost)
            and all(_began(journal.name) >= newest for journal in lost)
            and not any(self._closes(path) and not heads[path.parent.name] for path in self.before)
        )

    def _heads(self, journal: Path) -> Iterable[str]:
        """The journals that one names in its first object, or in the larger file that holds this: those before it."""
        run, larger = journal.parent.parent, f"{journal.name}-{object_name(0).partition('.')[0]}-*.parquet"
        paths = [journal / object_name(0), *(run / "steps").glob(larger)]
        held = next((held for path in paths if (held := self._held(path))), b"")
        heads: dict[str, object] = json_of(_claim(held), "heads", journal.name) if held else {}
        return heads

    def _names_others(self, journal: Path) -> bool:
        """Whether its writer has begun it, and so has named the journals before it."""
        first = journal / object_name(0)
        return _claim(first.read_bytes()).get("kind") != SEAL if first.exists() else any(journal.glob("*.parquet"))

    def _held(self, path: Path) -> bytes:
        return self.before.get(path) or (path.read_bytes() if path.exists() else b"")

    def _closes(self, path: Path) -> bool:
        return _claim(self.before[path]).get("kind") == CLOSE

    def explains(self, before: Held, after: Held) -> bool:
        """Whether a log holds just what it held before, but for rows that lay in what is lost."""
        lost, money = set[tuple[str, int]](), Counter[LedgerRecord]()
        for held in self.before.values():
            with pq.ParquetFile(pa.BufferReader(held)) as file:
                columns = file.read(columns=["episode", "step"]).to_pydict()
                money.update(money_of(claim(file), "it"))
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


def _began(writer: str) -> float:
    return began(writer)[0]


def _claim(held: bytes) -> Mapping[str, str]:
    with pq.ParquetFile(pa.BufferReader(held)) as file:
        return claim(file)


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
