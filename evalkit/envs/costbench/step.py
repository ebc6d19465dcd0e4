"""The state machine: what one reply of the agent changes, and what happens without it.

A turn is one message of the agent. An answer of the right form ends the episode, whatever else is in the message.
Otherwise the message's first call is executed and further ones are refused. Without a call the episode ends. A turn has
at most one event. A ban or a failure takes the place of the call. Other events come after it, with a message (a change
of mind) or without one (costs, tools that vanish). No agent can influence when they happen, or the costs (`events.py`).
Source: specification, sections 4.2 and 5.3.
Chosen: calls in a message with an answer are recorded as not executed; the reference adds them to the path, at no cost.
"""

import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from evalkit.dialogue import Message, Reply, Tool, ToolCall, ToolChoice, as_dataclass
from evalkit.envs.arguments import shown
from evalkit.envs.costbench import calls, prompt
from evalkit.envs.costbench.calls import (
    BANNED,
    EXTRA_PARALLEL,
    FAILED,
    NOT_EXECUTED,
    OK,
    RESULT_TEXTS,
    CallSetup,
    Done,
    broken,
    call_setup,
    carry_out,
    unexecuted,
)
from evalkit.envs.costbench.coverage import count_paths
from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import Terms, World, filled
from evalkit.envs.costbench.events import Event, course_of, terms_after, world_of
from evalkit.envs.costbench.instances.blocks import TOOL_FAILURE, ban_sentence, change_sentence
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.suite import check_optimum
from evalkit.envs.environment import Kit, Observation, Opening, fill
from evalkit.errors import UsageError

# The final answer in a reply's text: whether it ends the episode, and which number it gives. Two rules, not one.
#
# An episode ends if the right number of digits is between the first pair of answer tags, whatever else is there. The
# number that counts is read by a stricter rule: a label of the domain's goals and the digits, in one of a few
# spellings. Source: specification, sections 4.2 (a) and 4.4.

_OPEN = re.compile("<answer>", re.IGNORECASE)
_CLOSE = re.compile("</answer>", re.IGNORECASE)
_DIGIT = re.compile("[0-9]")
_THINK = ("<think>", "</think>")


def ends_turn(text: str, digits: int) -> bool:
    """Whether a text ends the episode: exactly `digits` digits between its first pair of answer tags."""
    block = _block(text)
    return block is not None and len(_DIGIT.findall(block)) == digits


def read_answer(text: str, world: World, digits: int) -> str | None:
    """The digits that a reply's text answers with; empty: none, though the text decides. None: it does not decide.

    A text decides where it has an answer tag or the word that ids of goals begin with (`Candidate`).
    """
    word, *patterns = _rules(world.catalogue, world.labels[world.goal_type], digits)
    if not _OPEN.search(text) and not word.search(text):
        return None
    if all(mark in text for mark in _THINK):
        text = text[text.rindex(_THINK[1]) + len(_THINK[1]) :]
    block = _block(text)
    if block is not None:
        for pattern in patterns:
            match = pattern.search(block)
            if match:
                return match[1]
    return ""


def _block(text: str) -> str | None:
    """What stands between the first pair of tags. Searched in two steps, which is linear in any text."""
    opened = _OPEN.search(text)
    closed = _CLOSE.search(text, opened.end()) if opened else None
    return text[opened.end() : closed.start()] if opened and closed else None


@lru_cache(maxsize=64)
def _rules(catalogue: Catalogue, own: str, digits: int) -> tuple[re.Pattern[str], ...]:
    """The word by which a text decides, then the spellings of an answer in the order in which they are tried."""
    labels, words = [own], [own]
    if catalogue.chain is not None:
        chain = catalogue.chain
        labels += [filled(chain.last.label, chain, name, 0) for name, task in catalogue.tasks.items() if not task.graph]
        words.append(fill(chain.last.label, T="").strip("_ ") or own)
    label = "(?:" + "|".join(sorted({re.escape(label) for label in labels}, key=len, reverse=True)) + ")"
    number = f"([0-9]{{{digits}}})"
    forms = [rf"\{{\s*Candidate_ID\s*:\s*{number}\s*\}}", rf"\{{\s*{number}\s*\}}", number]
    spellings = [rf"<\s*{label}\s*{form}\s*>" for form in forms]
    spellings += [rf"{label}\s*{form}" for form in forms[:2]] + [rf"{label}\s*{number}(?![0-9])"]
    word = "|".join(re.escape(word) for word in words)
    return (re.compile(word), *(re.compile(spelling) for spelling in spellings))


ANSWERED = "answered"
NO_CALL = "no_call"
STEP_LIMIT = "step_limit"

ANSWER_TAG = "<answer>"
"""What ends an episode, where every reply must hold a call, even without a right number after it."""

_BAN, _CHANGE = "ban_tool", "preference_change"
_IN_PLACE = frozenset({_BAN, TOOL_FAILURE})
"""Kinds of events that take the place of the turn's call."""

