"""What is done, what is owed, and an episode rebuilt to the very step by replaying the replies that the log holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evalkit.env.replay import Position, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.run.episode import Seat
from evalkit.run.universe import Episode
from evalkit.store.replies import decode_reply


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


class Row(Protocol):
    """What replay needs of one row."""

    @property
    def step(self) -> int:
        """Place in the episode."""

    @property
    def reply(self) -> bytes | None:
        """The reply's JSON, or None for an ending that brought none."""

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
    cost: int = 0
    """Of all steps, in pico-dollars."""
    cost_by_worker: Mapping[str, int] = field(default_factory=dict)
    """The same by the session that wrote them."""

    def owed(self, episode: Episode, retry: frozenset[str]) -> bool:
        """Whether an episode has to be played, or played on."""
        if episode.id in self.broken:
            return "internal_error" in retry
        held = self.episodes.get(episode.id)
        return held is None or not held.ending or held.ending in retry

    def started(self, episode: Episode) -> bool:
        """Whether the log has rows of it."""
        return episode.id in self.episodes

    def seat(self, episode: Episode) -> Seat:
        """The episode where it stands. Raises CorruptLogError if replay does not reproduce the log."""
        held = self.episodes.get(episode.id)
        position = begin(episode.cell.env, episode.instance, episode.cell.kit)
        if held is None:
            return Seat(episode=episode, position=position)
        rows = list(self.rows[episode.id])
        if not held.ending:
            return Seat(episode=episode, position=_replayed(episode, position, rows), take=held.take)
        if rows[-1].reply is None:
            # The provider refused that request: ask it again, keep what came before.
            return Seat(episode=episode, position=_replayed(episode, position, rows[:-1]), take=held.take + 1)
        return Seat(episode=episode, position=position, take=held.take + 1)


def _replayed(episode: Episode, position: Position, rows: Iterable[Row]) -> Position:
    for row in rows:
        if row.reply is None:
            raise CorruptLogError(f"episode {episode.id} step {row.step}: an ending without a reply in mid-episode.")
        turn = advance(episode.cell.env, position, decode_reply(row.reply), row.reply)
        if turn.step_digest != row.step_digest:
            raise CorruptLogError(
                f"episode {episode.id} step {row.step}: replay does not reproduce the log. Either the log was changed "
                "(`evalkit verify` tells), or this evalkit plays the environment differently (run.json names the one "
                "that began the run)."
            )
    return position


def order(episodes: Iterable[Episode], holdings: Holdings, retry: frozenset[str], started: bool) -> Iterator[Episode]:
    """The episodes that are owed and that have (or have not) been started, in admission order."""
    return (episode for episode in episodes if holdings.started(episode) is started and holdings.owed(episode, retry))
