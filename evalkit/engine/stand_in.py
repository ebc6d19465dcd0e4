"""Episodes played in this process by a policy in place of an agent, to learn what they would take.

They go through the real engine and an agent's dialect, so turns and bytes are those of real conversations; tokens are
counted as the simulated provider counts them. Nothing is sent and nothing is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Request, Sampling, Tool, Usage
from evalkit.engine.agents.playing import CodePlayer
from evalkit.engine.agents.roles import RoleAskers
from evalkit.engine.episode import ActiveEpisode, LaneContext, play
from evalkit.engine.forecast import Forecast, Prior, learn_all, read_priors, write_priors
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import AgentSetup, Choice, PlannedEpisode, cells
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.frozen.instances import admission
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.money import FREE, PicoUsd, Price, Tier
from evalkit.policy.conversation import PolicyFn, answer
from evalkit.policy.table import check_policy, find_policy, player
from evalkit.seats import AgentCode
from evalkit.spec.identity import episode_id
from evalkit.store.files.record import StepRecord
from evalkit.store.reading.totals import CellTotals
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import BYTES_PER_TOKEN, input_tokens, output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEncoding:
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


class SampleRequest(NamedTuple):
    """One request of a sample, and its reply."""

    tokens_in: int
    tokens_out: int
    most_in: int
    """Input tokens that it may cost at most."""
    period: int
    turn: int
    role: str = ""
    """The model that an agent's code asked; empty for a model that plays alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One episode as its stand-in played it: what was asked, and what that lets expect of the whole."""

    asked: tuple[SampleRequest, ...]
    scale: float = 1.0
    """The whole over what was played; 1 unless it was cut short."""

    @property
    def cut(self) -> bool:
        """Whether playing was cut short, so that all figures are what its beginning lets expect."""
        return self.scale > 1

    def asked_of(self, role: str) -> "Sample":
        """The requests to one role of an agent that is code."""
        return replace(self, asked=tuple(one for one in self.asked if one.role == role))

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
        return max((one.tokens_in for one in self.asked), default=0) + self._later()

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
        largest = max((one.most_in for one in self.asked), default=0) + BYTES_PER_TOKEN * self._later()
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
    for name in (agent.policy, agent.model if agent.provider == "simulated" else ""):
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


def role_of(agent: ManifestAgent, role: str) -> ManifestAgent:
    """An agent that is code, with one of its models for its own."""
    assert agent.code is not None
    part = agent.code.roles[role]
    return structs.replace(agent, provider=part.provider, model=part.model, price=part.price)


def plays_itself(agent: ManifestAgent, environment: str) -> bool:
    """Whether what plays in an agent's place is what plays as it: simulated policies."""
    parts = [agent] if agent.code is None else [role_of(agent, role) for role in agent.code.roles]
    return all(part.provider == "simulated" and part.model == stand_in_of(part, environment) for part in parts)


def price_of(agent: ManifestAgent) -> Price:
    """The frozen price; free where none is known."""
    return FREE if agent.price is None else Price(**agent.price)


def tier_times(agent: ManifestAgent, tier: Tier, tokens_in: float, tokens_out: float) -> float:
    """How many times the standard price so many tokens of an agent cost by a tier."""
    price, usage = price_of(agent), Usage(input=round(tokens_in), output=round(tokens_out))
    own = Price(**agent.tier_prices[tier]) if tier in agent.tier_prices else price
    return replace(own, over=0).of(usage) / max(1, replace(price, over=0).of(usage))


def admitted(manifest: Manifest, cell: AgentSetup, suite: ManifestSuite) -> Iterator[PlannedEpisode]:
    """The episodes of one agent on one suite, in admission order, lazily."""
    for replicate in range(manifest.replicates):
        for index in admission(suite.instances, manifest.order.key):
            target = suite.instances[index]
            name = episode_id(cell.key, target.digest, replicate)
            yield PlannedEpisode(
                id=name,
                cell=cell,
                suite=suite,
                target=target,
                replicate=replicate,
                index=index,
                cell_key=(cell.agent.name, suite.name),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCode:
    """An agent that is code, and what its models speak."""

    code: AgentCode
    encodings: Mapping[str, ChatEncoding]
    """By role."""


@dataclass(slots=True, kw_only=True)
class _MeteredEpisode:
    """The requests of an episode; asks for a stop after `most` of them."""

    active: ActiveEpisode
    stop: Stop
    most: float
    asked: list[SampleRequest] = field(default_factory=list)


class _Meter:
    """Asks a policy and counts what the request and its reply would cost at a provider."""

    free = True

    def __init__(
        self,
        name: str,
        play: PolicyFn,
        model: str,
        sampling: Sampling,
        encoding: ChatEncoding,
        tally: _MeteredEpisode,
        role: str = "",
    ) -> None:
        self._name, self._play, self._encoding, self._sampling = name, play, encoding, sampling
        self._head = encoding.dialect.head(model, sampling, encoding.quirks)
        self._tally, self._role = tally, role

    def join(self, parts: list[Any], messages: Sequence[Message]) -> None:
        """Two parts: the messages for the policy, the bytes for the meter."""
        if not parts:
            parts += [], []
        parts[0].extend(messages)
        self._encoding.dialect.join(parts[1], messages, self._encoding.quirks)

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bytes]:
        return tools, self._encoding.dialect.encode_tools(tools)

    async def ask(self, question: Question) -> Answer:
        """The policy's reply; free, since what it would cost is asked of the sample."""
        tools, tools_json = question.tools
        messages, encoded = question.messages
        sampling = question.asked(self._sampling)
        request = Request(messages=tuple(messages), tools=tools, sampling=sampling, seed=question.seed)
        reply = answer(self._name, self._play, request)
        dialect, position, tally = self._encoding.dialect, self._tally.active.position, self._tally
        size = len(dialect.body(self._head, tools_json, encoded, question.seed))
        tokens = input_tokens(size), output_tokens(reply), size + dialect.overhead_tokens
        tally.asked.append(SampleRequest(*tokens, position.period, position.turn, self._role))
        if len(tally.asked) >= tally.most:
            tally.stop.set("limit")
        return Answer(reply=reply, cost=PicoUsd(0), latency_s=0.0, queue_s=0.0, attempts="ok", started_at=0.0)


