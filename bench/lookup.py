"""The environment of the throughput benchmark: one tool, called until the model answers in text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalkit.dialogue import Message, Reply, Sampling, Tool
from evalkit.envs.environment import Environment, Facts, Kit, Observation, Opening, Score, Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One conversation."""

    system: str
    prompt: str
    tool: Tool
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far it has come."""

    instance: Instance
    tools: tuple[Tool, ...]
    ended: str = ""


def _start(instance: Instance, kit: Kit) -> State:
    del kit
    return State(instance=instance, tools=(instance.tool,))


def _opening(state: State) -> Opening:
    return Opening(
        messages=(
            Message(role="system", text=state.instance.system),
            Message(role="user", text=state.instance.prompt),
        )
    )


def _step(state: State, reply: Reply) -> tuple[State, Observation]:
    if not reply.calls:
        ending = "answered" if "42" in reply.text else "wrong"
        return replace(state, ended=ending), Observation(messages=(), facts={"ended": ending})
    results = tuple(Message(role="tool", text=state.instance.result, call_id=call.id) for call in reply.calls)
    facts = {"calls": [{"tool": call.name, "outcome": "ok"} for call in reply.calls]}
    return state, Observation(messages=results, facts=facts, acted=True)


def _score(instance: Instance, facts: Sequence[Facts]) -> Score:
    del instance
    right = bool(facts) and facts[-1].get("ended") == "answered"
    return Score(value=float(right), solved=right)


def _generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[Mapping[str, Any]]:
    del parameters, count, seed
    return iter(())


LOOKUP: Environment[Instance, State] = Environment(
    name="lookup",
    version=1,
    defaults=Sampling(max_tokens=1024),
    parameters={},
    texts=Texts(),
    load=lambda line: line["instance"],
    describe=lambda instance: {"instance": instance},
    start=_start,
    opening=_opening,
    tools=lambda state: state.tools,
    step=_step,
    period=lambda _: 0,
    ended=lambda state: state.ended,
    score=_score,
    generate=_generate,
    stratum=lambda _: "",
    offers=lambda _: 1,
)
