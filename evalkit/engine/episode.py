"""One episode: ask, step, record, until it ends. The path of one step, and the place where all its failures are caught.

No request that depends on a reply is sent before that reply is durable: `append` is synchronous, `durable` is the one
await that follows it. The only `except Exception` around our own code is here: a bug ends only its own episode.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from evalkit.client.ask import Answer, Asker, Encoder, Question
from evalkit.digests import NOTHING, step_digest
from evalkit.engine.options import Stop
from evalkit.engine.universe import PlannedEpisode
from evalkit.envs.replay import Position, Turn, advance
from evalkit.errors import (
    ASK_LIMIT,
    QUIT,
    AgentDiverged,
    AgentFailed,
    AgentStopped,
    BudgetReached,
    CorruptLogError,
    EpisodeRefused,
    EpisodeUnavailable,
    LaneClosed,
    RequestTooLarge,
    StorageError,
)
from evalkit.replies import encode_reply
from evalkit.results.endings import DeferredEpisodes
from evalkit.seeds import derive
from evalkit.store.files.record import REFUSED, StepRecord
from evalkit.version import __version__
from evalkit.wire.exhausted import is_models_doing

if TYPE_CHECKING:
    from evalkit.client.lanes.lane import Lane

YIELD_EVERY = 8
"""Steps that a free policy plays before other episodes can run."""


class EpisodeLog(Protocol):
    """What an episode needs of the store."""

    def append(self, record: StepRecord) -> None:
        """Accept a row; it is durable once a later call of `durable()` returns."""

    async def durable(self) -> None:
        """Wait until everything appended so far is on disk."""

    async def room(self) -> None:
        """Wait while the disk is behind."""

    def event(self, kind: str, **facts: object) -> None:
        """Write a line to the run's events."""


class LoggedReply(Protocol):
    """What replay needs of one row."""

    @property
    def step(self) -> int:
        """Place in the episode."""

    @property
    def take(self) -> int:
        """Which attempt at the episode wrote it."""

    @property
    def reply(self) -> bytes | None:
        """The reply's JSON, or None for an ending that brought none."""

    @property
    def facts(self) -> bytes:
        """What replay must reproduce, byte by byte."""

    @property
    def step_digest(self) -> bytes:
        """What replay must reproduce."""

    @property
    def base_take(self) -> int:
        """Of an agent's code: the take in which it began."""


class LoggedAsk(Protocol):
    """What replay needs of an ask."""

    @property
    def reply(self) -> bytes | None:
        """The reply's JSON; None: it was refused."""

    @property
    def request_digest(self) -> bytes:
        """What replay must ask again."""

    @property
    def attempts(self) -> str:
        """The last word is why it was refused."""

    @property
    def turn(self) -> int:
        """Its place among those of its step, as they were logged."""


@dataclass(slots=True, kw_only=True)
class ActiveEpisode:
    """One episode being played."""

    episode: PlannedEpisode
    position: Position
    take: int = 0
    base_take: int = 0
    """The take that began at step 0: it keys the seeds, so that a new take has new draws."""
    cost: int = 0
    """Pico-dollars of its steps."""
    acted: bool = False
    """Whether a valid action was made since it was started or resumed."""
    rows: Sequence[LoggedReply] = ()
    """Of an agent that is code, which begins anew whenever its episode is resumed: its steps in the log."""
    cached_at: dict[str, int] = field(default_factory=dict)
    """By lane with several servers, the one that answered last (`Question.cached_at`)."""
    asks: Mapping[tuple[int, str, int], LoggedAsk] = field(default_factory=dict)
    """Likewise, what it asked on this line, by step, key and n: of each the last row."""
    again: Collection[tuple[int, str, int]] = ()
    """Of these, the refused ones that its episode was left for: they are asked again."""


