"""Episodes played in this process by a policy in place of an agent, to learn what they would take.

They go through the real engine and an agent's dialect, so turns and bytes are those of real conversations; tokens are
counted as the simulated provider counts them. Nothing is sent and nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Request, Sampling, Tool, Usage
from evalkit.engine.episode import ActiveEpisode, LaneContext, Stop, play
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.money import FREE, PicoUsd, Price
from evalkit.policy.answer import answer
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.table import check_policy, find_policy, player
from evalkit.spec.identity import episode_id
from evalkit.store.files.record import StepRecord
from evalkit.store.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import BYTES_PER_TOKEN, input_tokens, output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Till:
    """Converts a conversation to bytes."""

    dialect: Dialect
    quirks: Quirks = field(default_factory=Quirks)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TooLong:
    """The first request of an episode that does not fit the model's context."""

    period: int
    turn: int
    tokens: int
    """Its input tokens and its `max_tokens`."""


class Asked(NamedTuple):
    """One request of a sample, and its reply."""

    tokens_in: int
    tokens_out: int
    most_in: int
    """Input tokens that it may cost at most."""
    period: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One episode as its stand-in played it: what was asked, and what that lets expect of the whole."""

    asked: tuple[Asked, ...]
    scale: float = 1.0
    """The whole over what was played; 1 unless it was cut short."""
    to_last: float = 1.0
    """All of the instance's periods over those that were played; without periods, of its requests."""
    most: int | None = None
    """Requests that an episode of this instance takes at most; None: not known."""

    @property
    def cut(self) -> bool:
        """Whether playing was cut short, so that all figures are what its beginning lets expect."""
        return self.scale > 1

    @property
    def requests(self) -> int:
        """Of the whole episode."""
        return round(self.scale * len(self.asked))

    @property
    def tokens_in(self) -> int:
        """Of the whole episode."""
        return round(_grown([one.tokens_in for one in self.asked], self.scale))

    @property
    def tokens_out(self) -> int:
        """Of the whole episode."""
        return round(self.scale * sum(one.tokens_out for one in self.asked))

    @property
    def longest_prompt(self) -> int:
        """Input tokens of its largest request."""
        return max(one.tokens_in for one in self.asked) + self._later()

    @property
    def growth(self) -> float:
        """By how much the average prompt grows where the instance is played to its last period."""
        prompts = [one.tokens_in for one in self.asked]
        whole = _grown(prompts, self.scale) / self.scale
        return max(1.0, _grown(prompts, self.to_last) / self.to_last / whole) if whole else 1.0

    def cost(self, price: Price) -> int:
        """Pico-dollars of the whole episode at a price."""
        paid = sum(price.of(Usage(input=one.tokens_in, output=one.tokens_out)) for one in self.asked)
        if not self.cut:
            return paid
        later = self.tokens_in / max(1, sum(one.tokens_in for one in self.asked)) / self.scale
        read = sum(price.of(Usage(input=one.tokens_in, output=0)) for one in self.asked)
        return round(self.scale * (paid + (later - 1) * read))

    def dearest(self, price: Price, max_tokens: int) -> int:
        """Pico-dollars that its largest request may cost at most: what must be left of a budget for it to be sent."""
        largest = max(one.most_in for one in self.asked) + BYTES_PER_TOKEN * self._later()
        return price.worst(input_tokens=largest, output_tokens=max_tokens)

    def too_long(self, context_tokens: int, max_tokens: int) -> TooLong | None:
        """The first request that was played and that does not fit such a context."""
        for one in self.asked:
            if one.tokens_in + max_tokens > context_tokens:
                return TooLong(period=one.period, turn=one.turn, tokens=one.tokens_in + max_tokens)
        return None

    def _later(self) -> int:
        """Tokens by which the last prompt of the whole is longer than the last that was played."""
        prompts = [one.tokens_in for one in self.asked]
        return round(_growth(prompts) * len(prompts) * (self.scale - 1))


def stand_in_of(agent: ManifestAgent, environment: str) -> str:
    """The policy that plays for an agent: itself, the model's namesake, the agent's choice, or the environment's.

    Raises UsageError if the environment names a policy that does not exist or cannot play it.
    """
    for name in (agent.policy, agent.stand_in, agent.model if agent.provider == "simulated" else ""):
        policy = find_policy(name, environment) if name else None
        if policy is not None and policy.outside is None:
            return name
    name = ENVIRONMENTS[environment].stand_in
    if find_policy(name, environment) is None:
        check_policy(name)
        raise UsageError(
            f"The environment {environment!r} names {name!r} as its stand-in, but that policy cannot play it."
        )
    return name


def price_of(agent: ManifestAgent) -> Price:
    """The frozen price; free where none is known."""
    return FREE if agent.price is None else Price(**agent.price)


def prices_of(agent: ManifestAgent) -> list[Price]:
    """Of each of its models."""
    if agent.code is None:
        return [price_of(agent)]
    return [FREE if role.price is None else Price(**role.price) for role in agent.code.roles.values()]


