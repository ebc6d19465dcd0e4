"""`suites/<digest>.parquet`: the instances of a suite, as `envs/suite_rows.py` lays them out.

The name is the digest of the rows. All of them are read and compared with it when the file is first needed; ids,
digests and strata are kept. Lines of a suite of more than `MOST_LINES` are read again, a group at a time, when they are
needed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from evalkit.envs.suite_rows import (
    ENDING,
    MOST_LINES,
    EncodedRows,
    SuiteRow,
    SuiteRows,
    digest_of_rows,
    encode_rows,
)
from evalkit.errors import CorruptLogError
from evalkit.frozen.instances import Instances, ManifestInstance, codes_of
from evalkit.store import disk

if TYPE_CHECKING:
    import pyarrow as pa

    from evalkit.frozen.instances import Codes

FOLDER = "suites"
REMEDY = "Restore it from a copy; the log is intact."


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of a suite's instances."""

    file: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Digest: the file's name without its ending."""
    count: Annotated[int, msgspec.Meta(ge=0)]
    strata: dict[str, int]
    """Instances by stratum."""
    spread: bool = False
    """See `Instances`."""


def write_suite(run: Path, suite: Instances) -> "StoredInstances":
    """Write a suite's instances to a run; returns them as they will be read from there.

    Raises StorageError, and what reading the instances raises.
    """
    if isinstance(suite, StoredInstances) and suite.data is not None:
        data, description = suite.data, suite.description
    else:
        made = encode_rows(suite.rows())
        data, description = made.data, from_rows(made, suite.spread).description
    place = stored(run, description)
    folder = place.path.parent
    disk.make_directories(folder)
    disk.remove_leftovers(folder)
    disk.write_parts_durably(place.path, [data.to_pybytes()])
    return place


def stored(run: Path, description: Description) -> "StoredInstances":
    """The instances that a run has of a suite."""
    return StoredInstances(description, run / FOLDER / f"{description.file}{ENDING}")


def from_rows(made: EncodedRows, spread: bool) -> "StoredInstances":
    """Instances as a file that is in memory."""
    description = Description(file=made.digest, count=sum(made.strata.values()), strata=made.strata, spread=spread)
    return StoredInstances(description, Path(f"{made.digest}{ENDING}"), made.data)


class _CheckedInstances(NamedTuple):
    """What is known of the instances without their lines."""

    ids: list[str]
    digests: list[str]
    codes: "Codes"
    all: list[ManifestInstance]
    """Of a suite with few instances; else empty."""


class StoredInstances(Instances):
    """The instances in a suite's file. Methods raise CorruptLogError for a damaged one, and StorageError."""

    def __init__(self, description: Description, path: Path, data: "pa.Buffer | None" = None) -> None:
        """`data`: the file's bytes, where it is not on a disk yet."""
        self.description, self.path, self.data = description, path, data
        self.digest, self.spread, self.strata = description.file, description.spread, description.strata
        self._rows = SuiteRows(self._open)

    def __len__(self) -> int:
        return self.description.count

    def __eq__(self, other: object) -> bool:
        return other.digest == self.digest if isinstance(other, StoredInstances) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def lies_in(self, run: Path) -> bool:
        """Whether the file is that run's."""
        return self.data is None and self.path.parent.parent == run

    @property
    def ids(self) -> Sequence[str]:
        """See `Instances`."""
        return self._checked.ids

    @property
    def digests(self) -> Sequence[str]:
        """See `Instances`."""
        return self._checked.digests

    def codes(self) -> "Codes":
        """See `Instances`."""
        return self._checked.codes

    def rows(self) -> Iterator[SuiteRow]:
        """See `Instances`."""
        return chain.from_iterable(self._groups())

    def at(self, place: int) -> ManifestInstance:
        """See `Instances`."""
        table = self._checked
        if table.all:
            return table.all[place]
        try:
            line = self._rows.line(place)
        except ValueError as flaw:
            raise self._damaged(flaw) from flaw
        stratum = self._names[int(table.codes[place])]
        return self._made(SuiteRow(table.ids[place], table.digests[place], stratum, line))

    @cached_property
    def _names(self) -> list[str]:
        return list(self.strata)

    @cached_property
    def _checked(self) -> _CheckedInstances:
        """Read once, when it is first needed, and compared with the file's name and with what the manifest says."""
        ids, digests, strata, made = list[str](), list[str](), list[str](), list[ManifestInstance]()

        def seen() -> Iterator[list[SuiteRow]]:
            for group in self._groups():
                for row in group:
                    ids.append(row.id)
                    digests.append(row.digest)
                    strata.append(row.stratum)
                if len(self) <= MOST_LINES:
                    made.extend(map(self._made, group))
                yield group

        if digest_of_rows(seen()) != self.digest:
            raise self._damaged("its content does not match its name")
        if len(ids) != len(self) or Counter(strata) != self.strata:
            raise CorruptLogError(f"{self.path} contains other instances than the run's manifest says. {REMEDY}")
        return _CheckedInstances(ids, digests, codes_of(self.strata, strata), made)

    def _groups(self) -> Iterator[list[SuiteRow]]:
        try:
            yield from self._rows.groups()
        except ValueError as flaw:
            raise self._damaged(flaw) from flaw

    def _open(self) -> "pa.NativeFile":
        import pyarrow as pa

        from evalkit.store.files.segment import source_of

        if self.data is not None:
            return pa.BufferReader(self.data)
        with disk.storage_errors(self.path):
            source = source_of(self.path)
        if source is None:
            raise CorruptLogError(f"{self.path} is missing: it contains the instances of a suite. {REMEDY}")
        return source

    def _made(self, row: SuiteRow) -> ManifestInstance:
        try:
            line = msgspec.json.decode(row.line, type=dict[str, Any])
        except msgspec.MsgspecError as flaw:
            raise self._damaged(f"the line of {row.id!r}: {flaw}") from flaw
        return ManifestInstance(id=row.id, digest=row.digest, stratum=row.stratum, line=line)

    def _damaged(self, why: object) -> CorruptLogError:
        return CorruptLogError(f"{self.path} is damaged: {why}. {REMEDY}")
