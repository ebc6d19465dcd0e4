"""The instances of a suite, however many: a sequence with length, strata and order that are known without reading the
instances.

Instances are read on request, a block at a time, and few blocks are kept.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import msgspec

from evalkit.envs.lines import id_marks
from evalkit.seeds import Permutation

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Codes = npt.NDArray[np.unsignedinteger[Any]]
    from evalkit.envs.lines import Marks

BLOCKS_KEPT = 8
"""Blocks in memory of each suite."""


class ManifestInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a suite."""

    id: str
    digest: str
    stratum: str
    line: Mapping[str, Any]
    """The suite's line: what the environment's `load` reads."""
    flaw: str = ""
    """Why it cannot be played, if that was noticed when it was reached."""


class Instances(Sequence[ManifestInstance]):
    """The instances of one suite, in the order in which it lists them."""

    strata: Mapping[str, int]
    """Instances by stratum, the strata in the order of their first instances."""
    spread: bool = False
    """Whether the list has the order of a user's file, so that its strata are interleaved when episodes are
    admitted."""

    @abstractmethod
    def codes(self) -> "Codes":
        """For each instance the number of its stratum in `strata`; shape (len,)."""

    @abstractmethod
    def marks(self) -> "Marks":
        """A hash of each instance's id (`id_marks`); shape (len,)."""

    bare: bool = False
    """Whether `encoded` gives the lines of a user's own file, for which only `codes` has the strata."""

    @abstractmethod
    def encoded(self) -> Iterator[Sequence[bytes]]:
        """Each instance as a line of JSON without its end; some at a time."""

    @abstractmethod
    def size(self) -> int:
        """Bytes of `encoded` with the lines' ends, about."""

    @overload
    def __getitem__(self, place: int) -> ManifestInstance: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ManifestInstance]: ...
    def __getitem__(self, place: int | slice) -> ManifestInstance | Sequence[ManifestInstance]:
        """One instance, or a list of several."""
        if isinstance(place, slice):
            return [self.at(number) for number in range(*place.indices(len(self)))]
        count = len(self)
        if not -count <= place < count:
            raise IndexError(place)
        return self.at(place % count)

    @abstractmethod
    def at(self, place: int) -> ManifestInstance:
        """The instance at a place, 0..len-1."""

    @cached_property
    def _by_mark(self) -> "npt.NDArray[np.intp]":
        """Places in the order of `marks`."""
        import numpy as np

        return np.argsort(self.marks(), kind="stable")

    def find(self, wanted: Sequence[str]) -> dict[str, int]:
        """The places of instances by their ids; ids that the suite lacks are left out."""
        import numpy as np

        own, order = self.marks(), self._by_mark
        sought = id_marks(wanted)
        first, last = (np.searchsorted(own, sought, side, sorter=order) for side in ("left", "right"))
        by_id = {}
        for name, low, high in zip(wanted, first.tolist(), last.tolist(), strict=True):
            places = [int(order[rank]) for rank in range(low, high)]
            if len(places) > 1:  # two ids have one hash
                places = [place for place in places if self.at(place).id == name]
            if places:
                by_id[name] = places[0]
        return by_id


class Listed(Instances):
    """Instances that are in memory."""

    def __init__(self, instances: Sequence[ManifestInstance]) -> None:
        self._all = instances
        self.strata = {}
        for instance in instances:
            self.strata[instance.stratum] = self.strata.get(instance.stratum, 0) + 1

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[ManifestInstance]:
        return iter(self._all)

    def at(self, place: int) -> ManifestInstance:
        """See `Instances`."""
        return self._all[place]

    def codes(self) -> "Codes":
        """See `Instances`."""
        import numpy as np

        number = {name: i for i, name in enumerate(self.strata)}
        return np.fromiter((number[instance.stratum] for instance in self._all), code_kind(len(number)), len(self._all))

    def marks(self) -> "Marks":
        """See `Instances`."""
        return id_marks([instance.id for instance in self._all])

    def encoded(self) -> Iterator[Sequence[bytes]]:
        """See `Instances`."""
        for instance in self._all:
            yield (encode_line(instance.id, instance.stratum, msgspec.json.encode(instance.line), instance.digest),)

    def size(self) -> int:
        """See `Instances`."""
        return sum(len(line) + 1 for (line,) in self.encoded())


