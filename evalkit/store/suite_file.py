"""`suites/<digest>.jsonl.zst`: the instances of a suite, in blocks that can be read alone.

The file is a row of zstd frames, each of them a block of whole lines, so that `zstdcat` shows it; after them comes one
frame that zstd skips: the index. The file's name is the SHA-256 of what the index says of the content: the head, the
blocks' own digests and lengths, the codes of the strata, the hashes of the ids. So a name identifies one content,
whatever compressed it; the index is checked when it is read, and so is each block.

A line is an instance with its stratum and, where it is known, its digest; or, where the head says `bare`, a line as the
suite's own file has it, whose stratum is the one that the codes tell.

The index: head (JSON) and a line's end; of each block 16 bytes of SHA-256 and its length as uint32; codes; id hashes
(uint64 each); then, which the name does not cover, the place of each block's end (uint64) and a trailer: the index's
length (uint64) and 8 bytes of magic. All numbers are little-endian.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from evalkit.envs.lines import instance_digest, reach
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store import disk
from evalkit.store.instances import Blocked, Instances, ManifestInstance, code_kind

if TYPE_CHECKING:
    from evalkit.envs.lines import Marks
    from evalkit.store.instances import Codes

FOLDER = "suites"
ENDING = ".jsonl.zst"

FEW = 10_000
"""Instances that are kept in memory once one of them was read."""
ROWS, BYTES = 128, 2**17
"""Lines of a block, and about how many bytes of them: fewer lines where they are long."""
LEVEL = 1
"""Of zstd: a higher one costs more time than it saves bytes, for lines are much alike."""
REMEDY = "Restore it from a copy; the log is intact."

Axes = Mapping[str, Any]

_SKIPPED = 0x184D2A50
_MAGIC = b"evkitsui"
_TRAILER = struct.Struct("<Q8s")
_FRAME = struct.Struct("<II")
_DIGEST = 16
_MOST_INDEX = 2**32 - 1


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The index's beginning."""

    count: int
    rows: int
    strata: tuple[str, ...]
    bare: bool = False
    """See `Instances`."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.count // self.rows)


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of a suite's instances."""

    file: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Digest: the file's name without its ending."""
    count: Annotated[int, msgspec.Meta(ge=0)]
    strata: dict[str, int]
    """Instances by stratum."""
    spread: bool = False
    """See `Instances`."""


def write_suite(run: Path, suite: Instances) -> str:
    """Write a suite's instances to a run, unless they are there; returns their digest, which is the file's name.

    One pass, and no more in memory than a block and the index. Raises StorageError, and whatever reading the instances
    raises; nothing has the name before all of it is on the disk.
    """
    folder, maker = run / FOLDER, _Maker(suite)
    disk.make_directories(folder)
    disk.remove_leftovers(folder)
    disk.write_parts_durably(folder / "new", maker.parts(), named=lambda: folder / f"{maker.digest}{ENDING}")
    return maker.digest


