"""Baselines for CostBench: the cheapest next call, a plan made once, a plan made again in every turn, and chance.

Source: CostBench, B.2 (greedy), and the specification, sections 6.1 to 6.3; the planners are ours. All of them decide
from the conversation alone (`offers.py`, and below). Costs are compared in whole cents; of equally cheap plans the
one with fewer calls is taken, then the one whose tools come first in the list.

A tool whose call failed, although nothing was wrong with the call, may be banned or may have failed for once; nothing
that every wording must hold tells which. So plans avoid it as long as there is another way, and greedy tries it once
more only where nothing else is left.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush

from evalkit.dialogue import Message, Reply, Request
from evalkit.policy.conversation import PolicyFn, calling
from evalkit.policy.costbench.offers import Offer, Offers, read_tools
from evalkit.seeds import Stream

# Where a conversation about typed tools stands: what is held, what was refused, what was planned.
#
# The texts are not ours: a prompt pack may word them again. Only what every wording must hold is read: in a
# successful result an id like `<DiningCandidateSet00012>`, of several the last; `[ERROR]` at the beginning of every
# other result. Each message of the user begins again: what was gained is gone, and what it gives replaces what was
# given.
#
# A tool may vanish from the list after it was called, and its output type with it. So our own replies name the type
# that they are after (`says`), and the plan they follow, if any: a policy has no memory but the conversation.

_WORD = re.compile(r"\w+")
_ID = re.compile(r"<([A-Za-z]\w*?)(\d+)>")
_PLAN = re.compile(r"^Plan: (.+)$", re.MULTILINE)
_LETTERS = re.compile(r"[a-z]+")
_ARROW = " -> "
_SEPARATOR = " "
_STEM = 5


@dataclass(slots=True, kw_only=True)
class ChatState:
    """Where a conversation stands. It is built up message by message."""

    offers: Offers
    goal: str
    """Empty if it cannot be told."""
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


def read_chat(request: Request) -> ChatState | None:
    """Where the conversation stands, or None if the tools cannot be read (`offers.read_tools`)."""
    offers = read_tools(request)
    if offers is None:
        return None
    chat = ChatState(offers=offers, goal=_goal(request, offers))
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


def _begin(chat: ChatState, text: str) -> None:
    """A user's message: the first, or one that changes what is wanted."""
    ids = {name: chat.ids[name] for name in chat.offers.given if name in chat.ids}
    loose: dict[str, str] = {}
    for match in _ID.finditer(text):
        (ids if match[1] in chat.offers.types else loose)[match[1]] = match[0]
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


