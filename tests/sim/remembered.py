"""What files of the log hold, read once: the same bytes under the same name are not decoded again within a seed.

A seed reads its few small files hundreds of times, and decoding them is most of what it costs. What stands in here
reads a file's bytes each time, and asks the function that it stands in for whenever they are new, or made it raise.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from io import FileIO
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.store.files import segment as files
from evalkit.store.files.schema import FEW_VALUES
from evalkit.store.files.segment import SCHEMAS, Segment
from evalkit.store.reading.reader import CODED


class Remembered:
    """What was read."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, bytes], dict[Hashable, Any]] = {}
        """By file and bytes: what was made of them."""
        self.changed = False
        """Whether bytes may be others than were written. Until then columns that are read as dictionaries are made of
        those that were read as they are, which a damaged file would tell apart."""

    def read_segment(
        self, segment: Segment, columns: Sequence[str] | None = None, dictionary: Iterable[str] = ()
    ) -> pa.Table:
        few = tuple(dictionary)
        known = self._of(segment, segment.path)
        if known is None:
            return _read_segment(segment, columns, few)
        place = ("rows", few, None if columns is None else tuple(columns))
        if place not in known:
            try:
                known[place] = self._rows(known, segment, columns, few)
            except CorruptLogError:
                return _read_segment(segment, columns, few)  # the columns that are asked for may be sound
        table: pa.Table = known[place]
        return table

    def read_rows(self, segment: Segment, file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
        known = self._of(segment, segment.path)
        if known is None or columns is not None:
            return _read_rows(segment, file, columns)
        if "plain" not in known:
            known["plain"] = _read_rows(segment, file)
        table: pa.Table = known["plain"]
        return table

    def _rows(
        self, known: dict[Hashable, Any], segment: Segment, columns: Sequence[str] | None, few: Sequence[str]
    ) -> pa.Table:
        """The columns that are asked for: each is decoded once as it is, and once as a dictionary."""
        if "plain" not in known:
            known["plain"] = _read_segment(segment)
        plain: pa.Table = known["plain"]
        if columns is not None:
            plain = plain.select(columns)
        if not few:
            return plain
        coded = [self._coded(known, segment, name) if name in few else None for name in plain.schema.names]
        fields = [
            field if column is None else field.with_type(column.type)
            for field, column in zip(plain.schema, coded, strict=True)
        ]
        made = [own if column is None else column for own, column in zip(plain.columns, coded, strict=True)]
        return pa.Table.from_arrays(made, schema=pa.schema(fields, metadata=plain.schema.metadata))

    def _coded(self, known: dict[Hashable, Any], segment: Segment, name: str) -> pa.ChunkedArray:
        place = ("coded", name)
        if place not in known:
            if self.changed:
                if "dictionaries" not in known:
                    known["dictionaries"] = _read_segment(segment, None, _texts(segment))
                known[place] = known["dictionaries"].column(name)
            else:
                known[place] = known["plain"].column(name).dictionary_encode()
        return known[place]

    def columns(self, path: Path, *names: str) -> pa.Table:
        """Some columns of a file of rows, as other programs read it."""
        held = _bytes(path)
        known = self._known.setdefault((path, held), {})
        if "keys" not in known:
            file = self._opened(path, held, ())
            known["keys"] = file.read(columns=list(KEYS), use_threads=False)
        return known["keys"].select(names)

    @contextmanager
    def open_file(self, segment: Segment, dictionary: Iterable[str] = ()) -> Iterator[pq.ParquetFile]:
        try:
            held = _bytes(segment.path)
        except OSError:
            with _open_file(segment, dictionary) as file:
                yield file
            return
        with files.readable(segment):
            files.check_footer(pa.BufferReader(held))
            known = self._known.setdefault((segment.path, held), {})
            if "metadata" not in known:
                known["metadata"] = pq.read_metadata(pa.BufferReader(held))
        files.check_name(segment, known["metadata"])
        with files.readable(segment):
            file = self._opened(segment.path, held, tuple(dictionary))
        yield file

    def _opened(self, path: Path, held: bytes, dictionary: tuple[str, ...]) -> pq.ParquetFile:
        """A file whose footer is parsed once; its bytes are in memory, so nothing stays open."""
        known = self._known.setdefault((path, held), {})
        if dictionary not in known:
            known[dictionary] = _DecodedOnce(
                pa.BufferReader(held),
                page_checksum_verification=True,
                read_dictionary=list(dictionary),
                pre_buffer=False,
            )
        file: pq.ParquetFile = known[dictionary]
        return file

    def read_claim(self, segment: Segment) -> dict[str, str]:
        return dict(self._once(segment, "claim", lambda: _read_claim(segment)))

    def check_bytes(self, segment: Segment) -> None:
        self._once(segment, "bytes", lambda: _check_bytes(segment))

    def _once(self, segment: Segment, key: Hashable, read: Callable[[], Any]) -> Any:
        known = self._of(segment, segment.path)
        if known is None:
            return read()
        if key not in known:
            known[key] = read()
        return known[key]

    def _of(self, name: Hashable, path: Path) -> dict[Hashable, Any] | None:
        """What is known of a file as it is now; None where it cannot be read."""
        try:
            return self._known.setdefault((name, _bytes(path)), {})
        except OSError:
            return None


KEYS = ("episode", "take", "step", "row_kind", "base_take", "ask_key", "ask_n")


class _DecodedOnce(pq.ParquetFile):  # type: ignore[misc]
    """A file whose columns are decoded once, together; where one cannot be, only those that are asked for."""

    _decoded: pa.Table | None = None

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        return super().schema_arrow

    def read(self, columns: Sequence[str] | None = None, **how: Any) -> pa.Table:
        if self._decoded is None:
            try:
                self._decoded = super().read(**how)
            except (pa.ArrowException, OSError, ValueError):
                return super().read(columns=columns, **how)
        return self._decoded if columns is None else self._decoded.select(columns)

    def read_row_group(self, i: int, columns: Sequence[str] | None = None, **how: Any) -> pa.Table:
        if self.num_row_groups != 1:
            return super().read_row_group(i, columns=columns, **how)
        return self.read(columns, **how)


def _texts(segment: Segment) -> list[str]:
    """Whatever of a file is read as a dictionary somewhere."""
    return [name for name in dict.fromkeys((*CODED, *FEW_VALUES)) if name in SCHEMAS[segment.kind].names]


def _bytes(path: Path) -> bytes:
    with FileIO(path) as file:
        return file.readall()


_read_segment, _read_claim, _read_rows = files.read_segment, files.read_claim, files.read_rows
_open_file, _check_bytes = files.open_file, files.check_bytes


@contextmanager
def remembered() -> Iterator[Remembered]:
    """Stand in for the functions that decode files, wherever they were imported."""
    memory = Remembered()
    own: dict[Callable[..., Any], Callable[..., Any]] = {
        _read_segment: memory.read_segment,
        _read_claim: memory.read_claim,
        _check_bytes: memory.check_bytes,
        _read_rows: memory.read_rows,
        _open_file: memory.open_file,
    }
    before = frozenset(sys.modules)
    places = list(_places(before))
    for module, name, value in places:
        setattr(module, name, own[value])
    try:
        yield memory
    finally:
        for module, name, value in places:
            setattr(module, name, value)
        true = {stand_in: value for value, stand_in in own.items()}
        for module in (sys.modules[name] for name in frozenset(sys.modules) - before if name.startswith("evalkit.")):
            # It was loaded meanwhile, and knows the stand-ins by the names that it has imported.
            for name, value in list(vars(module).items()):
                if isinstance(value, MethodType) and value in true:
                    setattr(module, name, true[value])


@lru_cache(1)
def _places(modules: frozenset[str]) -> tuple[tuple[ModuleType, str, Callable[..., Any]], ...]:
    """(module, name, function): where the functions are known by name, once these modules were imported."""
    own = {_read_segment, _read_claim, _check_bytes, _read_rows, _open_file}
    chosen = [sys.modules[name] for name in modules if name.startswith(("evalkit.", "tests.")) and name != __name__]
    return tuple(
        (module, name, value)
        for module in chosen
        for name, value in list(vars(module).items())
        if isinstance(value, type(_read_segment)) and value in own and (module, value) != (files, _read_rows)
    )
