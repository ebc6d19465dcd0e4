"""One tool call answered: which outcome it has, and what the agent reads.

Total over whatever a model may write. Every answer has a typed outcome; `ok` is the good one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic

import msgspec
from msgspec.structs import replace

from evalkit.dialogue import Message, ToolCall
from evalkit.envs.arguments import (
    MOST_BYTES,
    Refusal,
    read_arguments,
    read_mapping,
    shown,
    text_argument,
    whole_argument,
)
from evalkit.envs.environment import fill
from evalkit.envs.rules import (
    READ_NOTES,
    WRITE_NOTES,
    AcceptedAction,
    Getter,
    PeriodsState,
    Setting,
    WorldT,
    repeat_key,
)

OK = "ok"

MOST_CALLS = 64
"""Calls of one reply that are processed; the others are answered with a refusal."""

MOST_ARGUMENTS = 2 * MOST_BYTES
"""Characters of all arguments of one reply together; calls beyond are refused unread. The loop waits for them to be
read: a tenth of a second or so where they are all made to be read as slowly as can be."""

MOST_NOTES = 256 * 1024
"""Characters of one period's notes."""

RESTARTING = frozenset(
    {
        "unknown_tool",
        "too_large",
        "too_deep",
        "not_json",
        "not_object",
        "missing",
        "wrong_type",
        "unparseable",
        "unhashable",
        "not_mapping",
        "future_notes",
        "negative_notes",
    }
)
"""Outcomes that throw the chat away under the reference's restarts.

Chosen: also those by which the reference itself dies (a number for an assignment, a key that is a list, notes of
further back than there are).
"""


class CallResult(msgspec.Struct, Generic[WorldT], frozen=True, kw_only=True):
    """What one call brought about."""

    outcome: str
    text: str = ""
    accepted: AcceptedAction[WorldT] | None = None


class Answers(msgspec.Struct, Generic[WorldT], frozen=True, kw_only=True):
    """What all calls of a reply brought about, in order."""

    state: PeriodsState[WorldT]
    messages: tuple[Message, ...]
    """One for each call, for the chat that continues."""
    facts: list[dict[str, str]]
    accepted: AcceptedAction[WorldT] | None
    restart: bool


def answer_calls(state: PeriodsState[WorldT], calls: Sequence[ToolCall]) -> Answers[WorldT]:
    """Answer a reply's calls in order. What follows an accepted action, or a restart, is recorded and ignored."""
    facts: list[dict[str, str]] = []
    messages: list[Message] = []
    accepted: AcceptedAction[WorldT] | None = None
    restart = False
    room = MOST_ARGUMENTS
    for index, call in enumerate(calls):
        room -= len(call.arguments)
        if accepted is not None or restart:
            answer: CallResult[WorldT] = CallResult(outcome="after_action" if accepted else "after_restart")
        elif index >= MOST_CALLS:
            answer = _refused(state, Refusal("too_many_calls", {"limit": MOST_CALLS}), call)
        elif room < 0:
            answer = _refused(state, Refusal("too_large", {"limit": MOST_ARGUMENTS}), call)
            restart = _restarts(state.setting, answer.outcome)
        else:
            state, answer = _answer(state, call)
            accepted, restart = answer.accepted, _restarts(state.setting, answer.outcome)
        facts.append({"tool": shown(call.name), "outcome": answer.outcome})
        messages.append(Message(role="tool", text=answer.text, call_id=call.id, name=call.name))
    return Answers(state=state, messages=tuple(messages), facts=facts, accepted=accepted, restart=restart)


def _restarts(setting: Setting[Any], outcome: str) -> bool:
    return setting.restarts and (outcome in RESTARTING or outcome in setting.rules.restarting)


def _answer(state: PeriodsState[WorldT], call: ToolCall) -> tuple[PeriodsState[WorldT], CallResult[WorldT]]:
    setting, name = state.setting, call.name
    if not (name == setting.rules.action if _last(state) else name in setting.offered):
        known = name in setting.rules.tools
        return state, _refused(state, Refusal("not_offered" if known else "unknown_tool"), call)
    arguments = read_arguments(call.arguments)
    if isinstance(arguments, Refusal):
        return state, _refused(state, arguments, call)
    getter = setting.getters.get(name)
    if getter is not None:
        return _get(state, getter, call)
    if name == WRITE_NOTES:
        return _write_notes(state, arguments, call)
    if name == READ_NOTES:
        return state, _read_notes(state, arguments, call)
    return state, _act(state, arguments, call)


def offered(state: PeriodsState[Any]) -> tuple[Any, ...]:
    """The tools the next request offers: all, and only the action in the last query of a period."""
    return state.setting.last_tools if _last(state) else state.setting.tools


