"""The loop that EconAgentBench's environments share: periods, each one chat that ends with an accepted action.

Pure functions over `rules.State`. A period has so many queries (requests); the last offers only the action. A reply
without an accepted action is answered with tool results and the reply prompt. What no action was taken in is recorded
as `no_action`, and the episode continues; five such periods in a row end it as `unresponsive`.

Source: specification of the reference, sections B.1 and C.1; the paper's appendix F.
Differs: the reference throws the chat away and tries the same period again, ten times, and then the run dies; the
setting `restarts` gives those restarts, and the tenth ends the episode as `unresponsive`. A reply of text alone kills
the reference where it is a chat's first; here it is always answered with the reply prompt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from evalkit.dialogue import Message, Reply, Tool
from evalkit.envs.calls import Answers, answer_calls, offered
from evalkit.envs.environment import Facts, Observation, Opening, fill
from evalkit.envs.rules import AcceptedAction, PeriodsState, WorldT

MOST_IDLE = 5
"""Periods in a row without an action that end an episode."""

MOST_TRIES = 10
"""Chats of one period, where it is restarted."""

COMPLETE = "complete"
UNRESPONSIVE = "unresponsive"

ACCEPTED = "accepted"
NO_ACTION = "no_action"
RESTART = "restart"


def opening(state: PeriodsState[Any]) -> Opening:
    """The start of the current period's chat."""
    last = state.period + 1 >= state.setting.periods
    plain_opening, getters = state.setting.last_opening if last else state.setting.opening, state.setting.rules.told
    if not getters:
        return plain_opening
    *before, asked = plain_opening.messages
    values = {name: getter(state) for name, getter in getters.items()}
    return Opening(messages=(*before, replace(asked, text=fill(asked.text, **values))))


def tools(state: PeriodsState[Any]) -> tuple[Tool, ...]:
    """The tools the next request offers."""
    return offered(state)


def period(state: PeriodsState[Any]) -> int:
    """The period the next request belongs to."""
    return state.period


def ended(state: PeriodsState[Any]) -> str:
    """Why the episode is over, or an empty string."""
    return state.ended


def step(state: PeriodsState[WorldT], reply: Reply) -> tuple[PeriodsState[WorldT], Observation]:
    """Answer a reply, whatever it holds. Raises ValueError only where the episode was over before it."""
    if state.ended:
        raise ValueError(f"the episode is over: {state.ended}")
    answers = answer_calls(state, reply.calls)
    if answers.accepted is not None:
        return _advance(answers, answers.accepted)
    if answers.restart:
        return _restart(answers)
    if state.turn + 1 >= state.setting.queries:
        return _restart(answers) if state.setting.restarts else _pass(answers)
    messages = (*answers.messages, Message(role="user", text=state.setting.texts["reply"]))
    after = replace(answers.state, turn=state.turn + 1)
    return after, Observation(messages=messages, facts=_facts(answers))


def _advance(answers: Answers[WorldT], accepted: AcceptedAction[WorldT]) -> tuple[PeriodsState[WorldT], Observation]:
    """The period ended with an action."""
    after = _next_period(answers.state, accepted.history, idle=0, ended=accepted.ended, world=accepted.world)
    return after, _closing(answers, after, ACCEPTED, accepted.facts)


def _pass(answers: Answers[WorldT]) -> tuple[PeriodsState[WorldT], Observation]:
    """The period ended without an action."""
    before = answers.state
    line = fill(before.setting.texts["results.history_no_action"], attempt=before.period)
    idle = before.idle + 1
    ended = UNRESPONSIVE if idle >= MOST_IDLE else ""
    after = _next_period(before, line, idle=idle, ended=ended, world=before.world)
    return after, _closing(answers, after, NO_ACTION)


def _restart(answers: Answers[WorldT]) -> tuple[PeriodsState[WorldT], Observation]:
    """The chat is thrown away and the period begins again; notes are kept."""
    tries = answers.state.tries + 1
    lost = UNRESPONSIVE if tries >= MOST_TRIES else ""
    after = replace(answers.state, turn=0, read=frozenset(), tries=tries, ended=lost)
    return after, _closing(answers, after, RESTART)


def _next_period(
    state: PeriodsState[WorldT], history: str, *, idle: int, ended: str, world: WorldT
) -> PeriodsState[WorldT]:
    """`ended`: why the episode is over, if it is before its last period."""
    number = state.period + 1
    return replace(
        state,
        period=number,
        turn=0,
        tries=0,
        read=frozenset(),
        history=state.history + history,
        ended=ended or (COMPLETE if number >= state.setting.periods else ""),
        idle=idle,
        world=world,
    )


def _closing(
    answers: Answers[WorldT], after: PeriodsState[WorldT], how: str, action: Facts | None = None
) -> Observation:
    """The observation at the end of a chat: facts alone, for nobody reads on."""
    facts = {**_facts(answers), "period_end": how}
    if action is not None:
        facts["action"] = dict(action)
    if after.ended:
        facts["ended"] = after.ended
    return Observation(messages=(), facts=facts, new_chat=not after.ended, acted=how == ACCEPTED)


def _facts(answers: Answers[Any]) -> dict[str, Any]:
    return {"period": answers.state.period, "turn": answers.state.turn, "calls": answers.facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodsLoop:
    """The functions of the loop, as the fields of an environment's record ask for them."""

    opening: Callable[[PeriodsState[Any]], Opening]
    tools: Callable[[PeriodsState[Any]], tuple[Tool, ...]]
    step: Callable[[PeriodsState[Any], Reply], tuple[PeriodsState[Any], Observation]]
    period: Callable[[PeriodsState[Any]], int]
    ended: Callable[[PeriodsState[Any]], str]


LOOP = PeriodsLoop(opening=opening, tools=tools, step=step, period=period, ended=ended)
"""For environments of packages: `step=LOOP.step`."""
