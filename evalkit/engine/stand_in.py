"""Episodes played in this process by a policy in place of an agent, to learn what they would take.

They go through the real engine and an agent's dialect, so turns and bytes are those of real conversations; tokens are
counted as the simulated provider counts them. Nothing is sent and nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Request, Sampling, Tool, Usage
from evalkit.engine.episode import ActiveEpisode, LaneContext, Stop, play
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import AgentSetup, PlannedEpisode
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.money import FREE, Price
from evalkit.policy.answer import answer
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.table import check_policy, find_policy, player
from evalkit.spec.identity import episode_id
from evalkit.store.files.record import StepRecord
from evalkit.store.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import input_tokens, output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Till:
    """Converts a conversation to bytes and money."""

    dialect: Dialect
    quirks: Quirks = field(default_factory=Quirks)
    price: Price = FREE
    context_tokens: int | None = None
    """The model's context in tokens; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TooLong:
    """The first request of an episode that does not fit the model's context."""

    period: int
    turn: int
    tokens: int
    """Its input tokens and its `max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One episode as its stand-in played it."""

    requests: int
    tokens_in: int
    tokens_out: int
    cost: int
    longest_prompt: int
    """Input tokens of its largest request."""
    dearest: int
    """Pico-dollars that its largest request may cost at most: what must be left of a budget for it to be sent."""
    cut: bool = False
    """Whether playing was cut short, so that requests, tokens and cost are what its beginning lets expect."""
    too_long: TooLong | None = None


def stand_in_of(agent: ManifestAgent, environment: str) -> str:
    """The policy that plays for an agent: itself, the model's namesake, the agent's choice, or the environment's.

    Raises UsageError if the environment names a policy that does not exist or cannot play it.
    """
    for name in (agent.policy, agent.stand_in, agent.model if agent.provider == "simulated" else ""):
        if name and find_policy(name, environment) is not None:
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
        self.tokens_out = self.cost = self.longest_prompt = self.dearest = 0
        self.prompts: list[int] = []
        """Input tokens of each request."""
        self.too_long: TooLong | None = None

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
        tools, tools_json = question.tools
        messages, encoded = question.messages
        sampling = question.asked(self._sampling)
        request = Request(messages=tuple(messages), tools=tools, sampling=sampling, seed=question.seed)
        reply = answer(self._name, self._play, request)
        dialect, price = self._till.dialect, self._till.price
        body = dialect.body(self._head, tools_json, encoded, question.seed)
        usage = Usage(input=input_tokens(len(body)), output=output_tokens(reply))
        worst = price.worst(input_tokens=len(body) + dialect.overhead_tokens, output_tokens=self._sampling.max_tokens)
        self._note_length(usage.input)
        self.prompts.append(usage.input)
        self.tokens_out += usage.output
        self.longest_prompt = max(self.longest_prompt, usage.input)
        self.dearest = max(self.dearest, worst)
        cost = price.of(usage)
        self.cost += cost
        if len(self.prompts) >= self._most:
            self._stop.set("limit")
        return Answer(reply=reply, cost=cost, latency_s=0.0, queue_s=0.0, attempts="ok", started_at=0.0)

    def _note_length(self, tokens: int) -> None:
        needed = tokens + self._sampling.max_tokens
        if self.too_long is None and self._till.context_tokens is not None and needed > self._till.context_tokens:
            assert self._active is not None
            position = self._active.position
            self.too_long = TooLong(period=position.period, turn=position.turn, tokens=needed)


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
    cut = left == "stopped" and periods is not None
    # A period that has begun counts as half: it has had some of its turns.
    done = active.position.period + (0.5 if active.position.turn else 0.0)
    scale = periods / done if cut and periods is not None and done else 1.0
    return Sample(
        requests=round(scale * len(meter.prompts)),
        tokens_in=round(_grown(meter.prompts, scale)),
        tokens_out=round(scale * meter.tokens_out),
        cost=round(scale * meter.cost),
        longest_prompt=meter.longest_prompt,
        dearest=meter.dearest,
        cut=cut,
        too_long=meter.too_long,
    )


def _grown(prompts: Sequence[int], scale: float) -> float:
    """The tokens of `scale` times as many prompts, which keep growing as they did: a history gets longer."""
    count = len(prompts)
    if scale == 1 or count < 2:
        return scale * sum(prompts)
    early, late = sum(prompts[: count // 2]), sum(prompts[-(count // 2) :])
    growth = max(0.0, (late - early) / (count // 2) / (count - count // 2))  # tokens from one prompt to the next
    return scale * (sum(prompts) + growth * count * (count * (scale - 1)) / 2)


PLAIN = Till(dialect=DIALECTS["openai_chat"])
"""Where only tokens are asked for: one dialect's are near enough to another's."""
