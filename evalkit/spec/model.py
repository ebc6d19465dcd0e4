"""What a sweep is made of, as frozen values: providers and models, agents, suites.

Reading and checking the files is left to `catalogue.py`, `suites.py`, `packs.py` and `sweep.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import msgspec

from evalkit.errors import UsageError
from evalkit.money import PicoUsd, Price, Tier
from evalkit.seats import AgentCode
from evalkit.spec.gate import GateTable
from evalkit.wire.dialect import Quirks
from evalkit.wire.exhausted import COUNTED
from evalkit.wire.http import BILLED_BY_CLOUD

StreamSetting = Literal["auto", "on", "off"]
"""Whether replies are streamed: `auto` where an attempt may be long."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane may ask of its provider, as files state it too. None: no such limit is known."""

    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    in_flight: int | None = None

    def within(self, other: "Limits") -> "Limits":
        """What both allow."""
        both = {key: (getattr(self, key), getattr(other, key)) for key in Limits.__struct_fields__}
        return Limits(**{key: min(filter(None, pair), default=None) for key, pair in both.items()})

    def checked(self, where: str) -> "Limits":
        """These alone, of what a file states beside them; raises UsageError where one is not positive."""
        given = {name: getattr(self, name) for name in Limits.__struct_fields__}
        for name, value in given.items():
            if value is not None and not 0 < value < math.inf:
                raise UsageError(
                    f"{where}.{name}: must be positive and finite, not {value}. Leave it out for no limit."
                )
        return Limits(**given)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One of the servers that answer for a provider."""

    url: str
    """Its base URL."""
    limits: Limits = NO_LIMITS
    """Its own; those of a lane or a provider hold for all servers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """What all models of a provider may ask for together, as a sweep says."""

    name: str
    """The provider."""
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model of a provider's catalogue."""

    name: str
    price: Price | None
    """None: unknown; the sweep must say that it may run without."""
    limits: Limits
    context_tokens: int | None = None
    quirks: Quirks = field(default_factory=Quirks)
    price_source: str = ""
    """Where the price comes from, with its date."""
    price_as: str = ""
    """The model whose published price it costs, where that is another name's (a deployment); empty: its own."""
    tiers: Mapping[Tier, Price] = field(default_factory=dict)
    """What it costs in other tiers than the standard one: those that the provider sells it in."""
    factors: Mapping[Tier, Decimal | Price] = field(default_factory=dict)
    """The same as the file states it: a price, or how many times that of the standard tier."""


