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

from evalkit.client.budget import RUN
from evalkit.client.lanes.slow_start import TRIAL_EPISODES
from evalkit.machines.limits import Limit
from evalkit.machines.messages import EpisodePlace, LaneGrant, LaneReport, Left, WorkGrant, WorkReport
from evalkit.machines.sharing import NOTHING, SharedBalance, SharedLimit, WorkerBalance

MOST_AHEAD = 128
"""Episodes of a lane that wait at a worker for a player, at most."""
AHEAD_S = 0.8
"""What a worker plays in so many seconds waits there: then it need not ask before it is time."""
EAGER = 1.25
"""The part of a limit that a worker demands which waits for nothing, times what it uses."""
PACE_OVER_S = 1.0


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

    def turns(self, lane: str) -> float:
        """Requests in a row before a lane has ended that mixes tiers; of another 0."""

    def left(self, episodes: Sequence[Left]) -> None:
        """A worker has left episodes, durably."""

    def unplayed(self, episode: str) -> None:
        """An episode was dealt, and will not be played in this call."""


@dataclass(slots=True, kw_only=True)
class DealtLane:
    """One lane, and what its workers have met."""

    name: str
    width: int
    """Episodes in flight at once, at all workers together."""
    trial: bool = False
    """Whether few episodes play until one has made a valid action."""
    seats: int = 1 << 30
    """Workers that play it at once: where a limit is so low that more would have nothing of it."""
    orphans: list[Dealt] = field(default_factory=list)
    """Episodes that were dealt, and that no worker has."""
    paused_until: float = 0.0
    stopped: str = ""
    """Why it takes no more requests; empty while it does."""
    agents_stopped: dict[str, str] = field(default_factory=dict)
    """Agents that are played no more, and why."""


@dataclass(slots=True)
class Hand:
    """What a worker has of one lane."""

    width: int
    """Episodes that it may have in flight."""
    held: dict[str, Dealt] = field(default_factory=dict)
    """By id: those that it has, in flight or not."""
    pace: float = 0.0
    """Those that it leaves a second."""


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """A worker that has said hello."""

    writer: str
    order: int
    """Workers are numbered as they begin."""
    heard: float
    hands: dict[str, Hand]
    """By lane."""
    report: WorkReport | None = None
    leaving: bool = False
    """Whether it takes no further episode, and ends with its last one."""

    @property
    def episodes(self) -> list[str]:
        """All that it has."""
        return [name for hand in self.hands.values() for name in hand.held]

    def drop(self, episode: str) -> tuple[str, Dealt] | None:
        """It has an episode no more: its lane, and what it was; None if it had it not."""
        for lane, hand in self.hands.items():
            if episode in hand.held:
                return lane, hand.held.pop(episode)
        return None


