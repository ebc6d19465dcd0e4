"""What is done, what is owed, and an episode rebuilt to the very step by replaying the replies that the log holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from evalkit import __version__
from evalkit.env.replay import Position, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.run.episode import Seat
from evalkit.run.universe import Episode
from evalkit.store.events import read_events
from evalkit.store.record import LedgerRecord
from evalkit.store.replies import decode_reply
from evalkit.store.totals import Cell
from evalkit.store.unmetered import UnmeteredRows

if TYPE_CHECKING:
    from evalkit.store.index import RunIndex


class Held(Protocol):
    """What the log's index says of one episode."""

    @property
    def steps(self) -> int:
        """Rows in effect."""

    @property
    def take(self) -> int:
        """The highest take."""

    @property
    def ending(self) -> str:
        """Empty while the episode goes on."""

    @property
    def cost(self) -> int:
        """Of all its rows, in pico-dollars."""


class Row(Protocol):
    """What replay needs of one row."""

    @property
    def step(self) -> int:
        """Place in the episode."""

    @property
    def take(self) -> int:
        """Which attempt at the episode wrote it."""

    @property
    def reply(self) -> bytes | None:
        """The reply's JSON, or None for an ending that brought none."""

    @property
    def facts(self) -> bytes:
        """What replay must reproduce, byte by byte."""

    @property
    def step_digest(self) -> bytes:
        """What replay must reproduce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a run holds already, as far as owing is concerned."""

    episodes: Mapping[str, Held]
    rows: Mapping[str, Sequence[Row]]
    """Rows of the episodes that may be played on."""
    broken: frozenset[str] = frozenset()
    """Episodes that this very version of evalkit has left as `internal_error`."""
    cells: Mapping[tuple[str, str], Cell] = field(default_factory=dict)
    """Sums by agent and suite."""
    cost: int = 0
    """Of all steps, in pico-dollars."""
    cost_by_worker: Mapping[str, int] = field(default_factory=dict)
    """The same by the session that wrote them."""
    cost_by_agent: Mapping[str, int] = field(default_factory=dict)
    unmetered: Mapping[str, UnmeteredRows] = field(default_factory=dict)
    """By agent, replies without usage."""
    ledger: tuple[LedgerRecord, ...] = ()

    def ended(self, episode: Episode) -> bool:
        """Whether an episode has an ending in the log."""
        held = self.episodes.get(episode.id)
        return held is not None and bool(held.ending)

    def to_play(self, episode: Episode, retry: frozenset[str]) -> bool:
        """Whether an episode has to be played, or played on."""
        held = self.episodes.get(episode.id)
        ending = "" if held is None else held.ending
        if ending:
            return ending in retry
        return episode.id not in self.broken or "internal_error" in retry

    def started(self, episode: Episode) -> bool:
        """Whether the log has rows of it."""
        return episode.id in self.episodes

    def seat(self, episode: Episode) -> Seat:
        """The episode where it stands. Raises CorruptLogError if replay does not reproduce the log."""
        held = self.episodes.get(episode.id)
        position = begin(episode.cell.env, episode.instance, episode.cell.kit)
        if held is None:
            return Seat(episode=episode, position=position)
        rows, take = self.rows[episode.id], held.take
        if held.ending and rows[-1].reply is not None:
            return Seat(episode=episode, position=position, take=take + 1, line=take + 1)
        if held.ending:
            # The provider refused that request: ask it again, keep what came before.
            rows, take = rows[:-1], take + 1
        _replay(episode, position, rows)
        return Seat(episode=episode, position=position, take=take, line=rows[0].take if rows else take)


def read_holdings(directory: Path, retry: frozenset[str] = frozenset(), index: "RunIndex | None" = None) -> Holdings:
    """What a run directory holds, with the rows of episodes that may be played on: unended ones, and those that ended
    as in `retry`. `index`: of its log, where it is known. Raises CorruptLogError if its log is damaged."""
    # Here, since pyarrow comes with it, and `plan` needs none.
    from evalkit.store.index import read_index
    from evalkit.store.reader import replay_rows

    index = read_index(directory) if index is None else index
    return Holdings(
        episodes=index.episodes,
        rows=replay_rows(directory, index.owed(retry)),
        cells=index.cells,
        broken=_broken(directory),
        cost=index.totals["cost"],
        cost_by_worker=index.cost_by_worker,
        cost_by_agent=index.cost_by_agent,
        unmetered=index.unmetered,
        ledger=index.ledger,
    )


def _broken(directory: Path) -> frozenset[str]:
    """Episodes whose last event in this version of evalkit was an internal error."""
    return frozenset(
        str(event.get("episode"))
        for event in read_events(directory, "parked")
        if event.get("why") == "internal_error" and event.get("evalkit") == __version__
    )


def _replay(episode: Episode, position: Position, rows: Iterable[Row]) -> None:
    for row in rows:
        if row.reply is None:
            raise CorruptLogError(f"episode {episode.id} step {row.step}: an ending without a reply in mid-episode.")
        turn = advance(episode.cell.env, position, decode_reply(row.reply), row.reply)
        if turn.step_digest != row.step_digest or turn.facts_bytes != row.facts:
            from evalkit.store.segment import REMEDY

            raise CorruptLogError(
                f"episode {episode.id} step {row.step}: replay does not reproduce the log. Either the log was changed: "
                f"{REMEDY} Or this evalkit plays the environment differently: the manifest names the one that began "
                "the run."
            )


def order(episodes: Iterable[Episode], holdings: Holdings, retry: frozenset[str], started: bool) -> Iterator[Episode]:
    """The episodes that are owed and that have (or have not) been started, in admission order."""
    return (
        episode for episode in episodes if holdings.started(episode) is started and holdings.to_play(episode, retry)
    )
