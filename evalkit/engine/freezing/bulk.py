"""The instances of a large suite before its run has a copy of them: read from the file that the sweep names."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import orjson

from evalkit.spec.bulk import ROWS, Bulk
from evalkit.store.instances import Blocked, ManifestInstance
from evalkit.store.suite_file import reached

if TYPE_CHECKING:
    from evalkit.envs.lines import Marks
    from evalkit.store.instances import Codes


class Sourced(Blocked):
    """Instances in a user's own file."""

    rows = ROWS
    spread = True
    bare = True

    def __init__(self, bulk: Bulk) -> None:
        super().__init__()
        self._bulk, self.strata = bulk, bulk.strata

    def __len__(self) -> int:
        return len(self._bulk)

    def codes(self) -> "Codes":
        """See `Instances`."""
        return self._bulk.codes

    def marks(self) -> "Marks":
        """See `Instances`."""
        return self._bulk.marks

    def size(self) -> int:
        """See `Instances`."""
        return self._bulk.length

    def raw(self, index: int) -> bytes:
        """See `Blocked`."""
        return super().raw(index if self._bulk.lines is None else int(self._bulk.lines[index]))

    def read_block(self, number: int) -> list[bytes]:
        """See `Blocked`."""
        return self._bulk.block(number)

    def made(self, raw: bytes, index: int) -> ManifestInstance:
        """See `Blocked`."""
        line, strata = orjson.loads(raw), list(self.strata)
        where = f"{self._bulk.path}: {line['id']}"
        return reached(self._bulk.env.name, line, self._bulk.axes, where, strata[int(self._bulk.codes[index])])

    def encoded(self) -> Iterator[Sequence[bytes]]:
        """See `Instances`."""
        return self._bulk.parts()