class Allocator:
    """See above."""

    def __init__(
        self,
        lanes: Sequence[DealtLane],
        dealer: Dealer,
        *,
        limits: Sequence[Limit],
        balances: Mapping[tuple[str, str], SharedBalance],
        workers: int,
        valid_s: float,
    ) -> None:
        """`balances`: by scope; there is always one for the run, whose budget may be None: no limit. `workers`: how
        many there are, or are expected. `valid_s`: how long a part of a limit holds."""
        self.lanes = {lane.name: lane for lane in lanes}
        self.members: dict[str, WorkerState] = {}
        self.balances, self.stop, self.finishing = balances, ("", ""), False
        """`stop`: why the run stops, in a word and in a sentence."""
        self._dealer, self._workers, self._valid_s = dealer, workers, valid_s
        self._limits = [(limit, SharedLimit(limit.most, whole=limit.unit == "in_flight")) for limit in limits]
        self._count = 0

    # Workers come and go.

    def hello(self, writer: str, now: float) -> WorkerState:
        """A worker begins, with its part of every lane's width."""
        hands = {name: Hand(self._width(lane)) for name, lane in self.lanes.items()}
        member = WorkerState(writer=writer, order=self._count, heard=now, hands=hands)
        self._count += 1
        self.members[writer] = member
        for balance in self.balances.values():
            balance.accounts[writer] = WorkerBalance()
        for _, shared in self._limits:
            shared.hear(writer, 0.0)
        return member

    def _width(self, lane: DealtLane) -> int:
        """An even part of what is left."""
        taken = [width for member in self.members.values() if (width := member.hands[lane.name].width)]
        open_ = min(self._workers, lane.seats) - len(taken)
        return -(-(lane.width - sum(taken)) // open_) if open_ > 0 else 0

    def bye(self, writer: str) -> None:
        """A worker has closed its journal: what it spent is known, the rest is free again."""
        self._gone(writer, {scope: balance.accounts[writer].said.spent for scope, balance in self.balances.items()})

    def lost(self, writer: str, ended: Iterable[Left], spent: int | None) -> int:
        """A worker's process is gone, and its journal is sealed and compacted. `ended`: of its episodes, those that
        ended in its log, unreported; `spent`: what the run has paid for it, with the charge for its end. Returns how
        many of its episodes go on elsewhere."""
        member = self.members[writer]
        self._dealer.left([left for left in ended if member.drop(left.episode) is not None])
        return self._gone(writer, {RUN: spent})

    def _gone(self, writer: str, spent: Mapping[tuple[str, str], int | None]) -> int:
        member = self.members.pop(writer)
        for scope, balance in self.balances.items():
            balance.settle(writer, spent.get(scope))
        for _, shared in self._limits:
            shared.leave(writer)
        for name, hand in member.hands.items():  # its journal may have rows of them, which only later workers know
            self.lanes[name].orphans += [structs.replace(dealt, since=self._count) for dealt in hand.held.values()]
        return len(member.episodes)

    # A worker reports.

    def report(self, said: WorkReport, now: float) -> tuple[WorkGrant, int, int]:
        """Hear what a worker says, and decide what it has from now on. Also returns what must be durable before that is
        sent: what the run lends, and what the worker has given back, which is free only then
        (`SharedBalance.returned`)."""
        member = self.members[said.writer]
        self._hear(member, said, now)
        money, lent, returned = self._lend(member.writer, said)
        member.leaving = member.leaving or self.finishing or bool(self.stop[0])
        grant = WorkGrant(
            lanes={lane.name: self._of_lane(member, lane, now) for lane in self.lanes.values()},
            money=money,
            limits={one.name: part.part(member.writer, now, now + self._valid_s) for one, part in self._limits},
            valid_s=self._valid_s,
            finish=member.leaving,
            stop=self.stop,
        )
        return grant, lent, returned

    def _hear(self, member: WorkerState, said: WorkReport, now: float) -> None:
        seconds, ended = max(1e-3, now - member.heard), {one.episode for one in said.left}
        for hand in member.hands.values():
            left = len(ended & hand.held.keys())
            hand.pace += min(1.0, seconds / PACE_OVER_S) * (left / seconds - hand.pace)
        member.report, member.heard = said, now
        self._dealer.left([one for one in said.left if member.drop(one.episode) is not None])
        for name, dealt in filter(None, map(member.drop, said.unbegun)):
            self.lanes[name].orphans.append(dealt)
        self.stop = self.stop if self.stop[0] else said.stop
        for name, own in said.lanes.items():
            lane = self.lanes[name]
            lane.stopped = lane.stopped or own.stopped
            lane.agents_stopped = {**own.agents_stopped, **lane.agents_stopped}
            lane.trial = lane.trial and not own.acted
            if own.stats is not None and own.stats.paused_s:
                lane.paused_until = max(lane.paused_until, now + own.stats.paused_s)
        for limit, shared in self._limits:
            lanes = [said.lanes[name] for name in limit.lanes if name in said.lanes]
            flying = sum(map(limit.in_flight, lanes)) if limit.unit == "in_flight" else 0
            shared.hear(member.writer, sum(_demand(limit.unit, lane) for lane in lanes), flying)

    def _lend(self, writer: str, said: WorkReport) -> tuple[dict[tuple[str, str], tuple[int, int]], int, int]:
        """What it may have of each scope's money; and of the run's, what that lends, and what it has given back."""
        loans, lent, returned = dict[tuple[str, str], tuple[int, int]](), 0, 0
        largest = max([lane.largest for lane in said.lanes.values()], default=0)
        for scope, balance in self.balances.items():
            own = said.money.get(scope, NOTHING)
            back = balance.hear(writer, own)
            most, more = (own.lent, 0) if self.stop[0] else balance.lend(writer, largest)
            if scope == RUN:
                lent, returned = more, back
            else:
                balance.returned(writer, back)
            loans[scope] = most, balance.spent - own.spent
        return loans, lent, returned

    # Episodes.

    def _of_lane(self, member: WorkerState, lane: DealtLane, now: float) -> LaneGrant:
        dealt = [] if member.leaving or lane.stopped else self._deal(member, lane)
        member.hands[lane.name].held.update({one.id: one for one in dealt})
        return LaneGrant(
            episodes=[one.place for one in dealt],
            pause_s=max(0.0, lane.paused_until - now),
            acted=not lane.trial,
            stopped=lane.stopped,
            agents_stopped=lane.agents_stopped,
            turns=self._dealer.turns(lane.name),
        )

    def _deal(self, member: WorkerState, lane: DealtLane) -> list[Dealt]:
        """What it takes of a lane now: what it plays at once, and some ahead; the fewer the fewer remain, since what
        waits at one worker nobody else plays."""
        hand = member.hands[lane.name]
        ahead = max(-(-hand.width // 4), round(AHEAD_S * hand.pace))
        ahead = min(ahead, 2 * hand.width, MOST_AHEAD, self._dealer.remaining(lane.name) // (4 * self._workers))
        room = max(0, hand.width + ahead - len(hand.held))
        if lane.trial:
            playing = sum(len(one.hands[lane.name].held) for one in self.members.values())
            room = max(0, min(hand.width, TRIAL_EPISODES - playing))
        dealt = [one for one in lane.orphans if one.since <= member.order][:room]
        if dealt:
            taken = {one.id for one in dealt}
            lane.orphans = [one for one in lane.orphans if one.id not in taken]
        return dealt + (self._dealer.deal(lane.name, room - len(dealt)) if len(dealt) < room else [])

    def refresh(self) -> None:
        """Where none of the present workers may play what is to be played, since others have left it or have left their
        seats, one of them is to end, and another to begin in its place: the one that has least to play."""
        members = self.members.values()
        for lane in self._remaining() if not any(member.leaving for member in members) else ():
            seated = [member for member in members if member.hands[lane.name].width]
            last = max((member.order for member in seated), default=-1)
            if members and (not seated or any(dealt.since > last for dealt in lane.orphans)):
                chosen = min(seated or members, key=lambda member: (len(member.episodes), member.order))
                chosen.leaving = True
                return

    def _remaining(self) -> Iterator[DealtLane]:
        """Lanes of which something is to be played that no worker has."""
        for lane in self.lanes.values():
            if not lane.stopped and (lane.orphans or self._dealer.remaining(lane.name)):
                yield lane

    # The end.

    def abandon(self) -> None:
        """Nobody will take what others have left."""
        for lane in self.lanes.values():
            for dealt in lane.orphans:
                self._dealer.unplayed(dealt.id)
            lane.orphans.clear()

    def idle(self) -> bool:
        """Whether nothing is being played and nothing more will start."""
        return not any(member.episodes for member in self.members.values()) and not any(self._remaining())


def _demand(unit: str, lane: LaneReport) -> float:
    """How much of a limit a worker could use."""
    if unit == "in_flight" or lane.stats is None:
        return float(lane.playing + lane.queued)
    used = {
        "requests": lane.stats.requests_per_min,
        "input": lane.stats.input_tokens_per_min,
        "output": lane.stats.output_tokens_per_min,
    }
    return math.inf if lane.stats.waiting else EAGER * used[unit]