@dataclass(frozen=True, slots=True)
class _NoLog:
    """A log that stores nothing."""

    agent: str

    def append(self, record: StepRecord) -> None:
        """Forget it."""

    async def durable(self) -> None:
        """Nothing to wait for."""

    async def room(self) -> None:
        """Never behind."""

    def event(self, kind: str, **facts: object) -> None:
        """An internal error must not pass for a cheap episode."""
        raise UsageError(f"plan: an episode of agent {self.agent!r} could not be played: {facts.get('detail', kind)}")


STEPS = 1000
"""Requests that all samples of a call are meant to take, and at most each conversation beyond its share; a count, not a
time, so that forecasts repeat exactly. It takes about half a second of CPU time."""
LEAST_STEPS, MOST_EPISODES = 16, 4
"""What each kind of conversation gets at least and at most."""
PLAIN = ChatEncoding(dialect=DIALECTS["openai_chat"])
"""Where only tokens are asked for: one dialect's are near enough to another's."""


class SampledCell(NamedTuple):
    """A cell whose play is wanted."""

    agent: ManifestAgent
    suite: ManifestSuite
    cell: AgentSetup

    @property
    def place(self) -> tuple[str, str]:
        """Agent and suite."""
        return self.agent.name, self.suite.name


async def play_samples(
    manifest: Manifest,
    wanted: Sequence[SampledCell],
    *,
    steps: float = STEPS,
    spoken: Callable[[SampledCell], tuple[ChatEncoding, PlayedCode | None]] = lambda _: (PLAIN, None),
    outgrows: Callable[[SampledCell, Sample], bool] = lambda *_: False,
) -> dict[tuple[str, str], list[Sample]]:
    """A few episodes of each cell as its stand-in plays them, by agent and suite; about `steps` requests in all.

    Agents who read the same, and whose stand-in is the same, share one conversation and differ in price alone.
    `spoken`: the dialect of a cell's model, and its code; `outgrows`: whether a conversation that was cut short may be
    too long for its model, so that it is played to its end.
    """
    groups: dict[tuple[object, ...], list[SampledCell]] = {}
    for member in wanted:
        agent, suite, cell = member
        (encoding, code), stand_in = spoken(member), stand_in_of(agent, suite.environment)
        played = agent.model if stand_in == agent.model else "", agent.script, agent.name if code else ""
        read = cell.kit.pack.digest, agent.notes, cell.sampling, encoding.dialect.name, encoding.quirks
        groups.setdefault((suite.name, stand_in, *played, *read), []).append(member)
    samples = {}
    for number, members in enumerate(groups.values()):
        share = max(LEAST_STEPS, steps / (len(groups) - number))
        found = await _play_cell(manifest, members, share, *spoken(members[0]), outgrows)
        steps = max(0.0, steps - sum(len(sample.asked) for sample in found))
        samples.update({member.place: found for member in members})
    return samples


async def _play_cell(
    manifest: Manifest,
    members: Sequence[SampledCell],
    share: float,
    encoding: ChatEncoding,
    code: PlayedCode | None,
    outgrows: Callable[[SampledCell, Sample], bool],
) -> list[Sample]:
    """A first episode that is longer than the share is cut; later ones are played to their end, since to leave out
    those that take long would make all seem short."""
    (agent, suite, cell), samples = members[0], list[Sample]()
    stand_in, left = stand_in_of(agent, suite.environment), share
    for episode in islice(admitted(manifest, cell, suite), MOST_EPISODES):
        one = await play_sample(episode, stand_in, encoding, STEPS if samples else round(share), code)
        if one.cut and any(outgrows(member, one) for member in members):
            one = await play_sample(episode, stand_in, encoding, None, code)
        samples.append(one)
        left -= len(one.asked)
        if left <= 0 or one.cut:
            break
    return samples