class Blocked(Instances):
    """Instances in blocks of equally many lines, the last one aside, which are read one at a time."""

    rows: int
    """Lines of a block."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, list[bytes]] = OrderedDict()

    @abstractmethod
    def read_block(self, number: int) -> list[bytes]:
        """The lines of a block."""

    @abstractmethod
    def made(self, raw: bytes, place: int) -> ManifestInstance:
        """The instance of a line."""

    def raw(self, place: int) -> bytes:
        """The line at a place."""
        number, row = divmod(place, self.rows)
        return self.block(number)[row]

    def at(self, place: int) -> ManifestInstance:
        """See `Instances`."""
        return self.made(self.raw(place), place)

    def __iter__(self) -> Iterator[ManifestInstance]:
        return map(self.at, range(len(self)))

    def block(self, number: int) -> list[bytes]:
        """The same, of those in memory if it is one of them."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        lines = self._kept[number] = self.read_block(number)
        if len(self._kept) > BLOCKS_KEPT:
            self._kept.popitem(last=False)
        return lines


def laid(instances: Sequence[ManifestInstance]) -> Instances:
    """Any sequence of instances with what is known of it as a whole."""
    return instances if isinstance(instances, Instances) else Listed(instances)


def encode_line(name: str, stratum: str, line: bytes, digest: str = "") -> bytes:
    """An instance as a line of a suite's file; `line`: its own JSON."""
    head = b'{"id":' + msgspec.json.encode(name)
    if digest:
        head += b',"digest":"' + digest.encode() + b'"'
    return head + b',"stratum":' + msgspec.json.encode(stratum) + b',"line":' + line + b"}"


def code_kind(strata: int) -> str:
    """The type of the codes of so many strata."""
    return "<u1" if strata <= 2**8 else "<u2" if strata <= 2**16 else "<u4"


def admission(instances: Sequence[ManifestInstance], key: int | None) -> Iterator[int]:
    """The places of instances in the order of admission, lazily.

    Each stratum keeps its places in the list, so that strata stay interleaved (if the list is `spread`, it gets the
    places that interleaving would give); within a stratum the instances are permuted by the key.
    """
    import numpy as np

    suite = laid(instances)
    if key is None and not suite.spread:
        yield from range(len(suite))
        return
    codes = suite.codes()
    order = np.argsort(codes, kind="stable").astype(np.int32)
    bounds = np.searchsorted(codes[order], np.arange(len(suite.strata) + 1))
    members = [order[first:last] for first, last in pairwise(bounds.tolist())]
    orders = [
        None if key is None or not len(own) else Permutation(len(own), key, name)
        for name, own in zip(suite.strata, members, strict=True)
    ]
    taken = [0] * len(members)
    for stratum in _interleaved(members) if suite.spread else listed(codes):
        index = taken[stratum]
        taken[stratum] += 1
        own = orders[stratum]
        yield int(members[stratum][index if own is None else own.at(index)])


def listed(codes: "Codes") -> Iterator[int]:
    """Numbers of an array, some at a time."""
    for first in range(0, len(codes), 1024):
        yield from codes[first : first + 1024].tolist()


def _interleaved(members: Sequence["npt.NDArray[np.int32]"]) -> Iterator[int]:
    """The strata in turn, each as often as it has members, and evenly."""

    def turns(stratum: int) -> Iterator[tuple[float, int, int]]:
        own = members[stratum]
        for i in range(len(own)):
            yield (i + 0.5) / len(own), int(own[i]), stratum

    for _, _, stratum in merge(*map(turns, range(len(members)))):
        yield stratum
