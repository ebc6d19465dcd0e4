"""The queue in front of one (provider, model). Pure parts decide what may be sent: buckets, window, health, pause; and
where to, if several servers answer for the model.

There is one queue, in order of arrival, and one timer. The head is decided again at every wake, so that a later
`Retry-After` is obeyed, a reduced window applies, and a cancelled waiter leaves no booking. When nobody waits and
everything allows it, admission costs no await and no future.

Episodes are admitted as the window opens (`join`): an episode that starts while the window is narrow would only wait in
the queue with all others. A lane may start as a trial: a few episodes play, and the others follow once one of these
has made a valid action (`acted`). So a model whose tool calls never arrive is not paid for hundreds of times.
"""

import asyncio
import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence

from evalkit.client.lanes.buckets import (
    Buckets,
    Need,
    TokenEstimate,
    announced_room,
    apply_allowance,
    book,
    correct,
    delay,
    reshare,
    scarcest,
    told_wait_s,
    unbook,
    wait_s,
)
from evalkit.client.lanes.health import GIVE_UP_S, NO_ROOM, NOTICED_S, OUTAGE, REFUSAL, RefusalCount, used_up, why_paced
from evalkit.client.lanes.servers import ANYWHERE, JointWindow, LaneServer, LaneServers, QueuedRequest, Ticket, Wish
from evalkit.client.lanes.shared import Pool
from evalkit.client.lanes.slow_start import BARREN_EPISODES, TRIAL_EPISODES, SlowStart
from evalkit.client.lanes.stats import LaneStats, RateMeter, SeenElsewhere
from evalkit.client.lanes.tier_pace import TierPace
from evalkit.dialogue import Usage
from evalkit.errors import EpisodeUnavailable, EvalkitError, LaneClosed
from evalkit.spec.model import Limits, ServerSpec
from evalkit.waiting import WaitQueue
from evalkit.wire.allowance import Allowance, part_of
from evalkit.wire.verdicts import UNREADABLE


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


CONGESTION = frozenset({"rate_limit", "overload", "timeout"})

_FREE = Need(input=0.0, output=0.0)


