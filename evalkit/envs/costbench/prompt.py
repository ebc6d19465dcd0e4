"""What the agent reads before it acts, in a pack's words: the instructions, the user's message, the tools offered.

The pack has the words of the benchmark, the catalogue those of the domain. What many episodes share is made once: only
the cost in a tool's description differs between them.
Source: specification, sections 1.7 and 4.1. Differs: the wording is evalkit's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from string import ascii_uppercase

from evalkit.dialogue import Message, Tool
from evalkit.envs.costbench.domain.catalogue import TaskChain
from evalkit.envs.costbench.domain.ids import has_context, split_values
from evalkit.envs.costbench.domain.wording import message
from evalkit.envs.costbench.domain.world import Terms, ToolSpec, World, context_type, criterion, deed, meaning
from evalkit.envs.costbench.instances.costs import show_cost
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import MOST_EXAMPLE
from evalkit.envs.environment import Opening, fill

# The worked example at the end of the instructions: invented tools A, B, C, .. and every way through them, in
# symbols.
#
# Source: specification, section 4.1, point 2; figure 15 of the paper. Chosen: at most `MOST_TOOLS` invented tools,
# the reference's longest chain: the list of ways doubles with every tool.

LEAST_TOOLS = 3
MOST_TOOLS = 8


@lru_cache(maxsize=64)
def example(length: int, text: str, path: str, cost: str) -> str:
    """The example for a chain of so many tools, in a pack's words: the whole, a way's line, a tool's cost."""
    count = min(max(length, LEAST_TOOLS), MOST_TOOLS)
    letters = ascii_uppercase[:count]
    spans = [letters[i : i + size] for size in range(2, count) for i in range(count - size + 1)]
    lines = [
        fill(
            path,
            number=number,
            path=" -> ".join(blocks),
            sum=" + ".join(fill(cost, tool=block) for block in blocks),
        )
        for number, blocks in enumerate(ways(count), 1)
    ]
    return fill(text, count=count, atomic=" -> ".join(letters), composites=", ".join(spans), paths="\n".join(lines))


def ways(count: int) -> list[tuple[str, ...]]:
    """All ways through `count` letters in blocks, but for the one block that is everything: 2^(count - 1) - 1.

    More blocks come first, then an earlier first composite, then smaller sizes from the front.
    """
    letters = ascii_uppercase[:count]
    splits = []
    for cuts in product((False, True), repeat=count - 1):
        blocks, start = [], 0
        for end, cut in enumerate(cuts, 1):
            if cut:
                blocks.append(letters[start:end])
                start = end
        blocks.append(letters[start:])
        if len(blocks) > 1:
            splits.append(tuple(blocks))
    return sorted(splits, key=_order)


def _order(blocks: tuple[str, ...]) -> tuple[int, int, tuple[int, ...]]:
    sizes = tuple(len(block) for block in blocks)
    composite = next((index for index, size in enumerate(sizes) if size > 1), len(sizes))
    return -len(sizes), composite, sizes


SHORT, FULL = "short", "full"
"""How much a tool's description and those of its arguments say (`tools.detail`)."""

CLOSED, OPEN = "closed", "open"
"""Whether a schema refuses further arguments (`tools.schema`); the reference's does not."""

OF_SENT, SENT_NAME, YES = "sent", "sent.name", "yes"
"""Whether results bear the tool's name where a format need not say it; the reference's do. No pack need say."""

TEXT_CHOICES = {"tools.detail": (SHORT, FULL), "tools.schema": (CLOSED, OPEN), SENT_NAME: (YES,)}

NAMED_STEPS = 5
"""Steps whose criteria a pack may name; the reference's longest chain has as many."""

SENTENCES = 10
"""Ways in which a ban, or a change of mind, may be told."""

