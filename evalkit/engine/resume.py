"""What is done, what remains, and episodes rebuilt to their exact step by replaying the logged replies."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from evalkit.engine.episode import ActiveEpisode, LoggedAsk, LoggedReply
from evalkit.engine.universe import PlannedEpisode, RunPart, episodes
from evalkit.envs.replay import Position, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.replies import decode_reply
from evalkit.store.events import read_events
from evalkit.store.files.record import UNSCORED, LedgerRecord
from evalkit.store.reading.totals import CellTotals
from evalkit.store.reading.unmetered import UnmeteredReplies
from evalkit.version import __version__

if TYPE_CHECKING:
    from evalkit.store.reading.index import RunIndex
    from evalkit.store.reading.reader import AskRow


class LoggedProgress(Protocol):
    """One episode in the log's index."""

    @property
    def agent(self) -> str:
        """Name."""

    @property
    def suite(self) -> str:
        """Name."""

    @property
    def instance(self) -> str:
        """Its id."""

    @property
    def replicate(self) -> int:
        """From 0."""

    @property
    def steps(self) -> int:
        """Rows in effect."""

    @property
    def take(self) -> int:
        """The highest take."""

    @property
    def base_take(self) -> int:
        """Of an episode without rows in effect."""

    @property
    def ending(self) -> str:
        """Empty while the episode continues."""

    @property
    def ended(self) -> bool:
        """Whether it has an ending, and is scored."""

    @property
    def cost(self) -> int:
        """Of all its rows, in pico-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a run contains already, to determine what remains."""

    episodes: Mapping[str, LoggedProgress]
    rows: Mapping[str, Sequence[LoggedReply]]
    """Rows of the episodes that may be continued."""
    asks: Mapping[str, Sequence["AskRow"]] = field(default_factory=dict)
    """Of these, what agents that are code have asked."""
    diverged: frozenset[str] = frozenset()
    """Episodes whose code did not repeat the log when they were last played, and that are to begin anew."""
    broken: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    """Episodes that this very version of evalkit has left as `internal_error`: agent, suite and replicate of each."""
    cells: Mapping[tuple[str, str], CellTotals] = field(default_factory=dict)
    """Sums by agent and suite."""
    cost: int = 0
    """Of all steps, in pico-dollars."""
    cost_by_worker: Mapping[str, int] = field(default_factory=dict)
    """The same by the session that wrote them."""
    cost_by_agent: Mapping[str, int] = field(default_factory=dict)
    unmetered: UnmeteredReplies = field(default_factory=UnmeteredReplies)
    """By agent, replies without usage."""
    ledger: tuple[LedgerRecord, ...] = ()
    keep_facts: bool = False
    """Whether episodes keep what their score is made from."""

    @property
    def ended_in_all(self) -> int:
        """Episodes that have an ending in the log."""
        return sum(cell.ended for cell in self.cells.values())

    def ended(self, episode: PlannedEpisode) -> bool:
        """Whether an episode has an ending in the log."""
        progress = self.episodes.get(episode.id)
        return progress is not None and progress.ended

    def to_play(self, episode: str, retry: frozenset[str]) -> bool:
        """Whether an episode has to be played or continued."""
        progress = self.episodes.get(episode)
        if progress is not None and progress.ended:
            return progress.ending in retry
        return episode not in self.broken or "internal_error" in retry

    def begun(self, share: "RunPart", retry: frozenset[str]) -> dict[str, LoggedProgress]:
        """The episodes of a part of the run that were started and have to be continued."""
        with_rows = ((name, self.episodes[name]) for name in {**self.rows, **self.asks})
        return {
            name: progress
            for name, progress in with_rows
            if share.holds(progress.agent, progress.suite, progress.replicate) and self.to_play(name, retry)
        }

    def started(self, episode: PlannedEpisode) -> bool:
        """Whether the log has rows of it."""
        return episode.id in self.episodes

    def activate(self, episode: PlannedEpisode) -> ActiveEpisode:
        """The episode in its present state. Raises CorruptLogError if replay does not reproduce the log."""
        progress = self.episodes.get(episode.id)
        position = begin(episode.cell.env, episode.instance, episode.cell.kit, keep_facts=self.keep_facts)
        if progress is None:
            return ActiveEpisode(episode=episode, position=position)
        if episode.cell.agent.code is not None:
            return self._from_the_beginning(episode, position, progress)
        rows, take = self.rows[episode.id], progress.take
        if progress.ending and rows[-1].reply is not None:
            return ActiveEpisode(episode=episode, position=position, take=take + 1, base_take=take + 1)
        if progress.ending:
            # The provider refused that request: ask it again, keep what came before.
            rows, take = rows[:-1], take + 1
        _replay(episode, position, rows)
        return ActiveEpisode(episode=episode, position=position, take=take, base_take=_base_take(rows, progress, take))

    def _from_the_beginning(
        self, episode: PlannedEpisode, position: Position, progress: LoggedProgress
    ) -> ActiveEpisode:
        """An episode of an agent that is code, with what the log answers it; one that is retried has nothing yet."""
        rows, take = self.rows.get(episode.id, ()), progress.take
        base_take = _base_take(rows, progress, take)
        remaining = progress.ending in UNSCORED
        if (progress.ending and not remaining) or episode.id in self.diverged:
            rows, take, base_take, remaining = (), progress.take + 1, progress.take + 1, False
        asks = {
            (ask.step, ask.ask_key, ask.ask_n): ask
            for ask in self.asks.get(episode.id, ())
            if ask.base_take == base_take
        }
        again: Collection[tuple[int, str, int]] = ()
        if remaining:
            again, rows, take = _refused_last(asks, rows[-1].step), rows[:-1], take + 1
        return ActiveEpisode(
            episode=episode, position=position, take=take, base_take=base_take, rows=rows, asks=asks, again=again
        )