class _Maker:
    """A suite that is being written to its file."""

    def __init__(self, suite: Instances) -> None:
        self._suite = suite
        rows = max(1, min(ROWS, BYTES * len(suite) // max(1, suite.size())))
        self._head = Head(count=len(suite), rows=rows, strata=tuple(suite.strata), bare=suite.bare)
        self.digest = ""

    def parts(self) -> Iterator[bytes]:
        """The file's bytes."""
        import pyarrow as pa

        codec = pa.Codec("zstd", compression_level=LEVEL)
        digests, sizes, ends, end = list[bytes](), list[int](), list[int](), 0
        for block in _blocks(self._suite.encoded(), self._head.rows):
            digests.append(hashlib.sha256(block).digest()[:_DIGEST])
            sizes.append(len(block))
            part = codec.compress(block, asbytes=True)
            end += len(part)
            ends.append(end)
            yield part
        import numpy as np

        covered = b"".join(
            (
                msgspec.json.encode(self._head) + b"\n",
                *digests,
                np.array(sizes, "<u4").tobytes(),
                self._suite.codes().astype(code_kind(len(self._head.strata))).tobytes(),
                self._suite.marks().astype("<u8").tobytes(),
            )
        )
        self.digest = hashlib.sha256(covered).hexdigest()
        rest = np.array(ends, "<u8").tobytes()
        length = len(covered) + len(rest) + _TRAILER.size
        if length > _MOST_INDEX:
            raise UsageError(f"a suite of {len(self._suite):,} instances: its index is too long for one frame.")
        yield _FRAME.pack(_SKIPPED, length) + covered + rest + _TRAILER.pack(length, _MAGIC)


def _blocks(parts: Iterable[Sequence[bytes]], rows: int) -> Iterator[bytes]:
    """Lines in blocks of so many, each line with its end."""
    waiting: list[bytes] = []
    for part in parts:
        waiting += part
        whole = len(waiting) - len(waiting) % rows
        for first in range(0, whole, rows):
            yield b"\n".join(waiting[first : first + rows]) + b"\n"
        del waiting[:whole]
    if waiting:
        yield b"\n".join(waiting) + b"\n"


class _Index:
    """The file's index, checked against its name."""

    def __init__(self, path: Path, raw: bytes, digest: str) -> None:
        import numpy as np

        try:
            end = raw.index(b"\n")
            self.head = msgspec.json.decode(raw[:end], type=Head)
            blocks, count = self.head.blocks, self.head.count
            kind = code_kind(len(self.head.strata))
            parts, offset = [], end + 1
            for dtype, number in (("V16", blocks), ("<u4", blocks), (kind, count), ("<u8", count), ("<u8", blocks)):
                parts.append(np.frombuffer(raw, dtype, number, offset))
                offset += parts[-1].nbytes
                if len(parts) == 4 and hashlib.sha256(raw[:offset]).hexdigest() != digest:
                    raise ValueError("its content does not match its name")
            if offset + _TRAILER.size != len(raw):
                raise ValueError("its length is wrong")
        except (ValueError, OverflowError, ZeroDivisionError, msgspec.MsgspecError) as flaw:
            raise CorruptLogError(f"{path} is damaged: its index: {flaw}. {REMEDY}") from flaw
        self.digests, self.sizes, self.codes, self.marks, self.ends = parts


class SuiteFile:
    """A suite's file; a block is read when it is requested. Methods raise CorruptLogError, StorageError."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self._digest = path, digest

    @cached_property
    def index(self) -> _Index:
        """Read once, when it is first needed."""
        size = self._size()
        if size < _TRAILER.size:
            raise CorruptLogError(f"{self.path} is damaged: it is too short. {REMEDY}")
        length, magic = _TRAILER.unpack(self._read(size - _TRAILER.size, _TRAILER.size))
        if magic != _MAGIC or not _TRAILER.size <= length <= size:
            raise CorruptLogError(f"{self.path} is damaged: its end was changed after it was written. {REMEDY}")
        return _Index(self.path, self._read(size - length, length), self._digest)

    def block(self, number: int) -> list[bytes]:
        """The lines of a block."""
        import pyarrow as pa

        index = self.index
        begin, end = int(index.ends[number - 1]) if number else 0, int(index.ends[number])
        if not begin <= end <= self._size():
            raise CorruptLogError(f"{self.path} is damaged: block {number} is outside the file. {REMEDY}")
        raw = self._read(begin, end - begin)
        try:
            block = pa.Codec("zstd").decompress(raw, decompressed_size=int(index.sizes[number]), asbytes=True)
        except (pa.ArrowException, OSError, ValueError) as flaw:
            raise CorruptLogError(f"{self.path} is damaged: block {number}: {flaw}. {REMEDY}") from flaw
        if hashlib.sha256(block).digest()[:_DIGEST] != bytes(index.digests[number]):
            raise CorruptLogError(f"{self.path} is damaged: block {number} was changed after it was written. {REMEDY}")
        lines: list[bytes] = block.split(b"\n")[:-1]
        return lines

    def _size(self) -> int:
        try:
            with disk.storage_errors(self.path):
                return self.path.stat().st_size
        except StorageError as flaw:
            raise self._missing(flaw) from flaw

    def _read(self, offset: int, length: int) -> bytes:
        try:
            with disk.storage_errors(self.path), self.path.open("rb") as file:
                file.seek(offset, os.SEEK_SET)
                return file.read(length)
        except StorageError as flaw:
            raise self._missing(flaw) from flaw

    def _missing(self, flaw: StorageError) -> Exception:
        if isinstance(flaw.__cause__, FileNotFoundError):
            return CorruptLogError(f"{self.path} is missing: it contains the instances of a suite. {REMEDY}")
        return flaw


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    id: str
    stratum: str
    line: dict[str, Any]
    digest: str = ""
    """Empty: it is made when the instance is reached."""


class Stored(Blocked):
    """The instances in a suite's file."""

    def __init__(self, run: Path, description: "Description", suite: str, environment: str, axes: Axes) -> None:
        super().__init__()
        self.description = description
        self.digest, self.spread, self.strata = description.file, description.spread, description.strata
        self._count, self._suite, self._environment, self._axes = description.count, suite, environment, axes
        self._file = SuiteFile(run / FOLDER / f"{description.file}{ENDING}", description.file)
        self._decoder = msgspec.json.Decoder(_Line)
        self._made = dict[int, list[ManifestInstance]]()

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return other.digest == self.digest if isinstance(other, Stored) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def lies_in(self, run: Path) -> bool:
        """Whether the file is that run's."""
        return self.path.parent.parent == run

    @cached_property
    def table(self) -> _Index:
        """The file's index, which must be that of this suite."""
        index = self._file.index
        if (index.head.count, index.head.strata) != (self._count, tuple(self.strata)):
            raise CorruptLogError(f"{self.path} contains other instances than the run's manifest says. {REMEDY}")
        return index

    @cached_property
    def rows(self) -> int:  # type: ignore[override]
        """Lines of a block."""
        return self.table.head.rows

    def codes(self) -> "Codes":
        """See `Instances`."""
        return self.table.codes

    def marks(self) -> "Marks":
        """See `Instances`."""
        return self.table.marks

    @property
    def bare(self) -> bool:  # type: ignore[override]
        """See `Instances`."""
        return self.table.head.bare

    def encoded(self) -> Iterator[Sequence[bytes]]:
        """See `Instances`."""
        return map(self.read_block, range(self.table.head.blocks))

    def size(self) -> int:
        """See `Instances`."""
        return int(self.table.sizes.sum())

    def read_block(self, number: int) -> list[bytes]:
        """See `Blocked`."""
        return self._file.block(number)

    def at(self, place: int) -> ManifestInstance:
        """See `Instances`."""
        if self._count > FEW:
            return super().at(place)
        number, row = divmod(place, self.rows)
        return self._decoded(number)[row]

    def __iter__(self) -> Iterator[ManifestInstance]:
        if self._count > FEW:
            return super().__iter__()
        return chain.from_iterable(map(self._decoded, range(self.table.head.blocks)))

    def _decoded(self, number: int) -> list[ManifestInstance]:
        """A block of a small suite: its lines are decoded once, in whatever order they are asked for."""
        made = self._made.get(number)
        if made is None:
            first = number * self.rows
            made = [self.made(raw, first + i) for i, raw in enumerate(self.read_block(number))]
            self._made[number] = made
        return made

    def made(self, raw: bytes, place: int) -> ManifestInstance:
        """See `Blocked`."""
        try:
            row = self._bare(raw, place) if self.bare else self._decoder.decode(raw)
        except msgspec.MsgspecError as flaw:
            raise CorruptLogError(f"{self.path} is damaged: line {place + 1}: {flaw}. {REMEDY}") from flaw
        if row.digest:
            return ManifestInstance(id=row.id, digest=row.digest, stratum=row.stratum, line=row.line)
        where = f"suite {self._suite!r}, {FOLDER}/{self.path.name}:{place + 1}: {row.id}"
        return reached(self._environment, row.line, self._axes, where, row.stratum)

    def _bare(self, raw: bytes, place: int) -> _Line:
        """A line of somebody's own file."""
        line, code = msgspec.json.decode(raw, type=dict[str, Any]), int(self.table.codes[place])
        return msgspec.convert({"id": line.get("id"), "stratum": tuple(self.strata)[code], "line": line}, _Line)


def reached(environment: str, line: Axes, axes: Axes, where: str, stratum: str) -> ManifestInstance:
    """An instance whose line was not checked before. One that cannot be played says why.

    `stratum`: that the line was taken to be of when the run began.
    """
    name = str(line.get("id"))
    try:
        instance = reach(ENVIRONMENTS[environment], line, axes, where)
        if instance.stratum != stratum:
            raise UsageError(f"{where}: its stratum is {instance.stratum!r}, but {stratum!r} was expected.")
    except UsageError as flaw:
        digest = instance_digest(environment, {**line, **axes})
        return ManifestInstance(id=name, digest=digest, stratum=stratum, line={**line, **axes}, flaw=str(flaw))
    return ManifestInstance(id=name, digest=instance.digest, stratum=stratum, line=instance.line)
