"""The seat of an agent that is code: asks from the log or from a model, acts, and what the log knows of both.

An ask has an address: episode, base take, step, key, n. The base take began at step 0; the key is that of the
fork that asked; n counts its asks within the step. A logged address is answered from the log and never sent again; its
request must be what it was, and an act must lead to the state that it led to.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Reply, Tool, ToolCall, Usage
from evalkit.digests import ask_digest
from evalkit.engine.agents.roles import PlacedAsk, RoleAskers, ShownChat, ask_record
from evalkit.engine.episode import ActiveEpisode, LaneContext, breathe, step_record
from evalkit.envs.replay import Turn, advance
from evalkit.errors import (
    ASK_LIMIT,
    AgentDiverged,
    AgentError,
    AgentStopped,
    AskRefused,
    EpisodeRefused,
    EvalkitError,
    LaneClosed,
)
from evalkit.money import PicoUsd
from evalkit.replies import composed, decode_reply
from evalkit.seats import MAIN, OwnTools
from evalkit.seeds import Stream, derive
from evalkit.store.files.record import OK

ASKS_OF_STEP, ASKS_OF_EPISODE = 64, 10_000
"""Beyond these an ask is refused (`ask_limit`)."""
MOST_KEY = 200
"""Letters of a fork's key."""
CLOSED = "is closed, because its agent has returned or its episode was left"

Given = ParamSpec("Given")
Got = TypeVar("Got")


def _yielding(call: Callable[Given, Coroutine[Any, Any, Got]]) -> Callable[Given, Coroutine[Any, Any, Got]]:
    """A call that lets others run before it raises: who catches that may call again at once, without end."""

    @wraps(call)
    async def called(*args: Given.args, **how: Given.kwargs) -> Got:
        try:
            return await call(*args, **how)
        except (AgentError, AskRefused):
            await asyncio.sleep(0)
            raise

    return called