@dataclass(slots=True, kw_only=True)
class LaneContext:
    """What all players of a lane share."""

    log: EpisodeLog
    worker: str
    stop: Stop
    """Of the whole run."""
    lane_stop: Stop = field(init=False)
    """Of this lane, within the run's."""
    lane: "Lane | None" = None
    """Called for valid actions; None: not needed."""
    flying: dict[str, ActiveEpisode] = field(default_factory=dict)
    """Those of the episodes in flight whose position is known, by id."""
    learn: Callable[[ActiveEpisode], None] | None = None
    """Called with each episode that has ended; None: not needed."""
    judge: Callable[[ActiveEpisode], None] | None = None
    """Called with each episode that has ended, where its score may answer what the run is to find out."""
    playing: int = 0
    """Episodes in flight."""
    steps: int = 0
    cost: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    """Episodes by how they left: an ending, or one of `NOT_ENDED`."""
    errors_in_a_row: int = 0
    unavailable: str = ""
    """Why the last of the episodes without an answer from the provider was deferred."""
    too_large: str = ""
    """Likewise of those whose next request can never be paid for."""
    refused: str = ""
    """What the provider said of the last request that it refused, where the model did not cause it."""
    failures: dict[str, int] = field(default_factory=dict)
    """By agent that is code: how many of its episodes in a row its code has failed."""
    deferred: dict[tuple[str, str], DeferredEpisodes] = field(default_factory=dict)
    """By agent and way of leaving (`why` of the event `deferred`)."""
    stopped: dict[str, str] = field(default_factory=dict)
    """Agents that are played no more although their lane goes on, and why."""

    def __post_init__(self) -> None:
        self.lane_stop = Stop(within=self.stop)

    @property
    def stopping(self) -> bool:
        """Whether no further request may be sent."""
        return bool(self.stop.reason or self.lane_stop.reason)


class Player:
    """What plays whole episodes itself, and not one question at a time."""

    async def play(self, active: ActiveEpisode, context: LaneContext) -> str:
        """Play to the end, or until the episode must be left; returns how."""
        raise NotImplementedError


TOO_LARGE = "too_large"
"""How an episode is left whose next request can never be paid for."""

NOT_ENDED = frozenset({REFUSED, "unavailable", TOO_LARGE, "internal_error", "stopped", "agent_error", "diverged"})
"""Ways to leave an episode that are not endings: it remains."""

OF_THE_AGENT = frozenset({QUIT, ASK_LIMIT})
"""Endings without a reply that who plays the episode has chosen, and no provider."""

ERRORS_THAT_STOP = 10

NO_FACTS = b"{}"


async def play(
    episode: PlannedEpisode,
    activate: Callable[[PlannedEpisode], ActiveEpisode],
    asker: Asker | Player,
    context: LaneContext,
) -> str:
    """Play an episode to its end, or until it must be deferred; returns how it was left.

    `activate` restores it to its position in the log. Failures of the world defer the episode (it remains) or stop the
    lane or the run; they are never raised from here. A bug in evalkit ends the episode as `internal_error`; ten in a
    row stop the run.
    """
    context.playing += 1
    agent = episode.cell.agent.name
    try:
        if agent in context.stopped:
            raise AgentStopped(context.stopped[agent])
        active = context.flying[episode.id] = activate(episode)
        if isinstance(asker, Player):
            left = await asker.play(active, context)
        else:
            left = await _play(active, asker, context)
        context.errors_in_a_row = 0
        context.failures.pop(agent, None)
        _tell_idle(active, left, context)
        if context.learn is not None and left not in NOT_ENDED:
            context.learn(active)
        if context.judge is not None and left not in NOT_ENDED:
            context.judge(active)
    except EpisodeUnavailable as flaw:
        left = _defer(episode, context, "unavailable", str(flaw))
        context.unavailable = str(flaw)
    except RequestTooLarge as flaw:
        left = _defer(episode, context, TOO_LARGE, str(flaw))
        context.too_large = str(flaw)
    except AgentDiverged as flaw:
        left = _defer(episode, context, "diverged", str(flaw))
    except AgentFailed as flaw:
        left = _defer(episode, context, "agent_error", str(flaw))
        _count_failure(agent, context)
    except AgentStopped as flaw:
        context.stopped.setdefault(agent, str(flaw))
        left = "stopped"
    except BudgetReached as flaw:
        context.stop.set("budget", str(flaw))
        left = "stopped"
    except LaneClosed as flaw:
        if not context.stopping:
            context.lane_stop.set("lane", str(flaw))
        left = "stopped"
    except (StorageError, CorruptLogError) as flaw:
        context.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
        left = "stopped"
    except (Exception, SystemExit) as bug:  # noqa: BLE001 - the one place: a bug of ours ends its episode alone
        left = _defer(episode, context, "internal_error", "".join(traceback.format_exception(bug)))
        context.errors_in_a_row += 1
        if context.errors_in_a_row >= ERRORS_THAT_STOP:
            message = f"{ERRORS_THAT_STOP} episodes in a row ended in an internal error (events.jsonl): {bug!r}."
            context.stop.set("errors", message)
    finally:
        context.playing -= 1
        context.flying.pop(episode.id, None)
    context.ended[left] = context.ended.get(left, 0) + 1
    return left


