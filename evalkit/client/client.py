"""Asks a model over HTTP: lane, budget, transport, verdict, reply, settlement, in that order.

Every request is bounded before it is sent and settled when it comes back. An attempt of unknown usage is charged at its
bound, and the charge is on disk before the next attempt is sent. Nothing is awaited between a paid reply and its return
to the caller, which records it.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import msgspec

from evalkit.client.ask import Answer, Question, SendPermission, renewed
from evalkit.client.budget import Budget
from evalkit.client.lanes.health import MOST_PAID, NO_ROOM, REFUSAL, too_long, why_ended
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.servers import ANYWHERE, NOWHERE, LaneServer, Ticket, Wish
from evalkit.client.lanes.tier_pace import TierPace
from evalkit.client.remedies import line_to_set, why_paid, with_remedy
from evalkit.client.request import RequestTemplate
from evalkit.client.retry import (
    FULL,
    MOST_AWAY_S,
    PATIENCE_S,
    SILENCE,
    Retryable,
    Tries,
    away_s,
    may_be_long,
    refused_stream,
    retrying,
    wants_stream,
)
from evalkit.client.streaming import offloaded
from evalkit.client.transport import Transport
from evalkit.dialogue import Message, Reply, Tool, Usage
from evalkit.errors import EpisodeRefused, EpisodeUnavailable, LaneClosed
from evalkit.money import FLEX, STANDARD, PicoUsd, Price, Tier, show_usd
from evalkit.seeds import derive
from evalkit.store.files.record import DOUBTFUL, OK, UNMETERED
from evalkit.text import span
from evalkit.wire.exhausted import CONTEXT_LENGTH
from evalkit.wire.http import HttpResponse, Verdict, counts_as_billed
from evalkit.wire.tokens import input_tokens, is_far_beyond, most_bytes, output_tokens
from evalkit.wire.too_long import speaks_of_size
from evalkit.wire.unparsed import BAD_CALL, DRAWS, malformed_reply
from evalkit.wire.usage import within
from evalkit.wire.verdicts import UNREADABLE

_NEAR = 0.9
"""Of a model's window: a request of about this size may be beyond it, as sizes in tokens are estimated."""
_BEGUN = UNREADABLE | {"truncated", "broken_off"}
"""Outcomes of good answers that turned out to be no replies."""
LIMIT_EVERY_S = 5.0
"""How often it is asked whether a slow tier may still be waited for, ..."""
LEAST_S = 0.01
"""... and what counts as no time."""
MOST_UNREAD_OF_ONE = 4
"""The same for one request: then its episode is deferred."""


class _Attempts:
    """One question during its attempts."""

    __slots__ = (
        *("attempt", "away", "away_since", "bad_calls", "body", "bound", "drawn", "failed_after", "failed_at"),
        *("outcomes", "place", "question", "queue_s", "refused", "started_at", "tier", "tier_since", "tries", "unread"),
    )

    def __init__(self, question: Question, tier: Tier, body: bytes, bound: int) -> None:
        self.question = self.drawn = question
        """As it is asked; after a malformed call with another seed."""
        self.body = body
        self.bound = bound
        self.tier = tier
        """By which the next attempt goes, ..."""
        self.tier_since: float | None = None
        """Loop time since which it goes by that, where the lane's pace asks; None: it does not yet."""
        self.place = 0
        """... not before this one of the template's."""
        self.away, self.away_since = 0, math.inf
        """How often that tier had no room for it, and since when."""
        self.attempt = 0
        self.bad_calls = 0
        """Attempts at which the provider refused what its own model wrote."""
        self.failed_after: dict[int, int] = {}
        """By server, the replies that it had given to others when the first attempt failed there."""
        self.failed_at = NOWHERE
        """The number of the server at which the last attempt has failed."""
        self.refused = -1
        """The number of the credentials with which it was last refused."""
        self.unread = 0
        """Attempts whose answer was not a reply."""
        self.outcomes = ""
        self.queue_s = 0.0
        self.started_at = 0.0
        self.tries: Tries | None = None


