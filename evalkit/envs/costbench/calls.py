"""One call carried out: which outcome it has, what it costs, what it gives, and what the agent reads.

Total over whatever a model may write: every call has a typed outcome, and `ok` is the good one. Only the final output
type of a composite is gained, not what its components make in between. An id that is well formed but wrong passes and
is carried on, as in the reference; a strict instance refuses wrong ids among those the user gave. A malformed id is
refused; where the instance says so, a composite that gets one is charged and gives its type, as in the reference.

Numbers: a tool with dimension inputs settles the number of the preference; any other carries on the number of its first
input that is not held at the start, and where there is none, the number that the current wishes come to.
Source: specification, section 4.3; rows 19 to 21 of section 12.
A pack may have other words for what is wrong with a composite's arguments: the reference says less of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from unicodedata import digit

import msgspec

from evalkit.dialogue import ToolCall
from evalkit.envs.arguments import Refusal, shown
from evalkit.envs.costbench.domain.ids import combinations, has_context, preference_number, show_id, split_values
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import Terms, ToolSpec, World, context_type
from evalkit.envs.costbench.instances.costs import show_cost
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import CHARGED
from evalkit.envs.costbench.prompt import NAMED_STEPS, named_criterion
from evalkit.envs.costbench.repair import read_call
from evalkit.envs.environment import fill

OK = "ok"
BANNED = "banned"
FAILED = "failed"
UNKNOWN_TOOL = "unknown_tool"
BAD_ID = "bad_id"
EXTRA_PARALLEL = "extra_parallel"
NOT_EXECUTED = "not_executed"

DEEDS = ("first", "second", "second_ends", "step", "last")
"""Kinds of what a composite has done; a composite that ends with the second tool has a kind of its own."""

_LATER = frozenset(
    {f"results.criterion.{step}" for step in range(1, NAMED_STEPS + 1)}
    | {"results.second_final", "results.step_final", "results.step_composite", "results.step_final_composite"}
    | {"results.cost_inaccessible", "results.cost_banned_again", "results.no_id"}
    | {"results.missing_composite", "results.bad_value_composite", "results.unknown_context_composite"}
)

RESULT_TEXTS: Mapping[str, tuple[str, ...]] = {
    "results.process": ("components",),
    "results.process_joint": (),
    **{f"results.deed.{kind}": ("tool", "criterion") for kind in DEEDS},
    **{f"results.criterion.{step}": () for step in range(1, NAMED_STEPS + 1)},
    "results.first": ("process", "type", "id", "task"),
    "results.second": ("process", "type", "id", "task"),
    "results.second_final": ("process", "type", "id", "task"),
    "results.step": ("process", "type", "id", "task", "criterion", "criteria"),
    "results.step_final": ("process", "type", "id", "task", "criterion", "criteria"),
    "results.step_composite": ("process", "type", "id", "task", "criterion", "criteria"),
    "results.step_final_composite": ("process", "type", "id", "task", "criterion", "criteria"),
    "results.last": ("process", "type", "id", "task"),
    "results.graph": ("process", "type", "id", "task"),
    "results.cost": ("cost",),
    "results.cost_inaccessible": ("cost",),
    "results.cost_banned_again": ("cost",),
    "results.unknown_tool": ("tool",),
    "results.inaccessible": ("tool", "required", "current", "required_list", "current_list"),
    "results.too_large": ("tool", "limit"),
    "results.too_deep": ("tool", "limit"),
    "results.not_json": ("tool",),
    "results.not_object": ("tool",),
    "results.missing": ("tool", "argument"),
    "results.missing_composite": ("tool", "argument"),
    "results.bad_value": ("tool", "argument", "options", "value", "options_list"),
    "results.bad_value_composite": ("tool", "argument", "options", "value", "options_list"),
    "results.bad_id": ("tool", "argument", "digits"),
    "results.no_id": ("tool", "argument", "digits"),
    "results.unknown_context": ("tool", "argument", "id"),
    "results.unknown_context_composite": ("tool", "argument", "id"),
    "results.wrong_id": ("tool", "argument"),
    "results.failed": ("tool",),
    "results.extra_parallel": ("tool",),
}

LATER_TEXTS: Mapping[str, str] = {
    **dict.fromkeys(RESULT_TEXTS.keys() & _LATER, ""),
    "results.process_joint": " -> ",
    **dict.fromkeys((f"results.deed.{kind}" for kind in DEEDS), "{tool}"),
}
"""What packs say that were frozen before there were these texts. An empty text leaves it to the one that was there
before; an empty deed is not named."""

_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallSetup:
    """What a call is carried out with: what stays the same in all states of an episode."""

    instance: PlanningProblem
    world: World
    texts: Mapping[str, str]
    digits: int
    """Of every id."""
    context: str
    """The type of the context's preference, which the user gives; empty: this task has none."""
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    """The world's own tools by name."""
    bare_deeds: bool = False
    """Whether the pack tells of a composite's components by their names alone."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What one call brought about."""

    outcome: str
    text: str
    cents: int | None = None
    """What it was charged; None: nothing."""
    gives: int = 0
    """The type it gave, as a bit."""
    malformed: bool = False
    """Whether it was charged and gave its type although an id given to it is malformed."""


