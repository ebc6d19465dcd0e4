"""What of a damaged log can be kept: rows up to each episode's first lost step, and what is dropped was paid for."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import LEDGER, conform, ledger_records
from evalkit.store.files.segment import Segment, claim, money_of, open_file, read_segment
from evalkit.store.reading.effect import Flags
from evalkit.store.reading.sums import COLUMNS
from evalkit.store.recovery.check import KnownRows, effect_of, file_flaws
from evalkit.store.recovery.examine import Examined, rows_of
from evalkit.store.recovery.recount import Part

GIVEN_UP = "given up by repair"
_FACTS = ("episode", "agent", "suite", "instance", "replicate", "worker", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """One episode that is cut off."""

    episode: str
    place: str
    """`agent:suite:instance:replicate`; empty if no row that is dropped can be read."""
    step: int
    """Its first lost step: where it will be continued."""
    rows: int
    """Rows that are dropped with it, as far as they are known."""
    cost: int
    """Of these rows, in pico-dollars; charged in the ledger."""


@dataclass(kw_only=True)
class Kept:
    """A file of steps, and which of its rows stay."""

    file: Examined
    mask: Flags
    told: bool
    """Whether the cost of every row that it held is known, be it kept or given up."""

    @property
    def segment(self) -> Segment:
        """The file."""
        return self.file.segment

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """These columns of the rows that stay."""
        return rows_of(self.file, self.mask, columns)

    @cached_property
    def counted(self) -> pa.Table:
        """What sums are made of, of the rows that stay."""
        return self.rows(COLUMNS)

    def settled(self) -> dict[str, int]:
        """Cost of the rows that stay, by session, in their order."""
        costs: dict[str, int] = {}
        for row in self.counted.select(("worker", "cost")).to_pylist():
            costs[row["worker"]] = costs.get(row["worker"], 0) + row["cost"]
        return costs

    def part(self) -> Part:
        """The same for counting."""
        return Part(self.segment, self.rows)

    @property
    def nobody_knows(self) -> bool:
        """Whether rows are lost here of which not even the episode and step are known."""
        steps = np.concatenate([np.zeros(0, np.int64), *self.file.step])
        return bool((steps < 0).any()) or (not len(steps) and bool(self.file.flaws))


def kept_rows(rows: KnownRows) -> tuple[Flags, dict[int, int]]:
    """(which rows stay, by episode the step at which it is cut off): no row twice, none after a lost step."""
    own = np.flatnonzero(~rows.ask)
    by_key = own[np.lexsort((~rows.sound[own], rows.step[own], rows.take[own], rows.episode[own]))]
    keys = np.stack([rows.episode, rows.take, rows.step])[:, by_key]
    once = np.zeros(len(rows.sound), np.bool_)
    once[by_key[np.concatenate([[True], (np.diff(keys) != 0).any(axis=0)])[: len(by_key)]]] = True
    effect = effect_of(np.flatnonzero(once), rows.episode, rows.take, rows.step, len(rows.names))
    order = effect.order
    position = np.arange(len(order)) - effect.start[rows.episode[order]]
    lost = (rows.step[order] != position) | ~rows.sound[order]
    cut = np.full(len(rows.names), np.iinfo(np.int64).max)
    np.minimum.at(cut, rows.episode[order[lost]], position[lost])
    for episode, step in rows.lost_asks(effect):
        cut[episode] = min(cut[episode], step)
    # What a step was made of goes with it: an agent that is asked anew may ask for something else.
    stays = (rows.step < cut[rows.episode]) | (rows.ask & (rows.line != rows.lines(effect)[rows.episode]))
    keep = (once | _first_of_each(rows)) & rows.sound & stays
    return keep, {number: int(cut[number]) for number in np.flatnonzero(cut < np.iinfo(np.int64).max).tolist()}


def _first_of_each(rows: KnownRows) -> Flags:
    """The asks, none of them twice."""
    chosen, seen = np.zeros(len(rows.sound), np.bool_), set[tuple[int, ...]]()
    for row in np.flatnonzero(rows.ask & rows.sound).tolist():
        key = tuple(int(column[row]) for column in (rows.episode, rows.line, rows.step, rows.nth))
        chosen[row] = key not in seen
        seen.add(key)
    return chosen


def salvage(rows: KnownRows, files: Sequence[Examined]) -> tuple[list[Kept], list[GivenUp], list[LedgerRecord]]:
    """(what stays of each file, episodes that are cut off, charges for the rows that are dropped)."""
    keep, cuts = kept_rows(rows)
    counts = np.bincount(rows.episode[~keep], minlength=len(rows.names))
    facts: dict[str, list[dict[str, Any]]] = {}
    kept = []
    for number, file in enumerate(files):
        in_file = rows.file == number
        mask, lost = (np.zeros(len(file.episodes), np.bool_) for _ in range(2))
        mask[rows.row[keep & in_file]] = True
        lost[rows.row[~keep & in_file]] = True
        lost_rows = rows_of(file, lost, _FACTS).to_pylist()
        complete = not file.short and len(lost_rows) + int(mask.sum()) == len(file.episodes)
        kept.append(Kept(file=file, mask=mask, told=complete and (bool(len(file.episodes)) or not file.flaws)))
        for row in lost_rows:
            facts.setdefault(row["episode"], []).append(row)
    given_up = [
        GivenUp(
            episode=rows.names[number],
            place=_place(facts.get(rows.names[number], [])),
            step=step,
            rows=int(counts[number]),
            cost=sum(row["cost"] for row in facts.get(rows.names[number], [])),
        )
        for number, step in cuts.items()
    ]
    return kept, given_up, _charges(facts, {rows.names[number]: step for number, step in cuts.items()})


def _charges(facts: Mapping[str, Sequence[dict[str, Any]]], cuts: Mapping[str, int]) -> list[LedgerRecord]:
    """On the books of the sessions that paid: what these leased and what they spent still agree."""
    sums: dict[tuple[str, str, str], int] = {}
    for episode, lost in facts.items():
        for row in lost:
            key = row["worker"], episode, row["agent"]
            sums[key] = sums.get(key, 0) + row["cost"]
    now = time.time()
    return [
        LedgerRecord(
            kind="charge",
            session=worker,
            amount=PicoUsd(amount),
            agent=agent,
            episode=episode,
            step=cuts.get(episode, -1),
            reason=GIVEN_UP,
            at=now,
        )
        for (worker, episode, agent), amount in sums.items()
        if amount
    ]


def not_yet(charges: Sequence[LedgerRecord], ledger: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """What of them no repair that was cut short has written. It may have put some of its files in place, so that
    fewer rows are left to be dropped than it charged. Rows that are played again have another session."""
    written = Counter[tuple[str, str, int]]()
    for row in ledger:
        if row.reason == GIVEN_UP:
            written[row.session, row.episode, row.step] += row.amount
    rest = [(row, row.amount - written[row.session, row.episode, row.step]) for row in charges]
    return [replace(row, amount=PicoUsd(amount)) for row, amount in rest if amount > 0]


def _place(facts: Sequence[dict[str, Any]]) -> str:
    return ":".join(str(facts[0][name]) for name in ("agent", "suite", "instance", "replicate")) if facts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The money rows of a log, as far as they can be read."""

    by_file: Mapping[str, list[LedgerRecord]]
    """In the log's order."""
    damaged: tuple[Segment, ...]
    """Files whose rows are lost, or may have been changed."""

    @property
    def rows(self) -> list[LedgerRecord]:
        """All of them."""
        return [row for rows in self.by_file.values() for row in rows]


def read_money(segments: Sequence[Segment]) -> Money:
    """Read what can be read; of an object whose footer was changed, what makes sense of it."""
    by_file: dict[str, list[LedgerRecord]] = {}
    damaged = []
    for segment in segments:
        table = _sound_money(segment)
        by_file[segment.name] = _loose(segment) if table is None else ledger_records(conform(table, LEDGER))
        if table is None:
            damaged.append(segment)
    return Money(by_file=by_file, damaged=tuple(damaged))


def _sound_money(segment: Segment) -> pa.Table | None:
    """A file's money rows; None where they are damaged."""
    if not segment.is_object and file_flaws(segment):
        return None
    try:
        return read_segment(segment)
    except CorruptLogError:
        return None


def _loose(segment: Segment) -> list[LedgerRecord]:
    if not segment.is_object:
        return []
    try:
        with open_file(segment) as file:
            return money_of(claim(file), segment.name)
    except CorruptLogError:
        return []
