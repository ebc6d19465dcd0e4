"""The record of an environment: frozen, with pure functions. Nothing is inherited.

An environment is a state machine `(state, reply) -> (state, observation)`. It does no I/O, reads no clock, and draws
only from the instance's seed. `step` is total: whatever a model answers has a defined outcome, recorded in the facts.
The record also has what planning and reports must know about it. No table elsewhere names an environment.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import msgspec

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolChoice, as_dataclass

InstanceT = TypeVar("InstanceT")
StateT = TypeVar("StateT")

Facts = Mapping[str, Any]
"""What the environment answered, as JSON values: typed outcomes and numbers, never rendered text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A prompt pack: every text the agent reads, by dotted key, for one environment (and variant)."""

    name: str
    digest: str
    """Hex digest of the resolved texts: part of an agent's identity."""
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The texts of an environment: what a pack contains for it."""

    all: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By dotted key, each with the fields that its text may use in braces."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Those of `all` that a pack may lack, each with the text that is used instead. They were added after the first
    version, so that a run whose pack was fixed without them continues byte for byte as it began. Optional texts are
    empty here."""
    open: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Beginnings of further keys that a pack may contain, one key for each of many things: `tools.of` allows
    `tools.of.NAME`. With the fields that such a text may use."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of `all` that are settings and not read by the agent, each with its possible values."""
    standard: str = ""
    """Where the standard texts are, as `package:file`: a TOML file with one table, of the environment's name. Empty:
    in evalkit's own `standard` pack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What differs between agents: the prompt pack, and whether there are notes. An instance is played with any kit."""

    pack: Pack
    notes: bool = True
    """Whether the agent has the notes tools."""


@as_dataclass
class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a chat."""

    messages: tuple[Message, ...]
    """The system message first, then the user's."""


