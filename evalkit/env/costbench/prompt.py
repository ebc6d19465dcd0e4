"""What the agent is told before it acts, in a pack's words: the instructions, the user's message, the tools offered.

The pack has the words of the benchmark, the catalogue those of the domain. All that is the same for many episodes is
made once: of a tool's description only its cost differs from one to the next.
Source: specification, sections 1.7 and 4.1. Differs: the wording is evalkit's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from evalkit.dialogue import Message, Tool
from evalkit.env.costbench.catalogue import Catalogue, Chain
from evalkit.env.costbench.costs import show_cost
from evalkit.env.costbench.example import example
from evalkit.env.costbench.ids import split_values
from evalkit.env.costbench.instance import Instance
from evalkit.env.costbench.parameters import MOST_EXAMPLE
from evalkit.env.costbench.wording import message
from evalkit.env.costbench.world import Terms, ToolSpec, World, criterion
from evalkit.env.environment import Opening, fill

SENTENCES = 10
"""Ways in which a ban, or a change of mind, may be told."""

SYSTEM_TEXTS: Mapping[str, tuple[str, ...]] = {
    "system": (
        "purpose",
        "about",
        "goal",
        "structure",
        "refinement",
        "readable",
        "concept",
        "sequence",
        "digits",
        "label",
        "number",
        "ways",
        "example",
    ),
    "parts.stages": ("count", "stages"),
    "parts.graph": (),
    "parts.refinement": ("criteria",),
    "parts.readable": ("values", "ids"),
    "parts.readable_values": ("values",),
    "parts.readable_ids": ("ids",),
    "parts.concept": (),
    "parts.sequence": ("tools",),
    "parts.sequence_graph": ("tools",),
    "parts.ways": ("goal",),
    "parts.ways_many": ("goal",),
    "example.text": ("count", "atomic", "composites", "paths"),
    "example.path": ("number", "path", "sum"),
    "example.cost": ("tool",),
}

TOOL_TEXTS: Mapping[str, tuple[str, ...]] = {
    "tools.atomic": ("text",),
    "tools.composite": ("text", "components"),
    "tools.plain": ("text",),
    "tools.stages": ("stages",),
    "tools.steps": ("stage", "first", "last"),
    "tools.step": ("stage", "first"),
    "tools.terms": ("cost", "type"),
    "arguments.value": ("about",),
    "arguments.id": ("type", "label", "number"),
}


def opening(instance: Instance, world: World, texts: Mapping[str, str]) -> Opening:
    """The instructions, and what the user says first."""
    shown = (instance.example, instance.composites, instance.sequence)
    told = _system(world, instance.split, shown, tuple(texts[key] for key in SYSTEM_TEXTS))
    asked = message(instance.catalogue, instance.split, instance.query)
    return Opening(messages=(Message(role="system", text=told), Message(role="user", text=asked)))


@lru_cache(maxsize=64)
def _system(world: World, split: str, shown: tuple[bool, bool, bool], words: tuple[str, ...]) -> str:
    """The instructions. `shown`: whether with the example, what composites are, the atomic tools in order."""
    texts = dict(zip(SYSTEM_TEXTS, words, strict=True))
    with_example, with_concept, with_sequence = shown
    catalogue, digits = world.catalogue, world.catalogue.digits[split]
    structure, refinement = _structure(world, texts)
    named = "parts.sequence" if world.chain else "parts.sequence_graph"
    arrow = " -> " if world.chain else ", "
    many = world.chain and world.length > MOST_EXAMPLE
    worked = (texts["example.text"], texts["example.path"], texts["example.cost"])
    return fill(
        texts["system"],
        structure=structure,
        refinement=refinement,
        readable=_readable(world, texts),
        concept=texts["parts.concept"] if with_concept else "",
        sequence=fill(texts[named], tools=arrow.join(world.sequence)) if with_sequence else "",
        ways=fill(texts["parts.ways_many" if many else "parts.ways"], goal=world.goal_type),
        example=example(world.length, *worked) if with_example else "",
        purpose=catalogue.purpose,
        about=catalogue.tasks[world.task].about,
        goal=world.goal_type,
        digits=digits,
        label=world.labels[world.goal_type],
        number="d" * digits,
    )


def _structure(world: World, texts: Mapping[str, str]) -> tuple[str, str]:
    """What stages the work has, and by what candidates are filtered."""
    chain = world.catalogue.chain
    if not world.chain or chain is None:
        return texts["parts.graph"], ""
    steps = world.length - 3
    stages = [stage for place, stage in enumerate(chain.stages) if steps or place != 2]
    structure = fill(texts["parts.stages"], count=len(stages), stages=", ".join(stages))
    if not steps:
        return structure, ""
    return structure, fill(texts["parts.refinement"], criteria=_criteria(chain, steps))


def _criteria(chain: Chain, steps: int) -> str:
    return ", ".join(criterion(chain, step) for step in range(1, steps + 1))


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
class _Sheet:
    """A tool as it is offered, without its cost."""

    name: str
    pieces: tuple[str, ...]
    """Its description, cut where the cost goes in."""
    parameters: Mapping[str, object]


def tools(instance: Instance, world: World, texts: Mapping[str, str], terms: Terms) -> tuple[Tool, ...]:
    """The tools that can be called, at their costs."""
    words = tuple(texts[key] for key in TOOL_TEXTS)
    sheets = _sheets(world, instance.split, instance.composites, words)
    return tuple(
        Tool(name=sheet.name, description=show_cost(cents).join(sheet.pieces), parameters=sheet.parameters)
        for place, (sheet, cents) in enumerate(zip(sheets, terms.costs, strict=False))
        if place not in terms.off
    )


@lru_cache(maxsize=256)
def _sheets(world: World, split: str, kinds: bool, words: tuple[str, ...]) -> tuple[_Sheet, ...]:
    """All of a world's tools. `kinds`: whether descriptions say what is composite, and of what."""
    texts = dict(zip(TOOL_TEXTS, words, strict=True))
    properties = {
        name: _property(world, split, name, texts) for name in dict.fromkeys(n for t in world.tools for n in t.inputs)
    }
    return tuple(
        _Sheet(
            name=tool.name,
            pieces=tuple((_description(world, tool, kinds, texts)).split("{cost}")),
            parameters={
                "type": "object",
                "properties": {name: properties[name] for name in tool.inputs},
                "required": list(tool.inputs),
                "additionalProperties": False,
            },
        )
        for tool in world.tools
    )


