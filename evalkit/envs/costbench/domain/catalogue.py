"""A domain as data: tasks, dimensions with their values, the steps of a chain, or any typed tools.

`travel` is the benchmark's own domain, `delivery` a second one. Another domain is another file of the same form:
nothing in the environment knows a word of travel. Where a text holds `{T}`, the task's title stands there: `dining`
gives `Dining`, `code_review` gives `CodeReview`.
"""

from functools import lru_cache
from typing import Literal, get_args

import msgspec

Split = Literal["test", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)

NAME_KEYS = (
    "first_second",  # first and second
    "second_last",  # second and last, where there is no step between
    "step_last",  # step s and last
    "second_step",  # second and step 1
    "step_step",  # step e-1 and step e
    "first_to_step",  # first .. step e, three or more
    "second_to_step",  # second .. step e, three or more
    "steps",  # step s .. step e, three or more
    "whole",  # first .. last; {N}: their number
    "second_to_last",  # second .. last, three or more; {n}: their number
    "step_to_last",  # step s .. last, three or more; {n}: their number
)
"""How composites of a chain are named: the keys of `Chain.names`."""


class Dimension(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One preference dimension; all tasks of a catalogue have the same ones."""

    key: str
    suffix: str
    """Its type is the task's title and this: `Category` gives `DiningCategory`."""
    about: str
    """For the description of an argument: `kind of place`."""


class Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of atomic tool in a chain. Texts may hold `{T}`, `{k}` (the step's number), `{word}`, `{criterion}`."""

    tool: str
    output: str
    """The type it gives."""
    label: str
    """How ids of that type begin: `{T}CandidateSet` gives `<DiningCandidateSet00012>`."""
    inputs: tuple[str, ...]
    """In declared order: `previous` (what the tool before gives), `dimensions`, `constants`, `context`."""
    text: str
    """What it does, for its description."""
    does: str = ""
    """The same at length, as what follows `it`; `{filter}` stands for one of `Chain.filters`. May be left out."""
    gives: str = ""
    """What an id of its output type stands for, with `{about}` and `{criteria}` (of the steps so far); optional."""


class TaskChain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of every task that has no graph of its own: first, second, steps 1..L, last. Length N = L + 3."""

    first: Link
    second: Link
    step: Link
    last: Link
    step_one_inputs: tuple[str, ...]
    """Step 1's inputs, where they are not those of the other steps."""
    words: tuple[str, ...]
    """`{word}` of steps 1, 2, ...; after the last one, `more_word`."""
    more_word: str
    criteria: tuple[str, ...]
    """`{criterion}` of steps 1, 2, ...; after the last one, `more_criterion`, which may hold `{k}`."""
    more_criterion: str
    filters: tuple[str, ...] = ()
    """What steps 1, 2, ... keep, for `{filter}`: `those that are open at that time`. May be left out."""
    stages: tuple[str, str, str, str]
    """What first, second, steps and last are called in the instructions."""
    names: dict[str, str]
    """Composites' names by `NAME_KEYS`, with `{T}`, `{s}`, `{e}`, `{n}`, `{N}`."""


class GraphTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A typed tool of a graph."""

    name: str
    inputs: tuple[str, ...]
    output: str
    text: str
    components: tuple[str, ...] = ()
    """Names of the atomic tools it stands for; empty: it is atomic."""


class Graph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools that are not chains."""

    start: tuple[str, ...]
    """Types held before any call, dimension types and constants among them."""
    goal: str
    tools: tuple[GraphTool, ...]
    labels: dict[str, str] = {}
    """How ids of a type begin, where not with the type's own name."""


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task of a domain."""

    about: str
    """What the user wants, for the instructions: `a place to eat`."""
    test: dict[str, tuple[str, ...]]
    """By dimension: the values of the test split, in the order that ids count."""
    train: dict[str, tuple[str, ...]] = {}
    phrases: dict[str, dict[str, tuple[str, ...]]] = {}
    """By dimension and value: ways in which people hint at it."""
    conflicts: tuple[dict[str, tuple[str, ...]], ...] = ()
    """Combinations nobody asks for: a query conflicts where each dimension named has one of the values named."""
    graph: Graph | None = None


class Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a user's text is made. Each entry of a list is one way to say it."""

    openings: tuple[str, ...]
    """First sentences, with `{about}`."""
    joins: tuple[str, ...]
    """Frames around a phrase, with `{phrase}`."""
    closings: tuple[str, ...]
    request: str
    """The whole message, with `{ids}` and `{requirements}`."""
    given: dict[str, str]
    """By type of id in the text (constants, and `context`): how it is said, with `{id}`."""


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, eq=False):
    """One domain."""

    name: str
    purpose: str
    """What the agent helps with, for the instructions: `planning a journey`."""
    digits: dict[str, int]
    """By split: how many digits an id has."""
    constants: tuple[str, ...]
    """Types of which every user's text holds an id."""
    meanings: dict[str, str] = {}
    """What an id of each constant stands for. May be left out."""
    context: str = ""
    """The task whose preference is given in all others; empty: none."""
    dimensions: tuple[Dimension, ...]
    """In the order in which the first tool declares them."""
    chain: TaskChain | None = None
    words: Words
    tasks: dict[str, Task]
    """In the order in which costs are drawn and queries numbered."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The dimensions' keys in alphabetical order, in which ids count."""
        return _keys(self)

    @property
    def links(self) -> TaskChain:
        """The chain, of a catalogue that has one."""
        assert self.chain is not None
        return self.chain


@lru_cache(maxsize=64)
def _keys(catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(sorted(dimension.key for dimension in catalogue.dimensions))


def title(task: str) -> str:
    """A task's name in type and tool names: `code_review` gives `CodeReview`."""
    return "".join(word.capitalize() for word in task.split("_"))
