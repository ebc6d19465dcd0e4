"""One task's tools as a typed graph: which types each needs, and the one it gives.

A state is a set of types, held as the bits of an int; it only grows. In a chain every tool is a span of positions
(first, last): it needs what the position before its first one gives (and start types), and gives what its last one
gives, nothing in between. Source: specification, sections 1.2 to 1.6; B.2 of the paper.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evalkit.envs.costbench.domain.catalogue import Catalogue, Link, TaskChain, title
from evalkit.envs.environment import fill
from evalkit.errors import UsageError

MOST_LENGTH = 100
LEAST_LENGTH = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolSpec:
    """One tool."""

    name: str
    inputs: tuple[str, ...]
    """Types: in declared order, of composites in alphabetical order."""
    output: str
    need: int
    """The inputs as bits."""
    gives: int
    """The output as a bit."""
    components: tuple[str, ...]
    """Names of the atomic tools it stands for; of an atomic tool its own."""
    text: str
    """What it does; empty for a composite of a chain."""
    first: int = -1
    """First and last position in the chain, from 0; -1 in a graph."""
    last: int = -1

    @property
    def size(self) -> int:
        """How many atomic tools it stands for."""
        return len(self.components)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """What stays the same in all states of an episode: types and tools, costs aside."""

    catalogue: Catalogue
    task: str
    title: str
    length: int
    """Positions of the chain (N); in a graph, the number of atomic tools."""
    chain: bool
    types: tuple[str, ...]
    """By bit."""
    bit: Mapping[str, int]
    """Type -> its bit, as a mask."""
    start: int
    """Types held before any call."""
    goal: int
    """The type to be reached, as a mask."""
    goal_type: str
    tools: tuple[ToolSpec, ...]
    """The task's own, in the order they are offered: atomic ones, then composites by (size, first position)."""
    foreign: tuple[ToolSpec, ...]
    """Tools of the context's task that can be reached from the start state although nobody is shown them. They never
    help; the reference's solver visits them, which decides some of its ties."""
    order: tuple[int, ...]
    """Places in `tools + foreign` in the reference's registry order."""
    place: Mapping[str, int]
    """Tool name -> place in `tools + foreign`."""
    labels: Mapping[str, str]
    """Type -> how its ids begin."""
    dimensions: Mapping[str, str]
    """Dimension type -> the dimension's key."""
    sequence: tuple[str, ...]
    """The atomic tools' names in order."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What calls cost and which tools cannot be used, at one moment."""

    costs: tuple[int, ...]
    """Cents, by place in `world.tools + world.foreign`."""
    off: frozenset[int] = frozenset()
    """Places of tools that cannot be used: banned or hidden."""


def make_world(catalogue: Catalogue, task: str, length: int, whole: bool, longest: int = MOST_LENGTH) -> World:
    """The world of one task. `whole`: whether the tool that does everything at once is offered (the reference bans it).
    `longest`: atomic tools that a composite stands for at most.

    In a graph these three play no part. One value for equal arguments. Raises UsageError if the catalogue's
    names, which were compared for shorter chains, are not distinct at this length.
    """
    if catalogue.tasks[task].graph is not None:
        return _graph_world(catalogue, task)
    return _chain_world(catalogue, task, length, whole, longest)


def registry(catalogue: Catalogue, length: int) -> Iterator[tuple[str, int, int]]:
    """(task, first, last) of every atomic tool of all chain tasks, in the order in which costs are drawn."""
    chained = [name for name, task in catalogue.tasks.items() if task.graph is None]
    yield from ((name, 0, 0) for name in chained)
    for name in chained:
        yield from ((name, i, i) for i in range(1, length - 1))
    yield from ((name, length - 1, length - 1) for name in chained)


def composite_spans(length: int, whole: bool, longest: int = MOST_LENGTH) -> Iterator[tuple[int, int]]:
    """(first, last) of every composite of one task, by size and then by first position."""
    for size in range(2, min(length if whole else length - 1, longest) + 1):
        yield from ((i, i + size - 1) for i in range(length - size + 1))


