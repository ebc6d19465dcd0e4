"""What a conversation about typed tools says: what is offered at which cost, what is held, what was refused.

The texts are not ours: a prompt pack may word them anew. Only what every wording must hold is read: in a tool's
description the first number behind "cost" and the first identifier behind "output type"; in a successful result an id
like `<DiningCandidateSet00012>`, of several the last; `[ERROR]` at the beginning of every other result. Each message of
the user begins anew: what was gained is gone, and what it gives replaces what was given.

A tool may vanish from the list after it was called, and its output type with it. So our own replies name the type that
they are after (`says`), and the plan they follow, if any: a policy has no memory but the conversation.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from evalkit.dialogue import Message, Request, Tool

_COST = re.compile(r"\bcosts?\b(?!-)\D*?(?<![\w.])(\d+(?:\.\d+)?)", re.IGNORECASE)
_OUTPUT = re.compile(r"\boutput\W+types?\b((?:\W+(?:of|this|the|tool|is|a|an)\b)*)\W+([A-Za-z_]\w*)", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_ID = re.compile(r"<([A-Za-z]\w*?)(\d+)>")
_PLAN = re.compile(r"^Plan: (.+)$", re.MULTILINE)
_ARROW = " -> "


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """One offered tool."""

    name: str
    place: int
    """In the list, from 0."""
    inputs: tuple[str, ...]
    """Types, as its schema declares them."""
    need: frozenset[str]
    """The same as a set."""
    output: str
    cents: int
    components: tuple[str, ...]
    """Names of the offered tools that it mentions."""
    size: int
    """For how many atomic tools it stands."""
    values: Mapping[str, tuple[str, ...]]
    """Input type -> the values it may have, where the schema lists them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offers:
    """A tool list."""

    tools: tuple[Offer, ...]
    by_name: Mapping[str, Offer]
    given: frozenset[str]
    """Types that tools need and none gives: held from the beginning."""
    types: frozenset[str]
    """All types."""
    ends: tuple[str, ...]
    """Types that are given and that no tool needs: one of them is the goal."""


@dataclass(slots=True, kw_only=True)
class Chat:
    """Where a conversation stands. It is built up message by message."""

    offers: Offers
    goal: str
    """Empty where it cannot be told."""
    held: set[str] = field(default_factory=set)
    """Types held now."""
    ids: dict[str, str] = field(default_factory=dict)
    """Type -> its id, of those held types that have one."""
    wishes: str = ""
    """What the user said last."""
    last: str = ""
    """The type gained last since then; empty: none."""
    gained: list[str] = field(default_factory=list)
    """Names of the tools that succeeded since then, in order."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Tool -> how often a call of it failed although nothing was wrong with the call."""
    plan: tuple[str, ...] = ()
    """What remains of the plan stated last; empty: there is none, or it failed."""

    @property
    def done(self) -> bool:
        """Whether the goal is held."""
        return self.goal in self.held

    def open(self) -> list[Offer]:
        """Tools whose inputs are held, in order."""
        return [tool for tool in self.offers.tools if tool.need <= self.held]


class _Same:
    """A tool list compared by identity: an environment offers the same object over many turns."""

    __slots__ = ("tools",)

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.tools = tools

    def __hash__(self) -> int:
        return id(self.tools)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.tools is self.tools


def read_tools(request: Request) -> Offers | None:
    """The tools offered, or None where there are none or one of them states no cost or no output type.

    A tool's size is the number of offered tools that its description mentions. Where no description mentions any, it
    comes from the types: each type is taken back to the inputs of the finest tool that gives it (the one that needs
    most to have been made before), until only the tool's own inputs are left; the tools on the way are counted.
    """
    return _read_list(_Same(request.tools))


@lru_cache(maxsize=256)
def _read_list(same: _Same) -> Offers | None:
    names = {tool.name for tool in same.tools}
    found = []
    for place, tool in enumerate(same.tools):
        output, cents, words = _read_description(tool.description)
        if not output or cents is None:
            return None
        inputs, values = _read_schema(tool.parameters)
        components = tuple(word for word in words if word in names and word != tool.name)
        found.append(
            Offer(
                name=tool.name,
                place=place,
                inputs=inputs,
                need=frozenset(inputs),
                output=output,
                cents=cents,
                components=components,
                size=max(1, len(components)),
                values=values,
            )
        )
    return _listed(_sized(found)) if found else None


