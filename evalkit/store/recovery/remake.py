"""Rewrites files of a log under their own names, each of which names the new digest of the one before it.

Damaged or missing files are replaced by what can be kept: rows of steps and money, compacted or not, and the files of
ended episodes that follow from them. Digests of all files are known before anything is written, so that the repair's
own journal names them first.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa

from evalkit.store.files.chain import digest_of_file
from evalkit.store.files.journal import Named
from evalkit.store.files.layout import began, journal_object
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import STEPS, ledger_table, steps_table
from evalkit.store.files.segment import (
    CLOSE,
    COMMIT,
    KINDS,
    SEAL,
    Kind,
    Segment,
    digest_of,
    encode_compacted,
    encode_object,
    money_text,
    read_segment,
)
from evalkit.store.recovery.recount import Part, ends_anew, odd_ends
from evalkit.store.recovery.sources import Sources, missing_files

_CARRIED = ("totals", "compacted", "repaired")


@dataclass(slots=True, kw_only=True)
class Remade:
    """What a repair writes."""

    run: Path
    by: str
    """The repair's own writer."""
    files: dict[str, bytes] = field(default_factory=dict)
    """By name: what is to stand there. New objects and compacted files, and those that replace others."""
    lost: list[Segment] = field(default_factory=list)
    """Of these, those that were missing."""
    heads: dict[str, tuple[int, str]] = field(default_factory=dict)
    compacted: dict[str, dict[str, Named]] = field(default_factory=dict)


def remake(run: Path, by: str, sources: Sources) -> Remade:
    """Make all files that are to be replaced, and those that are missing."""
    made = Remade(run=run, by=by)
    missing, made.lost = missing_files(run, sources)
    writers = {segment.writer for layout in sources.layouts.values() for segment in layout.segments}
    writers |= {segment.writer for segment in missing}
    ends = _ends(sources, [segment for segment in missing if segment.kind == "ends" and not segment.is_object])
    for writer in sorted(writers, key=began):
        own_missing = [segment for segment in missing if segment.writer == writer]
        _Writer(made=made, sources=sources, writer=writer, missing=own_missing, ends=ends).remake()
    return made


def _compacted(table: pa.Table, segment: Segment, facts: Mapping[str, str]) -> bytes:
    data = encode_compacted(table, segment.kind, segment.first, segment.last, writer=segment.writer, facts=facts)
    return bytes(memoryview(data))


def _ends(sources: Sources, missing: Sequence[Segment]) -> dict[str, pa.Table]:
    """By name, rows of files of ended episodes that are missing, damaged, or not what the steps say any more."""
    there = [segment for segment in sources.layouts["ends"].segments if not segment.is_object]
    parts: list[Part] = [kept_file.part() for kept_file in sources.kept]
    files = sorted([*there, *missing], key=lambda segment: (began(segment.writer), segment.first))
    tables = {}
    for segment, table in ends_anew(parts, files):
        if segment in missing or segment.name in sources.bad or any(odd_ends(read_segment(segment), table)):
            tables[segment.name] = table
    return tables