@lru_cache(maxsize=256)
def _chain_world(catalogue: Catalogue, task: str, length: int, whole: bool, longest: int) -> World:
    chain = catalogue.links
    has_context = bool(catalogue.context) and task != catalogue.context
    start = [
        *catalogue.constants,
        *([context_type(catalogue)] if has_context else []),
        *dimension_types(catalogue, task),
    ]
    own = _chain_types(chain, task, length)
    shadow = _chain_types(chain, catalogue.context, length)[1:] if has_context else []
    types = (*start, *own, *shadow)
    bit = {name: 1 << i for i, name in enumerate(types)}
    composites = tuple(composite_spans(length, whole, longest))
    spans = [*((i, i) for i in range(length)), *composites]
    tools = tuple(_span_tool(catalogue, task, length, span, bit) for span in spans)
    foreign: tuple[ToolSpec, ...] = ()
    if has_context:
        foreign = tuple(_span_tool(catalogue, catalogue.context, length, span, bit) for span in spans if span[0] >= 1)
    index_of = {tool.name: i for i, tool in enumerate((*tools, *foreign))}
    if len(index_of) < len(tools) + len(foreign):
        raise UsageError(f"catalogue: chain.names: two tools in a chain of length {length} have the same name.")
    return World(
        catalogue=catalogue,
        task=task,
        title=title(task),
        length=length,
        chain=True,
        types=types,
        bit=bit,
        start=sum(bit[name] for name in start),
        goal=bit[own[-1]],
        goal_type=own[-1],
        tools=tools,
        foreign=foreign,
        order=tuple(_order(catalogue, task, length, composites, index_of)),
        place=index_of,
        labels=_labels(catalogue, task, length),
        dimensions=_dimension_keys(catalogue, task),
        sequence=tuple(tool.name for tool in tools[:length]),
    )


def _order(
    catalogue: Catalogue,
    task: str,
    length: int,
    composites: Sequence[tuple[int, int]],
    index_of: Mapping[str, int],
) -> Iterator[int]:
    wanted = [*([catalogue.context] if catalogue.context and catalogue.context != task else []), task]
    chain = catalogue.links
    spans = [(name, i, j) for name, i, j in registry(catalogue, length) if name in wanted]
    for name in catalogue.tasks:
        if name in wanted:
            spans += [(name, i, j) for i, j in composites]
    for name, i, j in spans:
        index = index_of.get(tool_name(chain, name, length, i, j))
        if index is not None:
            yield index


def _chain_types(chain: TaskChain, task: str, length: int) -> list[str]:
    """What each position gives."""
    return [output_type(chain, task, length, i) for i in range(length)]


def _span_tool(catalogue: Catalogue, task: str, length: int, span: tuple[int, int], bit: Mapping[str, int]) -> ToolSpec:
    chain = catalogue.links
    first, last = span
    inputs: list[str] = []
    outputs: set[str] = set()
    for i in range(first, last + 1):
        inputs += [name for name in position_inputs(catalogue, task, length, i) if name not in (*outputs, *inputs)]
        outputs.add(output_type(chain, task, length, i))
    if last > first:
        inputs.sort()
    output = output_type(chain, task, length, last)
    link = _link(chain, length, first)
    return ToolSpec(
        name=tool_name(chain, task, length, first, last),
        inputs=tuple(inputs),
        output=output,
        need=sum(bit[name] for name in inputs),
        gives=bit[output],
        components=tuple(tool_name(chain, task, length, i, i) for i in range(first, last + 1)),
        text=filled(link.text, chain, task, first - 1) if first == last else "",
        first=first,
        last=last,
    )


def _link(chain: TaskChain, length: int, position: int) -> Link:
    if position == 0:
        return chain.first
    if position == length - 1:
        return chain.last
    return chain.second if position == 1 else chain.step


def filled(text: str, chain: TaskChain, task: str, step: int) -> str:
    """A catalogue's text with `{T}`, and of step `step` (from 1) `{k}`, `{word}` and `{criterion}`."""
    word = chain.words[step - 1] if 0 < step <= len(chain.words) else chain.more_word
    return fill(text, T=title(task), criterion=criterion(chain, step), word=word, k=step)


def deed(chain: TaskChain, task: str, length: int, position: int) -> str:
    """What the tool of a position does, in the catalogue's words at length; empty if it has none."""
    kept = chain.filters[position - 2] if position - 2 in range(len(chain.filters)) else ""
    text = _link(chain, length, position).does
    if "{filter}" in text and not kept:
        return ""
    return fill(filled(text, chain, task, position - 1), filter=kept)


def meaning(world: World, name: str) -> str:
    """What an id of this type stands for, in the catalogue's words; empty if it has none."""
    catalogue = world.catalogue
    chain = catalogue.chain
    if name in catalogue.constants or chain is None:
        return catalogue.meanings.get(name, "")
    if catalogue.context and name == context_type(catalogue) and world.task != catalogue.context:
        return fill(chain.first.gives, about=catalogue.tasks[catalogue.context].about)
    for position in range(world.length if world.chain else 0):
        if output_type(chain, world.task, world.length, position) == name:
            by = ", ".join(criterion(chain, step) for step in range(1, position))
            return fill(
                _link(chain, world.length, position).gives, about=catalogue.tasks[world.task].about, criteria=by
            )
    return ""


