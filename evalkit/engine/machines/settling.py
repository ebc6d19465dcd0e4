"""What a worker left behind whose process is gone: its journal is sealed and compacted, and its log is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evalkit.engine.machines.messages import Left
from evalkit.engine.resume import Holdings
from evalkit.engine.session import Session
from evalkit.engine.universe import PlannedEpisode
from evalkit.store.files.journal import newest_claim
from evalkit.store.reading.accounts import Account
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import replay_rows
from evalkit.store.reading.totals import Totals, read
from evalkit.store.writing.adopt import Adopted
from evalkit.store.writing.opening import end_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A journal that has ended."""

    writer: str
    adopted: Adopted
    totals: Totals
    ended: Sequence[Left]
    """Of the worker's episodes, those that ended in its log."""
    holdings: Holdings
    """What the log holds of its other episodes."""

    def book(self, account: Account) -> None:
        """Add to a worker's account, which has its leases, what its own journal says."""
        own = self.totals.books().get(self.writer)
        account.settled = self.totals.workers.get(self.writer, 0)
        if own is not None:
            account.charged += own.charged
            account.closed, account.returned, account.said = own.closed, own.returned, own.said


def settle(session: Session, writer: str, held: Sequence[PlannedEpisode]) -> Settled:
    """End the journal of a worker, and look what it did with the episodes that it had. Raises CorruptLogError,
    StorageError."""
    run = session.options.directory
    adopted = end_journal(run, writer, by=session.store.writer)
    claim = newest_claim(run, writer)
    index = read_index(run)
    known: Mapping[str, object] = index.episodes
    begun = session.store.found.episodes
    ended = []
    for episode in held:
        now, before = index.episodes.get(episode.id), begun.get(episode.id)
        if now is not None and now.ended and (before is None or now.requests > before.requests):
            ended.append(Left(episode.id, now.ending, now.cost, now.steps))
    done = {left.episode for left in ended}
    rest = {episode.id for episode in held if episode.id in known and episode.id not in done}
    return Settled(
        writer=writer,
        adopted=adopted,
        totals=Totals() if claim is None else read(claim.get("totals") or "{}", writer),
        ended=ended,
        holdings=replace(session.holdings, episodes=index.episodes, rows=replay_rows(run, rest)),
    )
