"""Asks a model over HTTP: lane, budget, transport, verdict, reply, settlement, in that order.

Every request is bounded before it is sent and settled when it comes back. An attempt of unknown usage is charged at its
bound, and the charge is on disk before the next attempt is sent. Nothing is awaited between a paid reply and its return
to the caller, which records it.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from evalkit.client.aside import aside
from evalkit.client.ask import Answer, Question
from evalkit.client.budget import Budget
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.pauses import too_long, why_ended
from evalkit.client.lanes.server import LaneServer
from evalkit.client.lanes.servers import ANYWHERE, NOWHERE, Wish
from evalkit.client.lanes.ticket import Ticket
from evalkit.client.leading import SendingRight, renewed
from evalkit.client.long_attempts import SILENCE, may_be_long, refused_stream, wants_stream
from evalkit.client.remedies import line_to_set, with_remedy
from evalkit.client.request import RequestTemplate
from evalkit.client.retry import Retryable, Tries, retrying
from evalkit.client.transport import Transport
from evalkit.dialogue import Message, Reply, Tool
from evalkit.errors import EpisodeRefused, EpisodeUnavailable, LaneClosed
from evalkit.money import PicoUsd, show_usd
from evalkit.store.files.record import ESTIMATED, OK, UNMETERED
from evalkit.wire.billed import counts_as_billed
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.refusals import CONTEXT_LENGTH
from evalkit.wire.tokens import input_tokens, most_output_tokens, output_tokens
from evalkit.wire.verdicts import UNREADABLE

MOST_UNREAD = 8
"""A lane ends after this many consecutive answers that are not replies: each is charged at its bound."""
MOST_UNREAD_OF_ONE = 4
"""The same for one request: then its episode is parked."""


class _Asking:
    """One question during its attempts."""

    __slots__ = (
        *(
            "attempt",
            "body",
            "bound",
            "failed_at",
            "outcomes",
            "question",
            "queue_s",
            "refused",
            "started_at",
            "tries",
            "unread",
        ),
    )

    def __init__(self, question: Question, body: bytes, bound: int) -> None:
        self.question = question
        self.body = body
        self.bound = bound
        self.attempt = 0
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
        right: SendingRight | None = None,
    ) -> None:
        """`streams`: the endpoint that asks for streams; None: there is none, whatever the template's setting.
        `others`: both of each further server of the lane, in its order. `right`: to be had before each sending; None:
        nobody else can have it."""
        self._template = template
        self._ways = ((transport, streams), *others)
        self._several = len(self._ways) > 1
        self._right = right
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
        """The answer. Raises BudgetReached, EpisodeUnavailable, EpisodeRefused, LaneClosed, StorageError, or the error
        with which the lane or the budget was ended."""
        body = self._template.body(question)
        asking = _Asking(question, body, self._template.bound(len(body)))
        outcome = await self._attempt(asking)
        if type(outcome) is Answer:
            return outcome
        assert isinstance(outcome, Verdict)
        return await self._again(asking, outcome)

    async def _again(self, asking: _Asking, failed: Verdict) -> Answer:
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

    async def _attempt(self, asking: _Asking) -> Answer | Verdict:
        """One attempt: an answer, or a verdict after which another attempt may follow. Raises if none may."""
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
        (transport, streams), understood = self._ways[ticket.server.number], None
        if streams is not None and not wants_stream(self._template.stream, long=self._long, lane=lane):
            streams = None
        try:
            if self._right is not None and not self._right.is_current:
                await renewed(self._right)
            response = await (streams or transport).send(body, f"{question.address}/{attempt}")
            # The reply is unknown until it is parsed, so this still belongs to the sending.
            understood = await aside(lambda: self._understand(response), len(response.body))
        finally:
            if understood is None:
                lane.abandon(ticket)
                self._book_failure(asking, attempt, "cancelled", "cancelled")
        verdict, reply, lenient = understood
        if reply is not None:
            return self._accept(asking, ticket, response, reply, lenient=lenient)
        if verdict.kind == "bad_key" and _renewable(asking, response):
            verdict = replace(verdict, action="retry")
        return await self._refuse(asking, ticket, self._learned(verdict, streamed=streams is not None), attempt)

    def _learned(self, verdict: Verdict, *, streamed: bool) -> Verdict:
        """The verdict, after the lane was told what it says about streams; with `auto` one that was refused is asked
        for in one piece next."""
        if streamed and self._template.stream == "auto" and refused_stream(verdict):
            self._lane.streams = False
            return replace(verdict, action="retry", kind="no_stream")
        if not streamed and self._lane.streams is None and verdict.outcome in SILENCE:
            self._lane.streams = True
        return verdict

    def _wish(self, asking: _Asking) -> Wish:
        """Which of several servers should answer."""
        return Wish(asking.question.cached_at.get(self._lane.name, NOWHERE), asking.failed_at)

    async def _stand_in_line(self, asking: _Asking) -> Ticket:
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

    async def _wait_for_money(self, asking: _Asking, ticket: Ticket) -> Ticket:
        """Reserve while holding a place in the lane. In the opposite order, a lane that is paused or down would hold
        the money of its whole queue, and other lanes would starve."""
        while True:
            reserved = False
            try:
                await self._budget.reserve(asking.bound)
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
        self, asking: _Asking, ticket: Ticket, response: HttpResponse, reply: Reply, *, lenient: bool
    ) -> Answer:
        """The reply as an answer, settled."""
        usage, outcome = reply.usage, OK
        cost = self._template.price.of(usage)
        if usage.unknown:
            reply, cost, outcome = self._without_usage(asking, reply, cost)
            usage = reply.usage
        # Tokens that the provider did not count are estimated from the reply's length, because its limits still apply.
        known_usage = usage if "output" not in usage.unknown else replace(usage, output=output_tokens(reply))
        latency_s = self._lane.succeeded(ticket, known_usage)
        if self._several:
            asking.question.cached_at[self._lane.name] = ticket.server.number
        requests, tokens = self._allowances(response.headers)
        if requests is not None or tokens is not None:
            used = known_usage.input + known_usage.output
            self._lane.heed(requests, tokens, at=ticket.server, took_s=latency_s, used=used)
        if not self._budget.settle(asking.bound, cost):
            self._lane.end(LaneClosed(self._why_over(asking, cost)))
        return Answer(
            reply=reply,
            cost=cost,
            latency_s=latency_s,
            queue_s=asking.queue_s,
            attempts=f"{asking.outcomes},{outcome}" if asking.outcomes else outcome,
            started_at=asking.started_at,
            raw=response.body if lenient else None,
        )

    def _without_usage(self, asking: _Asking, reply: Reply, listed: PicoUsd) -> tuple[Reply, PicoUsd, str]:
        """For a reply with figures that the provider did not state, and which costs `listed` by the others: (the reply,
        with estimates if the provider's file asks for them; what to charge; the last entry of its `attempts`)."""
        template, usage, bound = self._template, reply.usage, self._max_tokens
        counted = "input" not in usage.unknown and "output" not in usage.unknown
        if counted and not template.price.caching_may_cost:
            return reply, listed, OK  # missing figures have no price of their own
        if not template.quirks.unseen_tokens and (template.dialect.verbatim_calls or not reply.calls):
            shown = most_output_tokens(reply)
            bound = bound if shown is None else min(bound, shown)
        most_input = len(asking.body) + template.dialect.overhead_tokens
        cost = template.price.most(usage, input_tokens=most_input, output_tokens=bound)
        if counted and cost == listed:
            return reply, cost, OK
        guess: PicoUsd | None = None
        if template.estimates:
            read = input_tokens(len(asking.body)) if "input" in usage.unknown else usage.input
            written = min(output_tokens(reply), bound) if "output" in usage.unknown else usage.output
            usage = replace(usage, input=read, output=written, unknown=())
            reply, guess = replace(reply, usage=usage), template.price.of(usage)
        self._budget.note_unmetered(cost, guess)
        return reply, cost, UNMETERED if guess is None else ESTIMATED

    async def _refuse(self, asking: _Asking, ticket: Ticket, verdict: Verdict, attempt: int) -> Verdict:
        """Book what the failure cost; return the verdict if another attempt may follow, raise if none may."""
        asking.outcomes = f"{asking.outcomes},{verdict.kind}" if asking.outcomes else verdict.kind
        assert asking.tries is not None
        asking.tries.counted += not ticket.probe
        asking.failed_at = ticket.server.number
        self._lane.failed(ticket, verdict.kind, wait_s=verdict.wait_s, message=self._hinted(verdict))
        if self._book_failure(asking, attempt, verdict.outcome, verdict.kind):
            await self._budget.durable()
        if verdict.action == "end_episode":
            words, question = self._in_words(verdict), asking.question
            if verdict.kind != CONTEXT_LENGTH or not question.step:
                self._lane.refused(question.episode, verdict.message or verdict.kind, words)
            raise EpisodeRefused(verdict.kind, words)
        if verdict.action == "end_lane":
            self._close(f"{self._lane.name}{ticket.server.at}: {self._in_words(verdict)}")
        if verdict.wait_s is not None and self._lane.has_other(ticket.server):
            verdict = replace(verdict, wait_s=None)  # it waits alone: another answers in its place
        if verdict.wait_s is not None and too_long(verdict.wait_s, self._lane.deadline - self._clock()):
            words = verdict.message or verdict.kind
            self._close(why_ended(self._lane.name, verdict.wait_s, time.time(), words))
        if verdict.kind in UNREADABLE:
            self._weigh(asking, verdict, ticket.server)
        return verdict

    def _weigh(self, asking: _Asking, verdict: Verdict, server: LaneServer) -> None:
        """An answer that is not a reply and may have been billed: raises if another attempt would waste money."""
        if server.unread >= MOST_UNREAD:
            self._close(
                f"{self._lane.name}{server.at}: {MOST_UNREAD} answers in a row could not be read; the last one: "
                f"{verdict.message or verdict.kind}. What they may have cost is charged. Check the url and the dialect "
                f"of provider {self._template.provider!r}, and any proxy or gateway on the way."
            )
        asking.unread += 1
        if asking.unread >= MOST_UNREAD_OF_ONE:
            raise EpisodeUnavailable(
                f"{self._lane.name}: {asking.unread} answers at step {asking.question.step} could not be read "
                f"({asking.outcomes}); the last one: {verdict.message or verdict.kind}. "
                "Run again to resume the episode."
            )

    def _close(self, why: str) -> NoReturn:
        """End the lane. Raises LaneClosed."""
        error = LaneClosed(why)
        self._lane.end(error)
        raise error

    def _book_failure(self, asking: _Asking, attempt: int, outcome: str, reason: str) -> bool:
        """Charge an attempt with a billed outcome, and return True; otherwise release its reservation."""
        if not counts_as_billed(outcome, self._template.billed):
            self._budget.settle(asking.bound, 0)
            return False
        self._budget.book_charge(
            asking.bound,
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
        template = self._template
        return with_remedy(verdict, provider=template.provider, model=template.model, key=template.key)

    def _hinted(self, verdict: Verdict) -> str:
        """What went wrong, and what to do about it where a line of the provider's file may prevent it."""
        return self._in_words(verdict).rstrip(".") if line_to_set(verdict) else verdict.message

    def _why_over(self, asking: _Asking, cost: int) -> str:
        question = asking.question
        return (
            f"{self._lane.name}: step {question.step} of episode {question.episode} cost {show_usd(cost)}, more than "
            f"the {show_usd(asking.bound)} that its size and max_tokens allow. The lane is stopped, since its cost "
            "cannot be bounded: check the model's price, and whether the provider honours max_tokens."
        )


def _renewable(asking: _Asking, response: HttpResponse) -> bool:
    """Whether a request whose key was refused is to be sent again, with new credentials: not if they are no others than
    before, or if those before were refused too and these never worked. Where they did, they have expired since."""
    number, before = response.credentials, asking.refused
    asking.refused = number
    return number > 0 and before != number and (before != number - 1 or response.credentials_worked)