def call_setup(instance: PlanningProblem, world: World, texts: Mapping[str, str]) -> CallSetup:
    """The setup of one episode."""
    catalogue = instance.catalogue
    return CallSetup(
        instance=instance,
        world=world,
        texts=texts,
        digits=catalogue.digits[instance.split],
        context=context_type(catalogue) if has_context(catalogue, instance.task) else "",
        specs={tool.name: tool for tool in world.tools},
        bare_deeds=all(texts[f"results.deed.{kind}"] == "{tool}" for kind in DEEDS),
    )


def broken(setup: CallSetup, terms: Terms, name: str, outcome: str, key: str, cost: str = "") -> Done:
    """A call that is charged and gives nothing, in the words under `key`: the tool is banned, or fails for once.

    `cost`: the text's key that says what it costs, where it is not the usual one.
    """
    cents = terms.costs[setup.world.place[name]] if name in setup.specs else None  # whether it is offered now or not
    text = fill(setup.texts[key], tool=shown(name))
    return Done(outcome=outcome, text=text + (_cost(setup, cents, cost) if cents is not None else ""), cents=cents)


def unexecuted(setup: CallSetup, name: str) -> str:
    """What a further call of a reply is answered with."""
    return fill(setup.texts[f"results.{EXTRA_PARALLEL}"], tool=shown(name))


def carry_out(setup: CallSetup, terms: Terms, have: int, query: Query, call: ToolCall) -> Done:
    """Carry out one call of a state that holds the types `have` (bits), under these terms and wishes."""
    tool = setup.specs.get(call.name)
    if tool is None or setup.world.place[tool.name] in terms.off:
        return Done(outcome=UNKNOWN_TOOL, text=fill(setup.texts["results.unknown_tool"], tool=shown(call.name)))
    cents = terms.costs[setup.world.place[tool.name]]
    number = _number(setup, tool, have, query, call.arguments)
    if isinstance(number, Refusal):
        text = fill(_words(setup, tool, number), tool=tool.name, **number.values)
        if _is_charged(setup, tool, number):
            # The reference looks at the id when all components have run: it is then too late to refuse.
            text = _process(setup, tool) + text + _cost(setup, cents)
            return Done(outcome=OK, text=text, cents=cents, gives=tool.gives, malformed=True)
        return Done(outcome=number.outcome, text=text + _cost(setup, cents, f"results.cost_{number.outcome}"))
    return Done(outcome=OK, text=_made(setup, tool, number) + _cost(setup, cents), cents=cents, gives=tool.gives)


def _cost(setup: CallSetup, cents: int, key: str = "") -> str:
    return fill(setup.texts.get(key) or setup.texts["results.cost"], cost=show_cost(cents))