@as_dataclass
class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a reply."""

    messages: tuple[Message, ...]
    """Appended to the chat after the reply: tool results, then a notice if there is one. Empty if the chat ends."""
    facts: Facts
    new_chat: bool = False
    """The period is over: the next request starts a new chat from `opening(state)`."""
    acted: bool = False
    """Whether the reply made a valid action. Only the lane uses it: it is in no fact and no digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One episode's result.

    value     the environment's score; 1 is the optimum, `Environment.score_range` has its bounds
    solved    whether it counts as solved, by the environment's own rule; never where `Presentation.scale` is `litmus`
    metrics   a mapping from names to floats: secondary figures; an undefined one is left out
    path      a tuple of names: tools of the charged calls, if the environment compares paths

    >>> import evalkit
    >>> instance = evalkit.suite("scheduling/basic")[0]
    >>> score = evalkit.play("oracle", instance).score
    >>> score.value, score.solved
    (1.0, True)
    """

    value: float
    """The environment's score; 1 is the optimum."""
    solved: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Secondary metrics by name; an undefined one is left out."""
    path: tuple[str, ...] = ()
    """Tools of the agent's charged calls, in order, if the environment compares paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of an environment's instances, as a suite, `vary` and `evalkit suites generate` know it."""

    kind: type
    """`int`, `float`, `str` or `bool`."""
    help: str
    default: Any
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()
    file: Callable[[Mapping[str, Any], str], object] | None = None
    """Checks a value that is given as a TOML file: (its table, its name). Raises UsageError. None: a file cannot be
    given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionShare:
    """A secondary metric of `Score.metrics` that is a share of actions, 0 to 1. Reports have a column for it."""

    title: str
    about: str
    """What it is a share of, for the note below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number that each instance has, such as its optimum."""

    title: str
    unit: str
    of: Callable[[Mapping[str, Any]], float]
    """Computes it from an instance's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """A number that describes each group of a suite's instances."""

    key: str
    title: str
    of: Callable[[Sequence[Mapping[str, Any]]], int]
    """Computes it from the lines of the group."""
    about: str = ""
    """A note for readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSize:
    """One measure of how large an instance is."""

    key: str
    title: str
    of: Callable[[Any], int]
    """Computes it from an instance."""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDescription:
    """What `evalkit suites describe` says of suites of this environment, besides what it says of every suite."""

    quantities: tuple[Quantity, ...] = ()
    tallies: tuple[GroupCount, ...] = ()
    sizes: tuple[InstanceSize, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """What reports, lists and pages say of an environment, and what lies beside it. Nothing here changes an episode,
    its score or its cost.

    What is in a higher layer is named, as `module:name`, and read when it is needed.
    """

    scale: Literal["optimum", "litmus"] = "optimum"
    """`litmus`: scores lie between two ways of acting, neither of which is right. So no optimum is claimed, nothing is
    ever solved, and a nightly change is an alarm in both directions."""
    zero_means: str = ""
    """What a score of 0 means, in words; empty if it has no special meaning."""
    one_means: str = ""
    """What a score of 1 means on the scale `litmus`, in words."""
    one_chat: bool = False
    """Whether an episode is one chat of many turns, without periods: figures of periods are then left out."""
    stationary: bool = False
    """Whether all periods are the same problem, so that one action can be the best in all of them and solve it."""
    shares: Mapping[str, ActionShare] = field(default_factory=dict)
    """Secondary metrics that reports show, by name, in addition to those that any environment may have."""
    described: SuiteDescription = SuiteDescription()  # frozen
    """What `evalkit suites describe` shows of its suites."""
    report: str = ""
    """Its own tables, figures and charts: a record of `evalkit/report/extras.py`."""
    tasks: str = ""
    """What models are asked about its suites and runs: a record of `evalkit/tasks/record.py`."""
    prompt_import: str = ""
    """How its texts are read from a copy of the reference: a record of `evalkit/spec/importing/executed.py`."""
    made_suites: Mapping[str, str] = field(default_factory=dict)
    """Suites that are not shipped, by name, each with how a user makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Generic[InstanceT, StateT]):
    """One benchmark: a frozen record of pure functions, a state machine `(state, reply) -> (state, observation)`.

    To play an episode: `load(line)` gives an instance, and `start(instance, kit)` a state. `opening(state)` and
    `tools(state)` are what the agent reads. `step(state, reply)` is called until `ended(state)` says why the episode is
    over. `score(instance, facts)` gives the score. `evalkit.Game` does all that. Each field has a docstring in the
    source, and docs/add-an-environment.md builds a complete environment.

    >>> import evalkit
    >>> scheduling = evalkit.env("scheduling")
    >>> scheduling.name, scheduling.score_range, scheduling.parameters["k"].default
    ('scheduling', (-inf, 1.0), 1)
    """

    name: str
    version: int
    """Increased when the same replies lead to other states, texts or facts."""
    defaults: Sampling
    parameters: Mapping[str, Parameter]
    texts: Texts
    load: Callable[[Mapping[str, Any]], InstanceT]
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    describe: Callable[[InstanceT], Mapping[str, Any]]
    """An instance as a suite's line: the fields that define it, and its optimum or denominator."""
    start: Callable[[InstanceT, Kit], StateT]
    opening: Callable[[StateT], Opening]
    tools: Callable[[StateT], tuple[Tool, ...]]
    """The tools that the next request offers. It is the same tuple object as long as they stay the same."""
    step: Callable[[StateT, Reply], tuple[StateT, Observation]]
    period: Callable[[StateT], int]
    """The period of the next request."""
    ended: Callable[[StateT], str]
    """Why the episode is over (`stable`, `complete`, `unresponsive`), or an empty string while it continues."""
    score: Callable[[InstanceT, Sequence[Facts]], Score]
    """Computed from the facts of all steps, in order. An episode that the model ended early is scored by the same rule,
    as if its remaining periods had no action."""
    generate: Callable[[Mapping[str, Any], int, int], Iterator[Mapping[str, Any]]]
    """(parameters, count, seed) -> suite lines of the native generator, lazily."""
    stratum: Callable[[InstanceT], str]
    """The group an instance belongs to, for balanced order and stratified intervals."""
    offers: Callable[[InstanceT], int]
    """The largest number of tools in a request of the instance. Providers limit it."""
    tool_choice: Callable[[StateT], ToolChoice | None] | None = None
    """Whether the next reply must have a call, or must not. None: as the agent's settings say."""
    score_range: tuple[float, float] = (-math.inf, 1.0)
    """The lowest and the highest possible score. With two finite bounds, intervals are narrower and also valid for a
    partial run."""
    talk: bool = False
    """Whether a reply without a call can be a valid action."""
    presentation: Presentation = Presentation()  # frozen
    """What reports, lists and pages say of it."""
    policies: str = ""
    """The policies that play only this environment, as `module:name` of a table by name of records of
    `evalkit/policy/conversation.py`."""
    stand_in: str = "random"
    """The policy that plays in a model's place when the requests and the cost of a run are predicted."""


def fill(template: str, **values: object) -> str:
    """A pack's text with `{name}` replaced for the given names only; every other brace stays as it is."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def outcomes(facts: Iterable[Facts]) -> Iterator[tuple[str, str]]:
    """All (tool, outcome) pairs of an episode, in order."""
    for step in facts:
        for call in step.get("calls", ()):
            yield call["tool"], call["outcome"]
