"""Decides what each worker of a run has: which episodes, how much money, and which part of each limit.

Pure: no clock, no loop, no disk. The caller gives the time, makes rows of money durable before a grant is sent, and
tells when a worker's process has ended. So every order of messages and failures can be tried.

An episode is assigned to one worker at a time. If a worker dies, its episodes go to workers that began after its
journal was sealed: so the files of all journals, in the order in which their writers began, hold an episode's rows in
order.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct, structs

from evalkit.client.lanes.ramp import CANARY_EPISODES
from evalkit.engine.machines.limits import Limit
from evalkit.engine.machines.messages import RUN, EpisodePlace, Grant, LaneReport, Left, Loan, Report
from evalkit.engine.machines.sharing import NOTHING, Account, Pot, SharedLimit

MOST_AHEAD = 128
"""Episodes of a lane that wait at a worker for a player, at most."""
AHEAD_S = 0.8
"""What a worker plays in so many seconds waits there: then it need not ask before it is time."""
EAGER = 1.25
"""The part of a limit that a worker demands which waits for nothing, times what it uses."""
PAUSE_TOLD_S = 0.5
"""Others are told of a pause that is longer than their own by this."""
PACE_OVER_S = 1.0
STOPPED = "stopped"
"""How an episode is left that its worker was told to stop."""


class Dealt(Struct, frozen=True, kw_only=True):
    """An episode on its way to a worker."""

    id: str
    place: EpisodePlace
    since: int = -1
    """The first worker that may play it: those before it do not know all its rows. -1: any."""


class Dealer(Protocol):
    """Where episodes come from, and who wants to know how they ended."""

    def deal(self, lane: str, most: int) -> list[Dealt]:
        """The lane's next episodes that may start now."""

    def remaining(self, lane: str) -> int:
        """Episodes of a lane that may still be dealt."""

    def left(self, episodes: Sequence[Left]) -> None:
        """A worker has left episodes, durably."""

    def unplayed(self, episode: str) -> None:
        """An episode was dealt, and will not be played in this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtLane:
    """One lane."""

    name: str
    width: int
    """Episodes in flight at once, at all workers together."""
    canary: bool = False
    """Whether few episodes play until one has made a valid action."""
    seats: int = 1 << 30
    """Workers that play it at once: where a limit is so low that more would have nothing of it."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A worker that has said hello."""

    writer: str
    order: int
    """Workers are numbered as they begin."""
    widths: dict[str, int]
    heard: float
    held: dict[str, dict[str, Dealt]]
    """By lane and id: the episodes that it has."""
    report: Report | None = None
    ending: dict[str, float] = field(default_factory=dict)
    """By lane: episodes that it leaves a second."""
    leaving: bool = False
    """Whether it was told that it is to end, or said so."""
    anew: bool = False
    """Whether it is to end and to begin again, so that it may go on with what others have left."""

    @property
    def episodes(self) -> list[Dealt]:
        """All that it has."""
        return [dealt for held in self.held.values() for dealt in held.values()]

    def drop(self, episode: str) -> tuple[str, Dealt] | None:
        """It has an episode no more: its lane, and what it was; None if it had it not."""
        for lane, held in self.held.items():
            if episode in held:
                return lane, held.pop(episode)
        return None


