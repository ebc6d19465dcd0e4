"""What a damaged log held before it is repaired: its files, what they say of each other, and what can be kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evalkit.store.files.chain import DigestChain
from evalkit.store.files.layout import Layout, journal_object
from evalkit.store.files.segment import COMMIT, Kind, Segment, json_of
from evalkit.store.recovery.salvage import Kept, Money


@dataclass(kw_only=True)
class Sources:
    """What the log held before."""

    view: Path
    """The run, or its files in order."""
    layouts: Mapping[Kind, Layout]
    chain: DigestChain
    kept: Sequence[Kept]
    money: Money
    bad: set[str]
    """Files that are to be replaced."""

    def segments(self, kind: Kind, writer: str) -> list[Segment]:
        """One writer's files of a kind, those that are covered included."""
        layout = self.layouts[kind]
        return [segment for segment in (*layout.segments, *layout.covered) if segment.writer == writer]

    def newest(self, writer: str) -> int:
        """The number of the newest object of a journal that is there; -1 where there is none."""
        return max((segment.first for segment in self.segments("steps", writer) if segment.is_object), default=-1)

    def certain(self, writer: str) -> bool:
        """Whether a writer's newest object can be read, which says its sums."""
        newest = self.newest(writer)
        last = self.chain.ends.get(writer, -1)
        while last > newest and self.unfinished(journal_object(self.view, writer, last)):
            last -= 1
        if newest < last or newest < 0 or writer in self.chain.headless:
            return False
        return journal_object(self.view, writer, newest).name in self.chain.claims

    def unfinished(self, missing: Segment) -> bool:
        """Whether a repair that was cut short was to put a missing file in place: it has counted what was lost there,
        and nothing was lost since."""
        return missing.name in self._promised

    @cached_property
    def _promised(self) -> set[str]:
        """The files of repairs whose journals have no end."""
        promised: set[str] = set()
        for writer in {segment.writer for segment in self.layouts["steps"].segments}:
            name = journal_object(self.view, writer, self.newest(writer)).name
            says = self.chain.claims.get(name, {})
            if says.get("kind") == COMMIT:
                promised.update(json_of(says, "repaired", name))
        return promised

    def newest_says(self, writer: str, upto: int) -> Mapping[str, str]:
        """What the newest object of a journal says, up to this number, that can be read; empty if none can."""
        numbers = [
            segment.first for segment in self.segments("steps", writer) if segment.is_object and segment.first <= upto
        ]
        for number in sorted(numbers, reverse=True):
            says = self.chain.claims.get(journal_object(self.view, writer, number).name)
            if says is not None:
                return says
        return {}