class EpisodeSeat:
    """Satisfies `seats.Seat`."""

    def __init__(self, role_askers: RoleAskers, active: ActiveEpisode, context: LaneContext) -> None:
        self._role_askers, self._active, self._context = role_askers, active, context
        self._position = active.position
        self.fate: asyncio.Future[str | BaseException] = asyncio.get_running_loop().create_future()
        """How the episode is left if not by its agent: a way, or an error."""
        self._thread = threading.get_ident()
        self._closed = asyncio.Event()
        """The agent's coroutine has ended, or was given up."""
        self._flights: set[asyncio.Task[Answer | AskRefused]] = set()
        self._unawaited: set[asyncio.Task[Answer | AskRefused]] = set()
        """Of these, the ones that the agent has cancelled its wait for."""
        self._slots = asyncio.Semaphore(role_askers.code.parallel)
        """Of requests that are sent and not durable yet: a crash is charged for so many."""
        self._chats: dict[str, ShownChat] = {}
        """By role."""
        self._root = EpisodeAsker(self, "")
        self._keys: set[str] = set()
        """Forks of this step."""
        self.asks_of_step = 0
        self.refused: AskRefused | None = None
        """What its last request came to, if the provider refused it and the agent has not acted since."""
        self._asks = 0
        self._logged = Counter[int]()
        """By step, rows of asks that the log has: more than were asked, if some were asked again."""
        for (step, *_), ask in active.asks.items():
            self._logged[step] = max(self._logged[step], ask.turn + 1)
        self._shown: tuple[Message, ...] | None = None
        self._tools, self._params = OwnTools(), deepcopy(dict(role_askers.params))

    # What an agent reads.

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Seat`."""
        if self._shown is None:
            self._shown = tuple(self._position.messages)
        return self._shown

    @property
    def tools(self) -> tuple[Tool, ...]:
        """See `Seat`."""
        return self._tools.of(self._position.tools)

    @property
    def step(self) -> int:
        """See `Seat`."""
        return self._position.step

    @property
    def period(self) -> int:
        """See `Seat`."""
        return self._position.period

    @property
    def turn(self) -> int:
        """See `Seat`."""
        return self._position.turn

    @property
    def ending(self) -> str:
        """See `Seat`."""
        return self._position.ending

    @property
    def environment(self) -> str:
        """See `Seat`."""
        return self._active.episode.suite.environment

    @property
    def params(self) -> Mapping[str, Any]:
        """See `Seat`."""
        return self._params

    @property
    def parallel(self) -> int:
        """See `Seat`."""
        return self._role_askers.code.parallel

    def draws(self, *place: str | int) -> Stream:
        """See `Seat`."""
        return Stream(derive(self._active.episode.id, self._active.base_take, "agent"), *place)

    # What it does.

    async def ask(
        self,
        messages: Sequence[Message] | None = None,
        *,
        model: str = MAIN,
        tools: Sequence[Tool] | None = None,
        sampling: Mapping[str, Any] = {},
    ) -> Reply:
        """See `Seat`."""
        return await self._root.ask(messages, model=model, tools=tools, sampling=sampling)

    def fork(self, key: str) -> "EpisodeAsker":
        """See `Seat`."""
        return self._root.fork(key)

    @_yielding
    async def act(self, reply: Reply | Sequence[ToolCall] | str) -> None:
        """See `Seat`."""
        self.check("act")
        while self._unawaited:
            await asyncio.wait(self._unawaited)
        self.check("act")
        await self._stay()
        if self._position.ending:
            raise AgentError(f"act: the episode is over ({self._position.ending}).")
        if self._flights or self._root.waits:
            raise AgentError("act: a request is still in flight; await it first.")
        try:
            answer, data = composed(reply)
        except (TypeError, ValueError) as flaw:
            raise AgentError(f"act: {flaw}.") from flaw
        step, active = self._position.step, self._active
        turn = advance(active.episode.cell.env, self._position, answer, data)
        if step < len(active.rows):
            logged = active.rows[step]
            if turn.step_digest != logged.step_digest or turn.facts_bytes != logged.facts:
                await self._leave(AgentDiverged(f"its act at step {step} is not the one that the log has."))
        else:
            await self._log_act(answer, data, turn)
        self._root.begin(self._position.step)
        self._keys.clear()
        self._shown, self.asks_of_step, self.refused = None, 0, None

    async def _log_act(self, answer: Reply, data: bytes, turn: Turn) -> None:
        active, context = self._active, self._context
        acted = Answer(
            reply=answer,
            cost=PicoUsd(0),
            latency_s=0.0,
            queue_s=0.0,
            attempts=OK,
            started_at=time.time(),
        )
        context.log.append(step_record(active, acted, data, turn, context.worker, asks=self.asks_logged(turn.step)))
        context.steps += 1
        if turn.acted and not active.acted:
            active.acted = True
            if context.lane is not None:
                context.lane.acted()
        try:
            if turn.ending and not self._role_askers.free:
                await context.log.durable()
            else:  # the asks that it follows from are durable, and lead to it again
                await breathe(context)
        except EvalkitError as flaw:  # of the log: no fault of the agent's, nor for it to catch
            await self._leave(flaw)

    def add_fork(self, key: str) -> "EpisodeAsker":
        """A fork of this step. Raises AgentError if the step has one of that key."""
        self.check("fork")
        if key in self._keys:
            raise AgentError(f"fork: the key {key!r} is used twice at step {self.step}.")
        self._keys.add(key)
        return EpisodeAsker(self, key)

    async def ask_for(
        self,
        key: str,
        n: int,
        messages: Sequence[Message] | None,
        model: str,
        tools: Sequence[Tool] | None,
        sampling: Mapping[str, Any],
    ) -> Reply:
        """The answer to one ask, by its address within the step."""
        await self._stay()
        settings, step = self._role_askers.settings_of(model, sampling), self._position.step
        if self._position.ending:
            raise AgentError(f"ask: the episode is over ({self._position.ending}).")
        if self.asks_of_step >= ASKS_OF_STEP or self._asks >= ASKS_OF_EPISODE:
            raise AskRefused(
                ASK_LIMIT, f"An agent asks at most {ASKS_OF_STEP} times a step, {ASKS_OF_EPISODE:,} in all."
            )
        if len(self._flights) - len(self._unawaited) >= self._role_askers.code.parallel:
            most = self._role_askers.code.parallel
            raise AgentError(f"ask: as many requests are in flight as the agent declares (`parallel={most}`).")
        digest = self._digest(model, messages, tools, settings)
        self._asks += 1
        self.asks_of_step += 1
        logged = self._active.asks.get((step, key, n))
        if logged is not None and logged.request_digest != digest:
            await self._leave(AgentDiverged(f"its request {key or 'main'}.{n} at step {step} is not the logged one."))
        if logged is not None and (step, key, n) not in self._active.again:
            await asyncio.sleep(0)  # as one that is sent, it lets the agent's other tasks begin, and other episodes run
            if logged.reply is None:
                self.refused = AskRefused(logged.attempts.rpartition(",")[2])
                raise self.refused
            self.refused = None
            return decode_reply(logged.reply)
        if step < len(self._active.rows):
            await self._leave(
                AgentDiverged(f"at step {step} it asks {key or 'main'}.{n}, which the log does not have.")
            )
        ask = PlacedAsk(step=step, key=key, n=n, role=model, digest=digest)
        outcome = await self._landing(self._send(ask, self._question(ask, messages, tools), settings))
        if isinstance(outcome, AskRefused):
            self.refused = outcome
            raise outcome
        self.refused = None
        return _as_logged(outcome.reply)

    def asks_logged(self, step: int) -> int:
        """Rows of asks that led to a step."""
        return self._logged[step]

    async def settle(self) -> None:
        """Wait for what is in flight: it is paid for, and logged as it comes."""
        try:
            while self._flights:
                await asyncio.wait(self._flights)
        except asyncio.CancelledError:
            self.abandon()
            await asyncio.wait(self._flights)
            raise

    def abandon(self) -> None:
        """Give up what is in flight."""
        for flight in self._flights:
            flight.cancel()

    # One ask.

    async def _send(self, ask: PlacedAsk, question: Question, settings: bytes) -> Answer | AskRefused:
        async with self._slots:
            return await self._logged_outcome(ask, question, settings)

    async def _logged_outcome(self, ask: PlacedAsk, question: Question, settings: bytes) -> Answer | AskRefused:
        context, active = self._context, self._active
        outcome: Answer | AskRefused
        try:
            outcome = await self._role_askers.asker(ask.role, settings).ask(question)
        except EpisodeRefused as flaw:
            outcome = AskRefused(flaw.kind, str(flaw))
            context.log.event(
                "refused", episode=question.episode, step=ask.step, key=ask.key, why=flaw.kind, detail=str(flaw)
            )
        except LaneClosed as flaw:
            if context.stopping or self._role_askers.is_own(ask.role):
                raise
            raise AgentStopped(str(flaw)) from flaw
        context.log.append(ask_record(active, ask, outcome, self._logged[ask.step], context.worker))
        self._logged[ask.step] += 1
        if isinstance(outcome, Answer):
            context.cost += outcome.cost
            active.cost += outcome.cost
        if self._role_askers.free:
            await context.log.room()
        else:
            await context.log.durable()
        return outcome

    async def _landing(self, sending: Coroutine[Any, Any, Answer | AskRefused]) -> Answer | AskRefused:
        """What comes of a request. It goes on where the one that waits is cancelled: it is paid for."""
        flight = asyncio.ensure_future(sending)
        self._flights.add(flight)
        flight.add_done_callback(self._landed)
        try:
            await asyncio.wait({flight})
        except asyncio.CancelledError:
            self._unawaited.update(self._flights & {flight})
            raise
        if flight.cancelled() or flight.exception() is not None:
            await self._leave("stopped")
        return flight.result()

    def _landed(self, flight: "asyncio.Task[Answer | AskRefused]") -> None:
        self._flights.discard(flight)
        self._unawaited.discard(flight)
        flaw = None if flight.cancelled() else flight.exception()
        if flaw is not None and not self.fate.done():
            self.fate.set_result(flaw)

    def _question(self, ask: PlacedAsk, messages: Sequence[Message] | None, tools: Sequence[Tool] | None) -> Question:
        episode, position, asker = self._active.episode.id, self._position, self._role_askers.asker(ask.role, b"{}")
        chat = self._chats.setdefault(ask.role, ShownChat())
        if messages is None:
            parts = chat.parts_of(asker, position.messages)
        else:
            asker.join(parts := [], messages)
        place = (episode, ask.step) if self._active.base_take == 0 else (episode, self._active.base_take, ask.step)
        own = () if ask.plain else (ask.key, ask.n)
        return Question(
            episode=episode,
            step=ask.step,
            seed=derive(*place, *own),
            tools=chat.tools_of(asker, position.tools) if tools is None else asker.encode_tools(tuple(tools)),
            messages=parts,
            choice=position.choice if messages is None and tools is None else None,
            cached_at=self._active.cached_at,
            ask="" if ask.plain else f"{derive(ask.key, ask.n):08x}",
        )

    def _digest(
        self, role: str, messages: Sequence[Message] | None, tools: Sequence[Tool] | None, settings: bytes
    ) -> bytes:
        shown = self._position.request_digest if messages is None or tools is None else b""
        return ask_digest(role, shown, messages or (), None if tools is None else tuple(tools), settings)

    # What ends it.

    def check(self, call: str) -> None:
        """Raises AgentError where nobody may use the seat any more, or from elsewhere."""
        if threading.get_ident() != self._thread:
            raise AgentError(
                f"{call}: a seat is used in its agent's own event loop alone. From another thread, give that loop the "
                "coroutine: `asyncio.run_coroutine_threadsafe(seat.ask(), loop).result()`."
            )
        if self._closed.is_set():
            raise AgentError(f"{call}: the seat {CLOSED}.")

    def stop(self) -> None:
        """Leave the episode: the run stops, or its lane."""
        if not self.fate.done():
            self.fate.set_result("stopped")

    def close(self) -> None:
        """Nothing is asked or acted any more: what the agent began and did not wait for would follow its end."""
        self._closed.set()

    async def _stay(self) -> None:
        """Go on only while the episode does."""
        if self.fate.done() or self._context.stopping:
            await self._leave("stopped")

    async def _leave(self, how: str | BaseException) -> NoReturn:
        """The episode is left; the agent learns it by being cancelled."""
        if not self.fate.done():
            self.fate.set_result(how)
        await self._closed.wait()
        raise AgentError(f"The seat {CLOSED}.")


class EpisodeAsker:
    """Satisfies `seats.Fork`."""

    __slots__ = ("_key", "_n", "_seat", "_step", "waits")

    def __init__(self, seat: EpisodeSeat, key: str) -> None:
        self._seat, self._key = seat, key
        self.waits = False
        """Whether a request of it is awaited."""
        self.begin(seat.step)

    def begin(self, step: int) -> None:
        """It asks for this step from now on."""
        self._step, self._n = step, 0

    @_yielding
    async def ask(
        self,
        messages: Sequence[Message] | None = None,
        *,
        model: str = MAIN,
        tools: Sequence[Tool] | None = None,
        sampling: Mapping[str, Any] = {},
    ) -> Reply:
        """See `Fork`."""
        self._seat.check("ask")
        if self.waits:
            raise AgentError("ask: this asker still waits for a reply; ask beside it with `fork`.")
        if self._step != self._seat.step:
            raise AgentError(f"ask: the fork {self._key!r} belongs to step {self._step}, which is over.")
        n, self._n, self.waits = self._n, self._n + 1, True
        try:
            return await self._seat.ask_for(self._key, n, messages, model, tools, sampling)
        finally:
            self.waits = False

    def fork(self, key: str) -> "EpisodeAsker":
        """See `Fork`."""
        if not isinstance(key, str) or not key or "/" in key or len(key) > MOST_KEY:
            raise AgentError(f"fork: a key is a text of 1 to {MOST_KEY} letters without `/`, got {key!r:.80}.")
        return self._seat.add_fork(f"{self._key}/{key}" if self._key else key)


def _as_logged(reply: Reply) -> Reply:
    """A reply as it is read back from the log: so a resumed agent reads what it read before."""
    return replace(reply, usage=Usage(), model="", fingerprint="", response_id="")
