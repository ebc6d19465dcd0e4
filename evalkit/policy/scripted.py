"""A policy that answers from a list: for tests, demonstrations, and replies that a model once gave.

The script is a JSON list. An entry is a text (a reply without calls) or an object with any of `text`, `calls` and
`finish`; a call is an object with `name` and `arguments`, the latter an object or, to write what is not JSON, a text:

    ["Let me think.",
     {"calls": [{"name": "get_worker_ids", "arguments": {}}]},
     {"calls": [{"name": "submit_assignment", "arguments": "{not json"}]}]

The entry is chosen by the number of replies in the chat, so every new chat begins at the first; after the last entry
it begins again. A policy has no memory, so a script cannot continue from one chat to the next.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.errors import UsageError, nearest
from evalkit.policy.conversation import PolicyFn, calling, turns
from evalkit.seeds import Stream

_ENTRY_KEYS = ("text", "calls", "finish")
_CALL_KEYS = ("name", "arguments")


def scripted(replies: Sequence[str | Mapping[str, Any]]) -> PolicyFn:
    """A policy that gives these replies in order, chat by chat. Raises UsageError naming the entry that is wrong."""
    if not replies:
        raise UsageError("script: expected at least one reply.")
    entries = [_entry(reply, f"script[{i + 1}]") for i, reply in enumerate(replies)]

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        text, calls, finish = entries[turns(request) % len(entries)]
        reply = calling(request, calls, text)
        return Reply(text=reply.text, calls=reply.calls, finish=finish or reply.finish)

    return reply


def read_script(text: str) -> PolicyFn:
    """A script's JSON text as a policy. Raises UsageError if it is not a list of replies."""
    try:
        replies = json.loads(text)
    except (ValueError, RecursionError) as flaw:
        raise UsageError(f"script: not valid JSON: {flaw}.") from flaw
    if not isinstance(replies, list):
        raise UsageError(f"script: expected a list of replies, got {type(replies).__name__}.")
    return scripted(replies)


def _entry(reply: object, where: str) -> tuple[str, list[tuple[str, str]], str]:
    if isinstance(reply, str):
        return reply, [], ""
    if not isinstance(reply, Mapping):
        raise UsageError(f"{where}: expected a string or an object, got {type(reply).__name__}.")
    _refuse_unknown(reply, _ENTRY_KEYS, where)
    text, calls, finish = reply.get("text", ""), reply.get("calls", []), reply.get("finish", "")
    if not isinstance(text, str) or not isinstance(finish, str):
        raise UsageError(f"{where}: `text` and `finish` must be strings.")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise UsageError(f"{where}.calls: expected a list of calls.")
    return text, [_call(call, f"{where}.calls[{i + 1}]") for i, call in enumerate(calls)], finish


def _call(call: object, where: str) -> tuple[str, str]:
    if not isinstance(call, Mapping):
        raise UsageError(f"{where}: expected an object with `name` and `arguments`.")
    _refuse_unknown(call, _CALL_KEYS, where)
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str):
        raise UsageError(f"{where}.name: expected the tool's name as a string.")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


def _refuse_unknown(value: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in value:
        if key not in known:
            raise UsageError(f"{where}: unknown key {key!r}.{nearest(str(key), known)}")