async def play_sample(
    episode: PlannedEpisode,
    stand_in: str,
    encoding: ChatEncoding,
    most: int | None = None,
    coded: PlayedCode | None = None,
) -> Sample:
    """Play an episode to its end; or, where it has periods, for `most` requests, and say how much of it that was.

    `coded`: an agent's code, which plays with a stand-in for each of its models. Raises UsageError if the environment,
    the policy or the code fails.
    """
    cell = episode.cell
    table = LaneContext(log=_NoLog(cell.agent.name), worker="plan", stop=Stop())
    periods: int | None = episode.target.line.get("periods")
    active = Holdings(episodes={}, rows={}).activate(episode)
    tally = _MeteredEpisode(
        active=active, stop=table.stop, most=float("inf") if most is None or periods is None else most
    )
    playing: _Meter | CodePlayer
    if coded is None:
        policy = player(stand_in, cell.env.name, instance=episode.instance, script=cell.agent.script)
        playing = _Meter(stand_in, policy, cell.agent.model, cell.sampling, encoding, tally)
    else:
        playing = CodePlayer(_role_askers(episode, coded, tally))
    left = await play(episode, lambda _: active, playing, table)
    # A period that has begun counts as half: it has had some of its turns.
    done = active.position.period + (0.5 if active.position.turn else 0.0)
    cut = left == "stopped" and done > 0
    return Sample(asked=tuple(tally.asked), scale=max(1.0, (periods or 0) / done) if cut else 1.0)


def _role_askers(episode: PlannedEpisode, coded: PlayedCode, tally: _MeteredEpisode) -> RoleAskers:
    cell = episode.cell
    assert cell.agent.code is not None

    def make(role: str, settings: Mapping[str, Any]) -> _Meter:
        part = role_of(cell.agent, role)
        name = stand_in_of(part, cell.env.name)
        policy = player(name, cell.env.name, instance=episode.instance, script=part.script)
        sampling = cell.sampling.with_overrides(settings)
        return _Meter(name, policy, part.model, sampling, coded.encodings[role], tally, role)

    roles = {role: role for role in cell.agent.code.roles}
    return RoleAskers(
        code=coded.code, lanes=roles, params=cell.agent.code.params, max_tokens=cell.sampling.max_tokens, make=make
    )


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


async def make_priors(
    manifest: Manifest, choice: Choice | None = None, *, known: Mapping[tuple[str, str], Prior] | None = None
) -> list[Prior]:
    """A prior for each chosen cell that is not `known` already, from a short play in this process."""
    chosen, known, cell_of = choice or Choice(), known or {}, cells(manifest)
    wanted = [
        SampledCell(agent, suite, cell_of[agent.name, suite.environment])
        for suite in filter(chosen.takes_suite, manifest.suites.values())
        for agent in manifest.agents.values()
        if agent.provider and (not chosen.agents or agent.name in chosen.agents)
        if (agent.name, suite.environment) in cell_of and (agent.name, suite.name) not in known
    ]
    samples = await play_samples(manifest, wanted)
    return [prior_of(one, samples[one.place], _costs(one.agent, samples[one.place])) for one in wanted]


def prior_of(cell: SampledCell, samples: Sequence[Sample], costs: Sequence[float]) -> Prior:
    """What a stand-in's play comes to; `costs`: of each of its episodes, in pico-dollars."""
    count = len(samples)
    return Prior(
        agent=cell.agent.name,
        suite=cell.suite.name,
        stand_in=stand_in_of(cell.agent, cell.suite.environment),
        played=count,
        cost=sum(costs) / count,
        requests=sum(sample.requests for sample in samples) / count,
        tokens_in=sum(sample.tokens_in for sample in samples) / count,
        tokens_out=sum(sample.tokens_out for sample in samples) / count,
        longest=max(sample.requests for sample in samples),
        itself=plays_itself(cell.agent, cell.suite.environment),
    )


def _costs(agent: ManifestAgent, samples: Sequence[Sample]) -> list[float]:
    # All requests at once, so at the rates of short prompts.
    price = replace(price_of(agent), over=0)
    return [
        price.of(Usage(input=sample.tokens_in, output=sample.tokens_out)) + price.request * (sample.requests - 1)
        for sample in samples
    ]


async def forecast_run(
    manifest: Manifest, by_cell: Mapping[tuple[str, str], CellTotals], directory: Path, choice: Choice
) -> Forecast:
    """The forecast at a run's start: priors as the run wrote them once, new cells played now, ended episodes learned.

    Writes `forecast.json` where there are new cells. Raises CorruptLogError.
    """
    known = {(prior.agent, prior.suite): prior for prior in read_priors(directory)}
    new = await make_priors(manifest, choice, known=known)
    if new:
        write_priors(directory, [*known.values(), *new])
    forecast = Forecast([*known.values(), *new])
    learn_all(forecast, manifest, by_cell)
    return forecast
