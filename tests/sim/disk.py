"""A disk that forgets: real files in a folder, and beside them what of these a loss of power would leave.

The functions of `evalkit/store/disk.py` are all that touches the disk for what must last; while a `SimDisk` is in force
they are replaced by its own. Files that are written around them (`lock`, `live.json`) were never synced.

The model. A file's bytes last once the file was synced. A name (a new file, a renaming, a deletion) lasts once its
folder was synced. What was not synced may have lasted all the same, each thing by itself: of bytes all, a prefix,
zeros, garbage or nothing; of names the old or the new one.
"""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from unittest import mock

from evalkit.seeds import Stream
from evalkit.store import disk
from evalkit.store.files.segment import KINDS
from tests.sim.loop import Died


@dataclass(slots=True, eq=False)
class _File:
    """One file, whatever it is called."""

    synced: bytes | None = None
    """What a loss of power certainly leaves; None: nothing is certain."""
    lies: bool = False
    """A sync has failed: later ones say that they succeed, and do nothing."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What is to go wrong. Counted in operations of the disk in one life."""

    die_at: int | None = None
    errors: dict[int, str] = field(default_factory=dict)
    """By operation: `EIO`, `ENOSPC`, `EROFS`."""
    refuses_from: tuple[int, str] | None = None
    """From which operation on it refuses whatever would change it, and how: it is full, or has become read-only."""
    slow_s: float = 0.0
    """What each sync takes."""
    sync_fails_at: int | None = None
    """The file's sync that fails, counted by itself."""
    dies_naming: int | None = None
    """The sync of a folder before which the process dies, counted by those with new names that others build on."""
    dies_compacting: int | None = None
    """The compacted file in the midst of which the process dies."""