def _base_take(rows: Sequence[LoggedReply], progress: LoggedProgress, take: int) -> int:
    """The take whose draws an episode goes on with in this take."""
    if rows:
        return rows[0].base_take
    return progress.base_take if take == progress.take else take


def _refused_last(asks: Mapping[tuple[int, str, int], LoggedAsk], step: int) -> frozenset[tuple[int, str, int]]:
    """The refused asks for which an episode was left at a step: not those after which their asker went on."""
    answered = [(key, n) for (at, key, n), ask in asks.items() if at == step and ask.reply is not None]
    return frozenset(
        (at, key, n)
        for (at, key, n), ask in asks.items()
        if at == step and ask.reply is None and not any(own == key and later > n for own, later in answered)
    )


DIVERGED = "diverged"


def read_holdings(
    directory: Path,
    retry: frozenset[str] = frozenset(),
    index: "RunIndex | None" = None,
    *,
    coded: bool = False,
    keep_facts: bool = False,
) -> Holdings:
    """What a run directory contains, with the rows of episodes that may be continued: unfinished ones, and those with
    an ending in `retry`. `index`: of its log, where it is known; `coded`: whether it has agents that are code;
    `keep_facts`: whether episodes are to be scored when they end.

    Raises CorruptLogError if its log is damaged.
    """
    # Here, since pyarrow comes with it, and `plan` needs none.
    from evalkit.store.reading.index import read_index
    from evalkit.store.reading.reader import ask_rows, replay_rows

    index = read_index(directory) if index is None else index
    remaining = index.remaining(retry)
    return Holdings(
        episodes=index.episodes,
        rows=replay_rows(directory, remaining),
        asks=ask_rows(directory, remaining) if coded else {},
        diverged=frozenset(_deferred(directory, DIVERGED)) if DIVERGED in retry else frozenset(),
        cells=index.cells,
        broken=_broken(directory),
        cost=index.totals["cost"],
        cost_by_worker=index.cost_by_worker,
        cost_by_agent=index.cost_by_agent,
        unmetered=index.unmetered,
        ledger=index.ledger,
        keep_facts=keep_facts,
    )


def _broken(directory: Path) -> dict[str, tuple[str, str, int]]:
    """Episodes whose last event in this version of evalkit was an internal error."""
    return _deferred(directory, "internal_error", __version__)


def _deferred(directory: Path, why: str, version: str = "") -> dict[str, tuple[str, str, int]]:
    """Agent, suite and replicate of episodes that were left so; by this version of evalkit alone, if one is named."""
    return {
        str(event.get("episode")): (str(event.get("agent")), str(event.get("suite")), int(event.get("replicate") or 0))
        for event in read_events(directory, "deferred")
        if event.get("why") == why and event.get("evalkit") == (version or event.get("evalkit"))
    }


def _replay(episode: PlannedEpisode, position: Position, rows: Iterable[LoggedReply]) -> None:
    for row in rows:
        if row.reply is None:
            raise CorruptLogError(
                f"episode {episode.id} step {row.step}: an ending without a reply in the middle of the episode."
            )
        turn = advance(episode.cell.env, position, decode_reply(row.reply), row.reply)
        if turn.step_digest != row.step_digest or turn.facts_bytes != row.facts:
            raise CorruptLogError(
                f"episode {episode.id} step {row.step}: replay does not reproduce the log. Either somebody has changed "
                "the log: `evalkit run --repair` plays the episode again from this step. Or this evalkit plays the "
                "environment differently: the manifest names the one that started the run."
            )


Kind = Literal["begun", "fresh", "refused"]
KINDS: tuple[Kind, ...] = ("begun", "fresh", "refused")
"""Remaining episodes in the order in which they are played. Refused ones come last: where the cause remains, they end
their lane (`client/lanes/health.py`), and no other should wait for them in vain."""


def order(share: RunPart, holdings: Holdings, retry: frozenset[str], kind: Kind) -> Iterator[PlannedEpisode]:
    """The remaining episodes of a part that are of this kind, in admission order.

    Those that were started are known by their rows: after the last of them the search ends.
    """
    whole = share.manifest, share.agents, share.choice
    if kind == "fresh" and not holdings.episodes and not holdings.broken:
        yield from episodes(*whole)  # the log knows none
        return
    if kind == "fresh":
        held = holdings.episodes
        yield from episodes(*whole, wanted=lambda name: name not in held and holdings.to_play(name, retry))
        return
    waiting = {
        name
        for name, progress in holdings.begun(share, retry).items()
        if (progress.ending in UNSCORED) == (kind == "refused")
    }
    left = len(waiting)
    for episode in episodes(*whole, wanted=waiting.__contains__) if left else ():
        yield episode
        left -= 1
        if not left:
            return