def admitted(manifest: Manifest, cell: AgentSetup, suite: ManifestSuite) -> Iterator[PlannedEpisode]:
    """The episodes of one agent on one suite, in admission order, lazily; without those that cannot be played."""
    for replicate in range(manifest.replicates):
        for target in manifest.admitted(suite):
            if target.flaw:
                continue
            name = episode_id(cell.key, target.digest, replicate)
            yield PlannedEpisode(id=name, cell=cell, suite=suite, target=target, replicate=replicate)


class _Meter:
    """Asks a policy and counts what the request and its reply would cost at a provider."""

    free = True

    def __init__(self, name: str, play: PolicyFn, model: str, sampling: Sampling, till: Till) -> None:
        self._name, self._play, self._till, self._sampling = name, play, till, sampling
        self._head = till.dialect.head(model, sampling, till.quirks)
        self._most = float("inf")
        self._stop = Stop()
        self._active: ActiveEpisode | None = None
        self.asked: list[Asked] = []

    def begin(self, active: ActiveEpisode, stop: Stop, most: float) -> None:
        """Count the requests of this episode, and ask for a stop after `most` of them."""
        self._active, self._stop, self._most = active, stop, most

    def join(self, parts: list[Any], messages: Sequence[Message]) -> None:
        """Two parts: the messages for the policy, the bytes for the meter."""
        if not parts:
            parts += [], []
        parts[0].extend(messages)
        self._till.dialect.join(parts[1], messages)

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bytes]:
        return tools, self._till.dialect.encode_tools(tools)

    async def ask(self, question: Question) -> Answer:
        """The policy's reply; free, since what it would cost is asked of the sample."""
        tools, tools_json = question.tools
        messages, encoded = question.messages
        sampling = question.asked(self._sampling)
        request = Request(messages=tuple(messages), tools=tools, sampling=sampling, seed=question.seed)
        reply = answer(self._name, self._play, request)
        assert self._active is not None
        dialect, position = self._till.dialect, self._active.position
        size = len(dialect.body(self._head, tools_json, encoded, question.seed))
        self.asked.append(
            Asked(
                input_tokens(size), output_tokens(reply), size + dialect.overhead_tokens, position.period, position.turn
            )
        )
        if len(self.asked) >= self._most:
            self._stop.set("limit")
        return Answer(reply=reply, cost=PicoUsd(0), latency_s=0.0, queue_s=0.0, attempts="ok", started_at=0.0)


class _NoLog:
    """A log that stores nothing."""

    def append(self, record: StepRecord) -> None:
        """Forget it."""

    async def durable(self) -> None:
        """Nothing to wait for."""

    async def room(self) -> None:
        """Never behind."""

    def event(self, kind: str, **facts: object) -> None:
        """An internal error must not pass for a cheap episode."""
        raise UsageError(f"plan: an episode could not be played ({kind}): {facts.get('detail', '')}")


async def play_sample(episode: PlannedEpisode, stand_in: str, till: Till, most: int | None = None) -> Sample:
    """Play an episode to its end; or, where it has periods, for `most` requests, and say how much of it that was.

    Raises UsageError if the environment or the policy fails.
    """
    cell = episode.cell
    policy = player(stand_in, cell.env.name, instance=episode.instance, script=cell.agent.script)
    meter = _Meter(stand_in, policy, cell.agent.model, cell.sampling, till)
    table = LaneContext(log=_NoLog(), worker="plan", stop=Stop(), lane_stop=Stop())
    periods: int | None = episode.target.line.get("periods")
    active = Holdings(episodes={}, rows={}).activate(episode)
    meter.begin(active, table.stop, float("inf") if most is None or periods is None else most)
    left = await play(episode, lambda _: active, meter, table)
    # A period that has begun counts as half: it has had some of its turns.
    done = active.position.period + (0.5 if active.position.turn else 0.0)
    bound = cell.env.most_requests
    bounded = None if bound is None else bound(episode.instance)
    last, came = (bounded or 0.0, float(len(meter.asked))) if periods is None else (periods, done)
    to_last = max(1.0, last / came) if came else 1.0
    return Sample(asked=tuple(meter.asked), scale=to_last if left == "stopped" else 1.0, to_last=to_last, most=bounded)


def _grown(prompts: Sequence[int], scale: float) -> float:
    """The tokens of `scale` times as many prompts, which keep growing as they did: a history gets longer."""
    count = len(prompts)
    return scale * (sum(prompts) + _growth(prompts) * count * (count * (scale - 1)) / 2)


def _growth(prompts: Sequence[int]) -> float:
    """Tokens from one prompt to the next."""
    count = len(prompts)
    if count < 2:
        return 0.0
    early, late = sum(prompts[: count // 2]), sum(prompts[-(count // 2) :])
    return max(0.0, (late - early) / (count // 2) / (count - count // 2))


PLAIN = Till(dialect=DIALECTS["openai_chat"])
"""Where only tokens are asked for: one dialect's are near enough to another's."""