@lru_cache(maxsize=8192)
def _read_description(text: str) -> tuple[str, int | None, tuple[str, ...]]:
    """Output type, cents, and the words that occur, each once."""
    cost, output = _COST.search(text), _OUTPUT.search(text)
    words = tuple(dict.fromkeys(_WORD.findall(text)))
    return output[2] if output else "", _cents(cost[1]) if cost else None, words


def _cents(number: str) -> int:
    whole, _, part = number.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])


def _read_schema(schema: Mapping[str, object]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return (), {}
    wanted = required if isinstance(required, Sequence) and not isinstance(required, str) else list(properties)
    values = {}
    for name, about in properties.items():
        listed = about.get("enum") if isinstance(about, Mapping) else None
        if isinstance(listed, Sequence) and listed:
            values[str(name)] = tuple(map(str, listed))
    return tuple(map(str, wanted)), values


def _listed(tools: Sequence[Offer]) -> Offers:
    given = {tool.output for tool in tools}
    needed = {name for tool in tools for name in tool.inputs}
    return Offers(
        tools=tuple(tools),
        by_name={tool.name: tool for tool in tools},
        given=frozenset(needed - given),
        types=frozenset(needed | given),
        ends=tuple(dict.fromkeys(tool.output for tool in tools if tool.output not in needed)),
    )


def _sized(tools: Sequence[Offer]) -> Sequence[Offer]:
    """The tools with sizes from their types, where no description mentions another tool."""
    if any(tool.components for tool in tools):
        return tools
    finest = _finest(tools)
    return [_resized(tool, finest) for tool in tools]


def _finest(tools: Sequence[Offer]) -> dict[str, Offer]:
    """Type -> the tool that gives it and needs most to have been made before; of equals the first."""
    depth: dict[str, int] = {}
    # A type lies as deep as the longest way to it; so many rounds settle all types that are on no circle.
    for _ in tools:
        before = dict(depth)
        for tool in tools:
            here = 1 + max((depth.get(name, 0) for name in tool.inputs), default=0)
            depth[tool.output] = min(len(tools), max(depth.get(tool.output, 0), here))
        if depth == before:
            break
    found: dict[str, Offer] = {}
    for tool in tools:
        rival = found.get(tool.output)
        if rival is None or _before(tool, depth) > _before(rival, depth):
            found[tool.output] = tool
    return found


def _before(tool: Offer, depth: Mapping[str, int]) -> int:
    return max((depth.get(name, 0) for name in tool.inputs), default=0)


def _resized(tool: Offer, finest: Mapping[str, Offer]) -> Offer:
    made: set[str] = set()
    left = [tool.output]
    while left:
        name = left.pop()
        if name not in made and name not in tool.need and name in finest:
            made.add(name)
            left += finest[name].inputs
    return Offer(
        name=tool.name,
        place=tool.place,
        inputs=tool.inputs,
        need=tool.need,
        output=tool.output,
        cents=tool.cents,
        components=(),
        size=max(1, len(made)),
        values=tool.values,
    )


def read_chat(request: Request) -> Chat | None:
    """Where the conversation stands, or None where the tools cannot be read (`read_tools`)."""
    offers = read_tools(request)
    if offers is None:
        return None
    chat = Chat(offers=offers, goal=_goal(request, offers))
    spoken: Message | None = None
    for message in request.messages:
        if message.role == "user":
            _begin(chat, message.text)
        elif message.role == "assistant":
            spoken = message
            stated = _PLAN.search(message.text)
            if stated:
                chat.plan = tuple(stated[1].strip().split(_ARROW))
        elif message.role == "tool" and spoken and spoken.calls and message.call_id == spoken.calls[0].id:
            # Only the first call of a reply is carried out.
            _hear(chat, spoken, message.text)
    return chat


def says(plan: Sequence[str], name: str, output: str) -> str:
    """The text beside a call of ours: the whole plan if it is new, and the type that the call is after."""
    stated = f"Plan: {_ARROW.join(plan)}\n" if plan else ""
    return f"{stated}Next: {name} gives {output}."


def _goal(request: Request, offers: Offers) -> str:
    """The type nobody needs; of several the one that the instructions name first, else the first one listed."""
    if len(offers.ends) <= 1:
        return "".join(offers.ends)
    text = next((message.text for message in request.messages if message.role == "system"), "")
    named = (word for word in _WORD.findall(text) if word in offers.ends)
    return next(named, offers.ends[0])


def _begin(chat: Chat, text: str) -> None:
    """A user's message: the first, or one that changes what is wanted."""
    ids = {name: chat.ids[name] for name in chat.offers.given if name in chat.ids}
    loose: dict[str, str] = {}
    for found in _ID.finditer(text):
        (ids if found[1] in chat.offers.types else loose)[found[1]] = found[0]
    if loose:
        _name_loose(chat.offers, ids, loose)
    chat.ids = ids
    chat.held = {*chat.offers.given, *ids}
    chat.wishes, chat.last, chat.gained, chat.plan = text, "", [], ()


def _name_loose(offers: Offers, ids: dict[str, str], loose: Mapping[str, str]) -> None:
    """Ids that do not begin with a type's name go to the given types without one that begin most alike."""
    free = {name for tool in offers.tools for name in tool.inputs if name in offers.given and name not in tool.values}
    for label, text in loose.items():
        open_types = sorted(free - ids.keys())
        if open_types:
            ids[max(open_types, key=lambda name: _alike(name, label))] = text


def _alike(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _hear(chat: Chat, spoken: Message, text: str) -> None:
    """The result of a reply's first call."""
    name, offer = spoken.calls[0].name, chat.offers.by_name.get(spoken.calls[0].name)
    found = None if text.lstrip().startswith("[ERROR]") else _ID.findall(text)
    if not found:
        chat.plan = ()
        if offer and _well_formed(chat, offer, spoken.calls[0].arguments):
            chat.refusals[name] = chat.refusals.get(name, 0) + 1
        return
    output = offer.output if offer else _named_output(chat.offers, spoken.text, text)
    if output:
        chat.held.add(output)
        chat.ids[output] = "<{}{}>".format(*found[-1])
        chat.last = output
    chat.gained.append(name)
    chat.plan = chat.plan[1:] if chat.plan[:1] == (name,) else ()


def _named_output(offers: Offers, spoken: str, result: str) -> str:
    """What a tool gave that is no longer offered: the last type that our words name, or the first in the result."""
    ours = [word for word in _WORD.findall(spoken) if word in offers.types]
    theirs = (word for word in _WORD.findall(result) if word in offers.types)
    return ours[-1] if ours else next(theirs, "")


def _well_formed(chat: Chat, offer: Offer, arguments: str) -> bool:
    """Whether a call held all that the tool asks for, so that its failure is the tool's."""
    if not offer.need <= chat.held:
        return False
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    if not isinstance(given, dict):
        return False
    return all(
        given.get(name) in offer.values[name] if name in offer.values else given.get(name) == chat.ids.get(name)
        for name in offer.inputs
    )


@lru_cache(maxsize=1024)
def closest(text: str, values: tuple[str, ...]) -> str:
    """The value whose words the text has most of; of equals the first.

    A value is an identifier, `quiet_and_remote`. Words that several values share say nothing; two words are the same
    where the shorter one's stem, all but its last two letters and at least four, begins the other.
    """
    said = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", text)}
    parts = [set(value.lower().split("_")) for value in values]
    scores = []
    for mine in parts:
        own = [word for word in mine if len(word) > 2 and sum(word in other for other in parts) == 1]
        scores.append(sum(any(_akin(word, other) for other in said) for word in own) / max(1, len(own)))
    return values[scores.index(max(scores))]


def _akin(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= 4 and long.startswith(short[: max(4, len(short) - 2)]))
