"""Any suite as text: an action is what a model would reply, an observation what it would read."""

import string
from collections.abc import Sequence
from typing import Any

import orjson
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory

from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.envs.replay import Turn
from evalkit.integrations.gym.episode import GameEnv
from evalkit.report.exports.chats import tools_json

LONGEST = 65536
"""Characters of an action or an observation in their spaces."""

CHARSET = string.printable
_KNOWN = frozenset(CHARSET)

_CALL = frozenset({"id", "name", "arguments"})
_REPLY = frozenset({"text", "calls"})


class ReadText(Text):
    """The space of observations."""


@create_shared_memory.register(ReadText)
def _no_shared_memory(space: ReadText, n: int = 1, ctx: Any = None) -> Any:
    # Gymnasium 1.4 decodes texts in shared memory once, when the processes begin, and shows these for ever.
    del space, n, ctx
    raise CustomSpaceError("Texts are not read again from shared memory: vector_kwargs={'shared_memory': False}")


class TextEnv(GameEnv):
    """A suite as a Gymnasium environment of texts: a step is one reply.

    An action is one call of a tool as JSON, `{"name": ..., "arguments": {...}}`; a list of calls; a text with calls,
    `{"text": ..., "calls": [...]}`; or else a text. `arguments` may also be a string, which is passed on as it is.

    An observation is what the agent reads next: the results of its calls, a notice, and the start of a new chat. In
    observations, characters other than those of `CHARSET` are `?`, and what is longer than `LONGEST` is cut; actions
    may have any characters. `info` has them whole, as `messages` in the form of OpenAI's API, with `new_chat`, and
    `tools`, those that the next reply may call. All else is as `GameEnv` says.
    """

    def __init__(self, suite: str, **others: Any) -> None:
        """As `GameEnv`."""
        super().__init__(suite, **others)
        self.action_space = Text(LONGEST, min_length=0, charset=CHARSET)
        self.observation_space = ReadText(LONGEST, min_length=0, charset=CHARSET)
        self._offered: tuple[Tool, ...] | None = None
        self._encoded = b""

    def answer(self, action: Any) -> Reply:
        """The reply that an action stands for."""
        return read_action(action)

    def observed(self, turn: Turn | None) -> str:
        """What the agent reads next."""
        text = "\n\n".join(f"[{message.name or message.role}]\n{message.text}" for message in self._shown(turn))
        if not _KNOWN.issuperset(text):
            text = "".join(sign if sign in _KNOWN else "?" for sign in text)
        return text[:LONGEST]

    def told(self, turn: Turn | None) -> dict[str, Any]:
        """The same as messages, and the tools."""
        return {
            "messages": [_openai_message(message) for message in self._shown(turn)],
            "new_chat": turn is None or turn.new_chat,
            "tools": self._tools_json(),
        }

    def _tools_json(self) -> list[dict[str, Any]]:
        """Made anew each time: what an environment gives is its user's to change."""
        if self.game.ending:
            return []
        if self.game.tools is not self._offered:
            self._offered = self.game.tools
            self._encoded = orjson.dumps(tools_json(self._offered))
        found: list[dict[str, Any]] = orjson.loads(self._encoded)
        return found

    def _shown(self, turn: Turn | None) -> Sequence[Message]:
        if turn is None:
            return self.game.messages
        return (*turn.messages, *self.game.messages) if turn.new_chat else turn.messages


def read_action(action: str) -> Reply:
    """The reply that a text stands for, whatever it holds."""
    text = action.encode("utf-8", "replace").decode()
    try:
        found = orjson.loads(text)
    except ValueError:
        return Reply(text=text)
    said = ""
    if isinstance(found, dict) and found.keys() <= _REPLY and isinstance(found.get("text", ""), str):
        said, found = found.get("text", ""), found.get("calls", [])
    calls = _calls(found if isinstance(found, list) else [found])
    if calls is None:
        return Reply(text=text)
    return Reply(text=said, calls=calls, finish="tool_calls" if calls else "stop")


def as_action(reply: Reply) -> str:
    """The text that stands for a reply: `read_action` gives its text and calls again."""
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
    return orjson.dumps({"text": reply.text, "calls": calls}).decode()


def _calls(found: Sequence[Any]) -> tuple[ToolCall, ...] | None:
    """Calls in order; None where one of them is none."""
    calls = []
    for place, one in enumerate(found):
        if not isinstance(one, dict) or not one.keys() <= _CALL or not isinstance(one.get("name"), str):
            return None
        call_id, arguments = one.get("id", f"call_{place}"), one.get("arguments", {})
        if not isinstance(call_id, str):
            return None
        given = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        calls.append(ToolCall(id=call_id, name=one["name"], arguments=given))
    return tuple(calls)


def _openai_message(message: Message) -> dict[str, Any]:
    """A message in the form of OpenAI's API; what the agent reads holds no calls of its own."""
    about = {"tool_call_id": message.call_id, "name": message.name} if message.role == "tool" else {}
    return {"role": message.role, "content": message.text, **about}
