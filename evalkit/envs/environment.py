"""What an environment is: a frozen record of pure functions. There is nothing to inherit.

An environment is a state machine `(state, reply) -> (state, observation)`. It does no I/O, reads no clock, and draws
only from the instance's seed. `step` is total: whatever a model answers has a defined outcome, recorded in the facts.
What planning and reports must know of an environment is in its record too: no table elsewhere names it.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolChoice

InstanceT = TypeVar("InstanceT")
StateT = TypeVar("StateT")

Facts = Mapping[str, Any]
"""What the environment said back, as JSON-able values: typed outcomes and numbers, never rendered text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A prompt pack: every text the agent reads, by dotted key, for one environment (and variant)."""

    name: str
    digest: str
    """Hex digest of the resolved texts: part of an agent's identity."""
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What the agent brings: its prompt pack and its notes. The same instance may be played with other kits."""

    pack: Pack
    notes: bool = True
    """Whether the agent has the notes tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The start of a chat."""

    messages: tuple[Message, ...]
    """System message first, then what the user says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a reply brought about."""

    messages: tuple[Message, ...]
    """Appended to the chat behind the reply: tool results, then a notice if there is one. Empty where the chat ends."""
    facts: Facts
    new_chat: bool = False
    """The period is over: the next request starts afresh from `opening(state)`."""
    acted: bool = False
    """Whether the reply made a valid action. Told to the lane alone: it is in no fact and no digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One episode's result.

    value     the environment's score; 1 is the optimum, `Environment.score_range` says between what it lies
    solved    whether it counts as solved, by the environment's own rule
    metrics   a mapping from names to floats: secondary figures; an undefined one is left out
    path      a tuple of names: tools of the charged calls, where the environment compares paths

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
    """Tools of the agent's charged calls, in order, where the environment compares paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of an environment's instances, as a suite, `vary` and `evalkit generate` know it."""

    kind: type
    """`int`, `float`, `str` or `bool`."""
    help: str
    default: Any
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()
    file: Callable[[Mapping[str, Any], str], object] | None = None
    """Checks a value that is a TOML file of the user's: (its table, its name). Raises UsageError. None: no file may
    stand for a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionShare:
    """A secondary metric of `Score.metrics` that is a share of actions, 0 to 1: reports have a column of it."""

    title: str
    about: str
    """What it is a share of, for the note below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number that each instance has: what scores are measured against."""

    title: str
    unit: str
    of: Callable[[Mapping[str, Any]], float]
    """Of an instance's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """A number of each group of a suite's instances."""

    key: str
    title: str
    of: Callable[[Sequence[Mapping[str, Any]]], int]
    """Of the lines of the group."""
    about: str = ""
    """What a reader must know of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSize:
    """How large an instance is, in one respect."""

    key: str
    title: str
    of: Callable[[Any], int]
    """Of an instance."""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What `evalkit describe` says of suites beside what it says of every one."""

    quantities: tuple[Quantity, ...] = ()
    tallies: tuple[GroupCount, ...] = ()
    sizes: tuple[InstanceSize, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Generic[InstanceT, StateT]):
    """One benchmark: a frozen record of pure functions, a state machine `(state, reply) -> (state, observation)`.

    Whoever plays calls `load(line)` for an instance, `start(instance, kit)` for a state, then `opening(state)` and
    `tools(state)` for what the agent reads, and `step(state, reply)` until `ended(state)` says why it is over;
    `score(instance, facts)` scores what came of it. `evalkit.Game` does all that. Each field has a text in the source,
    and docs/add-an-environment.md builds one from nothing.

    >>> import evalkit
    >>> scheduling = evalkit.env("scheduling")
    >>> scheduling.name, scheduling.stationary, scheduling.parameters["k"].default
    ('scheduling', True, 1)
    """

    name: str
    version: int
    """Raised when the same replies would lead to other states, texts or facts."""
    defaults: Sampling
    parameters: Mapping[str, Parameter]
    texts: Mapping[str, frozenset[str]]
    """Keys of the texts a pack must hold, each with the fields its text may use in braces."""
    load: Callable[[Mapping[str, Any]], InstanceT]
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    describe: Callable[[InstanceT], Mapping[str, Any]]
    """An instance as a suite's line: defining fields plus the stored optimum or denominator."""
    start: Callable[[InstanceT, Kit], StateT]
    opening: Callable[[StateT], Opening]
    tools: Callable[[StateT], tuple[Tool, ...]]
    """The tools the next request offers. The same tuple object as long as they stay the same."""
    step: Callable[[StateT, Reply], tuple[StateT, Observation]]
    period: Callable[[StateT], int]
    """The period the next request belongs to."""
    ended: Callable[[StateT], str]
    """Why the episode is over (`stable`, `complete`, `unresponsive`), or an empty string while it goes on."""
    score: Callable[[InstanceT, Sequence[Facts]], Score]
    """From the facts of all steps, in order. An episode that the model ended early is scored by the same rule, as if
    its remaining periods had brought no action."""
    generate: Callable[[Mapping[str, Any], int, int], Iterator[Mapping[str, Any]]]
    """(parameters, count, seed) -> suite lines of the native generator, lazily."""
    stratum: Callable[[InstanceT], str]
    """The group an instance belongs to, for balanced order and stratified intervals."""
    offers: Callable[[InstanceT], int]
    """How many tools a request of the instance offers at most: providers bound it."""
    likeness: Callable[[Mapping[str, Any]], Hashable] | None = None
    """Of a suite's line: lines of equal likeness that load are of one stratum and offer equally many tools. May raise
    TypeError for a line that makes no sense. So of a suite of a million lines one of each kind is loaded when a run
    begins; None: only loading tells."""
    compiled_saves_s: Callable[[Mapping[str, Any]], float] = lambda _: 0.0
    """CPU seconds that compiled kernels save in one period, by an instance's line, as measured by `bench/compiled.py`;
    0 where steps call none, and for a line that makes no sense."""
    kernels: str = ""
    """The module of the compiled kernels that its steps call, if there is one. Its `samples()` gives, by kernel,
    arguments of the types that steps call it with."""
    compiled_ahead: str = ""
    """What more `evalkit warmup` has to compile, as `module:function`: an iterator of what it has compiled, by name."""
    later_texts: Mapping[str, str] = field(default_factory=dict)
    """Of `texts`, those that a pack may lack, each with what it then says: texts that are younger than the environment,
    so that a run whose pack was frozen without them goes on byte for byte as it began; and optional ones, empty."""
    tool_choice: Callable[[StateT], ToolChoice | None] | None = None
    """Whether the next reply must hold a call, or none, where that is not as the agent is asked anyway (None)."""
    open_texts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Beginnings of further keys that a pack may hold, each for one of many things: `tools.of` stands for
    `tools.of.NAME`; with the fields such a text may use."""
    text_choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of `texts`, those that are words of ours and not of the agent's, each with the words there are."""
    prompts: str = ""
    """Where its standard texts are, as `package:file`: a TOML file with one table, of the environment's name. Empty:
    in evalkit's own `standard` pack."""
    prompt_import: str = ""
    """What reads its texts out of a copy of the reference that it follows, as `module:name` of a record of
    `evalkit/spec/importing/record.py`."""
    made_suites: Mapping[str, str] = field(default_factory=dict)
    """Suites that are not shipped, by name, each with how a user makes it."""
    score_range: tuple[float, float] = (-math.inf, 1.0)
    """Between what a score can be. Intervals of scores with two bounds are narrower, and hold for a partial run."""
    zero_means: str = ""
    """What a score of 0 stands for, in words, where it stands for something."""
    one_chat: bool = False
    """Whether an episode is one chat of many turns, without periods: figures of periods are then left out."""
    stationary: bool = False
    """Whether periods are alike, so that one best action is best in all of them and an episode can be solved by it."""
    shares: Mapping[str, ActionShare] = field(default_factory=dict)
    """Secondary metrics that reports show, by name, beside those that any environment may give."""
    described: Described = Described()  # frozen
    """What its suites are described by."""
    report: str = ""
    """What reports and pages have of it beside what they have of every environment, as `module:name` of a record of
    `evalkit/report/extras/record.py`. A name, since an environment lies below reports; read where one needs it."""
    policies: str = ""
    """The policies that play it alone, as `module:name` of a table by name of `evalkit/policy/record.py`'s records."""
    tasks: str = ""
    """What models are asked about its suites and runs, as `module:name` of a record of `evalkit/tasks/record.py`."""
    stand_in: str = "random"
    """The policy that plays for a model when a run's requests and cost are forecast."""


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