class Allocator:
    """See above."""

    def __init__(
        self,
        lanes: Sequence[DealtLane],
        dealer: Dealer,
        *,
        limits: Sequence[Limit],
        pots: Mapping[str, Pot],
        workers: int,
        valid_s: float,
    ) -> None:
        """`pots`: by scope; there is always one for the run, whose budget may be None: no limit. `workers`: how many
        there are, or are expected. `valid_s`: how long a part of a limit holds."""
        self.lanes = {lane.name: lane for lane in lanes}
        self.members: dict[str, Member] = {}
        self.pots = dict(pots)
        self.stop_reason = self.stop_message = ""
        self.finishing = False
        self.lanes_stopped: dict[str, str] = {}
        self.agents_stopped: dict[str, dict[str, str]] = {}
        """By lane: agents that are played no more, and why."""
        self._dealer, self._workers, self._valid_s = dealer, workers, valid_s
        self._limits = [(limit, SharedLimit(limit.most, whole=limit.unit == "in_flight")) for limit in limits]
        self._count = 0
        self._orphans: dict[str, list[Dealt]] = {name: [] for name in self.lanes}
        """By lane: episodes that were dealt, and that no worker has."""
        self._canaries = {lane.name for lane in lanes if lane.canary}
        self._paused: dict[str, float] = {}

    # Workers come and go.

    def hello(self, writer: str, now: float) -> Member:
        """A worker begins, with its part of every lane's width."""
        widths = {name: self._width(lane) for name, lane in self.lanes.items()}
        held: dict[str, dict[str, Dealt]] = {name: {} for name in self.lanes}
        member = Member(writer=writer, order=self._count, widths=widths, heard=now, held=held)
        self._count += 1
        self.members[writer] = member
        for pot in self.pots.values():
            pot.accounts[writer] = Account()
        for _, shared in self._limits:
            shared.hear(writer, 0.0)
        return member

    def _width(self, lane: DealtLane) -> int:
        """An even part of what is left."""
        taken = [member.widths[lane.name] for member in self.members.values() if member.widths[lane.name]]
        open_ = min(self._workers, lane.seats) - len(taken)
        return -(-(lane.width - sum(taken)) // open_) if open_ > 0 else 0

    def bye(self, writer: str) -> None:
        """A worker has closed its journal: what it spent is known, the rest is free again."""
        self._gone(writer, {scope: pot.accounts[writer].said.spent for scope, pot in self.pots.items()})

    def lost(self, writer: str, ended: Iterable[Left], spent: int | None) -> int:
        """A worker's process is gone, and its journal is sealed and compacted. `ended`: of its episodes, those that
        ended in its log, unreported; `spent`: what the run has paid for it, with the charge for its end. Returns how
        many of its episodes go on elsewhere."""
        member = self.members[writer]
        self._dealer.left([left for left in ended if member.drop(left.episode) is not None])
        return self._gone(writer, {RUN: spent})

    def _gone(self, writer: str, spent: Mapping[str, int | None]) -> int:
        member = self.members.pop(writer)
        for scope, pot in self.pots.items():
            pot.settle(writer, spent.get(scope))
        for _, shared in self._limits:
            shared.leave(writer)
        for lane, held in member.held.items():  # its journal may have rows of them, which only later workers know
            self._orphans[lane] += [structs.replace(dealt, since=self._count) for dealt in held.values()]
        return len(member.episodes)

    # A worker reports.

    def report(self, said: Report, now: float) -> tuple[Grant, int, int]:
        """Hear what a worker says, and decide what it has from now on. Also returns what must be durable before that is
        sent: what the run lends, and what the worker has given back, which is free only then (`Pot.returned`)."""
        member = self.members[said.writer]
        self._hear(member, said, now)
        money, lent, returned = self._lend(member.writer, said)
        member.leaving = member.leaving or self.finishing or bool(self.stop_reason)
        return (
            Grant(
                episodes={} if member.leaving else self._deal(member),
                money=money,
                limits={one.name: part.part(member.writer, now, now + self._valid_s) for one, part in self._limits},
                valid_s=self._valid_s,
                pauses=self._pauses(said, now),
                acted=[name for name in self.lanes if name not in self._canaries],
                lanes_stopped=self.lanes_stopped,
                agents_stopped=self.agents_stopped,
                leave=member.anew,
                finish=self.finishing,
                stop=self.stop_reason,
                stop_message=self.stop_message,
            ),
            lent,
            returned,
        )

    def _hear(self, member: Member, said: Report, now: float) -> None:
        self._pace(member, said, now)
        member.report, member.heard = said, now
        member.leaving = member.leaving or said.leaving
        # What one that leaves has stopped is left when its journal is closed.
        left = [one for one in said.left if not (said.leaving and one.how == STOPPED)]
        self._dealer.left([one for one in left if member.drop(one.episode) is not None])
        for name, dealt in filter(None, map(member.drop, said.unbegun)):
            self._orphans[name].append(dealt)
        if said.stop and not self.stop_reason:
            self.stop_reason, self.stop_message = said.stop, said.stop_message
        for name, lane in said.lanes.items():
            if lane.stopped:
                self.lanes_stopped.setdefault(name, lane.stopped)
            if lane.agents_stopped:
                self.agents_stopped[name] = {**lane.agents_stopped, **self.agents_stopped.get(name, {})}
            if lane.acted:
                self._canaries.discard(name)
            if lane.stats is not None and lane.stats.paused_s:
                self._paused[name] = max(self._paused.get(name, 0.0), now + lane.stats.paused_s)
        for limit, shared in self._limits:
            lanes = [said.lanes[name] for name in limit.lanes if name in said.lanes]
            flying = sum(map(limit.in_flight, lanes)) if limit.unit == "in_flight" else 0
            shared.hear(member.writer, sum(_demand(limit.unit, lane) for lane in lanes), flying)

    def _pace(self, member: Member, said: Report, now: float) -> None:
        """How fast it plays, over about the last second."""
        seconds = max(1e-3, now - member.heard)
        for name, held in member.held.items():
            left, pace = sum(one.episode in held for one in said.left), member.ending.get(name, 0.0)
            member.ending[name] = pace + min(1.0, seconds / PACE_OVER_S) * (left / seconds - pace)

    def _lend(self, writer: str, said: Report) -> tuple[dict[str, Loan], int, int]:
        """What it may have of each scope's money; and of the run's, what that lends, and what it has given back."""
        loans, lent, returned = dict[str, Loan](), 0, 0
        for scope, pot in self.pots.items():
            own = said.money.get(scope, NOTHING)
            back = pot.hear(writer, own)
            most, more = (own.lent, 0) if self.stop_reason else pot.lend(writer)
            if scope == RUN:
                lent, returned = more, back
            else:
                pot.returned(writer, back)
            loans[scope] = Loan(most, pot.spent - own.spent)
        return loans, lent, returned

    def _pauses(self, said: Report, now: float) -> dict[str, float]:
        """Pauses that others have heard of."""
        own = {name: lane.stats.paused_s for name, lane in said.lanes.items() if lane.stats is not None}
        left = {name: until - now for name, until in self._paused.items() if until > now}
        return {name: rest for name, rest in left.items() if rest > own.get(name, 0.0) + PAUSE_TOLD_S}

    # Episodes.

    def _deal(self, member: Member) -> dict[str, list[EpisodePlace]]:
        episodes = {}
        for name, held in member.held.items():
            room = 0 if name in self.lanes_stopped else self._room(member, self.lanes[name])
            dealt = self._orphans_for(member, name, room)
            if len(dealt) < room:
                dealt += self._dealer.deal(name, room - len(dealt))
            if dealt:
                held.update({one.id: one for one in dealt})
                episodes[name] = [one.place for one in dealt]
        return episodes

    def _room(self, member: Member, lane: DealtLane) -> int:
        """How many episodes it takes now: what it plays at once, and some ahead; the fewer the fewer remain, since what
        waits at one worker nobody else plays."""
        name, width = lane.name, member.widths[lane.name]
        if name in self._canaries:
            return min(width, CANARY_EPISODES - sum(len(one.held[name]) for one in self.members.values()))
        ahead = max(-(-width // 4), round(AHEAD_S * member.ending.get(name, 0.0)))
        ahead = min(ahead, 2 * width, MOST_AHEAD, self._dealer.remaining(name) // (4 * self._workers))
        return max(0, width + ahead - len(member.held[name]))

    def _orphans_for(self, member: Member, lane: str, most: int) -> list[Dealt]:
        """Episodes that others have left and that this one may go on with."""
        fit = [dealt for dealt in self._orphans[lane] if dealt.since <= member.order][: max(0, most)]
        if fit:
            taken = {dealt.id for dealt in fit}
            self._orphans[lane] = [dealt for dealt in self._orphans[lane] if dealt.id not in taken]
        return fit

    def refresh(self) -> None:
        """Where none of the present workers may play what is to be played, since others have left it or have left their
        seats, one of them is to begin anew: the one that has least to stop."""
        playing = [member for member in self.members.values() if not member.leaving]
        if not playing or any(member.anew for member in self.members.values()):
            return
        for name, owed in self._owed():
            seated = [member for member in playing if member.widths[name]]
            last = max((member.order for member in seated), default=-1)
            if not seated or any(dealt.since > last for dealt in owed):
                chosen = min(seated or playing, key=lambda member: (len(member.episodes), member.order))
                chosen.leaving = chosen.anew = True
                return

    def _owed(self) -> Iterator[tuple[str, list[Dealt]]]:
        """Lanes of which something is to be played that no worker has, and what others have left of it."""
        for name, orphans in self._orphans.items():
            if name not in self.lanes_stopped and (orphans or self._dealer.remaining(name)):
                yield name, orphans

    # The end.

    def abandon(self) -> None:
        """Nobody will take what others have left."""
        for orphans in self._orphans.values():
            for dealt in orphans:
                self._dealer.unplayed(dealt.id)
            orphans.clear()

    def idle(self) -> bool:
        """Whether nothing is being played and nothing more will start."""
        return not any(member.episodes for member in self.members.values()) and not any(self._owed())


def _demand(unit: str, lane: LaneReport) -> float:
    """How much of a limit a worker could use."""
    if unit == "in_flight" or lane.stats is None:
        return float(lane.playing + lane.queued)
    if lane.stats.waiting:
        return math.inf
    used = {
        "requests": lane.stats.requests_per_min,
        "input": lane.stats.input_tokens_per_min,
        "output": lane.stats.output_tokens_per_min,
    }
    return EAGER * used[unit]