SYSTEM_TEXTS: Mapping[str, tuple[str, ...]] = {
    "system": (
        "purpose",
        "about",
        "title",
        "goal",
        "structure",
        "count",
        "stages",
        "refinement",
        "readable",
        "context",
        "concept",
        "sequence",
        "digits",
        "label",
        "number",
        "ways",
        "example",
    ),
    "parts.stages": ("count", "stages"),
    "parts.stage_names": (),
    "parts.stage_names_short": (),
    "parts.graph": (),
    "parts.refinement": ("title", "count", "criteria"),
    **{f"parts.criterion.{step}": () for step in range(1, NAMED_STEPS + 1)},
    "parts.context": ("type",),
    "parts.readable": ("values", "ids"),
    "parts.readable_values": ("values",),
    "parts.readable_ids": ("ids",),
    "parts.concept": (),
    "parts.sequence": ("tools",),
    "parts.sequence_joint": (),
    "parts.sequence_graph": ("tools",),
    "parts.ways": ("goal",),
    "parts.ways_many": ("goal",),
    "example.text": ("count", "atomic", "composites", "paths"),
    "example.path": ("number", "path", "sum"),
    "example.cost": ("tool",),
}

TOOL_TEXTS: Mapping[str, tuple[str, ...]] = {
    "tools.detail": (),
    "tools.schema": (),
    "tools.deed": ("deed",),
    "tools.deeds": ("deeds",),
    "tools.atomic": ("text",),
    "tools.composite": ("text", "components"),
    "tools.plain": ("text",),
    "tools.stages": ("stages",),
    "tools.steps": ("stage", "first", "last"),
    "tools.step": ("stage", "first"),
    "tools.terms": ("cost", "type"),
    "arguments.value": ("about", "options"),
    "arguments.id": ("type", "label", "number"),
    "arguments.made": ("type", "what"),
    "arguments.given": ("type", "what"),
}

LATER_TEXTS: Mapping[str, str] = {
    "parts.stage_names": "",
    "parts.stage_names_short": "",
    **{f"parts.criterion.{step}": "" for step in range(1, NAMED_STEPS + 1)},
    "parts.context": "",
    "parts.sequence_joint": " -> ",
    "tools.detail": SHORT,
    "tools.schema": CLOSED,
    "tools.deed": "",
    "tools.deeds": "",
    "arguments.made": "",
    "arguments.given": "",
}
"""What packs say that were frozen before there were these texts. An empty text leaves it to the catalogue, or to the
text that was there before."""

OF_TOOL, OF_ARGUMENT, OF_LENGTH = "tools.of", "arguments.of", "example.of"

OPEN_TEXTS: Mapping[str, tuple[str, ...]] = {OF_TOOL: (), OF_ARGUMENT: ("options",), OF_LENGTH: (), OF_SENT: ()}
"""Texts that stand for one tool (its description), one type (its description as an argument) or one length of the chain
(the worked example), after a dot. No pack need have any; what has none is described by the texts above."""


def opening(instance: PlanningProblem, world: World, texts: Mapping[str, str]) -> Opening:
    """The instructions, and the user's first message."""
    shown = (instance.example, instance.composites, instance.sequence)
    words = (*(texts[key] for key in SYSTEM_TEXTS), texts.get(f"{OF_LENGTH}.{world.length}", ""))
    instructions = _system(world, instance.split, shown, words)
    asked = message(instance.catalogue, instance.split, instance.query)
    return Opening(messages=(Message(role="system", text=instructions), Message(role="user", text=asked)))


@lru_cache(maxsize=64)
def _system(world: World, split: str, shown: tuple[bool, bool, bool], words: tuple[str, ...]) -> str:
    """The instructions. `shown`: whether with the example, what composites are, the atomic tools in order."""
    *known, own_example = words
    texts = dict(zip(SYSTEM_TEXTS, known, strict=True))
    with_example, with_concept, with_sequence = shown
    catalogue, digits = world.catalogue, world.catalogue.digits[split]
    count, stages, refinement = _structure(world, texts)
    sequence_key = "parts.sequence" if world.chain else "parts.sequence_graph"
    joint = texts["parts.sequence_joint"] if world.chain else ", "
    many = world.chain and world.length > MOST_EXAMPLE
    worked = (texts["example.text"], texts["example.path"], texts["example.cost"])
    return fill(
        texts["system"],
        structure=fill(texts["parts.stages"], count=count, stages=stages) if count else texts["parts.graph"],
        count=count,
        stages=stages,
        refinement=refinement,
        readable=_readable(world, texts),
        context=_context(world, texts),
        concept=texts["parts.concept"] if with_concept else "",
        sequence=fill(texts[sequence_key], tools=joint.join(world.sequence)) if with_sequence else "",
        ways=fill(texts["parts.ways_many" if many else "parts.ways"], goal=world.goal_type),
        example=(own_example or example(world.length, *worked)) if with_example else "",
        purpose=catalogue.purpose,
        about=catalogue.tasks[world.task].about,
        title=world.title,
        goal=world.goal_type,
        digits=digits,
        label=world.labels[world.goal_type],
        number="d" * digits,
    )


