"""A request as a client would send it, for the tests of the simulated provider."""

from typing import Any

import orjson

from evalkit.dialogue import Message, Sampling, Tool
from evalkit.serve.formats import BASE_PATH
from evalkit.serve.outcome import Arrival
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (
        ("get_worker_ids", {}),
        ("get_task_ids", {}),
        ("get_previous_attempts_data", {}),
        ("submit_assignment", {"assignment": {"type": "string"}}),
    )
]


def body(model: str = "knuth", seed: int | None = 7, **fields: Any) -> bytes:
    """A first request of scheduling, which every policy answers with calls; further fields as given."""
    value = {"model": model, "messages": [{"role": "user", "content": "Begin."}], "tools": TOOLS, "seed": seed}
    return orjson.dumps({name: one for name, one in {**value, **fields}.items() if one is not None})


def submitting(assignment_size: int = 40, **fields: Any) -> bytes:
    """A request whose chat shows ids and an empty history, so that knuth submits an assignment of that size."""
    answers = {
        "get_worker_ids": str([f"W{i + 1}" for i in range(assignment_size)]),
        "get_task_ids": str([f"T{i + 1}" for i in range(assignment_size)]),
        "get_previous_attempts_data": "",
    }
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for i, name in enumerate(answers)
    ]
    messages = [
        {"role": "user", "content": "Begin."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"call_{i}", "content": text} for i, text in enumerate(answers.values())),
    ]
    return body(messages=messages, **fields)


def arrival(request_id: str = "e/0/0", content: bytes | None = None, **headers: str) -> Arrival:
    """A POST to the chat's path."""
    given = {"x-client-request-id": request_id, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Arrival(
        method="POST", path="/v1/chat/completions", headers=given, body=body() if content is None else content
    )


def spoken(name: str, *texts: str, model: str = "knuth", key: str = "", request_id: str = "e/0/0") -> Arrival:
    """A request in the dialect of that name: a system text, then texts of user and assistant in turn."""
    dialect = DIALECTS[name]
    roles = ("system", "user", *(("assistant", "user") * len(texts)))
    messages = [Message(role=role, text=text) for role, text in zip(roles, texts or ("Rules.", "Begin."), strict=False)]  # type: ignore[arg-type]
    tools = [
        Tool(name=one["function"]["name"], description="", parameters=one["function"]["parameters"]) for one in TOOLS
    ]
    content = dialect.body(
        dialect.head(model, Sampling(max_tokens=1000), Quirks()),
        dialect.encode_tools(tools),
        [dialect.encode_message(message) for message in messages],
        None,
    )
    headers = {"x-client-request-id": request_id, **{k.lower(): v for k, v in dialect.headers(key).items()}}
    return Arrival(method="POST", path=BASE_PATH + dialect.path, headers=headers, body=content)
