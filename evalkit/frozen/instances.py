"""The instances of a suite, however many: a sequence of which length, strata, ids, digests and order are known without
the lines."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import msgspec

from evalkit.envs.suite_rows import SuiteRow
from evalkit.seeds import Permutation

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Codes = npt.NDArray[np.unsignedinteger[Any]]


class ManifestInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a suite."""

    id: str
    digest: str
    stratum: str
    line: Mapping[str, Any]
    """The suite's line: what the environment's `load` reads."""


class Instances(Sequence[ManifestInstance]):
    """The instances of one suite, in the order in which it lists them."""

    strata: Mapping[str, int]
    """Instances by stratum, the strata in the order of their first instances."""
    spread: bool = False
    """Whether the list has the order of a user's file, so that its strata are interleaved when episodes are
    admitted."""

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """Of each instance, which no other one has."""

    @property
    @abstractmethod
    def digests(self) -> Sequence[str]:
        """Of each instance."""

    @abstractmethod
    def codes(self) -> "Codes":
        """For each instance the number of its stratum in `strata`; shape (len,)."""

    @abstractmethod
    def rows(self) -> Iterator[SuiteRow]:
        """Each instance as a row of a file."""

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

    def __iter__(self) -> Iterator[ManifestInstance]:
        return map(self.at, range(len(self)))

    @abstractmethod
    def at(self, place: int) -> ManifestInstance:
        """The instance at a place, 0..len-1."""

    def find(self, wanted: Sequence[str]) -> dict[str, int]:
        """The places of instances by their ids; ids that the suite lacks are left out."""
        sought = frozenset(wanted)
        return {name: place for place, name in enumerate(self.ids) if name in sought}


class InstanceList(Instances):
    """Instances that are in memory."""

    def __init__(self, instances: Sequence[ManifestInstance]) -> None:
        self._all = instances
        self.strata = {}
        for instance in instances:
            self.strata[instance.stratum] = self.strata.get(instance.stratum, 0) + 1

    def __len__(self) -> int:
        return len(self._all)

    def at(self, place: int) -> ManifestInstance:
        """See `Instances`."""
        return self._all[place]

    @cached_property
    def ids(self) -> Sequence[str]:
        """See `Instances`."""
        return [instance.id for instance in self._all]

    @cached_property
    def digests(self) -> Sequence[str]:
        """See `Instances`."""
        return [instance.digest for instance in self._all]

    def codes(self) -> "Codes":
        """See `Instances`."""
        return codes_of(self.strata, [instance.stratum for instance in self._all])

    def rows(self) -> Iterator[SuiteRow]:
        """See `Instances`."""
        for one in self._all:
            yield SuiteRow(one.id, one.digest, one.stratum, msgspec.json.encode(one.line).decode())


def laid(instances: Sequence[ManifestInstance]) -> Instances:
    """Any sequence of instances with what is known of it as a whole."""
    return instances if isinstance(instances, Instances) else InstanceList(instances)


def codes_of(strata: Mapping[str, int], of_each: Sequence[str]) -> "Codes":
    """The numbers of instances' strata. Raises KeyError for one that is not there."""
    import numpy as np

    number = {name: i for i, name in enumerate(strata)}
    return np.fromiter((number[stratum] for stratum in of_each), np.uint32, len(of_each))


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