class Lane:
    """Admission to one (provider, model) within one event loop."""

    def __init__(
        self,
        name: str,
        *,
        limits: Limits,
        width: int,
        shared: Sequence[Pool] = (),
        trial: bool = False,
        start: int | None = None,
        servers: Sequence[ServerSpec] = (),
    ) -> None:
        """`width`: the most that may be in flight, unless `limits.in_flight` is lower. `shared`: limits that
        hold for other lanes too, narrow ones first. `trial`: few episodes at first. `start`: as many may be in flight
        then at once; None: a few. `servers`: those that answer, if they are several: by name, with the limits of each;
        `limits` then hold for all together."""
        self.name = name
        self.streams: bool | None = None
        """Whether attempts have shown that replies should be streamed (silence ended one), or cannot be."""
        self.notice = ""
        """What a user should know about the lane, in a sentence; empty: nothing."""
        self.deadline = math.inf
        """Loop time at which the run ends in any case: no pause beyond it is waited for."""
        self.pace: TierPace | None = None
        """By which tier of a list its requests go, where there is a deadline."""
        self._loop = asyncio.get_running_loop()
        width = min(width, limits.in_flight or width)
        self._servers = LaneServers(servers, limits, width=width, start=start, now=self._loop.time())
        self._only = self._servers.only
        self._own = Pool(name, limits=limits) if self._only is None and limits != Limits() else None
        """The lane's own limits, where several servers share them; those of an only one are the server's."""
        self._pools: tuple[Pool, ...] = (*((self._own,) if self._own is not None else ()), *shared)
        self._meter = RateMeter()
        self._refusals = RefusalCount()
        self._in_flight = 0
        self._queue = WaitQueue[QueuedRequest, Ticket](
            # What was admitted, and cancelled before it could run; who left the line: another may be the first now.
            returned=lambda _, ticket: self.abandon(ticket, sent=False),
            left=lambda _: self.serve(),
        )
        self._slow_start = SlowStart(
            self._only.window if self._only is not None else JointWindow(self._servers, limits.in_flight or math.inf),
            trial=trial,
        )
        self._resting = WaitQueue[None, None]()
        self._timer: asyncio.TimerHandle | None = None
        self._paused_until = 0.0
        self._shut = False
        """Whether the fast path must check more: paused, down or ended."""
        self._end: EvalkitError | None = None
        self._estimate = TokenEstimate()
        self._most = math.inf
        self._part = 1.0
        self.lapsed: Callable[[], bool] = _never
        """Whether this process may send nothing, since its share of the limits has run out."""
        self.paused: Callable[[], None] = _nothing
        """Called when the provider has asked for a pause: other processes are to be told."""
        self.elsewhere: SeenElsewhere | None = None
        """Where other processes play its episodes: what they see of it."""

    def reshare(self, rates: Mapping[str, float], most: float, part: float) -> None:
        """This process may use so much of the lane's own limits from now on: `rates` a minute, `most` requests in
        flight, and `part` of what a provider's headers state."""
        self._part = part
        if self._only is not None:
            reshare(self._only.buckets, rates, self._loop.time())
            self._most = most
        elif self._own is not None:
            self._own.reshare(rates, most)
        self.serve()

    @property
    def servers(self) -> int:
        """How many servers it has, where it has several; else 0."""
        return 0 if self._only is not None else len(self._servers)

    def reshare_server(self, number: int, rates: Mapping[str, float], most: float) -> None:
        """The same of one of several servers; `reshare` follows."""
        server = self._servers[number]
        reshare(server.buckets, rates, self._loop.time())
        server.most = most

    @property
    def trial(self) -> bool:
        """Whether few episodes play until one of them has made a valid action."""
        return self._slow_start.trial

    async def join(self) -> None:
        """Wait until the window has room for one more episode; `part` follows in any case. Raises nothing: an ended
        lane admits everybody, and raises when they ask."""
        await self._slow_start.join()

    def part(self) -> None:
        """An episode has left the lane."""
        self._slow_start.part()

    def acted(self) -> None:
        """One of its episodes made a valid action: every episode may start."""
        self._slow_start.acted()

    def ended_idle(self) -> bool:
        """An episode ended without a valid action. Returns whether the user should be told now, with `notice`."""
        if not self._slow_start.ended_idle():
            return False
        self.notice = (
            f"{self.name}: its first {BARREN_EPISODES} episodes ended without a valid action, so it continues with "
            f"{TRIAL_EPISODES} at a time; their scores count. Look at one with `evalkit show`: if the model meant to "
            "call tools, correct the server (chat template, tool parser) or the agent's `tool_choice`."
        )
        return True

    def try_enter(self, body_bytes: int, max_tokens: int, wish: Wish = ANYWHERE) -> Ticket | None:
        """A ticket if one is available at once and nobody waits."""
        only = self._only
        if only is None:
            return self._try_any(body_bytes, max_tokens, wish)
        if self._queue or self._shut or only.in_flight + 1 > min(only.window.size, self._most) or self.lapsed():
            return None
        now = self._loop.time()
        need = _FREE
        if only.buckets or self._pools:
            need = self._estimate.need(body_bytes, max_tokens)
            if wait_s(only.buckets, need, now) > 0 or not all(pool.quick(need, now) for pool in self._pools):
                return None
        return self._admit(need, now, body_bytes, only)

    def _try_any(self, body_bytes: int, max_tokens: int, wish: Wish) -> Ticket | None:
        """The same among several servers."""
        if self._queue or self._shut or self.lapsed():
            return None
        now, need = self._loop.time(), self._need(body_bytes, max_tokens)
        server = self._servers.pick(need, now, wish)
        if server is None or not all(pool.quick(need, now) for pool in self._pools):
            return None
        return self._admit(need, now, body_bytes, server)

    async def enter(self, body_bytes: int, max_tokens: int, wish: Wish = ANYWHERE) -> Ticket:
        """A ticket, when it is this request's turn. Raises the error that ended the lane; EpisodeUnavailable after an
        outage."""
        if self._end is not None:
            raise copy.copy(self._end)  # one for each: a shared one would collect the tracebacks of all
        with self._queue.hold(QueuedRequest(body_bytes, max_tokens, wish)) as waiter:
            if self._queue.head() is waiter:
                self.serve()
            return await waiter.turn()

    def decide(self, need: Need, now: float) -> float:
        """Seconds until a request of that size may be sent: 0 now, `inf` not before another one is answered."""
        if now < self._paused_until:
            return self._paused_until - now
        if self.lapsed() or self._in_flight + 1 > self._most:
            return math.inf
        return self._servers.wait_s(need, now)

    def succeeded(self, ticket: Ticket, usage: Usage, *, limited: Usage | None = None, apart: bool = False) -> float:
        """A reply came. Returns the seconds it took. `usage` has no input if the provider did not count it. `limited`:
        the part that counts against the provider's limits; None: all of it. `apart`: it came by a slower tier than
        others of the lane, so that its time says nothing of how many requests are too many."""
        now, server = self._loop.time(), ticket.server
        server.paid = 0
        self._refusals.answered()
        server.replies += 1
        if server.health.answered():
            self._recover(server, now)
        all_here = bool(self._slow_start) and not self._queue and not self._slow_start.trial
        full = self._servers.is_full(server, all_here=all_here)
        sent_at = ticket.sent_at if not apart else max(ticket.sent_at, now - (server.window.median_s or math.inf))
        server.window.succeeded(sent_at=sent_at, now=now, beside=ticket.beside, full=full)
        if self._slow_start:
            self._slow_start.usher()
        self._meter.count(now, usage.input, usage.output)
        if server.buckets or self._pools:
            used = self._estimate.learn(ticket.body_bytes, ticket.need, limited or usage)
            for buckets in self._all_buckets(server):
                correct(buckets, ticket.need, used)
        self._leave(ticket)
        return now - ticket.sent_at

    def failed(
        self,
        ticket: Ticket,
        kind: str,
        *,
        wait_s: float | None = None,
        message: str = "",
        paid: bool = False,
        answered: bool = False,
        request: str = "",
    ) -> None:
        """An attempt without a reply. `wait_s`: how long the server asks to wait; the whole lane obeys, if it has no
        other. `paid`: it may have been billed; `answered`: the server had begun a good answer; `request`: whose attempt
        it is."""
        now, server = self._loop.time(), ticket.server
        self._meter.fail(kind)
        if paid and (answered or ticket.probe):
            server.paid_for(math.inf if kind in UNREADABLE else ticket.sent_at, now)
        if kind in CONGESTION:
            server.window.refused(sent_at=ticket.sent_at, now=now, timed_out=kind == "timeout")
        if kind in OUTAGE or kind == REFUSAL:
            words, refusal = message or kind, kind == REFUSAL
            server.health.failed(probe=ticket.probe, now=now, words=words, refusal=refusal, paid=paid, request=request)
            if self._servers.are_down():
                self._shut = True
                self._servers.hasten(now)
        elif server.health.answered():
            self._recover(server, now)
        if wait_s is not None:
            if self._only is not None:
                self.pause(now + wait_s)
            else:  # the others go on
                server.paused_until = max(server.paused_until, now + wait_s)
        if kind == REFUSAL and self._only is not None:  # one of several servers counts its own requests alone
            for pool in self._pools:
                pool.refused(wait_s, now)
        if kind in (REFUSAL, "connect"):
            self._unbook(ticket, sent=True)  # it was refused before it could use any
        if server.health.given_up(now) and self._servers.given_up(now):
            self._give_up(server)
        self._leave(ticket)

    def turned_away(self, ticket: Ticket) -> None:
        """The tier that an attempt asked for had no room for it: that is no failure of the lane's, and no limit."""
        self._meter.fail(NO_ROOM)
        if ticket.server.health.answered():
            self._recover(ticket.server, self._loop.time())
        self._unbook(ticket, sent=True)
        self._leave(ticket)

    def refused(self, episode: str, words: str, remedy: str) -> None:
        """The provider refused an episode's request, in these words, for all that is known not because of the model:
        end the lane if it refuses all. `remedy`: the words with what to do about it."""
        why = self._refusals.refused(episode, words)
        if why:
            self.end(
                LaneClosed(
                    f"{self.name}: {why}. The provider said: {remedy.rstrip('.')}. No score was made of that. Once the "
                    "cause is mended, the same command plays these episodes."
                )
            )

    def has_other(self, server: LaneServer) -> bool:
        """Whether another server takes requests in place of this one."""
        return self._only is None and self._servers.others(server, self._loop.time())

    def renew(self, ticket: Ticket) -> bool:
        """Whether a request that was admitted some time ago may still be sent; if so, it counts as sent now."""
        now, server = self._loop.time(), ticket.server
        if self._end is not None or now < self._paused_until or (server.health.down and not ticket.probe):
            return False
        if self.lapsed() or now < server.paused_until:
            return False
        for buckets in self._all_buckets(server):
            delay(buckets, ticket.need, ticket.sent_at, now)
        ticket.sent_at = now
        return True

    def abandon(self, ticket: Ticket, *, sent: bool = True) -> None:
        """The attempt was cancelled. If it was not sent, its whole booking is returned."""
        if not sent:
            self._unbook(ticket, sent=False)
        self._leave(ticket)

    def apply_allowance(
        self,
        requests: Allowance | None,
        tokens: Allowance | None,
        *,
        at: LaneServer | None = None,
        took_s: float = 0.0,
        used: int = 0,
    ) -> None:
        """The remaining limits that the headers of a reply state, which took `took_s` and has used so many tokens. The
        lane opens at the first. `at`: the server that sent it; None: the only one. Of several, each states its own."""
        now, server = self._loop.time(), at or self._servers[0]
        if not server.announced:
            server.announced = True
            room = announced_room(requests, tokens, in_flight=server.in_flight + 1, took_s=took_s, used=used)
            server.window.open_to(self._part * room, now)
            self._slow_start.usher()
            self.serve()
        for name, allowance in (("requests", requests), ("tokens", tokens)):
            if allowance is None:
                continue
            # Of all limits that are shared, those that the header states are informed.
            pools = self._pools if self._only is not None else ()
            if not sum(pool.apply_allowance(name, allowance, now) for pool in pools):
                apply_allowance(server.buckets, name, part_of(allowance, self._part), now)

    def pause(self, until: float) -> None:
        """Admit nobody before `until` (loop time). The latest such time applies."""
        if until > self._paused_until:
            self._paused_until = until
            self._shut = True
            self.paused()
            self.serve()

    async def rest(self, seconds: float) -> None:
        """Sleep before a retry; raises at once the error that ends the lane."""
        if self._end is not None:
            raise copy.copy(self._end)
        with self._resting.hold(None) as waiter:
            timer = self._loop.call_later(seconds, waiter.nudge)
            try:
                await waiter.woken()
            finally:
                timer.cancel()
        if self._end is not None:
            raise copy.copy(self._end)

    def end(self, error: EvalkitError) -> None:
        """Stop admission: all waiting and sleeping requests raise `error`. Requests in flight may still be answered."""
        if self._end is None:
            self._end, self._shut = error, True
        self._send_away(error)

    def late(self, seconds: float) -> None:
        """How late this process runs what is due: this part of a reply's time is not the provider's."""
        self._servers.late(seconds)

    def proven(self) -> int:
        """Requests that were allowed in flight when the last reply came; 0 while there were too few to tell."""
        return self._servers.proven() if self.elsewhere is None else self.elsewhere.proven

    @property
    def median_s(self) -> float:
        """Of the replies of the last full sample, at the quickest server; 0 before the first."""
        return self._servers.median_s() if self.elsewhere is None else self.elsewhere.stats.median_latency_s

    @property
    def trouble(self) -> str:
        """Why its provider does not answer now, in words; empty: it does."""
        return self._servers.trouble() if self.elsewhere is None else self.elsewhere.stats.trouble

    @property
    def ended(self) -> str:
        """Why it takes no more requests, in words; empty: it does."""
        return str(self._end) if self._end is not None else ""

    def stats(self) -> LaneStats:
        """The lane at this moment."""
        if self.elsewhere is not None:
            return self.elsewhere.stats
        now = self._loop.time()
        requests, read, written = self._meter.rates_per_min(now)
        failures: Mapping[str, int] = dict(self._meter.failures)
        return LaneStats(
            lane=self.name,
            in_flight=self._in_flight,
            window=int(self._slow_start.window.size),
            waiting=len(self._queue),
            waits_for=self._waits_for(now),
            paused_s=max(0.0, self._paused_until - now, self._servers.paused_until() - now),
            trouble=self.trouble,
            ended=self.ended,
            requests=self._meter.requests,
            input_tokens=self._meter.input,
            output_tokens=self._meter.output,
            requests_per_min=requests,
            input_tokens_per_min=read,
            output_tokens_per_min=written,
            median_latency_s=self.median_s,
            failures=failures,
            servers=self._servers.stats(now),
        )

    def _waits_for(self, now: float) -> str:
        """What keeps it from having more in flight, in words."""
        if self._end is not None or not (self._queue or self._slow_start):
            return ""
        if now < self._paused_until:
            return "pause that its provider asked for"
        if self._servers.are_down():
            return "provider that does not answer"
        head = self._queue.head()
        if head is None:
            return "first valid action" if self._slow_start.trial else "window"
        need = self._need(head.item.body_bytes, head.item.max_tokens)
        there = self._servers.there(now)
        if not there:
            return "pause that its provider asked for"
        if all(server.in_flight + 1 > min(server.size, self._most) for server in there):
            bound = all(server.window.size >= server.window.most for server in there)
            return "requests in flight" if bound else "window"
        scarce = scarcest(self._servers.next_one(need, now).buckets, need, now)
        return scarce or next(filter(None, (pool.waits_for(need, now) for pool in self._pools)), "")

    def _need(self, body_bytes: int, max_tokens: int) -> Need:
        """What a request takes of the limits; nothing where there are none."""
        if self._pools or self._servers.have_limits():
            return self._estimate.need(body_bytes, max_tokens)
        return _FREE

    def _admit(self, need: Need, now: float, body_bytes: int, server: LaneServer) -> Ticket:
        book(server.buckets, need, now)
        for pool in self._pools:
            pool.take(self, need, now)
        self._in_flight += 1
        server.in_flight += 1
        probe = server.health.down
        if probe:
            server.probes += 1
        return Ticket(need, now, probe, body_bytes, server, server.in_flight)

    def serve(self) -> None:
        """Admit from the head of the queue while possible; set the timer for the next time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        self._reopen(now)
        while (head := self._queue.head()) is not None:
            need = self._need(head.item.body_bytes, head.item.max_tokens)
            wait = self.decide(need, now)
            if wait > 0:
                if wait >= NOTICED_S and self._is_told_too_long(need, now):
                    return
                if wait < math.inf:
                    self._timer = self._loop.call_at(now + wait, self.serve)
                break
            waiter, server = self._servers.pair(self._queue, head, need, now)
            if waiter is not head:
                own = self._need(waiter.item.body_bytes, waiter.item.max_tokens)
                if server.wait_s(own, now) > 0:  # it is larger: its turn is still to come
                    waiter, server = head, self._servers.pick(need, now, head.item.wish) or server
                else:
                    need = own
            if not self._have_room(need, now):
                return
            self._servers.went(head=waiter is head)
            self._queue.grant(waiter, self._admit(need, now, waiter.item.body_bytes, server))
        for pool in self._pools:
            pool.withdraw(self)

    def _is_told_too_long(self, need: Need, now: float) -> bool:
        """Check whether the head waits for a limit from the provider's headers: too long, and the lane has ended; or
        long enough for a notice."""
        told_s, what = told_wait_s(self._servers.next_one(need, now).buckets, need, now)
        why = used_up(self.name, told_s, time.time(), what)
        if why:
            self.end(LaneClosed(why))
        elif told_s >= NOTICED_S and not self.notice:
            self.notice = why_paced(self.name, told_s, what)
        return bool(why)

    def _have_room(self, need: Need, now: float) -> bool:
        """Whether the shared limits admit the head; if one does not, the lane queues there and at none after it."""
        for index, pool in enumerate(self._pools):
            if not pool.admits(self, need, now):
                for later in self._pools[index + 1 :]:
                    later.withdraw(self)
                return False
        return True

    def _reopen(self, now: float) -> None:
        self._shut = self._end is not None or self._servers.are_down() or now < self._paused_until

    def _leave(self, ticket: Ticket) -> None:
        self._in_flight -= 1
        ticket.server.in_flight -= 1
        if ticket.probe:
            ticket.server.probes -= 1
        for pool in self._pools:
            pool.leave()
        if self._queue:
            self.serve()
        elif self._shut:
            self._reopen(self._loop.time())

    def _unbook(self, ticket: Ticket, *, sent: bool) -> None:
        for buckets in self._all_buckets(ticket.server):
            unbook(buckets, ticket.need, sent=sent)

    def _all_buckets(self, server: LaneServer) -> Sequence[Buckets]:
        """Of a server, then of the limits that are shared."""
        return [server.buckets, *(pool.buckets for pool in self._pools)]

    def _recover(self, server: LaneServer, now: float) -> None:
        """An outage is over: requests that sleep because of it are woken."""
        server.window.restart(now, paced=bool(server.buckets or self._pools))
        self._reopen(now)
        self._resting.nudge_all()

    def _give_up(self, server: LaneServer) -> None:
        why = f"{self.name}: no answer for {GIVE_UP_S / 60:.0f} minutes; the last failure was: {server.health.last}."
        if not self._meter.requests:
            why += " It has not answered once: check the url in the provider's file, and this machine's network."
        why += " Run again when the provider is back."
        self._end, self._shut = LaneClosed(why), True
        self._send_away(EpisodeUnavailable(why))

    def _send_away(self, error: EvalkitError) -> None:
        self._queue.dismiss_all(error)
        self._resting.nudge_all()
        self._slow_start.open = self._end is not None
        self._slow_start.usher()
        self.serve()  # with an empty queue: it leaves the queues of the shared limits too
