"""The events of an episode as Inspect has them: each request with what it was sent and got, each tool call, the score.

Source: the events of `inspect_ai` 0.3.285. A request refers to the messages it was sent by their places in a pool, so
a log does not grow with the square of a chat. Each period of an episode with several chats is a span. What the
environment answered is an event of its own, `info`, with the facts of the log.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from evalkit.dialogue import Tool
from evalkit.envs.known import is_litmus
from evalkit.report.exports.chats import Chat, Plain, tokens
from evalkit.report.exports.episodes import Exported

SETTINGS = ("temperature", "max_tokens", "top_p")
STOPS = {"stop": "stop", "tool_calls": "tool_calls", "length": "max_tokens", "content_filter": "content_filter"}
CHOICES = {"required": "any", "none": "none"}
"""Inspect's words for `tool_choice`, where they are not `auto`."""
SHORT = 100
"""Characters up to which a text stays where it is; a longer one that repeats is an attachment."""


def transcript(episode: Exported, chats: Sequence[Chat], messages: Sequence[Plain], model: str) -> Plain:
    """`events` of a sample, with the pool of messages and the attachments that they refer to.

    `messages`: those of all chats in order, as the sample has them.
    """
    attachments: dict[str, str] = {}
    events = list(_events(episode, chats, messages, model, attachments))
    for number, event in enumerate(events):
        event["uuid"] = f"{episode.result.id}-e{number}"
    return {"events": events, "events_data": {"messages": list(messages), "calls": []}, "attachments": attachments}


def _events(
    episode: Exported, chats: Sequence[Chat], messages: Sequence[Plain], model: str, attachments: dict[str, str]
) -> Iterator[Plain]:
    base, clock = 0, _EventClock(min(row["started_at"] for row in episode.rows))
    seen = Counter[int]()
    for chat in chats:
        span = f"{episode.result.id}-{chat.period}" + (f"-{seen[chat.period]}" if seen[chat.period] else "")
        seen[chat.period] += 1
        first = clock.at(chat.rows[0]["started_at"])
        yield {"event": "span_begin", "id": span, "span_id": span, "name": f"period {chat.period}", **first}
        for event in _of_chat(episode, chat, messages, base, model, attachments, clock):
            yield {**event, "span_id": span}
        yield {"event": "span_end", "id": span, "span_id": span, **clock.now()}
        base += len(chat.entries)
    result = episode.result
    score = {"value": result.score, "explanation": f"ended: {result.ending}", "metadata": dict(result.metrics)}
    yield {"event": "score", "score": score, "scorer": "score", **clock.now()}
    if not is_litmus(result.environment):
        yield {"event": "score", "score": {"value": result.solved}, "scorer": "solved", **clock.now()}


class _EventClock:
    """Times of events: wall time, and the seconds that the requests before have taken."""

    def __init__(self, began_s: float) -> None:
        self._wall_s, self._working_s = began_s, 0.0

    def at(self, wall_s: float) -> Plain:
        """The time of an event that began then."""
        self._wall_s = wall_s
        return self.now()

    def pass_by(self, seconds: float) -> None:
        """A request took so long."""
        self._wall_s += seconds
        self._working_s += seconds

    def now(self) -> Plain:
        """The time of an event that begins now."""
        return {"timestamp": time_of(self._wall_s), "working_start": self._working_s}