def _words(setup: CallSetup, tool: ToolSpec, refusal: Refusal) -> str:
    """How a refusal is told: some have other words where the tool is a composite, or where its result would have no
    digit at all, neither in the id nor in its type."""
    key = f"results.{refusal.outcome}"
    if refusal.outcome == BAD_ID and not refusal.values["found"] and _DIGITS.isdisjoint(tool.output):
        return setup.texts["results.no_id"] or setup.texts[key]
    return (setup.texts.get(f"{key}_composite") if tool.size > 1 else "") or setup.texts[key]


def _number(setup: CallSetup, tool: ToolSpec, have: int, query: Query, arguments: str) -> int | Refusal:
    """The number of the id that a call gives, or why it gives none."""
    if tool.need & ~have:
        world = setup.world
        available = (name for name in world.types if world.bit[name] & have)
        required, current = sorted(set(tool.inputs)), sorted(available)
        fields = {"required": ", ".join(required), "current": ", ".join(current)}
        return Refusal("inaccessible", {**fields, "required_list": repr(required), "current_list": repr(current)})
    values = _values(setup, tool, arguments)
    if isinstance(values, Refusal):
        return values
    numbers: dict[str, int] = {}
    number: int | Refusal = query.number
    for name in tool.components:
        component = setup.specs.get(name, tool)
        number = _component_number(setup, component, {**values}, numbers, query)
        if isinstance(number, Refusal):
            return (_is_charged(setup, tool, number) and _strictly(setup, tool, values, query)) or number
        numbers[component.output] = number
    return _strictly(setup, tool, values, query) or number


def _is_charged(setup: CallSetup, tool: ToolSpec, refusal: Refusal) -> bool:
    """Whether a composite's call is charged and gives its type although an id given to it is malformed."""
    return refusal.outcome == BAD_ID and tool.size > 1 and setup.instance.malformed_ids == CHARGED


def _values(setup: CallSetup, tool: ToolSpec, arguments: str) -> dict[str, str] | Refusal:
    """The tool's arguments as texts, all there, those with listed values among them."""
    parsed: dict[str, object] | Refusal = {} if not (tool.inputs or arguments.strip()) else read_call(arguments)
    if isinstance(parsed, Refusal):
        return parsed
    missing = next((name for name in tool.inputs if name not in parsed), None)
    if missing is not None:
        return Refusal("missing", {"argument": missing})
    values = {name: str(parsed[name]) for name in tool.inputs}
    listed = split_values(setup.world.catalogue, setup.world.task, setup.instance.split)
    for name, value in values.items():
        key = setup.world.dimensions.get(name)
        if key is not None and value not in listed[key]:
            options = list(listed[key])
            fields = {"argument": name, "options": ", ".join(options), "options_list": repr(options)}
            return Refusal("bad_value", {**fields, "value": shown(value)})
    return values


def _component_number(
    setup: CallSetup, tool: ToolSpec, values: Mapping[str, str], numbers: Mapping[str, int], query: Query
) -> int | Refusal:
    """The number that one component gives, from the arguments and what the components before it made."""
    world = setup.world
    wishes = {world.dimensions[name]: values[name] for name in tool.inputs if name in world.dimensions}
    if wishes:
        return _settled(setup, tool, values, wishes, query)
    main = next((name for name in tool.inputs if not world.bit[name] & world.start), None)
    if main is None or (main not in numbers and main not in values):
        return query.number
    if main in numbers:
        return numbers[main]
    # As the reference counts them, digits of other scripts among them.
    digits = [str(digit(sign)) for sign in values[main] if sign.isdigit()]
    if len(digits) != setup.digits:
        return Refusal(BAD_ID, {"argument": main, "digits": setup.digits, "found": len(digits)})
    return int("".join(digits))