@dataclass(slots=True, kw_only=True)
class _Writer:
    """One writer's files."""

    made: Remade
    sources: Sources
    writer: str
    missing: Sequence[Segment]
    ends: Mapping[str, pa.Table]
    digests: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """Of rewritten objects."""

    def remake(self) -> None:
        """All objects in order, then compacted files; a seal where the journal has no end."""
        there = {segment.first for segment in self.sources.segments("steps", self.writer) if segment.is_object}
        new = {segment.first for segment in self.missing if segment.is_object}
        numbers = sorted(there | new)
        for number in numbers:
            if number in new or self._name(number) in self.sources.bad:
                self._put(self._name(number), self._object(number, last=number == numbers[-1]))
        for kind in KINDS:
            self._remake_compacted(kind)
        last_numbers = [
            segment.last
            for kind in KINDS
            for segment in self.sources.segments(kind, self.writer)
            if not segment.is_object
        ]
        last_numbers += [segment.last for segment in self.missing if not segment.is_object]
        self._end(max([*numbers, *last_numbers]))

    def _name(self, number: int) -> str:
        return journal_object(self.made.run, self.writer, number).name

    def _put(self, name: str, data: bytes) -> None:
        self.made.files[name] = data
        self.digests[name] = digest_of(data)

    def _digest(self, name: str) -> str:
        """Of a file as it shall be."""
        if name not in self.digests:
            known = self.sources.chain.digests.get(name)
            self.digests[name] = known or digest_of_file(self.sources.view / name)
        return self.digests[name]

    def _object(self, number: int, *, last: bool) -> bytes:
        name = self._name(number)
        says = self.sources.chain.claims.get(name, {})
        kept = next((kept_file for kept_file in self.sources.kept if kept_file.segment.name == name), None)
        money = self.sources.money.by_file.get(name, [])
        table = None if kept is None else kept.rows(STEPS.names)
        empty = (table is None or not table.num_rows) and not money
        kind = says.get("kind", SEAL if empty and last else COMMIT)
        facts = self._carried(number)
        if not number:
            facts["heads"] = says.get("heads", "{}")
        return self._encode(number, kind if last else COMMIT, facts, table, money)

    def _carried(self, number: int) -> dict[str, str]:
        """What an object repeats: its own word, or that of the nearest before it that can be read."""
        says = self.sources.newest_says(self.writer, number)
        return {name: says[name] for name in _CARRIED if name in says}

    def _encode(
        self,
        number: int,
        kind: str,
        facts: Mapping[str, str],
        table: pa.Table | None = None,
        money: Sequence[LedgerRecord] = (),
    ) -> bytes:
        claims = {
            "kind": kind,
            "writer": self.writer,
            "by": self.made.by,
            "number": str(number),
            "nonce": secrets.token_hex(8),
            "before": self._before(number),
            "totals": "{}",
            **facts,
            **({"money": money_text(money)} if money else {}),
        }
        self.kinds[self._name(number)] = kind
        return bytes(memoryview(encode_object(table, claims)))

    def _before(self, number: int) -> str:
        """Digest of the object before, as it shall be; that of one that is compacted stands elsewhere."""
        if not number:
            return ""
        name = self._name(number - 1)
        if name in self.made.files or (self.sources.view / name).exists():
            return self._digest(name)
        return self._last_held(number - 1)

    def _last_held(self, number: int) -> str:
        """Digest of a compacted object, as files of any kind say it, or the object after it."""
        claims = self.sources.chain.claims
        for kind in KINDS:
            for segment in self.sources.segments(kind, self.writer):
                if not segment.is_object and segment.last == number and segment.name in claims:
                    return claims[segment.name].get("object", "")
        name = self._name(number)
        if (self.sources.view / name).exists():
            return self._digest(name)
        return claims.get(self._name(number + 1), {}).get("before", "")

    def _remake_compacted(self, kind: Kind) -> None:
        there = [
            segment
            for segment in self.sources.layouts[kind].segments
            if segment.writer == self.writer and not segment.is_object
        ]
        new = [segment for segment in self.missing if segment.kind == kind and not segment.is_object]
        before: tuple[()] | Named = ()
        for segment in sorted([*there, *new], key=lambda segment: segment.first):
            if segment in new or segment.name in self.sources.bad or segment.name in self.ends:
                says = self.sources.chain.claims.get(segment.name, {})
                facts = {"before": orjson.dumps(before).decode(), "object": self._last_held(segment.last)}
                if segment.first == 0 and kind == "steps":
                    facts["heads"] = says.get("heads", "{}")
                self._put(segment.name, _compacted(self._rows(segment), segment, facts))
            before = segment.name, self._digest(segment.name)
        if before:
            self.made.compacted.setdefault(self.writer, {})[kind] = before

    def _rows(self, segment: Segment) -> pa.Table:
        """What a compacted file shall hold; one that was missing, what is left of its objects."""
        if segment.kind == "ends":
            return self.ends[segment.name]
        name, first, last = segment.name, segment.first, segment.last
        if segment.kind == "ledger":
            by_file = self.sources.money.by_file
            names = [name, *(self._name(number) for number in range(first, last + 1) if self._name(number) in by_file)]
            return ledger_table([row for file_name in names for row in by_file.get(file_name, ())])
        kept = [
            kept_file
            for kept_file in self.sources.kept
            if kept_file.segment.name == name or self._within(kept_file.segment, first, last)
        ]
        return pa.concat_tables([steps_table([]), *(kept_file.rows(STEPS.names) for kept_file in kept)])

    def _within(self, segment: Segment, first: int, last: int) -> bool:
        return segment.is_object and segment.writer == self.writer and first <= segment.first <= last

    def _end(self, newest: int) -> None:
        """The newest object ends the journal; a seal follows one that does not, and compacted files without any."""
        name = self._name(newest)
        says = self.sources.chain.claims.get(name, {})
        if self.kinds.get(name, says.get("kind")) not in (CLOSE, SEAL):
            facts = self._carried(newest)
            newest, name = newest + 1, self._name(newest + 1)
            self._put(name, self._encode(newest, SEAL, facts))
        self.made.heads[self.writer] = newest, self._digest(name)
