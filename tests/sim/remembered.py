"""What files of the log hold, read once: the same bytes under the same name are not decoded again within a seed.

A seed reads its few small files hundreds of times, and decoding them is most of what it costs. What stands in here
reads a file's bytes each time, and asks the function that it stands in for whenever they are new, or made it raise.
"""

import copy
import hashlib
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.store.files import segment as files
from evalkit.store.files.segment import Segment
from evalkit.store.recovery import examine as examining
from evalkit.store.recovery.examine import Examined


class Remembered:
    """What was read."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self.changed = False
        """Whether bytes may be others than were written. Until then columns that are read as dictionaries are made of
        those that were read as they are, which a damaged file would tell apart."""

    def read_segment(
        self, segment: Segment, columns: Sequence[str] | None = None, dictionary: Iterable[str] = ()
    ) -> pa.Table:
        few = tuple(dictionary)
        try:
            table = self._once(segment, ("rows", few), lambda: self._rows(segment, few))
        except CorruptLogError:
            return _read_segment(segment, columns, few)  # the columns that are asked for may be sound
        return table if columns is None else table.select(columns)

    def _rows(self, segment: Segment, few: Sequence[str]) -> pa.Table:
        if self.changed or not few:
            return _read_segment(segment, None, few)
        table = self.read_segment(segment)
        for name in set(few) & set(table.column_names):
            place = table.schema.get_field_index(name)
            coded = table.column(place).dictionary_encode()
            table = table.set_column(place, table.schema.field(place).with_type(coded.type), coded)
        return table

    def columns(self, path: Path, *names: str) -> pa.Table:
        """Some columns of a file of rows, as other programs read it."""

        def read() -> pa.Table:
            with pq.ParquetFile(path) as file:
                return file.read(columns=list(names), use_threads=False)

        held = hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
        place = (path, held, names)
        if place not in self._known:
            self._known[place] = read()
        return self._known[place]

    def examine(self, segment: Segment) -> Examined:
        return copy.deepcopy(self._once(segment, ("examined",), lambda: _examine(segment)))

    def read_claim(self, segment: Segment) -> dict[str, str]:
        return dict(self._once(segment, ("claim",), lambda: _read_claim(segment)))

    def footer_problem(self, segment: Segment) -> str:
        return str(self._once(segment, ("footer",), lambda: _footer_problem(segment)))

    def _once(self, segment: Segment, key: tuple[Hashable, ...], read: Callable[[], Any]) -> Any:
        try:
            held = segment.path.read_bytes()
        except OSError:
            return read()
        place = (segment, hashlib.blake2b(held, digest_size=16).digest(), *key)
        if place not in self._known:
            self._known[place] = read()
        return self._known[place]


_read_segment, _read_claim = files.read_segment, files.read_claim
_examine, _footer_problem = examining.examine, examining.footer_problem


@contextmanager
def remembered() -> Iterator[Remembered]:
    """Stand in for the functions that decode files, wherever they were imported."""
    memory = Remembered()
    own: dict[Callable[..., Any], Callable[..., Any]] = {
        _read_segment: memory.read_segment,
        _read_claim: memory.read_claim,
        _examine: memory.examine,
        _footer_problem: memory.footer_problem,
    }
    with ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.startswith(("evalkit.", "tests."))]:
            if module.__name__ != __name__:
                _stand_in(stack, module, own)
        yield memory


def _stand_in(stack: ExitStack, module: ModuleType, own: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    for name, value in list(vars(module).items()):
        if isinstance(value, type(_read_segment)) and value in own:
            stack.enter_context(mock.patch.object(module, name, own[value]))