def _structure(world: World, texts: Mapping[str, str]) -> tuple[int, str, str]:
    """How many stages the work has (0: it is not a chain), what they are, and by what candidates are filtered."""
    chain = world.catalogue.chain
    if not world.chain or chain is None:
        return 0, "", ""
    steps = world.length - 3
    stages = [stage for index, stage in enumerate(chain.stages) if steps or index != 2]
    stage_names = texts["parts.stage_names" if steps else "parts.stage_names_short"] or ", ".join(stages)
    if not steps:
        return len(stages), stage_names, ""
    criteria = ", ".join(named_criterion(chain, step, texts, "parts") for step in range(1, steps + 1))
    return len(stages), stage_names, fill(texts["parts.refinement"], title=world.title, count=steps, criteria=criteria)


def named_criterion(chain: TaskChain, step: int, texts: Mapping[str, str], section: str) -> str:
    """What step `step` (from 1) filters by: as the pack names it in the instructions (`section`: `parts`) or in results
    (`results`), else in the catalogue's words."""
    return texts.get(f"{section}.criterion.{step}") or criterion(chain, step)


def _context(world: World, texts: Mapping[str, str]) -> str:
    """The pack's words for the preference that the user gives from another task; empty if none is given."""
    catalogue = world.catalogue
    given = has_context(catalogue, world.task)
    return fill(texts["parts.context"], type=context_type(catalogue)) if given else ""


def _readable(world: World, texts: Mapping[str, str]) -> str:
    """The types held at the start, values apart from ids."""
    start = [name for name in world.types if world.bit[name] & world.start]
    values = _quoted(name for name in start if name in world.dimensions)
    ids = _quoted(name for name in start if name not in world.dimensions)
    if values and ids:
        return fill(texts["parts.readable"], values=values, ids=ids)
    key = "parts.readable_values" if values else "parts.readable_ids"
    return fill(texts[key], values=values, ids=ids)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@dataclass(frozen=True, slots=True)
class _ToolSheet:
    """A tool as it is offered, without its cost."""

    name: str
    pieces: tuple[str, ...]
    """Its description, cut where the cost goes in."""
    parameters: Mapping[str, object]


def tools(instance: PlanningProblem, world: World, texts: Mapping[str, str], terms: Terms) -> tuple[Tool, ...]:
    """The tools that can be called, at their costs."""
    words = tuple(texts[key] for key in TOOL_TEXTS)
    own, arguments = (tuple(map(texts.get, keys)) for keys in _own_keys(world))
    sheets = _sheets(world, instance.split, instance.composites, (words, own, arguments))
    return tuple(
        Tool(name=sheet.name, description=show_cost(cents).join(sheet.pieces), parameters=sheet.parameters)
        for index, (sheet, cents) in enumerate(zip(sheets, terms.costs, strict=False))
        if index not in terms.off
    )


