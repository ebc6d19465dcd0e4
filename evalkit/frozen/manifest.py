"""The manifest: what a run consists of, frozen when it started and extended only by addition.

Together with the suites' files (`suite_file.py`) it contains everything that replay needs besides the log (instances,
prompt packs, sampling). So a run can be verified and reported after the suites and packs from which it was started have
changed or disappeared. It describes its suites and does not list their instances.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from evalkit.dialogue import Sampling
from evalkit.envs.environment import Environment, Kit, Pack
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, UsageError
from evalkit.frozen.instances import ManifestInstance, admission, laid
from evalkit.frozen.suite_file import StoredInstances
from evalkit.money import Price, Tier
from evalkit.plugins import PREFIX, install_line, is_plain
from evalkit.wire.exhausted import COUNTED

MOST_REPLICATES = 10**6
"""That a sweep may ask for (`spec/sweep.py`)."""
_MOST_PRICE = 2**53
SIMULATED = "simulated money"
"""What is in the source of a price that a simulated provider asks for."""
REMEDY = "Restore it from a copy; the log beside it is intact."


class ManifestSuite(msgspec.Struct, frozen=True, kw_only=True):
    """One suite as it is played: a base suite, with the parameters that the sweep varied set to one value each."""

    name: str
    """Base name, followed by `?k=2` if parameters were varied."""
    base: str
    axes: Mapping[str, Any]
    environment: str
    environment_version: int
    digest: str
    instances: Sequence[ManifestInstance]
    """Read as they are asked for; its length and `laid(instances).strata` cost nothing."""
    read_from: str = ""
    """Digest of what was read (the suite's file, and what the sweep varies and chooses of it) and of `digest`. While it
    is the same, a run that goes on need not look into the lines again. Empty: it looks into them."""
    counted_refusals: tuple[str, ...] = COUNTED
    """Kinds of refusals that end an episode as the model's doing (`evalkit/wire/exhausted.py`)."""


class ManifestPack(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt pack as it was resolved for one environment and variant."""

    name: str
    digest: str
    texts: Mapping[str, str]
    own: tuple[str, ...] = ()
    """Keys of the texts that the pack itself names; the others are `standard`'s."""
    file: bool = False
    """Whether it is a user's own file."""


class ManifestRole(msgspec.Struct, frozen=True, kw_only=True):
    """One model of an agent that is code."""

    provider: str
    model: str
    price: Mapping[str, int] | None = None
    """As the agent's."""
    price_source: str = ""
    tier_prices: Mapping[Tier, Mapping[str, int]] = {}

    @property
    def lane(self) -> str:
        """As the agent's."""
        return f"{self.provider}/{self.model}"


class ManifestCode(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent that is code declares."""

    agent: str
    """Its name."""
    version: int
    parallel: int
    """Requests that it may have in flight at once."""
    roles: Mapping[str, ManifestRole]
    """All of them; the first is the agent's own model."""
    params: Mapping[str, Any] = {}
    source: str = ""
    """Digest of its source when it was last played; another one is only noted."""


class ManifestAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent."""

    name: str
    identity: str
    """Digest of what it reads and how it samples; a change is a conflict."""
    lane: str
    provider: str
    model: str
    policy: str
    script: str
    """For the policy `scripted`: its replies, as JSON text."""
    overrides: Mapping[str, Any]
    sampling: Mapping[str, Mapping[str, Any]]
    """By environment: the sampling in force."""
    packs: Mapping[str, str]
    """By environment: digest of the pack in force."""
    pack: str
    """The pack's name, for tables."""
    notes: bool
    tags: tuple[str, ...]
    marks: tuple[str, ...] = ()
    """What readers must know of it: `temperature not sent: the model refuses it`."""
    price: Mapping[str, int] | None = None
    """Pico-dollars per token by kind, frozen when the agent joined the run; None: no price is known."""
    price_source: str = ""
    tier_prices: Mapping[Tier, Mapping[str, int]] = {}
    """The same of tiers other than the standard one, of those whose price is known; a tier is frozen when its price
    is first known."""
    code: ManifestCode | None = None
    """Of an agent that is code."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """Of all its models; its own comes first."""
        return tuple(dict.fromkeys(role.lane for role in self.code.roles.values())) if self.code else (self.lane,)


Target = tuple[ManifestSuite, ManifestInstance]


class ManifestExtent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was to hold before it was extended: these agents on these suites."""

    agents: tuple[str, ...]
    suites: tuple[str, ...]
    replicates: int

    def holds(self, agent: str, suite: str, replicate: int) -> bool:
        """Whether an episode was part of it."""
        return replicate < self.replicates and agent in self.agents and suite in self.suites


class ManifestOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which episodes are admitted (`engine/universe.py`), frozen when the run began."""

    key: int | None = None
    """Of the permutations within strata; None: instances come as they are listed, as in nights, whose lists are in the
    night's order."""
    before: tuple[ManifestExtent, ...] = ()
    """The run before each extension, oldest first: additions come after what was frozen."""


class ManifestPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """What another package contributed to the run."""

    entry: str
    """`evalkit.environments:offers`"""
    package: str
    version: str

    @property
    def group(self) -> str:
        """`environments`"""
        return self.entry.removeprefix(PREFIX).partition(":")[0]

    @property
    def name(self) -> str:
        """`offers`"""
        return self.entry.partition(":")[2]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The run."""

    evalkit: str
    """The version that began it."""
    name: str
    created_at: float
    replicates: int
    agents: Mapping[str, ManifestAgent]
    suites: Mapping[str, ManifestSuite]
    packs: Mapping[str, ManifestPack]
    """By digest."""
    order: ManifestOrder = ManifestOrder()
    plugins: tuple[ManifestPlugin, ...] = ()
    """What other packages contributed to it; a package that later came in another version has a line for each
    version."""

    @property
    def file(self) -> str:
        """What messages call it."""
        instances = (suite.instances for suite in self.suites.values())
        stored = (own.path for own in instances if isinstance(own, StoredInstances) and own.data is None)
        folders = {path.parent.parent / "manifest" for path in stored}
        return max(
            (f"manifest/{file.name}" for folder in folders for file in folder.glob("*.json")), default="manifest"
        )

    @property
    def extent(self) -> ManifestExtent:
        """All that the run is to hold."""
        return ManifestExtent(agents=tuple(self.agents), suites=tuple(self.suites), replicates=self.replicates)

    @property
    def simulated(self) -> str:
        """Whether its money is real: empty, `simulated` if simulated providers ask for all of it, or `partly
        simulated`."""
        agents = self.agents.values()
        parts = [part for agent in agents for part in (agent, *(agent.code.roles.values() if agent.code else ()))]
        made_up = {SIMULATED in part.price_source for part in parts if part.provider}
        return "" if True not in made_up else "simulated" if made_up == {True} else "partly simulated"

    def install(self, environment: str) -> str:
        """What to do if an environment of the run is not installed, in a sentence."""
        for plugin in reversed(self.plugins):
            if (plugin.group, plugin.name) == ("environments", environment):
                return f"It came from a package: {install_line(plugin.package, plugin.version)}."
        return "Install the package that contains it, or use the evalkit that wrote the run."

    def admitted(self, suite: ManifestSuite) -> Iterator[ManifestInstance]:
        """A suite's instances in the order of admission (`instances.admission`), lazily."""
        return map(suite.instances.__getitem__, admission(suite.instances, self.order.key))

    def targets(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Target]:
        """Instances by suite and id; those that the run lacks are left out, others are not read."""
        ids: dict[str, dict[str, None]] = {}
        for suite, name in wanted:
            ids.setdefault(suite, {})[name] = None
        targets = {}
        for suite in ids.keys() & self.suites.keys():
            own = self.suites[suite]
            for name, place in laid(own.instances).find(list(ids[suite])).items():
                target = own.instances[place]
                if target.id == name:
                    targets[suite, name] = own, target
        return targets

    def kit_of(self, agent: ManifestAgent, environment: str) -> Kit:
        """What an agent plays an environment with. Raises KeyError if it does not play it, CorruptLogError if its pack
        lacks texts."""
        return self.kit(environment, agent.packs[environment], agent.notes)

    def kit(self, environment: str, digest: str, notes: bool) -> Kit:
        """The kit with the pack of this digest. Raises CorruptLogError if it lacks texts."""
        pack = self.packs[digest]
        texts = pack.texts
        if environment in ENVIRONMENTS:  # a record that is played without the table has its texts in the pack
            env = ENVIRONMENTS[environment]
            texts = {**env.texts.later, **texts} if env.texts.later else texts
            lacking = env.texts.all.keys() - texts.keys()
            if lacking:
                raise CorruptLogError(
                    f"{self.file} is damaged: the pack {pack.name!r} lacks the text {min(lacking)!r} of {environment}. "
                    f"{REMEDY}"
                )
        return Kit(pack=Pack(name=pack.name, digest=pack.digest, texts=texts), notes=notes)


def flaws_of(manifest: Manifest) -> Iterator[str]:
    """Contradictions in a manifest: checks everything that readers rely on."""
    words = [manifest.evalkit, *(word for plugin in manifest.plugins for word in (plugin.package, plugin.version))]
    yield from (f"{word!r} is no package or version" for word in words if not is_plain(word))
    if not 1 <= manifest.replicates <= MOST_REPLICATES:
        yield f"{manifest.replicates} replicates"
    for kind, parts in (("agent", manifest.agents), ("suite", manifest.suites)):
        yield from (
            f"the {kind} {name!r} is stored as {part.name!r}" for name, part in parts.items() if part.name != name
        )
    for digest, pack in manifest.packs.items():
        if pack.digest != digest:
            yield f"the pack {digest!r} is stored as {pack.digest!r}"
    for agent in manifest.agents.values():
        yield from (f"agent {agent.name!r} {flaw}" for flaw in _agent_flaws(agent, manifest))
    for extent in manifest.order.before:
        gone = ({*extent.agents} - manifest.agents.keys()) | ({*extent.suites} - manifest.suites.keys())
        yield from (f"its order names {name!r}, which is missing" for name in sorted(gone))
        if not 1 <= extent.replicates <= MOST_REPLICATES:
            yield f"its order has {extent.replicates} replicates"
    for suite in manifest.suites.values():
        if sum(laid(suite.instances).strata.values()) != len(suite.instances):
            yield f"the suite {suite.name!r} has other strata than instances"
        if not suite.instances:
            yield f"the suite {suite.name!r} has no instance"
        if isinstance(suite.instances, tuple) and len({entry.id for entry in suite.instances}) < len(suite.instances):
            yield f"the suite {suite.name!r} has two instances of one id"


def _agent_flaws(agent: ManifestAgent, manifest: Manifest) -> Iterator[str]:
    for environment, digest in agent.packs.items():
        if digest not in manifest.packs:
            yield f"reads the pack {digest!r}, which is missing"
        if environment not in agent.sampling:
            yield f"plays {environment!r} without sampling settings"
    for sampling in agent.sampling.values():
        try:
            msgspec.convert(sampling, Sampling)
        except msgspec.ValidationError as flaw:
            yield f"has invalid sampling settings ({flaw})"
        yield from (
            f"has the unknown sampling setting {name!r}"
            for name in sampling.keys() - Sampling.__dataclass_fields__.keys()
        )
    parts = [agent, *(agent.code.roles.values() if agent.code else ())]
    for price in [price for part in parts for price in (part.price, *part.tier_prices.values())]:
        yield from () if price is None else _price_flaws(price)
    if agent.code is not None and not (agent.code.roles and agent.code.parallel > 0):
        yield "is code without a model, or without a request in flight"


def _price_flaws(price: Mapping[str, int]) -> Iterator[str]:
    try:
        msgspec.convert(price, Price)
    except msgspec.ValidationError as flaw:
        yield f"has an invalid price ({flaw})"
    yield from (f"has the unknown price {name!r}" for name in price.keys() - Price.__dataclass_fields__.keys())
    yield from (f"has a price of {amount}" for amount in price.values() if not 0 <= amount <= _MOST_PRICE)


def load_target(environment: Environment[Any, Any], target: ManifestInstance) -> Any:
    """The environment's own value of an instance. Raises CorruptLogError if its line cannot be read."""
    try:
        return environment.load(target.line)
    except UsageError as flaw:
        raise CorruptLogError(f"The manifest is damaged: instance {target.id!r}: {flaw} {REMEDY}") from flaw
