"""Chats of scheduling as a policy meets them, built by hand: no environment is needed to test what a policy reads."""

import json
from collections.abc import Mapping

from evalkit.dialogue import Message, Reply, Request, Sampling, Tool, ToolCall

GETTERS = ("get_previous_attempts_data", "get_attempt_number", "get_worker_ids", "get_task_ids")
ACTION = Tool(
    name="submit_assignment",
    description="",
    parameters={"type": "object", "properties": {"assignment": {"type": "string"}}, "required": ["assignment"]},
)
TOOLS = (*(Tool(name=name, description="", parameters={"type": "object"}) for name in GETTERS), ACTION)


def chat(answers: Mapping[str, str], *, tools: tuple[Tool, ...] = TOOLS, seed: int = 1, **sampling: object) -> Request:
    """A chat in which these tools have answered these texts, all called in one reply."""
    calls = tuple(ToolCall(id=f"call_{i}", name=name, arguments="{}") for i, name in enumerate(answers))
    told = [Message(role="tool", call_id=call.id, text=answers[call.name]) for call in calls]
    messages = [
        Message(role="user", text="Begin."),
        *([Message(role="assistant", calls=calls), *told] if calls else []),
    ]
    return Request(messages=tuple(messages), tools=tools, sampling=Sampling().with_overrides(sampling), seed=seed)


def submitted(reply: Reply) -> dict[str, str]:
    """The assignment a reply submits, and nothing else."""
    import ast

    (call,) = reply.calls
    assert call.name == "submit_assignment"
    value = ast.literal_eval(json.loads(call.arguments)["assignment"])
    assert isinstance(value, dict)
    return value