def _last(state: PeriodsState[Any]) -> bool:
    return state.turn + 1 >= state.setting.queries


def _get(
    state: PeriodsState[WorldT], getter: Getter[WorldT], call: ToolCall
) -> tuple[PeriodsState[WorldT], CallResult[WorldT]]:
    if getter.name in state.read:
        return state, _repeated(state, getter, call)
    answer: CallResult[WorldT] = CallResult(outcome=OK, text=_styled(state.setting, getter.key, getter.read(state)))
    return (replace(state, read=state.read | {getter.name}) if getter.once else state), answer


def _repeated(state: PeriodsState[WorldT], getter: Getter[WorldT], call: ToolCall) -> CallResult[WorldT]:
    """A tool that answers once a chat was asked again. A text of the tool's own is shown as it stands, in any style:
    the reference's notices are not all wrapped, and not all under the key of what they stand for."""
    refused = _refused(state, Refusal("repeat_access"), call)
    own = state.setting.texts[repeat_key(getter.name)]
    if own:
        return replace(refused, text=fill(own, tool=getter.name))
    return replace(refused, text=_styled(state.setting, getter.key, refused.text))


def _styled(setting: Setting[Any], key: str, value: object) -> str:
    if key and setting.texts["results.style"] == "repr":
        return repr({key: value})
    return str(value)


def _write_notes(
    state: PeriodsState[WorldT], arguments: Mapping[str, Any], call: ToolCall
) -> tuple[PeriodsState[WorldT], CallResult[WorldT]]:
    added = text_argument(arguments, "notes")
    if isinstance(added, Refusal):
        return state, _refused(state, added, call)
    before = state.notes.get(state.period) or ""
    if len(before) + len(added) > MOST_NOTES:
        return state, _refused(state, Refusal("notes_full", {"limit": MOST_NOTES}), call)
    state = replace(state, notes=state.notes.insert(state.period, before + added))
    return state, CallResult(outcome=OK, text=state.setting.texts["results.notes_written"])


def _read_notes(state: PeriodsState[WorldT], arguments: Mapping[str, Any], call: ToolCall) -> CallResult[WorldT]:
    index = state.setting.rules.index
    period = whole_argument(arguments, index)
    if state.setting.restarts:
        period = _as_index(arguments.get(index), state.period, period)
    if isinstance(period, int) and not 0 <= period <= state.period:
        period = Refusal("future_notes" if period > 0 else "negative_notes", {"attempt": state.period})
    if isinstance(period, Refusal):
        return _refused(state, period, call)
    notes = state.notes.get(period) or fill(state.setting.texts["results.notes_empty"], attempt=period)
    return CallResult(outcome=OK, text=_styled(state.setting, "notes", notes))


def _as_index(value: object, current: int, period: int | Refusal) -> int | Refusal:
    """`period` as the reference reads it: truncated towards 0, a truth value as 0 or 1, and counted from the current
    attempt backwards where it is below 0.

    Source: specification of the reference, section C.3 and the addenda.
    """
    if isinstance(value, bool | float) and math.isfinite(value):
        period = int(value)
    return period + current + 1 if isinstance(period, int) and period < 0 else period


def _act(state: PeriodsState[WorldT], arguments: Mapping[str, Any], call: ToolCall) -> CallResult[WorldT]:
    rules = state.setting.rules
    if rules.argument not in arguments:
        return _refused(state, Refusal("missing", {"argument": rules.argument}), call)
    value = arguments[rules.argument]
    if state.setting.restarts and rules.bare_number and isinstance(value, int | float):
        refused = _refused(state, Refusal("wrong_type", {"argument": rules.argument, "type": "string"}), call)
        own = state.setting.texts[f"results.{rules.bare_number}"]
        return replace(refused, outcome=rules.bare_number, text=own or refused.text)
    mapping = read_mapping(value)
    if isinstance(mapping, Refusal):
        return _refused(state, Refusal(mapping.outcome, {"argument": rules.argument, **mapping.values}), call)
    done = rules.act(state, mapping.value)
    if isinstance(done, Refusal):
        return _refused(state, done, call)
    return CallResult(outcome=OK, accepted=done)


def _refused(state: PeriodsState[WorldT], refusal: Refusal, call: ToolCall) -> CallResult[WorldT]:
    """A refusal in the pack's words."""
    setting = state.setting
    values = {**refusal.values, "action": setting.rules.action, "tool": shown(call.name)}
    return CallResult(outcome=refusal.outcome, text=fill(setting.texts[f"results.{refusal.outcome}"], **values))