def final_score(active: ActiveEpisode) -> float | None:
    """The score of an episode that has ended, as every reader of its log makes it; None if it kept no facts."""
    position, episode = active.position, active.episode
    if position.facts is None:
        return None
    logged = position.facts if position.ending else [*position.facts, NO_FACTS]  # the row of a refusal has none
    return float(episode.cell.env.score(episode.instance, [orjson.loads(text) for text in logged]).value)


def _count_failure(agent: str, context: LaneContext) -> None:
    """Stop an agent alone whose code fails again and again."""
    context.failures[agent] = context.failures.get(agent, 0) + 1
    if context.failures[agent] >= ERRORS_THAT_STOP:
        context.stopped.setdefault(
            agent, f"Agent {agent} failed {ERRORS_THAT_STOP} times in a row and was played no further."
        )


def _defer(episode: PlannedEpisode, context: LaneContext, why: str, detail: str) -> str:
    known = context.deferred.get((episode.cell.agent.name, why), DeferredEpisodes())
    context.deferred[episode.cell.agent.name, why] = known.and_another(detail)
    context.log.event(
        "deferred",
        episode=episode.id,
        agent=episode.cell.agent.name,
        suite=episode.suite.name,
        instance=episode.target.id,
        replicate=episode.replicate,
        why=why,
        detail=detail,
        evalkit=__version__,
    )
    return why


def _tell_idle(active: ActiveEpisode, left: str, context: LaneContext) -> None:
    """Tell the lane of an episode that has ended without a valid action."""
    lane = context.lane
    if lane is not None and not active.acted and left not in NOT_ENDED and lane.ended_idle():
        context.log.event("no_valid_action", lane=lane.name, detail=lane.notice)


async def _play(active: ActiveEpisode, asker: Asker, context: LaneContext) -> str:
    position, env = active.position, active.episode.cell.env
    parts, joined = list[Any](), 0
    tools = asker.encode_tools(position.tools)
    while not position.ending:
        if context.stopping:
            return "stopped"
        asker.join(parts, position.messages[joined:])
        joined = len(position.messages)
        question = _question(active, tools, parts)
        try:
            answer = await asker.ask(question)
        except EpisodeRefused as flaw:
            context.log.event("refused", episode=question.episode, step=question.step, why=flaw.kind, detail=str(flaw))
            return await leave_refused(active, flaw.kind, str(flaw), context)
        reply_bytes = encode_reply(answer.reply)
        turn = advance(env, position, answer.reply, reply_bytes)
        context.log.append(step_record(active, answer, reply_bytes, turn, context.worker))
        context.steps += 1
        context.cost += answer.cost
        active.cost += answer.cost
        if turn.acted and not active.acted:
            active.acted = True
            if context.lane is not None:
                context.lane.acted()
        if asker.free:
            await breathe(context)
        else:
            await context.log.durable()
        if turn.new_chat:
            parts, joined = [], 0
        if turn.new_tools:
            tools = asker.encode_tools(position.tools)
    return position.ending


async def breathe(context: LaneContext) -> None:
    """Where nothing is waited for: let others run now and then, and wait for the disk."""
    if context.steps % YIELD_EVERY == 0:
        await asyncio.sleep(0)
    await context.log.room()


