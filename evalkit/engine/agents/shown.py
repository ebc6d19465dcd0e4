"""What the environment shows to an agent that is code, encoded for the model of one role."""

from typing import Any

from evalkit.client.ask import Encoder
from evalkit.dialogue import Message, Tool


class ShownChat:
    """What the environment shows, encoded for one role: each message once."""

    __slots__ = ("_joined", "_messages", "_parts", "_tools")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._parts: list[Any] = []
        self._joined = 0
        self._tools: tuple[tuple[Tool, ...], Any] | None = None

    def parts_of(self, asker: Encoder, messages: list[Message]) -> list[Any]:
        """The messages, encoded; of a chat that goes on the new ones alone are encoded."""
        if messages is not self._messages:
            self._messages, self._parts, self._joined = messages, [], 0
        asker.join(self._parts, messages[self._joined :])
        self._joined = len(messages)
        return self._parts

    def tools_of(self, asker: Encoder, tools: tuple[Tool, ...]) -> Any:
        """The tools, encoded."""
        if self._tools is None or self._tools[0] is not tools:
            self._tools = tools, asker.encode_tools(tools)
        return self._tools[1]
