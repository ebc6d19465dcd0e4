"""The frozen order in which episodes become the draws of a question (`evalkit.stats.evidence`).

    instances like these    a draw is an instance. Its place follows from the manifest's key: within a stratum the order
                            of admission, and a turn has as many instances of each stratum as the question froze.
    this suite              a draw is one replicate of an instance, and a turn is one replicate of all instances.

Where a sweep has several suites, a question is about all of them together: its strata are those of all suites, each in
the proportion of its size. So there is one answer for a pair, about the mix of instances that the sweep plays. An
answer for each suite takes a run for each. Where the sizes have no large common measure no short turn has just their
proportions (`SHORT`), so a turn is the shortest that leaves out at most `LEFT_OUT` of the instances, and strata of less
than `SMALL` of them may be left out altogether; the question is about the mix that a turn has. What is left out is
played in its place, and no draw.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evalkit.store.instances import admission, laid
from evalkit.store.manifest import Manifest
from evalkit.store.question_files import FrozenQuestion

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEFT_OUT, SMALL = 0.1, 0.02
SHORT = 20
"""Draws of a turn that is taken if it has just the proportions of the strata."""
MOST_TURN = 1000
"""Draws of a turn that are tried; where none of these fits, a turn is all instances."""


def turn_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Of each stratum, its draws in a turn; see above. `sizes`: instances by stratum, at least one in all."""
    total, common = sum(sizes), math.gcd(*sizes)
    if total // common <= SHORT:
        return tuple(size // common for size in sizes)
    least = [0 if size < SMALL * total else 1 for size in sizes]
    for length in range(1, min(total, MOST_TURN) + 1):
        counts = tuple(max(few, round(length * size / total)) for few, size in zip(least, sizes, strict=True))
        rounds = min((size // count for size, count in zip(sizes, counts, strict=True) if count), default=0)
        if rounds * sum(counts) >= (1 - LEFT_OUT) * total:
            return counts
    return tuple(sizes)


class DrawOrder:
    """At which place of the order an episode is a draw."""

    def __init__(self, manifest: Manifest, question: FrozenQuestion) -> None:
        self._by_suite: dict[str, npt.NDArray[np.int64]] = {}
        self.turn = sum(sum(suite.strata.values()) for suite in question.suites)
        if question.about == "this suite":
            self._number(manifest, question)
            self.draws = self.turn * manifest.replicates
        else:
            self.draws = self._interleave(manifest, question)

    def _number(self, manifest: Manifest, question: FrozenQuestion) -> None:
        import numpy as np

        first = 0
        for suite in question.suites:
            count = len(manifest.suites[suite.name].instances)
            self._by_suite[suite.name] = np.arange(first, first + count, dtype=np.int64)
            first += count

    def _interleave(self, manifest: Manifest, question: FrozenQuestion) -> int:
        """Give each instance its place; returns how many draws there are."""
        import numpy as np

        rounds, before = 1 << 62, 0
        offsets: list[tuple[str, npt.NDArray[np.intp], int, int]] = []
        for suite in question.suites:
            own = laid(manifest.suites[suite.name].instances)
            order = np.fromiter(admission(own, question.key), np.intp, len(own))
            codes = own.codes()[order]
            for code, stratum in enumerate(own.strata):
                count = suite.strata.get(stratum, 0)
                if count:
                    members = order[codes == code]
                    rounds = min(rounds, len(members) // count)
                    offsets.append((suite.name, members, count, before))
                    before += count
            self._by_suite[suite.name] = np.full(len(own), -1, np.int64)
        for name, members, count, offset in offsets:
            rank = np.arange(len(members), dtype=np.int64)
            places = rank // count * self.turn + offset + rank % count
            self._by_suite[name][members] = np.where(rank < rounds * count, places, -1)
        return rounds * self.turn if offsets else 0

    def place(self, suite: str, index: int, replicate: int) -> int | None:
        """Of an episode, by its instance's place in its suite; None if it is no draw."""
        places = self._by_suite.get(suite)
        if places is None:
            return None
        place = int(places[index])
        # Of instances like these there is one replicate alone.
        return place + replicate * self.turn if place >= 0 else None


def indices(manifest: Manifest, wanted: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], int]:
    """The places of instances in their suites, by suite and id; `wanted`: ids by suite."""
    return {
        (suite, name): place
        for suite, names in wanted.items()
        for name, place in laid(manifest.suites[suite].instances).find(list(names)).items()
    }
