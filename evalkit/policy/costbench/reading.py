"""Where a conversation about typed tools stands: what is held, what was refused, what was planned.

The texts are not ours: a prompt pack may word them again. Only what every wording must hold is read: in a successful
result an id like `<DiningCandidateSet00012>`, of several the last; `[ERROR]` at the beginning of every other result.
Each message of the user begins again: what was gained is gone, and what it gives replaces what was given.

A tool may vanish from the list after it was called, and its output type with it. So our own replies name the type that
they are after (`says`), and the plan they follow, if any: a policy has no memory but the conversation.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from evalkit.dialogue import Message, Request
from evalkit.policy.costbench.offers import Offer, Offers, read_tools

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