@lru_cache(maxsize=256)
def _own_keys(world: World) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Under which keys a pack may have texts of its own for each tool, and for each type."""
    return tuple(f"{OF_TOOL}.{tool.name}" for tool in world.tools), tuple(
        f"{OF_ARGUMENT}.{name}" for name in world.types
    )


_Own = tuple[str | None, ...]


@lru_cache(maxsize=256)
def _sheets(world: World, split: str, kinds: bool, words: tuple[tuple[str, ...], _Own, _Own]) -> tuple[_ToolSheet, ...]:
    """All of a world's tools. `kinds`: whether descriptions say what is composite, and of what.

    `words`: the pack's texts of tools; those of its own for each tool and for each type, None if it has none.
    """
    texts = dict(zip(TOOL_TEXTS, words[0], strict=True))
    own = {tool.name: text for tool, text in zip(world.tools, words[1], strict=True) if text}
    arguments = {name: text for name, text in zip(world.types, words[2], strict=True) if text}
    properties = {
        name: _property(world, split, name, texts, arguments.get(name, ""))
        for name in dict.fromkeys(n for t in world.tools for n in t.inputs)
    }
    closed = {"additionalProperties": False} if texts["tools.schema"] != OPEN else {}
    return tuple(
        _ToolSheet(
            name=tool.name,
            pieces=tuple(_description(world, tool, kinds, texts, own.get(tool.name, "")).split("{cost}")),
            parameters={
                "type": "object",
                "properties": {name: properties[name] for name in tool.inputs},
                "required": list(tool.inputs),
                **closed,
            },
        )
        for tool in world.tools
    )


def _description(world: World, tool: ToolSpec, kinds: bool, texts: Mapping[str, str], own: str) -> str:
    text = own or _deeds(world, tool, texts) or tool.text or _stages(world, tool, texts)
    if not kinds:
        description = fill(texts["tools.plain"], text=text)
    elif tool.size == 1:
        description = fill(texts["tools.atomic"], text=text)
    else:
        description = fill(texts["tools.composite"], text=text, components=", ".join(tool.components))
    return description + fill(texts["tools.terms"], type=tool.output)


def _deeds(world: World, tool: ToolSpec, texts: Mapping[str, str]) -> str:
    """What a tool of a chain does, at length; empty if the pack, or the catalogue, has no words for it."""
    chain = world.catalogue.chain
    if texts["tools.detail"] != FULL or not world.chain or chain is None:
        return ""
    deeds = [deed(chain, world.task, world.length, position) for position in range(tool.first, tool.last + 1)]
    if not all(deeds):
        return ""
    if len(deeds) == 1:
        return fill(texts["tools.deed"], deed=deeds[0])
    return fill(texts["tools.deeds"], deeds="; then ".join(deeds))


def _stages(world: World, tool: ToolSpec, texts: Mapping[str, str]) -> str:
    """What a composite of a chain does, by stages."""
    chain = world.catalogue.links
    first, second, filtering, last = chain.stages
    stages = [stage for position, stage in ((0, first), (1, second)) if tool.first <= position <= tool.last]
    low, high = max(tool.first, 2) - 1, min(tool.last, world.length - 2) - 1
    if low <= high:
        key = "tools.steps" if low < high else "tools.step"
        stages.append(fill(texts[key], stage=filtering, first=low, last=high))
    if tool.last == world.length - 1:
        stages.append(last)
    return fill(texts["tools.stages"], stages=", ".join(stages))


def _property(world: World, split: str, name: str, texts: Mapping[str, str], own: str) -> dict[str, object]:
    """One argument's schema. `own`: the pack's text for this very type; empty: it has none."""
    catalogue = world.catalogue
    key = world.dimensions.get(name)
    if key is not None:
        values = split_values(catalogue, world.task, split)[key]
        description = next(dimension.about for dimension in catalogue.dimensions if dimension.key == key)
        options = ", ".join(values)
        text = fill(own or texts["arguments.value"], about=description, options=options)
        if texts["tools.schema"] == OPEN:
            return {"type": "string", "enum": list(values), "description": text}
        return {"type": "string", "description": text, "enum": list(values)}
    if own:
        return {"type": "string", "description": own}
    explanation = meaning(world, name) if texts["tools.detail"] == FULL else ""
    kind = "arguments.given" if world.bit[name] & world.start else "arguments.made"
    if explanation and texts[kind]:
        return {"type": "string", "description": fill(texts[kind], type=name, what=explanation)}
    number = "d" * catalogue.digits[split]
    text = fill(texts["arguments.id"], type=name, label=world.labels[name], number=number)
    return {"type": "string", "description": text}
