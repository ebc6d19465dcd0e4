"""A tiny environment for tests: guess a number between 0 and 9, one chat a period, three periods.

`hint` says whether the last guess was too low or too high; `guess` ends the period. Two turns without a guess end it
too, as `no_action`. A text of the model is repeated to it, so that hostile texts reach the observation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall
from evalkit.envs.environment import Environment, Facts, Kit, Observation, Opening, Pack, Score, Texts

PERIODS = 3
HINT = Tool(name="hint", description="Too low or too high?", parameters={"type": "object", "properties": {}})
GUESS = Tool(
    name="guess",
    description="Your guess",
    parameters={"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
)
BOTH, GUESS_ONLY = (HINT, GUESS), (GUESS,)
PACK = Pack(name="plain", digest="d0", texts={"system": "Guess the number."})
KIT = Kit(pack=PACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    value: int
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    secret: Secret
    kit: Kit
    last: int | None = None
    period: int = 0
    turn: int = 0
    solved: bool = False


def start(instance: Secret, kit: Kit) -> State:
    return State(secret=instance, kit=kit)


def opening(state: State) -> Opening:
    return Opening(
        messages=(
            Message(role="system", text=state.kit.pack.texts["system"]),
            Message(role="user", text=f"Attempt {state.period}. Your last guess: {state.last}."),
        )
    )


def tools(state: State) -> tuple[Tool, ...]:
    return GUESS_ONLY if state.turn else BOTH


def step(state: State, reply: Reply) -> tuple[State, Observation]:
    calls, messages = [], []
    guessed: int | None = None
    for call in reply.calls:
        outcome, answer, value = _answer(state, call, guessed)
        guessed = value if value is not None else guessed
        calls.append({"tool": call.name, "outcome": outcome})
        messages.append(Message(role="tool", text=answer, call_id=call.id))
    over = guessed is not None or state.turn == 1
    facts: dict[str, Any] = {"calls": calls, "value": guessed}
    if not reply.calls:
        messages.append(Message(role="user", text=f"Use a tool. You said: {reply.text}"))
    if over and guessed is None:
        facts["period_end"] = "no_action"
    if not over:
        return replace(state, turn=state.turn + 1), Observation(messages=tuple(messages), facts=facts)
    state = replace(
        state,
        turn=0,
        period=state.period + 1,
        last=state.last if guessed is None else guessed,
        solved=guessed == state.secret.value,
    )
    return state, Observation(messages=(), facts=facts, new_chat=not ended(state))


def _answer(state: State, call: ToolCall, guessed: int | None) -> tuple[str, str, int | None]:
    if guessed is not None:
        return "too_late", "", None
    if call.name == "hint":
        low = state.last is not None and state.last < state.secret.value
        return "ok", "too low" if low else "not too low", None
    if call.name != "guess":
        return "unknown_tool", f"There is no tool {call.name}.", None
    try:
        value = json.loads(call.arguments)["value"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "bad_arguments", f"Not understood: {call.arguments[:80]}", None
    if type(value) is not int or not 0 <= value <= 9:
        return "bad_arguments", "A number from 0 to 9, please.", None
    return "ok", "", value


def ended(state: State) -> str:
    if state.solved:
        return "stable"
    return "complete" if state.period == PERIODS else ""


def score(instance: Secret, facts: Sequence[Facts]) -> Score:
    guesses = [one["value"] for one in facts if one.get("value") is not None]
    metrics: dict[str, float] = {"no_action_periods": sum("period_end" in one for one in facts)}
    if not guesses:
        return Score(value=0.0, solved=False, metrics=metrics)
    value = 1 - abs(guesses[-1] - instance.value) / 10
    metrics["exploration_rate"] = len(set(guesses)) / len(guesses)
    return Score(value=value, solved=value == 1, metrics=metrics)


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[Mapping[str, Any]]:
    for i in range(count):
        yield {"value": (seed + i) % 10, "family": "even" if (seed + i) % 2 == 0 else "odd"}


GUESSING: Environment[Secret, State] = Environment(
    offers=lambda _: 1,
    name="guessing",
    version=1,
    defaults=Sampling(),
    parameters={},
    texts=Texts(all={"system": frozenset()}),
    load=lambda line: Secret(value=line["value"], family=line["family"]),
    describe=lambda secret: {"value": secret.value, "family": secret.family},
    start=start,
    opening=opening,
    tools=tools,
    step=step,
    period=lambda state: state.period,
    ended=ended,
    score=score,
    generate=generate,
    stratum=lambda secret: secret.family,
)


def calls(*wanted: tuple[str, str], text: str = "") -> Reply:
    """A reply with the given (tool, arguments) calls."""
    made = tuple(ToolCall(id=f"c{i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(wanted))
    return Reply(text=text, calls=made, finish="tool_calls" if made else "stop")


def guess(value: object) -> Reply:
    return calls(("guess", json.dumps({"value": value})))


def hint() -> Reply:
    return calls(("hint", "{}"))


def say(text: str) -> Reply:
    return Reply(text=text)