class SimDisk:
    """The disk under one folder, over several lives."""

    def __init__(self, root: Path, *, say: Callable[[str], None], slept: Callable[[float], None]) -> None:
        self.root, self._say, self._slept = root, say, slept
        self.counts = Counter[str]()
        """What it has done to whom, by name."""
        self._names: dict[Path, _File] = {}
        """As they are."""
        self._lasting: dict[Path, _File] = {}
        """As they were when their folders were last synced."""
        self._folders: set[Path] = set()
        """Those whose own names last."""
        self.dead = False
        self.operations = self.syncs = self.namings = self.compacted = 0
        self.plan = Plan()
        self.looked: Callable[[str, Path], None] | None = None
        """Is told of each operation, before it is carried out."""
        self.making: Callable[[Path], None] | None = None
        """Is told of a folder that is to be made."""
        self.built_on: Callable[[list[Path]], bool] | None = None
        """Whether others build on such new names."""
        self.lasted: Callable[[list[Path]], None] | None = None
        """Is told of the new names of a folder that last from now on."""
        self.taken: Callable[[Path], None] | None = None
        """Is told of a name that should be new, and is another file's."""

    def changed(self, path: Path) -> None:
        """Somebody else has changed a file, or has taken it away: so it is now, and so it stays."""
        self._names.pop(path, None)
        self._lasting.pop(path, None)
        if path.exists():
            self._names[path] = self._lasting[path] = _File(synced=path.read_bytes())
            self._folders.update(path.parents)

    def begin(self, plan: Plan) -> None:
        """A new life begins."""
        self.dead, self.plan = False, plan
        self.operations = self.syncs = self.namings = self.compacted = 0

    # What the store calls.

    def write(self, path: Path, data: bytes | memoryview) -> FileIO:
        rest = bytes(data)
        self._operate("write", path, torn=lambda: self._tear(path, rest))
        file = FileIO(path, "w")
        self._names[path] = _File()
        file.write(rest)
        return file

    def write_all(self, file: FileIO, data: bytes | memoryview) -> None:
        self._operate("write", Path(str(file.name)))
        file.write(data)

    def sync_file(self, file: FileIO) -> None:
        path = Path(str(file.name))
        known = self._names.setdefault(path, _File())
        try:
            self._operate("sync", path)
        except OSError:
            known.lies = True
            raise
        self._slept(self.plan.slow_s)
        self.counts["slow_disk"] += bool(self.plan.slow_s)
        if not known.lies:
            known.synced = path.read_bytes()

    def rename(self, source: Path, target: Path) -> None:
        self._operate("rename", target)
        source.rename(target)
        self._names[target] = self._names.pop(source, _File())

    def link(self, source: Path, target: Path) -> None:
        self._operate("link", target)
        if self.taken is not None and target.exists() and source.read_bytes() != target.read_bytes():
            self.taken(target)
        os.link(source, target)
        self._names[target] = self._names.setdefault(source, _File())

    def sync_directory(self, path: Path) -> None:
        self._name(path)
        self._operate("sync folder", path)
        self._slept(self.plan.slow_s)
        folder = str(path)
        inside = {name: file for name, file in self._names.items() if _parent(name) == folder}
        fresh = [name for name, file in inside.items() if self._lasting.get(name) is not file]
        for name in [name for name in self._lasting if _parent(name) == folder]:
            del self._lasting[name]
        self._lasting |= inside
        with os.scandir(path) as entries:
            self._folders.update(path / entry.name for entry in entries if entry.is_dir())
        if self.lasted is not None and fresh:
            self.lasted(fresh)

    def make_directories(self, path: Path) -> None:
        if self.making is not None and not path.exists():
            self.making(path)
        _make_directories(path)

    def remove(self, path: Path) -> None:
        with disk.storage_errors(path):
            self._operate("remove", path)
        path.unlink(missing_ok=True)
        self._names.pop(path, None)

    def forget(self, path: Path) -> None:
        """A name aside is given up. Not counted: it is no step of a protocol."""
        if not self.dead:
            path.unlink(missing_ok=True)
            self._names.pop(path, None)

    def append_lines(self, path: Path, data: bytes) -> None:
        with disk.storage_errors(path):
            self._operate("append", path, torn=lambda: self._append(path, data[: len(data) // 2]))
        self._append(path, data)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Stand in for the functions of `evalkit/store/disk.py`."""
        own: dict[str, Callable[..., object]] = {
            "write": self.write,
            "_write_all": self.write_all,
            "sync_file": self.sync_file,
            "rename": self.rename,
            "link": self.link,
            "_forget": self.forget,
            "sync_directory": self.sync_directory,
            "make_directories": self.make_directories,
            "remove": self.remove,
            "append_lines": self.append_lines,
        }
        with mock.patch.multiple(disk, **own):  # type: ignore[call-overload]
            yield

    # What becomes of it.

    def _operate(self, what: str, path: Path, torn: Callable[[], None] | None = None) -> None:
        if self.dead:
            raise Died
        if self.looked is not None:
            self.looked(what, path)
        number, self.operations = self.operations, self.operations + 1
        compacts = what == "write" and path.parent.name in KINDS
        self.compacted += compacts
        if number == self.plan.die_at or (compacts and self.compacted - 1 == self.plan.dies_compacting):
            self._say(f"the process dies at operation {number} of the disk: {what} {self._short(path)}")
            self.counts["die_disk" if number == self.plan.die_at else "dies_compacting"] += 1
            if torn is not None:
                torn()
            self.dead = True
            raise Died
        kind = self.plan.errors.get(number)
        if what == "sync":
            kind = "EIO" if self.syncs == self.plan.sync_fails_at else kind
            self.syncs += 1
        since = self.plan.refuses_from
        if since is not None and number >= since[0] and what not in ("remove", "sync folder"):
            kind = since[1]
            self.counts["stays_" + kind] += 1
        elif kind is not None:
            self.counts[kind] += 1
            self.counts["sync_fails"] += what == "sync"
        if kind is not None:
            self._say(f"the disk refuses with {kind}: {what} {self._short(path)}")
            if kind == "ENOSPC" and torn is not None:
                torn()  # what there was room for
            raise OSError(getattr(errno, kind), f"simulated {kind}")

    def _name(self, folder: Path) -> None:
        """The process dies where it has given names that others build on, and has not waited for them."""
        if self.plan.dies_naming is None or self.built_on is None or self.dead:
            return
        files = [name for name, file in self._names.items() if _parent(name) == str(folder)]
        fresh = [name for name in files if self._lasting.get(name) is not self._names[name]]
        fresh += [path for path in folder.glob("*/") if path not in self._folders]
        if fresh and self.built_on(fresh):
            if self.namings == self.plan.dies_naming:
                names = ", ".join(sorted(path.name for path in fresh))
                self._say(f"the process dies before it syncs {self._short(folder)}, with the new names {names}")
                self.counts["dies_naming"] += 1
                self.dead = True
                raise Died
            self.namings += 1

    def _tear(self, path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2])
        self._names[path] = _File()

    def _append(self, path: Path, data: bytes) -> None:
        with path.open("ab") as file:
            if file.tell() and not disk._ends_a_line(path):
                file.write(b"\n")
            file.write(data)
        self._names.setdefault(path, _File())

    def certain(self, folder: Path, to: Path) -> None:
        """Lay under another name what a loss of power certainly leaves of a folder."""
        for path, synced in self._certain(folder):
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(synced)

    def uncertain(self, folder: Path) -> list[Path]:
        """The files of a folder that a loss of power may take."""
        sure = {path for path, synced in self._certain(folder) if path.exists() and synced == path.read_bytes()}
        return [path for path in folder.rglob("*") if path.is_file() and path not in sure]

    def _certain(self, folder: Path) -> Iterator[tuple[Path, bytes]]:
        for path, file in self._lasting.items():
            inside = path.is_relative_to(folder) and {*path.parents} - {*folder.parents, folder} <= self._folders
            if inside and file.synced is not None:
                yield path, file.synced

    def lose_power(self, draws: Stream) -> None:
        """Leave on the disk what a loss of power may leave."""
        now = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        for path in now:
            self._names.setdefault(path, _File())
        after: dict[Path, tuple[_File, bytes]] = {}
        fleeting = [path for path in sorted(self.root.rglob("*/")) if path not in self._folders and path.is_dir()]
        lost = [path for path in fleeting if draws.uniform() < 0.5]
        for path in sorted({*self._names, *self._lasting}):
            if any(path.is_relative_to(folder) for folder in lost):
                continue
            new, old = self._names.get(path), self._lasting.get(path)
            kept = new if new is old or draws.uniform() < 0.5 else old
            self.counts["lost_name"] += kept is not new
            if kept is None:
                continue
            held = now.get(path, b"") if kept is new else (kept.synced or b"")
            after[path] = kept, self._left(kept, held, draws)
        for path in now:
            path.unlink()
        for path in reversed(lost):
            self.counts["lost_folder"] += 1
            shutil.rmtree(path, ignore_errors=True)
        self._folders.update(path for path in fleeting if path not in lost)
        self._names, self._lasting = {}, {}
        for path, (file, held) in after.items():
            path.write_bytes(held)
            fresh = _File(synced=held, lies=file.lies)
            self._names[path] = self._lasting[path] = fresh
        if self.lasted is not None:
            self.lasted([path for path in after if after[path][1] == now.get(path)])
        changed = [self._short(path) for path, held in now.items() if after.get(path, (None, None))[1] != held]
        gone = [self._short(path) for path in now if path not in after]
        self._say(f"power is lost; changed: {', '.join(changed) or 'nothing'}; gone: {', '.join(gone) or 'nothing'}")

    def _left(self, file: _File, held: bytes, draws: Stream) -> bytes:
        if file.synced is not None and file.synced == held:
            return held
        sure = file.synced or b""
        rest = held[len(sure) :] if held.startswith(sure) else held
        base = sure if held.startswith(sure) else b""
        how = draws.below(5)
        cut = draws.below(len(rest) + 1)
        self.counts[("lost_nothing", "lost_end", "lost_to_zeros", "lost_to_garbage", "lost_all")[how]] += 1
        return base + (rest, rest[:cut], bytes(len(rest)), _garbage(len(rest), draws), b"")[how]

    def forget_nothing(self) -> None:
        """The process died and the system lives on: all that was written is there, and lasts in the end."""
        for path in self.root.rglob("*"):
            if path.is_file():
                self._names.setdefault(path, _File())

    def _short(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else path.name


_make_directories = disk.make_directories


def _parent(path: Path) -> str:
    """Its folder's path. `Path.parent` takes several times as long."""
    return str(path).rpartition("/")[0]


def _garbage(size: int, draws: Stream) -> bytes:
    word = draws.word().to_bytes(8, "big")
    return (word * (size // 8 + 1))[:size]
