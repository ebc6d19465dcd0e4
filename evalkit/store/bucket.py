"""Where a run lives that is in a bucket: a path like those of the disk, whose operations are requests to a store.

All code of the log takes a `Path`, and so a run in a bucket is one: what pathlib says of names holds, what it does with
files is done here as far as a log needs it, and anything else that would look at the disk is refused with a sentence.
So a forgotten place cannot write to a folder `s3:` of this machine.

Objects appear completely or not at all, and one that must not exist yet is created by exactly one of those who try
(`create`): the whole safety of a log rests on that. There are no folders. `begin_folder` leaves an object where another
process must see that a folder exists.
"""

import io
import os
import re
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any, NoReturn

from evalkit.errors import StorageError, StoreAway, UsageError
from evalkit.files import at_home
from evalkit.store.objects import SCHEMES, store_of, told

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE_S = 1800.0
"""How long a write is tried again while the store is away."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 15.0
BEAT_S = 5.0
"""How often who leads a run in a bucket says that it is there (`lead.py`)."""
KEPT_BYTES = 256_000_000
"""Of objects in memory that never change, in the whole process: a log is listed and read again and again."""
_RANGE_BYTES = 1 << 18
_FOLDER = ".folder"
_LASTING = re.compile(r"/[0-9a-f]{8}-[^/]*-\d+-\d+\.\d{3}[-/].*\.parquet$")
"""Objects of a journal, and what was compacted from one: random digits in their names, so no other ever has one."""
_ODD = re.compile(r"[^A-Za-z0-9 !_.*'()/\-=+@,:$&;]")
"""What object stores do not all take as it is."""


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """What is below a folder, as `os.scandir` says it."""

    name: str
    folder: bool

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self.folder

    def is_symlink(self) -> bool:
        """No."""
        return False


BRING = "Bring it to one, for example with `aws s3 sync`."


class BucketPath(PosixPath):
    """A place in a bucket: `s3://bucket/runs/mine`. Methods raise StorageError as well as what pathlib's do."""

    __slots__ = ()

    def __str__(self) -> str:
        scheme, *rest = self.parts or ("",)
        # What `relative_to` gives has no bucket.
        return f"{scheme}//{'/'.join(rest)}" if scheme[:-1] in SCHEMES and scheme[-1:] == ":" else super().__str__()

    def __fspath__(self) -> str:
        raise UsageError(f"{self} is in a bucket, and this needs a folder of this machine. {BRING}")

    @property
    def store(self) -> "ObjectStore":
        """The store of its bucket."""
        return store_of(self.parts[0][:-1], self.parts[1])

    @property
    def key(self) -> str:
        """Its name within the bucket."""
        return "/".join(self.parts[2:])

    # What a log needs of the store.

    def create(self, data: bytes | memoryview) -> None:
        """Make a new object of these bytes. Raises FileExistsError if there is another, StorageError.

        Repeated while the store is away. An answer that was lost leaves an object that has these very bytes, which is
        ours; a store that refuses because another creation is under way leaves none, and is asked again.
        """
        for pause in pauses():
            try:
                return self._put(data, "create")
            except FileExistsError:
                there = self.now()
                if there == bytes(data):
                    return None
                if there is not None:
                    raise
                pause()
            except StoreAway as flaw:
                pause(flaw)
        return None

    def create_once(self, data: bytes | memoryview) -> None:
        """The same, tried once: an answer may have been lost, and one that says there is another may be wrong."""
        self._put(data, "create")

    def put(self, data: bytes | memoryview) -> None:
        """Make these bytes the object's content, whatever it was. Raises StorageError."""
        for pause in pauses():
            try:
                return self._put(data, "overwrite")
            except StoreAway as flaw:
                pause(flaw)
        return None

    def put_once(self, data: bytes | memoryview) -> None:
        """The same, tried once: for what nothing depends on."""
        self._put(data, "overwrite")

    def _put(self, data: bytes | memoryview, mode: str) -> None:
        import obstore

        with told(self):
            try:
                obstore.put(self.store, self.key, bytes(data), mode=mode, use_multipart=False)
            except FileNotFoundError as flaw:
                raise StorageError(f"{self}: there is no such bucket, or it cannot be written.") from flaw

    def now(self) -> bytes | None:
        """The object's content as the store has it now; None if there is none. Raises StorageError."""
        import obstore

        try:
            with told(self):
                return bytes(obstore.get(self.store, self.key).bytes())
        except FileNotFoundError:
            return None

    def begin_folder(self) -> None:
        """Let others see that there is such a folder."""
        if not self.is_dir():
            (self / _FOLDER).put(b"")

    def entries(self) -> list[BucketEntry]:
        """What is directly below."""
        import obstore

        with told(self):
            listed = obstore.list_with_delimiter(self.store, self.key or None)
        folders = [BucketEntry(name.rpartition("/")[2], True) for name in listed["common_prefixes"]]
        names = (meta["path"].rpartition("/")[2] for meta in listed["objects"])
        return folders + [BucketEntry(name, False) for name in names if name != _FOLDER]

    def below(self) -> dict[str, int]:
        """By name relative to this folder: the size of every object below it."""
        import obstore

        skipped = len(self.key) + 1 if self.key else 0
        with told(self):
            metas = [meta for chunk in obstore.list(self.store, self.key or None) for meta in chunk]
        return {meta["path"][skipped:]: meta["size"] for meta in metas if meta["path"].rpartition("/")[2] != _FOLDER}

    # What pathlib does with files.

    def read_bytes(self) -> bytes:
        """The object's content."""
        if not _LASTING.search(f"/{self.key}"):
            data = self.now()
        else:
            data = _last_read.get(str(self))
            if data is None:
                data = self.now()
                if data is not None:
                    _last_read.add(str(self), data)
        if data is None:
            raise FileNotFoundError(str(self))
        return data

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        """The same as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode: str = "r", *_: Any, **__: Any) -> IO[Any]:  # type: ignore[override]
        """For reading bytes, by ranges."""
        if mode != "rb":
            raise UsageError(f"{self} is in a bucket: it cannot be opened so ({mode}). {BRING}")
        if _LASTING.search(f"/{self.key}"):
            return io.BytesIO(self.read_bytes())
        return io.BufferedReader(_Ranges(self), _RANGE_BYTES)

    def stat(self, **_: Any) -> os.stat_result:
        """Size and time of change."""
        import obstore

        with told(self):
            meta = obstore.head(self.store, self.key)
        changed = meta["last_modified"].timestamp()
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, meta["size"], changed, changed, changed))

    def exists(self, **_: Any) -> bool:
        """Whether there is such an object, or anything below it."""
        return self.is_file() or self.is_dir()

    def is_file(self, **_: Any) -> bool:
        """Whether there is such an object."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, **_: Any) -> bool:
        """Whether there is anything below it."""
        import obstore

        with told(self):
            return any(len(chunk) for chunk in obstore.list(self.store, self.key or None, chunk_size=1))

    def is_symlink(self) -> bool:
        """No."""
        return False

    def iterdir(self) -> Generator["BucketPath", None, None]:
        """What is directly below."""
        return (self / entry.name for entry in self.entries())

    def glob(self, pattern: str, **_: Any) -> Generator["BucketPath", None, None]:
        """Objects that match, part by part; `**` is not known here."""
        wanted = pattern.split("/")
        fixed = [part for part in wanted[:-1] if not set(part) & set("*?[")]
        top = self.joinpath(*fixed) if wanted[: len(fixed)] == fixed else self
        rest = wanted[len(fixed) :] if top != self else wanted
        names = top.below() if len(rest) > 1 else [entry.name for entry in top.entries() if not entry.folder]
        for name in names:
            parts = name.split("/")
            if len(parts) == len(rest) and all(map(fnmatchcase, parts, rest)):
                yield top / name

    def rglob(self, pattern: str, **_: Any) -> Generator["BucketPath", None, None]:
        """Objects at any depth whose name matches."""
        return (self / name for name in self.below() if fnmatchcase(name.rpartition("/")[2], pattern))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; one that is not there is no error."""
        import obstore

        try:
            with told(self):
                obstore.delete(self.store, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Take back what `begin_folder` left, if there is nothing else."""
        if not self.entries():
            (self / _FOLDER).unlink(missing_ok=True)

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Nothing: a bucket has no folders."""

    def resolve(self, *_: Any, **__: Any) -> "BucketPath":
        """Itself."""
        return self

    absolute = expanduser = resolve

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        self.__fspath__()
        raise AssertionError

    rename = replace = symlink_to = hardlink_to = touch = chmod = write_text = write_bytes = _refuse


class _Ranges(io.RawIOBase):
    """An object that is read by ranges."""

    def __init__(self, path: BucketPath) -> None:
        self._path, self._at, self._size = path, 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        import obstore

        end = min(self._size, self._at + len(buffer))
        if end <= self._at:
            return 0
        with told(self._path):
            data = memoryview(obstore.get_range(self._path.store, self._path.key, start=self._at, end=end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _LastRead:
    """The contents of objects that were read last."""

    def __init__(self) -> None:
        self._bytes: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        with self._lock:
            if name in self._bytes:
                self._bytes.move_to_end(name)
            return self._bytes.get(name)

    def add(self, name: str, data: bytes) -> None:
        with self._lock:
            if len(data) > KEPT_BYTES // 4 or name in self._bytes:
                return
            self._bytes[name] = data
            self._size += len(data)
            while self._size > KEPT_BYTES:
                self._size -= len(self._bytes.popitem(last=False)[1])


_last_read = _LastRead()


class Pause:
    """Waits before the next attempt, or raises."""

    def __init__(self) -> None:
        self._until, self._next_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S

    def __call__(self, flaw: StorageError | None = None) -> None:
        """Wait. Raises `flaw` once the time is up."""
        if time.monotonic() >= self._until:
            raise flaw or StoreAway("The store neither has the object nor lets it be created.")
        time.sleep(self._next_s)
        self._next_s = min(LONGEST_PAUSE_S, 2 * self._next_s)


def pauses() -> Iterator[Pause]:
    """The attempts of a write: each is given what waits before the next."""
    pause = Pause()
    while True:
        yield pause


def is_bucket(name: str | PathLike[str]) -> bool:
    """Whether a place is named as one in a bucket."""
    return isinstance(name, BucketPath) or (isinstance(name, str) and name.startswith(_STARTS))


_STARTS = tuple(f"{scheme}://" for scheme in SCHEMES)


def place_of(name: str | PathLike[str]) -> Path:
    """A place by its name: in a bucket, or on the disk. Raises UsageError for one that no bucket can have."""
    if isinstance(name, BucketPath) or not is_bucket(name):
        return name if isinstance(name, Path) else Path(at_home(os.fspath(name)))
    text = str(name)
    scheme, _, rest = text.partition("://")
    parts: Sequence[str] = rest.removesuffix("/").split("/")
    odd = _ODD.search(rest)
    if odd or not all(parts) or not {".", ".."}.isdisjoint(parts):
        what = f"{odd[0]!r} in it" if odd else "an empty part, or a dot for one"
        raise UsageError(f"{text}: expected {scheme}://BUCKET/NAME in plain letters; there is {what}.")
    return BucketPath(f"{scheme}:", *parts)