def _question(active: ActiveEpisode, tools: Any, parts: list[Any]) -> Question:
    step = active.position.step
    take = active.base_take
    seed = derive(active.episode.id, step) if take == 0 else derive(active.episode.id, take, step)
    return Question(
        episode=active.episode.id,
        step=step,
        seed=seed,
        tools=tools,
        messages=parts,
        choice=active.position.choice,
        cached_at=active.cached_at,
    )


def next_question(active: ActiveEpisode, encoder: Encoder) -> Question:
    """The next request of an episode in its present state: what a crash may have left in flight."""
    parts: list[Any] = []
    encoder.join(parts, active.position.messages)
    return _question(active, encoder.encode_tools(active.position.tools), parts)


def step_record(
    active: ActiveEpisode, answer: Answer, reply_bytes: bytes, turn: Turn, worker: str, *, asks: int = 0
) -> StepRecord:
    """The row of a step; `asks`: requests of an agent's code that led to it, which have rows of their own."""
    episode = active.episode
    return StepRecord(
        episode=episode.id,
        environment=episode.suite.environment,
        suite=episode.suite.name,
        instance=episode.target.id,
        agent=episode.cell.agent.name,
        replicate=episode.replicate,
        take=active.take,
        step=turn.step,
        period=turn.period,
        turn=turn.turn,
        reply=reply_bytes,
        facts=turn.facts_bytes,
        observation_digest=turn.observation_digest,
        request_digest=turn.request_digest,
        step_digest=turn.step_digest,
        ending=turn.ending,
        worker=worker,
        base_take=active.base_take,
        ask_n=asks,
        **taken(answer),
    )


def taken(answer: Answer) -> dict[str, Any]:
    """What a row says of how a reply was got."""
    reply, usage = answer.reply, answer.reply.usage
    return {
        "raw": answer.raw,
        "tokens_in": usage.input,
        "tokens_out": usage.output,
        "tokens_cached_read": usage.cached_read,
        "tokens_cached_write": usage.cached_write,
        "tokens_reasoning": usage.reasoning,
        "cost": answer.cost,
        "latency_s": answer.latency_s,
        "queue_s": answer.queue_s,
        "attempts": answer.attempts,
        "started_at": answer.started_at,
        "served_model": reply.model,
        "fingerprint": reply.fingerprint,
        "response_id": reply.response_id,
        "finish": reply.finish,
        "tier": answer.tier,
        "saved": answer.saved,
    }


async def leave_refused(active: ActiveEpisode, kind: str, words: str, context: LaneContext, *, asks: int = 0) -> str:
    """Log that the provider refused the next request, and say how the episode is left: with an ending if the model
    caused it, else as `REFUSED`. Or it ended because who plays it gave it up, or asked too much.

    `words`: the provider's; `asks`: as in `step_record`. At step 0 nothing that the model did was in the request.
    """
    ending, words = kind, "" if kind in OF_THE_AGENT else words
    counted, answered = active.episode.suite.counted_refusals, active.position.step > 0
    if kind not in OF_THE_AGENT and not is_models_doing(kind, counted, answered=answered):
        ending, context.refused = REFUSED, words
    context.log.append(_row_without_reply(active, kind, ending, words, context.worker, asks=asks))
    await context.log.durable()
    if ending == REFUSED and context.lane is not None and context.lane.ended and not context.stopping:
        context.lane_stop.set("lane", context.lane.ended)  # this refusal was one too many, and nobody may ask after it
    return ending


def _row_without_reply(
    active: ActiveEpisode, kind: str, ending: str, words: str, worker: str, *, asks: int
) -> StepRecord:
    episode, position = active.episode, active.position
    return StepRecord(
        episode=episode.id,
        environment=episode.suite.environment,
        suite=episode.suite.name,
        instance=episode.target.id,
        agent=episode.cell.agent.name,
        replicate=episode.replicate,
        take=active.take,
        step=position.step,
        period=position.period,
        turn=position.turn,
        facts=NO_FACTS,
        observation_digest=NOTHING,
        request_digest=position.request_digest,
        step_digest=step_digest(position.request_digest, None, NO_FACTS, NOTHING),
        raw=words.encode() if words else None,
        attempts=kind,
        started_at=time.time(),
        ending=ending,
        worker=worker,
        base_take=active.base_take,
        ask_n=asks,
    )