_EVENT_TEXTS = {
    **{f"banned.{number}": ("tool",) for number in range(1, prompt.SENTENCES + 1)},
    **{
        f"changed.{number}": ("requirements", "ids", "context", "constants")
        for number in range(1, prompt.SENTENCES + 1)
    },
    "changes.context": ("type", "id"),
    "changes.constants": ("types",),
    "changes.none": (),
}

TEXTS = {
    key: frozenset(fields)
    for key, fields in (
        *prompt.SYSTEM_TEXTS.items(),
        *prompt.TOOL_TEXTS.items(),
        *RESULT_TEXTS.items(),
        *_EVENT_TEXTS.items(),
    )
}
"""The keys of all texts, with the fields each may use in braces."""

LATER_TEXTS = {**prompt.LATER_TEXTS, **calls.LATER_TEXTS}
"""Texts that were added after the first version, each with what a pack that lacks it says instead."""

OPEN_TEXTS = {key: frozenset(fields) for key, fields in prompt.OPEN_TEXTS.items()}
"""Beginnings of keys that a pack may hold for single tools, types and lengths."""


@as_dataclass
class State(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The state of an episode. Its size, and the cost of a step, do not grow with the number of steps."""

    setup: CallSetup
    """What stays the same in all states of an episode."""
    events: tuple[Event, ...]
    """All that will happen, by turn."""
    tools: tuple[Tool, ...]
    """What the next request offers; the same object until an event changes it."""
    terms: Terms
    query: Query
    """What is wanted now."""
    have: int
    """Types held, as bits."""
    steps: int = 0
    """Messages of the agent so far."""
    fired: int = 0
    """Events so far."""
    bans: frozenset[str] = frozenset()
    """Names whose calls fail from now on, as the agent wrote them; no more than there were events."""
    closing: bool = False
    """Whether the next request asks for a last reply without a call: the goal is held, and the instance wants it so."""
    spoken: bool = False
    """Whether the agent has written any text."""
    ended: str = ""


def start(instance: PlanningProblem, kit: Kit) -> State:
    """An episode before its first request. Raises UsageError for a partial pack, or a line that is not what it says."""
    texts = kit.pack.texts
    missing = sorted(TEXTS.keys() - texts.keys())
    if missing:
        raise UsageError(f"The prompt pack {kit.pack.name!r} lacks {', '.join(missing)}.")
    check_optimum(instance)
    world, terms = world_of(instance), terms_after(instance, 0)
    return State(
        setup=call_setup(instance, world, texts),
        events=course_of(instance).events,
        tools=prompt.tools(instance, world, texts, terms),
        terms=terms,
        query=instance.query,
        have=world.start,
    )


def opening(state: State) -> Opening:
    """The instructions and the user's message."""
    return prompt.opening(state.setup.instance, state.setup.world, state.setup.texts)


def tools(state: State) -> tuple[Tool, ...]:
    """The tools the next request offers."""
    return state.tools


def period(state: State) -> int:
    """The period of the next request: an episode is one chat."""
    del state
    return 0


def tool_choice(state: State) -> ToolChoice | None:
    """Whether the next reply must hold a call, or none; None: as the agent is asked anyway."""
    if not state.setup.instance.require_goal_state:
        return None
    return "none" if state.closing else "required"


def ended(state: State) -> str:
    """Why the episode is over, or an empty string."""
    return state.ended


def step(state: State, reply: Reply) -> tuple[State, Observation]:
    """Answer a reply, whatever it contains. Raises ValueError only if the episode was already over."""
    if state.ended:
        raise ValueError(f"the episode is over: {state.ended}")
    before, turn = state, state.steps + 1
    state = replace(state, steps=turn, spoken=state.spoken or bool(reply.text))
    messages: tuple[Message, ...] = ()
    facts: dict[str, Any] = {"turn": turn}
    answered = ends_turn(reply.text, state.setup.digits)
    if answered or state.closing:
        facts["calls"] = [{"tool": shown(call.name), "outcome": NOT_EXECUTED} for call in reply.calls]
        facts |= {"closing": True} if state.closing else {}
        state = replace(state, ended=ANSWERED if answered else NO_CALL)
    elif reply.calls:
        state, messages, facts["calls"] = _call_turn(state, reply.calls)
        if _closes(state):
            state = replace(state, closing=True)
        if turn >= state.setup.instance.steps and not state.closing:
            state, messages = replace(state, ended=STEP_LIMIT), ()
    else:
        facts["calls"] = []
        state = replace(state, ended=_silent_end(state, reply.text))
    facts["goal"] = bool(state.have & state.setup.world.goal)
    if state.fired > before.fired:
        facts["events"] = [{"kind": event.kind} for event in state.events[before.fired : state.fired]]
    facts |= _said(before, reply.text)
    if state.ended:
        facts["ended"] = state.ended
    acted = any(call["outcome"] == OK for call in facts["calls"])
    return state, Observation(messages=messages, facts=facts, acted=acted)


def _closes(state: State) -> bool:
    """Whether one more reply, without a call, ends the episode. Another wish has taken the goal away again."""
    return state.setup.instance.require_goal_state and bool(state.have & state.setup.world.goal)


def _silent_end(state: State, text: str) -> str:
    """How a reply without a call ends the episode; empty: the instance asks again, as the reference does."""
    if not state.setup.instance.require_goal_state or ANSWER_TAG in text:
        return NO_CALL
    return STEP_LIMIT if state.steps >= state.setup.instance.steps else ""


def _said(before: State, text: str) -> dict[str, Any]:
    """What a reply's text says, as facts."""
    if not text:
        return {"silent": True}
    facts: dict[str, Any] = {}
    answer = read_answer(text, before.setup.world, before.setup.digits)
    if answer is not None:
        facts["answer"] = answer
    if not before.spoken:
        paths, valid = count_paths(text, before.setup.world)
        facts["plan"] = {"paths": paths, "valid": valid}
    return facts


def _call_turn(state: State, calls: tuple[ToolCall, ...]) -> tuple[State, tuple[Message, ...], list[dict[str, Any]]]:
    """A turn with calls: the first is executed, or an event happens in its place; then the event after it."""
    call, event = calls[0], _due(state)
    if event is not None and event.kind in _IN_PLACE:
        state, done = _instead(state, event, call)
        event = None
    elif call.name in state.bans:
        done = _ban(state, call.name, first=False)
    else:
        done = carry_out(state.setup, state.terms, state.have, state.query, call)
    facts = [_call_facts(state, call, done)]
    named = state.setup.texts.get(prompt.SENT_NAME) == prompt.YES
    messages = [Message(role="tool", text=done.text, call_id=call.id, name=call.name, named=named)]
    for extra in calls[1:]:
        facts.append({"tool": shown(extra.name), "outcome": EXTRA_PARALLEL})
        text = unexecuted(state.setup, extra.name)
        messages.append(Message(role="tool", text=text, call_id=extra.id, name=extra.name, named=named))
    state = replace(state, have=state.have | done.gives)
    if event is not None:
        state, user_messages = _happen(state, event)
        messages += user_messages
    return state, tuple(messages), facts


def _due(state: State) -> Event | None:
    """The event that fires in this turn."""
    if state.fired < len(state.events) and state.events[state.fired].at <= state.steps:
        return state.events[state.fired]
    return None


def _instead(state: State, event: Event, call: ToolCall) -> tuple[State, Done]:
    """A ban or a failure, whatever the call is: not even its name is checked."""
    state = replace(state, fired=state.fired + 1)
    if event.kind == _BAN:
        return replace(state, bans=state.bans | {call.name}), _ban(state, call.name, first=True)
    return state, broken(state.setup, state.terms, call.name, FAILED, "results.failed")


def _ban(state: State, name: str, *, first: bool) -> Done:
    sentence = ban_sentence(state.setup.instance, state.steps, first)
    cost = "" if first else "results.cost_banned_again"
    return broken(state.setup, state.terms, name, BANNED, f"banned.{sentence + 1}", cost)


def _happen(state: State, event: Event) -> tuple[State, tuple[Message, ...]]:
    """The event after a call: another wish, which the user tells the agent, or other terms, which nobody does."""
    setup, fired = state.setup, state.fired + 1
    if event.kind == _CHANGE and event.query is not None:
        state = replace(state, fired=fired, query=event.query, have=setup.world.start)
        return state, (Message(role="user", text=_changed(state)),)
    terms = terms_after(setup.instance, fired)
    offered = prompt.tools(setup.instance, setup.world, setup.texts, terms)
    # The same tuple where nothing is different: tools may be removed of which there were none.
    return replace(state, fired=fired, terms=terms, tools=state.tools if offered == state.tools else offered), ()


def _changed(state: State) -> str:
    """How the user tells a change of mind."""
    setup, query = state.setup, state.query
    texts = setup.texts
    number = change_sentence(setup.instance, state.steps) + 1
    context = ""
    if setup.context:
        shown_id = show_id(setup.world.labels[setup.context], query.given[setup.context], setup.digits)
        context = fill(texts["changes.context"], type=setup.context, id=shown_id)
    names = [name for name in setup.world.catalogue.constants if name in query.given]
    constants = fill(texts["changes.constants"], types=", ".join(names)) if names else texts["changes.none"]
    words = texts[f"changed.{number}"]
    return fill(words, ids=context + constants, context=context, constants=constants, requirements=query.text)


def _call_facts(state: State, call: ToolCall, done: Done) -> dict[str, Any]:
    facts: dict[str, Any] = {"tool": shown(call.name), "outcome": done.outcome}
    if done.cents is not None:
        facts["cost"] = done.cents
    if done.malformed:
        facts["malformed"] = True
    if done.gives & state.setup.world.goal:
        facts["goal"] = True
    return facts