Cloud = Literal["", "aws", "google", "azure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One file of `providers/`."""

    name: str
    dialect: str
    servers: tuple[ServerSpec, ...] = (ServerSpec(url=""),)
    """Its servers as its file names them, their `${VARIABLES}` not filled in; one without a URL if evalkit starts it
    itself (`simulate`)."""
    key_env: str = ""
    """The environment variable that holds the key; empty: none is named."""
    credentials: Cloud = ""
    """The cloud whose own SDK finds the credentials, if no variable holds a key."""
    models: Mapping[str, Model] = field(default_factory=dict)
    families: Mapping[str, Model] = field(default_factory=dict)
    """What holds for all other models whose names begin so (`gpt-5*`)."""
    price_as: str = ""
    """The provider's id in the price library; empty: only the file's prices count."""
    limits: Limits = NO_LIMITS
    """Of each model by itself, where the file gives it none of its own."""
    timeout_s: float = 600.0
    """For one attempt, first byte sent to last byte received."""
    stream: StreamSetting = "auto"
    """Whether replies are streamed."""
    silence_s: float = 300.0
    """Between two pieces of a stream; comments count as pieces."""
    simulate: Mapping[str, Any] | None = None
    """Options of a simulated provider that a run starts for itself and ends with itself."""
    cache_key: bool = False
    """Whether requests name their episode, so that the provider looks for its prompt where it left it."""
    default_price: Price | None = None
    """For models that the file does not list; None: it must list all."""
    default_source: str = ""
    """Where that price comes from, with its date."""
    most_tools: int | None = None
    """Tools a request may offer; None: no such limit is known."""
    service_tiers: Mapping[Tier, str] = field(default_factory=dict)
    """What it calls the tiers, in requests and replies; empty: requests name none."""
    tier: tuple[Tier, ...] = ()
    """Those that requests go by where nothing else is said, in order of preference; empty: the standard one."""
    cache: str = ""
    """How long its prompt cache is to last; empty: as usual."""
    inference_geo: str = ""
    """Where requests ask to be answered (Anthropic); empty: they do not say."""
    extra_allowed: tuple[str, ...] = ()
    """Fields that an agent's `extra` may set beyond those that are known not to change the bill."""

    @property
    def billed(self) -> Mapping[str, bool]:
        """By outcome without a reply: whether the provider bills it, where that is not as for all."""
        return BILLED_BY_CLOUD.get(self.credentials, {})

    @property
    def key_words(self) -> str:
        """Where its key comes from, for messages."""
        sources = [f"{self.key_env} (environment variable, else keyring)"] if self.key_env else []
        if self.credentials:
            sources.append(f"the credentials that {self.credentials}'s own SDK finds")
        return " or ".join(sources) or "the provider's file: it names no `key_env`"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What answers: a model at a provider with its sampling and prompt pack, or a policy in this process."""

    name: str
    provider: str = ""
    model: str = ""
    policy: str = ""
    """Name of a policy played in this process; exclusive with provider and model."""
    script: str = ""
    """For the policy `scripted`: its replies, as JSON text."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Fields of `Sampling` that the agent sets over the environment's defaults."""
    prompts: str = "standard"
    """Name or path of the prompt pack."""
    notes: bool = True
    tags: tuple[str, ...] = ()
    budget: PicoUsd | None = None
    """What it may spend of the run's money, charges included; None: no bound of its own."""
    agent: str = ""
    """Of an agent that is code, its name; then `provider` and `model` are those of its first role."""
    version: int = 0
    """Of the code."""
    code: AgentCode | None = None
    """The code itself, where it is to be played."""
    models: Mapping[str, str] = field(default_factory=dict)
    """By role: `provider/model`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What its code reads as `seat.params`."""
    tier: tuple[Tier, ...] = ()
    """The tiers that its requests go by, in order of preference; empty: its lane's, or its provider's."""

    @property
    def roles(self) -> dict[str, "AgentSpec"]:
        """By role, the model that it asks, as an agent of its own; of a model or a policy itself alone."""
        if self.code is None:
            return {"": self}
        parts = {role: self.models[role].partition("/") for role in self.code.models}
        return {role: replace(self, provider=provider, model=model) for role, (provider, _, model) in parts.items()}

    @property
    def lanes(self) -> tuple[str, ...]:
        """Of all its models; its own comes first."""
        return tuple(dict.fromkeys(part.lane for part in self.roles.values()))

    @property
    def lane(self) -> str:
        """The queue its requests share: `provider/model`, or `policy` for all that are played in this process."""
        return f"{self.provider}/{self.model}" if self.provider else "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteInstance:
    """One instance as a sweep plays it."""

    suite: str
    """Suite name, with `?k=2` after it where the sweep varied parameters."""
    id: str
    environment: str
    digest: str
    """Of the defining fields; hex."""
    instance: Any
    """The environment's own value."""
    stratum: str
    axes: Mapping[str, Any] = field(default_factory=dict)
    """The varied parameters and their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteUse:
    """A suite as a sweep names it."""

    name: str
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    instances: tuple[str, ...] = ()
    """Ids to play; empty: all."""
    counted_refusals: tuple[str, ...] = COUNTED
    """Kinds of refusals that end an episode as the model's doing."""


Machines = Literal["here", "ray"]
"""Whether a run's processes are started on this machine, or are actors on a Ray cluster."""


Scope = Literal["such instances", "this suite"]
About = Literal["such instances", "this suite once", "this suite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """What a run is to find out."""

    about: About
    pairs: str | tuple[tuple[str, str], ...]
    """`all`, `best`, `baseline:NAME`, or a list; an empty list where only precisions are asked for."""
    margin: float
    """Points, of which the scale from 0 to 1 has 100: agents shown to be closer are equal."""
    precision: float | None = None
    """Points to each side, to which the agents' own means are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The spec of a run: agents x suites x replicates, with its bounds."""

    name: str
    source: str
    """The file it was read from."""
    agents: tuple[AgentSpec, ...]
    suites: tuple[SuiteUse, ...]
    replicates: int = 1
    width: int = 64
    """Episodes in flight in each lane."""
    workers: int = 1
    """Processes that play it."""
    on: Machines = "here"
    budget: PicoUsd | None = None
    deadline_s: float | None = None
    """Seconds from the start of each `run` command."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Overrides: `provider/model` of that lane alone, `provider` of all its models together."""
    tiers: Mapping[str, tuple[Tier, ...]] = field(default_factory=dict)
    """By the same names: the tiers that requests go by, in order of preference."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """By the same names: how long prompt caches are to last."""
    decide: Decide | None = None
    """What the run is to find out; None: it plays all that it plans."""
    alert_at: float | None = None
    """The share of the budget at which somebody is told; None: nobody is."""
    gate: GateTable = field(default_factory=GateTable)
    """What `evalkit gate` lets pass."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """What its file or mapping says, as plain values, with the settings."""
    settings: tuple[str, ...] = ()
    """What the command line replaced in it: `agents.gpt.effort=high`."""

    @property
    def bounded(self) -> bool:
        """Whether anything bounds what the run may spend: its own budget, or an agent's."""
        return self.budget is not None or any(agent.budget is not None for agent in self.agents)

    @property
    def is_spread(self) -> bool:
        """Whether other processes than the one that is called play it."""
        return self.workers > 1 or self.on != "here"