class ModelAsker:
    """Asks one model for one agent; satisfies `Asker`."""

    free = False

    def __init__(
        self,
        template: RequestTemplate,
        *,
        lane: Lane,
        budget: Budget,
        transport: Transport,
        streams: Transport | None = None,
        others: Sequence[tuple[Transport, Transport | None]] = (),
        by_tier: Mapping[Tier, Sequence[tuple[Transport, Transport | None]]] = {},
        permission: SendPermission | None = None,
    ) -> None:
        """`streams`: the endpoint that asks for streams; None: there is none, whatever the template's setting.
        `others`: both of each further server of the lane, in its order. `by_tier`: all of them again, where requests of
        a tier are sent otherwise. `permission`: to be had before each sending; None: nobody else can have it."""
        self._template = template
        ways = ((transport, streams), *others)
        self._ways = {tier: by_tier.get(tier, ways) for tier in template.tiers}
        self._several = len(ways) > 1
        self._permission = permission
        self._long = may_be_long(template.sampling)
        self._lane = lane
        self._budget = budget
        self._understand = template.dialect.understand
        self._allowances = template.dialect.allowances
        self._max_tokens = template.sampling.max_tokens
        self._clock = asyncio.get_running_loop().time

    def join(self, parts: list[bytes], messages: Sequence[Message]) -> None:
        """Append messages to the encoded parts of their chat."""
        self._template.join(parts, messages)

    def encode_tools(self, tools: tuple[Tool, ...]) -> bytes:
        """A tool list."""
        return self._template.encode_tools(tools)

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises BudgetReached, RequestTooLarge, EpisodeUnavailable, EpisodeRefused, LaneClosed,
        StorageError, or the error with which the lane or the budget was ended."""
        tier = self._template.tiers[0]
        body = self._template.body(question, tier)
        if self._template.outgrows_window(len(body)):
            raise EpisodeRefused(
                "context_length",
                f"The request has {len(body):,} bytes, more than fit into the {self._template.window:,} tokens of the "
                "model's window. It was not sent.",
            )
        asking = _Attempts(question, tier, body, self._template.bound(len(body), tier))
        try:
            outcome = await self._attempt(asking)
            if type(outcome) is Answer:
                return outcome
            assert isinstance(outcome, Verdict)
            return await self._again(asking, outcome)
        finally:
            if asking.tier_since is not None:
                self._clock_tier(asking)

    async def _again(self, asking: _Attempts, failed: Verdict) -> Answer:
        """Further attempts. Tenacity's first attempt is the one that has failed, so that its schedule counts from
        there."""
        tries = asking.tries
        assert tries is not None
        place = asking.question.address
        first: Verdict | None = failed
        try:
            async for attempt in retrying(tries, place=place, clock=self._clock, sleep=self._lane.rest):
                with attempt:
                    outcome = first or await self._attempt(asking)
                    first = None
                    if isinstance(outcome, Verdict):
                        raise Retryable(outcome)
                    return outcome
        except Retryable as flaw:
            words = self._hinted(flaw.verdict) or flaw.verdict.kind
            raise EpisodeUnavailable(
                f"{self._lane.name}: {asking.attempt} attempts at step {asking.question.step} failed "
                f"({asking.outcomes}); the last one: {words}. Run again to resume the episode."
            ) from None
        raise AssertionError("the policy neither returned nor raised")

    async def _attempt(self, asking: _Attempts) -> Answer | Verdict:
        """One attempt: an answer, or a verdict after which another attempt may follow. Raises if none may."""
        if len(self._ways) > 1:
            self._choose_tier(asking)
        lane, body, bound = self._lane, asking.body, asking.bound
        ticket = lane.try_enter(len(body), self._max_tokens, self._wish(asking) if self._several else ANYWHERE)
        if ticket is None:
            ticket = await self._stand_in_line(asking)
        if bound and not self._budget.take(bound):
            ticket = await self._wait_for_money(asking, ticket)
        if asking.tries is None:
            asking.tries = Tries(ticket.sent_at)
            asking.started_at = time.time()
        attempt, question = asking.attempt, asking.question
        asking.attempt = attempt + 1
        (transport, streams), understood = self._ways[asking.tier][ticket.server.number], None
        if streams is not None and not wants_stream(self._template.stream, long=self._long, lane=lane):
            streams = None
        try:
            if self._permission is not None and not self._permission.is_current:
                await renewed(self._permission)
            endpoint, name = streams or transport, f"{question.address}/{attempt}"
            if lane.pace is not None and asking.tier == FLEX and self._is_slow(asking.place):
                response = await self._sent(asking, lane.pace, endpoint, name)
            else:
                response = await endpoint.send(body, name)
            # The reply is unknown until it is parsed, so this still belongs to the sending.
            understood = await offloaded(lambda: self._understand(response), len(response.body))
        finally:
            if understood is None:
                lane.abandon(ticket)
                self._book_failure(asking, attempt, "cancelled", "cancelled")
        verdict, reply, lenient = understood
        if reply is not None and len(response.body) > most_bytes(self._max_tokens):
            verdict, reply = self._unless_endless(asking, verdict, reply)
        if reply is not None:
            return self._accept(asking, ticket, response, reply, lenient=lenient)
        if verdict.kind == "bad_key" and _renewable(asking, response):
            verdict = replace(verdict, action="retry")
        verdict = self._measured(asking, verdict)
        if streams is not None or asking.tier != FLEX:  # the silence of a slow tier says nothing of streams
            verdict = self._learned(verdict, streamed=streams is not None)
        verdict = await self._refuse(asking, ticket, verdict, attempt)
        return self._draw_again(asking, response, verdict) if verdict.action == "draw_again" else verdict

    def _draw_again(self, asking: _Attempts, response: HttpResponse, verdict: Verdict) -> Answer | Verdict:
        """After a refusal of what the model wrote: the verdict, with the next request made; or, after the last draw, an
        answer with the model's malformed call, whose attempts are charged already."""
        asking.bad_calls += 1
        if asking.bad_calls < DRAWS:
            seed = derive(asking.question.address, BAD_CALL, asking.bad_calls)
            asking.drawn = msgspec.structs.replace(asking.question, seed=seed)
            self._encode(asking)
            return verdict
        assert asking.tries is not None
        return Answer(
            reply=malformed_reply(response.body),
            cost=PicoUsd(0),
            latency_s=self._clock() - asking.tries.began_at,
            queue_s=asking.queue_s,
            attempts=asking.outcomes,
            started_at=asking.started_at,
        )

    def _encode(self, asking: _Attempts) -> None:
        """The request as it is asked next."""
        asking.body = self._template.body(asking.drawn, asking.tier)
        asking.bound = self._template.bound(len(asking.body), asking.tier)

    def _choose_tier(self, asking: _Attempts) -> None:
        """By which tier the next attempt goes: the first that has not kept the request waiting for too long, or the
        next one if the lane's pace wants it."""
        pace, question, place = self._lane.pace, asking.question, asking.place
        if pace is not None and self._is_slow(place):
            draw = derive(question.address, "tier", asking.attempt) / 2.0**31
            place += draw >= pace.share(question.episode, self._clock())
        tier = self._template.tiers[place]
        if pace is not None and (tier != asking.tier or asking.tier_since is None):
            self._clock_tier(asking, tier)
        if tier != asking.tier:
            asking.tier = tier
            asking.away, asking.away_since = 0, math.inf
            self._encode(asking)

    def _is_slow(self, place: int) -> bool:
        """Whether a tier of the template's is the slow one, with another after it."""
        tiers = self._template.tiers
        return tiers[place] == FLEX and place + 1 < len(tiers)

    def _clock_tier(self, asking: _Attempts, tier: Tier = "", *, answered: bool = False, lost: bool = False) -> None:
        """The lane's pace is told that a request leaves its tier, and that it goes by another; by none: it is over."""
        pace, now = self._lane.pace, self._clock()
        if pace is None:
            return
        if asking.tier_since is not None:
            speed = pace.slow if asking.tier == FLEX else pace.quick
            speed.ended(asking.tier_since, now, answered=answered, lost=lost)
            asking.tier_since = None
        if tier:
            asking.tier_since = now
            (pace.slow if tier == FLEX else pace.quick).asked(now)

    async def _sent(self, asking: _Attempts, pace: TierPace, endpoint: Transport, request: str) -> HttpResponse:
        """The response of a slow tier, which is waited for no longer than time allows."""
        episode, loop = asking.question.episode, asyncio.get_running_loop()
        timer: asyncio.Handle | None = None

        def look() -> None:
            nonlocal timer
            left_s = pace.limit_s(episode, loop.time())
            if left_s > LEAST_S:
                timer = loop.call_later(min(left_s, LIMIT_EVERY_S), look)
            else:
                timeout.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as timeout:
                look()
                return await endpoint.send(asking.body, request)
        except TimeoutError:
            words = f"no reply by the tier {asking.tier} before the time that is left was needed for the next one"
            return HttpResponse(headers={}, failure="timeout", detail=words)
        finally:
            if timer is not None:
                timer.cancel()

    def _turned_away(self, asking: _Attempts, ticket: Ticket, verdict: Verdict) -> Verdict:
        """After a refusal of the tier alone, which costs nothing: when to ask it again, or the next tier at once. The
        time that it makes a request wait does not count as the request's own. Raises EpisodeUnavailable."""
        now, tiers = self._clock(), self._template.tiers
        assert asking.tries is not None
        self._budget.settle(asking.bound, 0)
        self._lane.turned_away(ticket)
        asking.away += 1
        asking.away_since = min(asking.away_since, now)
        asking.tries.began_at = now
        if now - asking.away_since >= MOST_AWAY_S:
            raise EpisodeUnavailable(
                f"{self._lane.name}: the tier {asking.tier} has had no room for {span(MOST_AWAY_S)}; it said: "
                f"{verdict.message or verdict.kind}. Run again to resume the episode."
            )
        wait_s = max(verdict.wait_s or 0.0, away_s(asking.away, asking.question.address))
        pace = self._lane.pace
        most_s = PATIENCE_S - (now - asking.away_since)
        if pace is not None:
            most_s = min(most_s, pace.limit_s(asking.question.episode, now))
        if asking.place + 1 < len(tiers) and wait_s >= most_s:
            self._go_down(asking)
            wait_s = 0.0
        return replace(verdict, kind=NO_ROOM, wait_s=wait_s)

    def _go_down(self, asking: _Attempts) -> None:
        """From now on it goes by the next tier, if there is one."""
        asking.place = min(asking.place + 1, len(self._template.tiers) - 1)
        asking.away, asking.away_since = 0, math.inf

    def _measured(self, asking: _Attempts, verdict: Verdict) -> Verdict:
        """The verdict, after the size that was sent was held beside the model's window: where little of it is left, a
        refusal that speaks of a size, or of nothing, means that."""
        window = self._template.window
        if window is None or verdict.kind != "bad_request" or verdict.outcome not in ("400", "413", "422"):
            return verdict
        size = input_tokens(len(asking.body)) + self._max_tokens
        said = "" if verdict.message == f"HTTP {verdict.outcome}" else verdict.message.lower()
        if size < _NEAR * window or line_to_set(verdict) or not speaks_of_size(said):
            return verdict
        return replace(verdict, kind="context_length")

    def _unless_endless(self, asking: _Attempts, verdict: Verdict, reply: Reply) -> tuple[Verdict, Reply | None]:
        """The reply, or why it is none if it is far longer than it was allowed to be. One whose usage costs more than
        its bound stays a reply: it is charged in full, and ends the lane."""
        rates = self._template.served(asking.tier, reply.tier)[1]
        if not is_far_beyond(reply, self._max_tokens) or _dearest(rates, reply.usage) > asking.bound:
            return verdict, reply
        words = f"a reply far longer than the {self._max_tokens:,} tokens of `max_tokens` can be"
        return Verdict(action="retry", kind="unreadable", message=words, outcome="unreadable"), None

    def _learned(self, verdict: Verdict, *, streamed: bool) -> Verdict:
        """The verdict, after the lane was told what it says about streams; with `auto` one that was refused is asked
        for in one piece next."""
        if streamed and self._template.stream == "auto" and refused_stream(verdict):
            self._lane.streams = False
            return replace(verdict, action="retry", kind="no_stream")
        if not streamed and self._lane.streams is None and verdict.outcome in SILENCE:
            self._lane.streams = True
        return verdict

    def _wish(self, asking: _Attempts) -> Wish:
        """Which of several servers should answer."""
        return Wish(asking.question.cached_at.get(self._lane.name, NOWHERE), asking.failed_at)

    async def _stand_in_line(self, asking: _Attempts) -> Ticket:
        """A ticket that holds now: the process may have stood still between its turn and this line, for so long that
        another has been given its share."""
        since = self._clock()
        while True:
            ticket = await self._lane.enter(len(asking.body), self._max_tokens, self._wish(asking))
            if self._lane.renew(ticket):
                break
            self._lane.abandon(ticket, sent=False)
        asking.queue_s += ticket.sent_at - since
        return ticket

    async def _wait_for_money(self, asking: _Attempts, ticket: Ticket) -> Ticket:
        """Reserve while holding a place in the lane. In the opposite order, a lane that is paused or down would hold
        the money of its whole queue, and other lanes would starve."""
        while True:
            reserved = False
            try:
                await self._budget.reserve(
                    asking.bound, usual=self._template.usual_bound(asking.question, len(asking.body))
                )
                reserved = True
            finally:
                if not reserved:
                    self._lane.abandon(ticket, sent=False)
            if self._lane.renew(ticket):
                return ticket
            self._budget.settle(asking.bound, 0)
            self._lane.abandon(ticket, sent=False)
            ticket = await self._stand_in_line(asking)

    def _accept(
        self, asking: _Attempts, ticket: Ticket, response: HttpResponse, reply: Reply, *, lenient: bool
    ) -> Answer:
        """The reply as an answer, settled."""
        usage, outcome = reply.usage, OK
        tier, rates, known = self._template.served(asking.tier, reply.tier)
        tiered = self._template.provider.service_tiers
        cost = _dearest(rates, usage)
        if usage.unknown or usage.doubtful:
            reply, cost, outcome = self._without_usage(asking, reply, cost, rates)
            usage = reply.usage
        # Tokens that the provider did not count are estimated from the reply's length, because its limits still apply.
        known_usage = usage if "output" not in usage.unknown else replace(usage, output=output_tokens(reply))
        limited = known_usage
        if not self._template.dialect.cached_reads_count:
            limited = replace(known_usage, input=max(1, known_usage.input - known_usage.cached_read))
        if asking.tier_since is not None:
            self._clock_tier(asking, answered=True)
        apart = len(self._ways) > 1 and tier != STANDARD
        latency_s = self._lane.succeeded(ticket, known_usage, limited=limited, apart=apart)
        if self._several:
            asking.question.cached_at[self._lane.name] = ticket.server.number
        requests, tokens = self._allowances(response.headers)
        if requests is not None or tokens is not None:
            used = known_usage.input + known_usage.output
            self._lane.apply_allowance(requests, tokens, at=ticket.server, took_s=latency_s, used=used)
        if not known:
            self._lane.end(LaneClosed(self._why_unpriced(asking, tier)))
        if not self._budget.settle(asking.bound, cost):
            self._lane.end(LaneClosed(self._why_over(asking, cost)))
        return Answer(
            reply=reply,
            cost=cost,
            latency_s=latency_s,
            queue_s=asking.queue_s,
            attempts=f"{asking.outcomes},{outcome}" if asking.outcomes else outcome,
            started_at=asking.started_at,
            tier=tier,
            saved=self._template.price.of(usage) - cost if tiered and outcome != UNMETERED else 0,
            raw=response.body if lenient else None,
        )

    def _without_usage(
        self, asking: _Attempts, reply: Reply, listed: PicoUsd, rates: Sequence[Price]
    ) -> tuple[Reply, PicoUsd, str]:
        """For a reply with figures that the provider did not state, or that contradict each other, and that costs
        `listed` by the others: (the reply; what to charge; the last entry of its `attempts`). `rates`: one of these
        prices holds."""
        template, usage, bound = self._template, reply.usage, self._max_tokens
        most_input = len(asking.body) + template.dialect.overhead_tokens
        if usage.doubtful:
            usage = within(usage, most_input=most_input, most_output=bound)
            reply, listed = replace(reply, usage=usage), _dearest(rates, usage)
        counted = "input" not in usage.unknown and "output" not in usage.unknown
        free = counted and not any(price.caching_may_cost for price in rates)  # what is missing has no price of its own
        most = (price.most(usage, input_tokens=most_input, output_tokens=bound) for price in rates)
        cost = listed if free else max(most)
        if counted and cost == listed:
            if usage.doubtful:
                self._budget.note_doubtful(listed)
            return reply, listed, DOUBTFUL if usage.doubtful else OK
        self._budget.note_unmetered(cost)
        return reply, cost, UNMETERED

    async def _refuse(self, asking: _Attempts, ticket: Ticket, verdict: Verdict, attempt: int) -> Verdict:
        """Book what the failure cost; return the verdict if another attempt may follow, raise if none may."""
        away = asking.tier == FLEX and verdict.action == "retry" and verdict.outcome in FULL and not verdict.names_limit
        kind = NO_ROOM if away else verdict.kind
        asking.outcomes = f"{asking.outcomes},{kind}" if asking.outcomes else kind
        assert asking.tries is not None
        if away:
            return self._turned_away(asking, ticket, verdict)
        slow = verdict.kind == "timeout" and asking.tier == FLEX
        if slow:
            self._clock_tier(asking, lost=True)
            self._go_down(asking)
        paid = counts_as_billed(verdict.outcome, self._template.billed, kind=verdict.kind)
        asking.failed_at = ticket.server.number
        if slow:
            self._lane.abandon(ticket)
        else:
            self._lane.failed(
                ticket,
                verdict.kind,
                wait_s=verdict.wait_s,
                message=self._hinted(verdict),
                paid=paid and verdict.action == "retry",
                answered=verdict.outcome in _BEGUN,
                request=asking.question.address,
            )
        asking.tries.counted += paid or not ticket.probe or _is_its_own(asking, verdict, ticket.server)
        if paid and ticket.server.paid >= MOST_PAID:  # before anybody else is let in
            self._lane.end(LaneClosed(self._why_paid(verdict, ticket.server)))
        if self._book_failure(asking, attempt, verdict.outcome, verdict.kind, verdict.usage):
            await self._budget.durable()
        if verdict.action == "end_episode":
            words, question = self._in_words(verdict), asking.question
            if verdict.kind != CONTEXT_LENGTH or not question.step:
                self._lane.refused(question.episode, verdict.message or verdict.kind, words)
            raise EpisodeRefused(verdict.kind, words)
        if verdict.action == "defer":
            raise EpisodeUnavailable(f"{self._lane.name}: {self._in_words(verdict)}")
        if verdict.action == "end_lane":
            self._close(f"{self._lane.name}{ticket.server.at}: {self._in_words(verdict)}")
        if verdict.wait_s is not None and self._lane.has_other(ticket.server):
            verdict = replace(verdict, wait_s=None)  # it waits alone: another answers in its place
        if verdict.wait_s is not None and too_long(verdict.wait_s, self._lane.deadline - self._clock()):
            words = verdict.message or verdict.kind
            self._close(why_ended(self._lane.name, verdict.wait_s, time.time(), words))
        if paid and ticket.server.paid >= MOST_PAID:
            raise LaneClosed(self._why_paid(verdict, ticket.server))
        asking.unread += verdict.kind in UNREADABLE
        if asking.unread >= MOST_UNREAD_OF_ONE:
            raise EpisodeUnavailable(
                f"{self._lane.name}: {asking.unread} answers at step {asking.question.step} could not be read "
                f"({asking.outcomes}); the last one: {verdict.message or verdict.kind}. "
                "Run again to resume the episode."
            )
        return verdict

    def _why_paid(self, verdict: Verdict, server: LaneServer) -> str:
        begun, streamed = verdict.outcome in _BEGUN, self._template.stream != "off"
        name = f"{self._lane.name}{server.at}"
        return why_paid(name, verdict, self._template.provider.name, times=MOST_PAID, begun=begun, streamed=streamed)

    def _close(self, why: str) -> NoReturn:
        """End the lane. Raises LaneClosed."""
        error = LaneClosed(why)
        self._lane.end(error)
        raise error

    def _book_failure(
        self, asking: _Attempts, attempt: int, outcome: str, reason: str, usage: Usage | None = None
    ) -> bool:
        """Charge an attempt with a billed outcome, and return True; otherwise release its reservation. `usage`: what it
        has used, if that is known."""
        if not counts_as_billed(outcome, self._template.billed, kind=reason):
            self._budget.settle(asking.bound, 0)
            return False
        amount = asking.bound
        if usage is not None and not usage.doubtful and not {"input", "output"} & set(usage.unknown):
            rates = self._template.rates(asking.tier)
            amount = min(amount, max(price.most(usage, input_tokens=0, output_tokens=0) for price in rates))
            self._budget.settle(asking.bound - amount, 0)
        self._budget.book_charge(
            amount,
            lane=self._lane.name,
            agent=self._template.agent,
            episode=asking.question.episode,
            step=asking.question.step,
            attempt=attempt,
            reason=reason,
        )
        return True

    def _in_words(self, verdict: Verdict) -> str:
        """What went wrong, and what to do about it."""
        provider = self._template.provider
        return with_remedy(verdict, provider=provider.name, model=self._template.model.name, key=provider.key_words)

    def _hinted(self, verdict: Verdict) -> str:
        """What went wrong, and what to do about it where a line of the provider's file may prevent it."""
        return self._in_words(verdict).rstrip(".") if line_to_set(verdict) else verdict.message

    def _why_unpriced(self, asking: _Attempts, tier: Tier) -> str:
        return (
            f"{self._lane.name}: a request of the tier {asking.tier} was served by {tier!r}, whose price is not known. "
            "It is charged at the dearest that is, and the lane is stopped, since its cost cannot be bounded: add the "
            f"price to `tiers` of the model in providers/{self._template.provider.name}.toml."
        )

    def _why_over(self, asking: _Attempts, cost: int) -> str:
        question = asking.question
        return (
            f"{self._lane.name}: step {question.step} of episode {question.episode} cost {show_usd(cost)}, more than "
            f"the {show_usd(asking.bound)} that its size and max_tokens allow. The lane is stopped, since its cost "
            "cannot be bounded: check the model's price, and whether the provider honours max_tokens."
        )


def _dearest(rates: Sequence[Price], usage: Usage) -> PicoUsd:
    """What a usage costs at the dearest of these prices."""
    return rates[0].of(usage) if len(rates) == 1 else max(price.of(usage) for price in rates)


def _is_its_own(asking: _Attempts, verdict: Verdict, server: LaneServer) -> bool:
    """Whether a probe has failed because of its request, for all that is known: others were answered since its first
    failure, or none has failed since the last answer. A limit passes, and who does not listen has read none."""
    since = asking.failed_after.setdefault(server.number, server.replies)
    return verdict.kind not in (REFUSAL, "connect") and (server.replies > since or not server.health.several)


def _renewable(asking: _Attempts, response: HttpResponse) -> bool:
    """Whether a request whose key was refused is to be sent again, with new credentials: not if they are no others than
    before, or if those before were refused too and these never worked. Where they did, they have expired since."""
    number, before = response.credentials, asking.refused
    asking.refused = number
    return number > 0 and before != number and (before != number - 1 or response.credentials_worked)