def time_of(seconds: float) -> str:
    """A time as Inspect writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _of_chat(
    episode: Exported,
    chat: Chat,
    messages: Sequence[Plain],
    base: int,
    model: str,
    attachments: dict[str, str],
    clock: _EventClock,
) -> Iterator[Plain]:
    offers = dict(chat.changes)
    tools = tools_of(chat.tools, attachments)
    for place, entry in enumerate(chat.entries):
        if place in offers:
            tools = tools_of(offers[place], attachments)
        message = messages[base + place]
        if entry.row is not None:
            yield _request(episode, entry.row, tools, (base, base + place), model, message, clock)
            yield {"event": "info", "source": "evalkit", "data": _facts(entry.row), **clock.now()}
        elif entry.message.role == "tool":
            call = next((call for call in entry.calls if call.id == entry.message.call_id), None)
            arguments = {} if call is None else arguments_of(call.arguments)["arguments"]
            about = {"id": entry.message.call_id, "function": entry.tool, "arguments": arguments}
            done = {"result": entry.message.text, "message_id": message["id"]}
            yield {"event": "tool", **about, **done, **clock.now()}
    for row in chat.rows:
        if row["reply"] is None:
            yield _request(episode, row, tools, (base, base + len(chat.entries)), model, None, clock)


def _request(
    episode: Exported,
    row: Mapping[str, Any],
    tools: Sequence[Plain],
    sent: tuple[int, int],
    model: str,
    message: Plain | None,
    clock: _EventClock,
) -> Plain:
    """A request; without a `message`, the provider refused it."""
    sampling = episode.agent.sampling[episode.result.environment]
    began = clock.at(row["started_at"])
    clock.pass_by(row["latency_s"])
    error = {} if message is not None else {"error": row["ending"] or "refused"}
    return {
        "event": "model",
        "model": model,
        "input": [],
        "input_refs": [sent],
        "tools": list(tools),
        "tool_choice": CHOICES.get(str(sampling.get("tool_choice", "")), "auto"),
        "config": {name: sampling[name] for name in SETTINGS if sampling.get(name) is not None},
        "output": output_of(message, row, model),
        "retries": row["attempts"].count(","),
        "completed": clock.now()["timestamp"],
        "working_time": row["latency_s"],
        "metadata": {"step": row["step"], "period": row["period"], "queue_s": row["queue_s"]},
        **error,
        **began,
    }


def output_of(message: Plain | None, row: Mapping[str, Any], model: str) -> Plain:
    """A reply as Inspect has it."""
    if message is None:
        return {"model": model, "choices": [], "error": row["ending"] or "refused"}
    stop = STOPS.get(row["finish"], "unknown")
    usage = usage_of(tokens([row]), row["cost"])
    return {
        "model": row["served_model"] or model,
        "choices": [{"message": message, "stop_reason": stop}],
        "usage": usage,
        "time": row["latency_s"],
    }


def usage_of(used: Mapping[str, int], cost: int) -> Plain:
    """Inspect counts input that was read from or written to a cache apart."""
    return {
        "input_tokens": used["in"] - used["cached_read"] - used["cached_write"],
        "output_tokens": used["out"],
        "total_tokens": used["in"] + used["out"],
        "input_tokens_cache_read": used["cached_read"],
        "input_tokens_cache_write": used["cached_write"],
        "reasoning_tokens": used["reasoning"],
        "total_cost": cost / 1e12,
    }


def tools_of(tools: Sequence[Tool], attachments: dict[str, str]) -> list[Plain]:
    """Tools as Inspect has them; long descriptions, which every request repeats, are attachments."""
    read: list[Plain] = []
    for tool in tools:
        schema: Mapping[str, Any] = tool.parameters
        properties = _shortened(schema.get("properties", {}), attachments)
        required = list(schema.get("required", ()))
        parameters = {"type": "object", "properties": properties, "required": required}
        read.append(
            {"name": tool.name, "description": _attached(tool.description, attachments), "parameters": parameters}
        )
    return read


def _shortened(value: Any, attachments: dict[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _shortened(inner, attachments) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(inner, attachments) for inner in value]
    return _attached(value, attachments) if isinstance(value, str) else value


def _attached(text: str, attachments: dict[str, str]) -> str:
    if len(text) <= SHORT:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    attachments[digest] = text
    return f"attachment://{digest}"


def _facts(row: Mapping[str, Any]) -> Any:
    return orjson.loads(row["facts"]) if row["facts"] else {}


DEEPEST = 100
"""Brackets in a call's arguments beyond which they stay text: readers bound how deep JSON may nest."""


def arguments_of(text: str) -> Plain:
    """A call's arguments as Inspect wants them, an object; what is none is kept as text, with the reason."""
    shallow = text.count("[") + text.count("{") <= DEEPEST
    try:
        value = orjson.loads(text) if shallow else None
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return {"arguments": value}
    return {"arguments": {"text": text}, "parse_error": "The arguments are not a JSON object, or nest too deeply."}
