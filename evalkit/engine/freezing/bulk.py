"""The instances of a large suite before its run has a copy of them: read from the file that the sweep names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import orjson

from evalkit.spec.bulk import ROWS, Bulk
from evalkit.store.instances import Blocked, ManifestInstance, listed
from evalkit.store.suite_file import reached

if TYPE_CHECKING:
    from evalkit.envs.lines import Marks
    from evalkit.store.instances import Codes


class Sourced(Blocked):
    """Instances in somebody's own file."""

    rows = ROWS
    spread = True

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

    def raw(self, place: int) -> bytes:
        """See `Blocked`."""
        return super().raw(place if self._bulk.lines is None else int(self._bulk.lines[place]))

    def read_block(self, number: int) -> list[bytes]:
        """See `Blocked`."""
        return self._bulk.block(number)

    def made(self, raw: bytes, place: int) -> ManifestInstance:
        """See `Blocked`."""
        line, strata = orjson.loads(raw), list(self.strata)
        where = f"{self._bulk.path}: {line['id']}"
        return reached(self._bulk.env.name, line, self._bulk.axes, where, strata[int(self._bulk.codes[place])])

    def encoded(self) -> Iterator[bytes]:
        """See `Instances`."""
        named = msgspec.json.Decoder(_Named)
        tails = [b',"stratum":' + msgspec.json.encode(name) + b',"line":' for name in self.strata]
        for raw, code in zip(self._bulk.chosen(), listed(self._bulk.codes), strict=True):
            # As generators write it, the id comes first and is plain: a third of the time.
            name = raw[6 : raw.find(b'"', 7) + 1] if raw.startswith(b'{"id":"') else b"\\"
            if b"\\" in name:
                name = msgspec.json.encode(named.decode(raw).id)
            yield b"".join((b'{"id":', name, tails[code], raw.strip(), b"}\n"))


class _Named(msgspec.Struct):
    """Of a line, what it is called."""

    id: str