def _description(world: World, tool: ToolSpec, kinds: bool, texts: Mapping[str, str]) -> str:
    text = tool.text or _stages(world, tool, texts)
    if not kinds:
        about = fill(texts["tools.plain"], text=text)
    elif tool.size == 1:
        about = fill(texts["tools.atomic"], text=text)
    else:
        about = fill(texts["tools.composite"], text=text, components=", ".join(tool.components))
    return about + fill(texts["tools.terms"], type=tool.output)


def _stages(world: World, tool: ToolSpec, texts: Mapping[str, str]) -> str:
    """What a composite of a chain does, by stages."""
    chain = world.catalogue.chain
    assert chain is not None
    first, second, filtering, last = chain.stages
    said = [stage for place, stage in ((0, first), (1, second)) if tool.first <= place <= tool.last]
    low, high = max(tool.first, 2) - 1, min(tool.last, world.length - 2) - 1
    if low <= high:
        key = "tools.steps" if low < high else "tools.step"
        said.append(fill(texts[key], stage=filtering, first=low, last=high))
    if tool.last == world.length - 1:
        said.append(last)
    return fill(texts["tools.stages"], stages=", ".join(said))


def _property(world: World, split: str, name: str, texts: Mapping[str, str]) -> dict[str, object]:
    """One argument's schema."""
    catalogue = world.catalogue
    key = world.dimensions.get(name)
    if key is not None:
        values = split_values(catalogue, world.task, split)[key]
        text = fill(texts["arguments.value"], about=_dimension_about(catalogue, key))
        return {"type": "string", "description": text, "enum": list(values)}
    number = "d" * catalogue.digits[split]
    text = fill(texts["arguments.id"], type=name, label=world.labels[name], number=number)
    return {"type": "string", "description": text}


def _dimension_about(catalogue: Catalogue, key: str) -> str:
    return next(dimension.about for dimension in catalogue.dimensions if dimension.key == key)
