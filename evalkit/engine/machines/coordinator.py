"""Decides what each worker of a run does: which episodes it plays, what it may spend, and which part of each limit it
uses.

Pure: no clock, no loop, no disk. The caller gives the time, makes rows of money durable before an answer is sent, and
tells when a worker's process has ended. So every order of messages and failures can be tried.

An episode is assigned to one worker at a time. If a worker dies, its episodes go to workers that began after its
journal was sealed: so the files of all journals, in the order in which their writers began, hold an episode's rows in
order.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import structs

from evalkit.client.lanes.ramp import CANARY_EPISODES
from evalkit.engine.machines.dealt import Dealer, Dealt, DealtLane, WorkerDecision, WorkerState
from evalkit.engine.machines.leases import Leases
from evalkit.engine.machines.messages import RUN, Directive, EpisodePlace, LaneReport, Left, Renew
from evalkit.engine.machines.shares import EAGER, Shares

MOST_AHEAD = 128
"""Episodes of a lane that wait at a worker for a player, at most."""
AHEAD_OF_MODELS = 16
"""The same in a lane of a model whose replies take longer than a question to the coordinator."""
AHEAD_S = 0.8
"""Where a model's episodes are short, what a worker plays in so many seconds waits there: then it need not ask before
it is time."""
PAUSE_TOLD_S = 0.5
"""Others are told of a pause that is longer than their own by this."""
RATE_OVER_S = 1.0
STOPPED = "stopped"
"""How an episode is left that its worker was told to stop."""


class Coordinator:
    """See above. `Limits`, by name: the lanes that share it and its unit."""

    def __init__(
        self,
        lanes: Sequence[DealtLane],
        dealer: Dealer,
        *,
        workers: int,
        elastic: bool = False,
        shares: Shares,
        leases: Leases,
        limits: Mapping[str, tuple[str, Collection[str]]],
        servers: Mapping[str, int] = {},
    ) -> None:
        """`limits`: by limit, its unit (`requests`, `input`, `output`, `in_flight`) and the lanes that share it.
        `servers`: by limit that holds for one of a lane's servers, its number.
        `elastic`: whether workers come and go as they like; then `workers` are expected, and lanes are divided by those
        that there are."""
        self.lanes = {lane.name: lane for lane in lanes}
        self.members: dict[str, WorkerState] = {}
        self.shares, self.leases = shares, leases
        self.stop_reason = self.stop_message = ""
        self.finishing = False
        self._dealer, self._expected, self._limits, self._elastic = dealer, workers, limits, elastic
        self._servers = servers
        self._count = 0
        self._orphans: deque[Dealt] = deque()
        """Episodes that no worker has, and that were dealt."""
        self._canaries = {lane.name for lane in lanes if lane.canary}
        self._paused: dict[str, float] = {}
        self.lanes_stopped: dict[str, str] = {}
        self.agents_stopped: dict[str, dict[str, str]] = {}
        """By lane: agents that are played no more, and why."""

    @property
    def workers(self) -> int:
        """How many divide the lanes."""
        return max(self._expected, len(self.members)) if self._elastic else self._expected

    # Workers come and go.

    def hello(self, writer: str, now: float) -> WorkerState:
        """A worker begins, with its part of every lane's width; where workers come and go, that changes."""
        taken = {lane: [m.widths[lane] for m in self.members.values() if not m.leaving] for lane in self.lanes}
        widths = {name: self._width(lane, taken[name]) for name, lane in self.lanes.items()}
        member = WorkerState(writer=writer, order=self._count, widths=widths, heard=now)
        self._count += 1
        self.members[writer] = member
        self.shares.join(writer)
        self.leases.join(writer)
        member.remember(now, 0, RATE_OVER_S)
        return member

    def _width(self, lane: DealtLane, taken: Sequence[int]) -> int:
        """An even part of what is left."""
        if self._elastic:
            return lane.width
        slots = min(self._expected, lane.seats)
        even = -(-lane.width // slots)
        return max(0, min(even, lane.width - sum(taken)))

    def bye(self, writer: str) -> None:
        """A worker has closed its journal: what it spent is known, the rest is free again."""
        member = self.members.pop(writer)
        spent = {scope: pot.accounts[writer].spent for scope, pot in self.leases.pots.items()}
        self.leases.settle(writer, spent)
        self.shares.leave(writer)
        # Of those that it has stopped its journal has rows, which only later ones know.
        self._orphans.extend(structs.replace(dealt, since=self._count) for dealt in member.outstanding.values())

    def lost(self, writer: str, ended: Iterable[Left], spent: int | None) -> int:
        """A worker's process is gone, and its journal is sealed and compacted. `ended`: of its episodes, those that
        ended in its log, unreported; `spent`: what the run has paid for it, with the charge for its end. Returns how
        many of its episodes go on elsewhere."""
        member = self.members.pop(writer)
        self.leases.settle(writer, {} if spent is None else {RUN: spent})
        self.shares.leave(writer)
        self._dealer.left(member.drop_all(ended))
        self._orphans.extend(structs.replace(dealt, since=self._count) for dealt in member.outstanding.values())
        return len(member.outstanding)

    # A worker asks.

    def renew(self, message: Renew, now: float) -> WorkerDecision:
        """Hear what a worker says, and decide what it does."""
        member = self.members[message.writer]
        member.heard = now
        returned = self._hear(member, message, now)
        lent = self._lend(member)
        version, rates = self.shares.share(member.writer, now)
        ends = self.finishing or bool(self.stop_reason)
        member.leaving = member.leaving or ends
        blocks = {} if member.leaving else self._blocks(member)
        answer = Directive(
            blocks=blocks,
            recall={} if member.leaving else self._recall(member),
            leased=self.leases.leased(member.writer),
            before=self.leases.before(member.writer),
            give_back=self.leases.recalls(member.writer),
            share=version,
            rates=rates,
            valid_s=self.shares.valid_s,
            workers=self.workers,
            leave=member.anew,
            pauses=self._pauses(message, now),
            acted=[name for name, lane in self.lanes.items() if lane.model and name not in self._canaries],
            lanes_stopped=self.lanes_stopped,
            agents_stopped=self.agents_stopped,
            finish=self.finishing,
            stop=self.stop_reason,
            stop_message=self.stop_message,
        )
        return WorkerDecision(answer=answer, lent=lent, returned=returned)

    def _hear(self, member: WorkerState, message: Renew, now: float) -> int:
        writer = member.writer
        member.report = message
        member.leaving = member.leaving or message.leaving
        left = message.left
        if message.leaving:  # what it has stopped is left when its journal is closed
            left = [one for one in left if one.how != STOPPED]
        self._dealer.left(member.drop_all(left))
        self._orphans.extend(dealt for name in message.given_back if (dealt := member.drop(name)) is not None)
        if message.stop and not self.stop_reason:
            self.stop_reason, self.stop_message = message.stop, message.stop_message
        for name, report in message.lanes.items():
            if report.stopped:
                self.lanes_stopped.setdefault(name, report.stopped)
            if report.agents_stopped:
                self.agents_stopped[name] = {**report.agents_stopped, **self.agents_stopped.get(name, {})}
            if report.acted:
                self._canaries.discard(name)
            if report.paused_s:
                self._paused[name] = max(self._paused.get(name, 0.0), now + report.paused_s)
        self.shares.confirm(writer, message.share)
        self.shares.wants(writer, self._demand(message.lanes))
        self.shares.uses(writer, self._in_flight(message.lanes))
        member.remember(now, message.purses[RUN].spent if RUN in message.purses else 0, RATE_OVER_S)
        return self.leases.report(writer, message.purses)

    def _lend(self, member: WorkerState) -> int:
        """Lend the worker what it needs, unless the run stops; what the run lends."""
        if self.stop_reason or member.report is None:
            return 0
        largest = max((lane.largest for lane in member.report.lanes.values()), default=0)
        return self.leases.grants(member.writer, member.spending(), largest).get(RUN, 0)

    def _demand(self, lanes: Mapping[str, LaneReport]) -> dict[str, float]:
        return {
            limit: sum(_demand(unit, lanes[name]) for name in sharing if name in lanes)
            for limit, (unit, sharing) in self._limits.items()
        }

    def _in_flight(self, lanes: Mapping[str, LaneReport]) -> dict[str, float]:
        return {
            limit: float(sum(_sent(lanes[name], self._servers.get(limit)) for name in sharing if name in lanes))
            for limit, (unit, sharing) in self._limits.items()
            if unit == "in_flight"
        }

    def _pauses(self, message: Renew, now: float) -> dict[str, float]:
        """Pauses that others have heard of."""
        left = {name: until - now for name, until in self._paused.items() if until > now}
        own = {name: report.paused_s for name, report in message.lanes.items()}
        return {name: rest for name, rest in left.items() if rest > own.get(name, 0.0) + PAUSE_TOLD_S}

    # Episodes.

    def most_ahead(self, lane: DealtLane) -> int:
        """How many episodes of a lane may wait at each worker, at most. One that was given the whole width would play
        them."""
        if self._elastic and lane.model:
            return 0
        return min(MOST_AHEAD, -(-2 * lane.width // self.workers)) if lane.model else MOST_AHEAD

    def _ahead(self, member: WorkerState, lane: DealtLane) -> int:
        """How many of them wait at a worker now."""
        most = self.most_ahead(lane)
        if not lane.model:
            return most
        usual = min(AHEAD_OF_MODELS, -(-lane.width // (4 * self.workers)))
        return min(most, max(usual, round(AHEAD_S * member.ending(lane.name))))

    def _blocks(self, member: WorkerState) -> dict[str, list[EpisodePlace]]:
        blocks = {}
        for lane in self.lanes.values():
            count = 0 if lane.name in self.lanes_stopped else self._room(member, lane)
            dealt = self._deal(member, lane, count)
            if dealt:
                blocks[lane.name] = [one.place for one in dealt]
        return blocks

    def _room(self, member: WorkerState, lane: DealtLane) -> int:
        """How many episodes a worker takes now."""
        width = self._part(member, lane)
        if not width:
            return 0
        left = self._dealer.remaining(lane.name)
        ahead = min(self._ahead(member, lane), left // (4 * self.workers))
        if lane.name in self._canaries:
            if member is not min(self.members.values(), key=lambda other: self._turn(other, lane.name)):
                return 0
            width, ahead = min(width, CANARY_EPISODES), 0
        return max(0, width + ahead - member.of_lane(lane.name))

    def _part(self, member: WorkerState, lane: DealtLane) -> int:
        """How many episodes of a lane a worker may have in flight now."""
        if not self._elastic:
            return member.widths[lane.name]
        playing = [other for other in self.members.values() if not other.leaving]
        seats = min(self.workers, lane.seats)
        if seats < len(playing):
            playing.sort(key=lambda other: self._turn(other, lane.name))
        if member not in playing[:seats]:
            return 0
        # One that had more while it was alone has it until its episodes end.
        others = sum(other.of_lane(lane.name) for other in self.members.values() if other is not member)
        return max(0, min(-(-lane.width // seats), lane.width - others))

    def _turn(self, member: WorkerState, lane: str) -> tuple[bool, bool, bool, int]:
        """The sort key of workers for a lane that few of them play: one that does already, or may go on with what
        another has left, is before others."""
        goes_on = any(dealt.lane == lane and dealt.since <= member.order for dealt in self._orphans)
        return not member.widths[lane], not member.of_lane(lane), not goes_on, member.order

    def _deal(self, member: WorkerState, lane: DealtLane, count: int) -> list[Dealt]:
        dealt = self._orphans_for(member, lane.name, count)
        if len(dealt) < count:
            dealt += self._dealer.deal(lane.name, count - len(dealt))
        member.take(lane.name, dealt)
        return dealt

    def _orphans_for(self, member: WorkerState, lane: str, most: int) -> list[Dealt]:
        """Episodes that others have left and that this one may go on with."""
        if not self._orphans:
            return []
        taken, kept = list[Dealt](), deque[Dealt]()
        for dealt in self._orphans:
            fits = len(taken) < most and dealt.lane == lane and dealt.since <= member.order
            (taken if fits else kept).append(dealt)
        self._orphans = kept
        return taken

    def _recall(self, member: WorkerState) -> dict[str, int]:
        """Near a lane's end: episodes that wait at one worker while another has nothing to play."""
        report, recalled = member.report, {}
        for name in self.lanes:
            if report is None or name not in report.lanes or not report.lanes[name].queued:
                continue
            if self._dealer.remaining(name) or self._orphans or name in self._canaries:
                continue
            idle = sum(
                max(0, self._part(other, self.lanes[name]) - other.of_lane(name))
                for other in self.members.values()
                if other is not member
            )
            if idle:
                recalled[name] = min(idle, report.lanes[name].queued)
        return recalled

    def refresh(self) -> None:
        """Where none of the present workers may go on with what another has left, one of them is to begin anew: the one
        that has least to stop."""
        playing = [member for member in self.members.values() if not member.leaving]
        last = max((member.order for member in playing), default=-1)
        waits = any(dealt.since > last and dealt.lane not in self.lanes_stopped for dealt in self._orphans)
        if waits and playing and not any(member.anew for member in self.members.values()):
            chosen = min(playing, key=lambda member: (len(member.outstanding), member.order))
            chosen.leaving = chosen.anew = True

    # The end.

    def abandon(self, *, unclaimed: bool = False) -> None:
        """Nobody will take what was set aside; `unclaimed`: what none of the present workers may take."""
        if not self._orphans:
            return
        last = max((member.order for member in self.members.values()), default=-1) if unclaimed else -2
        kept = [dealt for dealt in self._orphans if dealt.since <= last]
        for dealt in self._orphans:
            if dealt.since > last:
                self._dealer.unplayed(dealt)
        self._orphans = deque(kept)

    def idle(self) -> bool:
        """Whether nothing is being played and nothing more will start."""
        if any(member.outstanding for member in self.members.values()):
            return False
        waiting = [dealt for dealt in self._orphans if dealt.lane not in self.lanes_stopped]
        return not waiting and all(name in self.lanes_stopped or self._dealer.over(name) for name in self.lanes)


def _sent(lane: LaneReport, server: int | None) -> int:
    """Requests in flight, at one of its servers or at all."""
    return lane.in_flight if server is None else sum(one.in_flight for one in lane.servers[server : server + 1])


def _demand(unit: str, lane: LaneReport) -> float:
    if unit == "in_flight":
        return float(lane.playing + lane.queued)
    if lane.waiting:
        return math.inf
    used = {"requests": lane.requests_per_min, "input": lane.input_per_min, "output": lane.output_per_min}
    return EAGER * used[unit]