def _settled(
    setup: CallSetup, tool: ToolSpec, values: Mapping[str, str], wishes: Mapping[str, str], query: Query
) -> int | Refusal:
    """The number of the preference that wishes come to; wishes that the tool does not take are the query's."""
    catalogue, split = setup.world.catalogue, setup.instance.split
    context: int | None = None
    if setup.context:
        context = query.given[setup.context]
        if setup.context in tool.inputs:
            number = _id_number(setup, setup.context, values[setup.context])
            if number is None or not 1 <= number <= combinations(catalogue, catalogue.context, split):
                given_id = values[setup.context].strip().strip("<>").strip()
                return Refusal("unknown_context", {"argument": setup.context, "id": shown(f"<{given_id}>")})
            context = number
    return preference_number(catalogue, setup.world.task, split, {**query.preferences, **wishes}, context)


def _id_number(setup: CallSetup, kind: str, text: str) -> int | None:
    """The number of an id of this type, with or without angle brackets; None: it is not such an id."""
    text = text.strip().removeprefix("<").removesuffix(">")
    label = setup.world.labels[kind]
    digits = text.removeprefix(label)
    if not text.startswith(label) or len(digits) != setup.digits or not _DIGITS.issuperset(digits):
        return None
    return int(digits)


def _strictly(setup: CallSetup, tool: ToolSpec, values: Mapping[str, str], query: Query) -> Refusal | None:
    """Where ids that the user gave must be the right ones: the first that is not."""
    if setup.instance.strict:
        for name in tool.inputs:
            # Constants stay what the first message said: a change of mind does not give them again.
            given = setup.instance.query.given if name in setup.world.catalogue.constants else query.given
            if name in given and _id_number(setup, name, values[name]) != given[name]:
                return Refusal("wrong_id", {"argument": name})
    return None


def _made(setup: CallSetup, tool: ToolSpec, number: int) -> str:
    """What a call gave, in the pack's words."""
    world, texts = setup.world, setup.texts
    kind, current, criteria = _stage(setup, tool)
    final = f"{kind}_final" if tool.last == world.length - 2 else kind
    composite = f"{final}_composite" if tool.size > 1 else final
    words = next((text for key in (composite, final, kind) if (text := texts.get(f"results.{key}"))), "")
    return fill(
        words,
        process=_process(setup, tool),
        criterion=current,
        criteria=criteria,
        type=tool.output,
        task=world.task,
        id=show_id(world.labels[tool.output], number, setup.digits),
    )


def _process(setup: CallSetup, tool: ToolSpec) -> str:
    """Which components a composite's call has run."""
    if tool.size == 1:
        return ""
    deeds: Iterable[str] = tool.components
    if not setup.bare_deeds:
        all_deeds = (_deed(setup, tool, position, name) for position, name in enumerate(tool.components, tool.first))
        deeds = (deed for deed in all_deeds if deed)
    joined = setup.texts["results.process_joint"].join(deeds)
    return fill(setup.texts["results.process"], components=joined)


def _deed(setup: CallSetup, tool: ToolSpec, position: int, name: str) -> str:
    """How one component of a composite is told of; in a graph, by its name. `position`: its position in the chain."""
    if not setup.world.chain:
        return name
    component = setup.specs[name]
    kind, current, _ = _stage(setup, component)
    ends = "_ends" if kind == "second" and position == tool.last else ""
    return fill(setup.texts[f"results.deed.{kind}{ends}"], tool=name, criterion=current)


def _stage(setup: CallSetup, tool: ToolSpec) -> tuple[str, str, str]:
    """Which kind of result a tool has, and by what its candidates are filtered: by the tool, and by now."""
    world, chain = setup.world, setup.world.catalogue.chain
    if not world.chain or chain is None:
        return "graph", "", ""
    if tool.last in (0, 1):
        return ("first", "second")[tool.last], "", ""
    if tool.last == world.length - 1:
        return "last", "", ""
    criteria = [named_criterion(chain, step, setup.texts, "results") for step in range(1, tool.last)]
    return "step", criteria[-1], ", ".join(criteria)