def criterion(chain: TaskChain, step: int) -> str:
    """What step `step` (from 1) filters by."""
    if 0 < step <= len(chain.criteria):
        return chain.criteria[step - 1]
    return fill(chain.more_criterion, k=step)


def output_type(chain: TaskChain, task: str, length: int, position: int) -> str:
    """The type that a position gives."""
    return filled(_link(chain, length, position).output, chain, task, position - 1)


def position_inputs(catalogue: Catalogue, task: str, length: int, position: int) -> tuple[str, ...]:
    """The input types of one position, in declared order."""
    chain = catalogue.links
    wanted = _link(chain, length, position).inputs
    if position == 2 and position < length - 1:
        wanted = chain.step_one_inputs
    inputs: list[str] = []
    for name in wanted:
        if name == "previous":
            inputs.append(output_type(chain, task, length, position - 1))
        elif name == "dimensions":
            inputs += dimension_types(catalogue, task)
        elif name == "constants":
            inputs += catalogue.constants
        elif catalogue.context and catalogue.context != task:
            inputs.append(context_type(catalogue))
    return tuple(inputs)


def dimension_types(catalogue: Catalogue, task: str) -> tuple[str, ...]:
    """The task's dimension types, in declared order."""
    return tuple(title(task) + dimension.suffix for dimension in catalogue.dimensions)


@lru_cache(maxsize=64)
def context_type(catalogue: Catalogue) -> str:
    """The type of the preference that all tasks but the context's own are given."""
    chain = catalogue.links
    return filled(chain.first.output, chain, catalogue.context, 0)


def tool_name(chain: TaskChain, task: str, length: int, first: int, last: int) -> str:
    """The name of the tool that stands for the positions first..last (specification, section 1.4)."""
    if first == last:
        return filled(_link(chain, length, first).tool, chain, task, first - 1)
    size, end = last - first + 1, last == length - 1
    if size == length:
        key = "whole"
    elif size == 2:
        if first == 0:
            key = "first_second"
        elif end:
            key = "second_last" if first == 1 else "step_last"
        else:
            key = "second_step" if first == 1 else "step_step"
    elif first == 0:
        key = "first_to_step"
    elif first == 1:
        key = "second_to_last" if end else "second_to_step"
    else:
        key = "step_to_last" if end else "steps"
    return fill(chain.names[key], T=title(task), s=first - 1, e=last - 1, n=size, N=length)


def _labels(catalogue: Catalogue, task: str, length: int) -> dict[str, str]:
    chain = catalogue.links
    labels = {name: name for name in catalogue.constants}
    if catalogue.context and catalogue.context != task:
        labels[context_type(catalogue)] = filled(chain.first.label, chain, catalogue.context, 0)
    for i in range(length):
        labels[output_type(chain, task, length, i)] = filled(_link(chain, length, i).label, chain, task, i - 1)
    return labels


def _dimension_keys(catalogue: Catalogue, task: str) -> dict[str, str]:
    return dict(
        zip(dimension_types(catalogue, task), (dimension.key for dimension in catalogue.dimensions), strict=True)
    )


@lru_cache(maxsize=64)
def _graph_world(catalogue: Catalogue, task: str) -> World:
    graph = catalogue.tasks[task].graph
    assert graph is not None
    types = tuple(dict.fromkeys([*graph.start, *(tool.output for tool in graph.tools)]))
    bit = {name: 1 << i for i, name in enumerate(types)}
    tools = tuple(
        ToolSpec(
            name=tool.name,
            inputs=tool.inputs,
            output=tool.output,
            need=sum(bit[name] for name in set(tool.inputs)),
            gives=bit[tool.output],
            components=tool.components or (tool.name,),
            text=tool.text,
        )
        for tool in graph.tools
    )
    atomic = tuple(tool.name for tool in tools if tool.size == 1)
    return World(
        catalogue=catalogue,
        task=task,
        title=title(task),
        length=len(atomic),
        chain=False,
        types=types,
        bit=bit,
        start=sum(bit[name] for name in graph.start),
        goal=bit[graph.goal],
        goal_type=graph.goal,
        tools=tools,
        foreign=(),
        order=tuple(range(len(tools))),
        place={tool.name: i for i, tool in enumerate(tools)},
        labels={name: graph.labels.get(name, name) for name in types},
        dimensions={name: key for name, key in _dimension_keys(catalogue, task).items() if name in bit},
        sequence=atomic,
    )