def _alike(first: str, second: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def _hear(chat: ChatState, spoken: Message, text: str) -> None:
    """The result of a reply's first call."""
    name, offer = spoken.calls[0].name, chat.offers.by_name.get(spoken.calls[0].name)
    ids = None if text.lstrip().startswith("[ERROR]") else _ID.findall(text)
    if not ids:
        chat.plan = ()
        if offer and _well_formed(chat, offer, spoken.calls[0].arguments):
            chat.refusals[name] = chat.refusals.get(name, 0) + 1
        return
    output = offer.output if offer else _named_output(chat.offers, spoken.text, text)
    if output:
        chat.held.add(output)
        chat.ids[output] = "<{}{}>".format(*ids[-1])
        chat.last = output
    chat.gained.append(name)
    chat.plan = chat.plan[1:] if chat.plan[:1] == (name,) else ()


def _named_output(offers: Offers, spoken: str, result: str) -> str:
    """What a tool gave that is no longer offered: the last type that our words name, or the first in the result."""
    spoken_types = [word for word in _WORD.findall(spoken) if word in offers.types]
    result_types = (word for word in _WORD.findall(result) if word in offers.types)
    return spoken_types[-1] if spoken_types else next(result_types, "")


def _well_formed(chat: ChatState, offer: Offer, arguments: str) -> bool:
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

    A value is an identifier, `quiet_and_remote`. Words that several values share say nothing, nor do those of less than
    three letters; the text has a word where one of its own begins with the same five letters.
    """
    words = _words_said(text)
    parts = [set(value.lower().split("_")) for value in values]
    scores = []
    for value_words in parts:
        own = [word for word in value_words if len(word) > 2 and sum(word in other for other in parts) == 1]
        scores.append(sum(_SEPARATOR + word[:_STEM] in words for word in own) / max(1, len(own)))
    return values[scores.index(max(scores))]


@lru_cache(maxsize=64)
def _words_said(text: str) -> str:
    return _SEPARATOR + _SEPARATOR.join(_LETTERS.findall(text.lower()))


MOST_STATES = 20_000
"""Sets of types that are looked at for an exact plan; where there are more, the plan is good but need not be best."""

_MOST_REFUSALS = 2
"""So many failures of one tool, and greedy takes it for banned."""

Key = tuple[int, int, int, tuple[int, ...]]
"""How good a plan is, least first: refusals, cents, calls, and the places of its tools."""

_NO_CALLS: Key = (0, 0, 0, ())


def plays(request: Request) -> bool:
    """Whether the tools offered are CostBench's: each of them states a cost and an output type."""
    return read_tools(request) is not None


def _player(move: Callable[[ChatState, Stream], tuple[Offer, Sequence[str]] | None]) -> PolicyFn:
    """A policy from its choice of a tool, with the plan to be stated beside the call; None: it sees no way on."""

    def reply(request: Request, draws: Stream) -> Reply:
        chat = read_chat(request)
        if chat is None:
            return Reply(text="I cannot read a cost and an output type of every tool.")
        if chat.done:
            return calling(request, [], f"<answer> {chat.ids[chat.goal]} </answer>")
        chosen = move(chat, draws)
        if chosen is None:
            return calling(request, [], "No tool leads on from here.")
        return call(request, chat, *chosen)

    return reply


def call(request: Request, chat: ChatState, tool: Offer, plan: Sequence[str] = ()) -> Reply:
    """The reply that calls a tool with the user's wishes and the ids that are held."""
    return calling(request, [(tool.name, json.dumps(arguments(chat, tool)))], says(plan, tool.name, tool.output))


def arguments(chat: ChatState, tool: Offer) -> dict[str, str]:
    """By input type: the listed value that the user's words come closest to, or the id held (empty: none is)."""
    return {
        name: closest(chat.wishes, tool.values[name]) if name in tool.values else chat.ids.get(name, "")
        for name in tool.inputs
    }


def _greedy(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    del draws
    tools = [
        tool
        for tool in chat.open()
        if (not chat.last or chat.last in tool.need) and chat.refusals.get(tool.name, 0) < _MOST_REFUSALS
    ]
    # The reference divides floats, and some of its ties are broken by how they round.
    best = min(
        tools,
        key=lambda tool: (chat.refusals.get(tool.name, 0), chat.offers.cents[tool.place] / 100 / tool.size, tool.place),
        default=None,
    )
    return None if best is None else (best, ())


def _planner(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    following = chat.offers.by_name.get(chat.plan[0]) if chat.plan else None
    if following is not None and following.need <= chat.held:
        return following, ()
    return _replanner(chat, draws)


def _replanner(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    del draws
    plan = cheapest(chat)
    return (plan[0], [tool.name for tool in plan]) if plan else None


def _random(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    tools = chat.open()
    return (tools[draws.below(len(tools))], ()) if tools else None


greedy = _player(_greedy)
"""In every turn the open tool with the lowest cost for each atomic tool it stands for, among those that need what was
gained last (specification, section 6.2); what was gained last is forgotten only when the user changes the wishes."""

planner = _player(_planner)
"""Plans at first, says so, and follows that plan whatever changes; plans again only when it cannot continue: a call was
refused, a tool vanished, or the user changed the wishes."""

replanner = _player(_replanner)
"""Plans in every turn from what is held, with the tools and costs offered then."""

random = _player(_random)
"""In every turn any tool whose inputs are held, until the goal is."""


def cheapest(chat: ChatState) -> tuple[Offer, ...]:
    """The cheapest calls from what is held to the goal, in order; empty: there is no way, or nothing is to be done.

    Where every tool lacks at most one input, as in a chain, the way goes from type to type; otherwise states are sets
    of types.
    """
    tools = chat.offers.tools
    lacking = {tool.place: tool.need - chat.held for tool in tools if tool.output not in chat.held}
    indices = _from_type_to_type(chat, lacking)
    if indices and any(len(lacks) > 1 for lacks in lacking.values()):
        indices = _from_set_to_set(chat, lacking) or indices
    return tuple(tools[index] for index in indices)


def _longer(chat: ChatState, key: Key, index: int) -> Key:
    """The key of a plan with one more call."""
    refusals, cents, calls, path = key
    if chat.refusals:
        refusals += chat.refusals.get(chat.offers.tools[index].name, 0)
    return refusals, cents + chat.offers.cents[index], calls + 1, (*path, index)


def _from_type_to_type(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Dijkstra's search over types. A tool that lacks several is reached by all their ways joined, which is exact
    unless ways could share calls."""
    tools = chat.offers.tools
    reached: dict[str, Key] = {}
    waiting: dict[str, list[int]] = {}
    heap: list[Key] = []
    for index, lacks in lacking.items():
        if not lacks:
            heap.append(_longer(chat, _NO_CALLS, index))
        for name in lacks:
            waiting.setdefault(name, []).append(index)
    heapify(heap)
    while heap:
        key = heappop(heap)
        output = tools[key[3][-1]].output
        if output in reached:
            continue
        if output == chat.goal:
            return key[3]
        reached[output] = key
        for index in waiting.get(output, ()):
            lacks = lacking[index]
            if len(lacks) == 1 or reached.keys() >= lacks:
                before = key if len(lacks) == 1 else _joined(chat, [reached[name] for name in sorted(lacks)])
                heappush(heap, _longer(chat, before, index))
    return ()


def _joined(chat: ChatState, keys: Sequence[Key]) -> Key:
    """The key of several plans' calls, each made once."""
    joined = _NO_CALLS
    for index in dict.fromkeys(index for key in keys for index in key[3]):
        joined = _longer(chat, joined, index)
    return joined


def _from_set_to_set(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Dijkstra's search over the sets of types gained; empty if it would look at more than `MOST_STATES`."""
    tools = chat.offers.tools
    useful = _useful(chat, lacking)
    heap: list[tuple[Key, frozenset[str]]] = [(_NO_CALLS, frozenset())]
    seen: set[frozenset[str]] = set()
    while heap and len(seen) < MOST_STATES:
        key, gained = heappop(heap)
        if gained in seen:
            continue
        if chat.goal in gained:
            return key[3]
        seen.add(gained)
        for index in useful:
            if tools[index].output not in gained and lacking[index] <= gained:
                after = gained | {tools[index].output}
                if after not in seen:
                    heappush(heap, (_longer(chat, key, index), after))
    return ()


def _useful(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> list[int]:
    """Indices of the tools that may have a part in reaching the goal."""
    tools = chat.offers.tools
    wanted, left = {chat.goal}, [chat.goal]
    indices = []
    while left:
        output = left.pop()
        for index, lacks in lacking.items():
            if tools[index].output == output:
                indices.append(index)
                left += lacks - wanted
                wanted |= lacks
    return sorted(indices)
