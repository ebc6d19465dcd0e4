"""One episode as an MCP server.

A call of a tool is one reply with one call. 2026-07-28 of the protocol knows no sessions, so the server is the episode:
whoever connects goes on where the last one stopped.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from evalkit.api.games import env
from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.envs.arguments import clean, shown
from evalkit.envs.replay import Turn
from evalkit.integrations.play_session import PlaySession, outcome_of
from evalkit.version import __version__

PROMPT = "episode"
SAY = "say"
_SAY = types.Tool(
    name=SAY,
    description="Say something, for instance the final answer, without calling a tool of the environment.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)
_INTRODUCTION = "You play an episode by calling tools; each call is one reply. What you are told:\n\n"


class EpisodeServer:
    """The server of one episode."""

    def __init__(self, session: PlaySession) -> None:
        self.session = session
        self._bus = InMemorySubscriptionBus()
        self._numbers = count(session.game.step)
        self._listed = session.game.tools
        self.server: Server[Any] = Server(
            "evalkit",
            version=__version__,
            title=f"evalkit {session.game.instance.suite} {session.game.instance.id}",
            instructions=self._instructions(),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    def options(self) -> InitializationOptions:
        """What a client of the handshake's time is told first."""
        return self.server.create_initialization_options(NotificationOptions(tools_changed=True))

    async def _list_tools(
        self, _: ServerRequestContext[Any, Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [_tool(tool) for tool in self._listed]
        return types.ListToolsResult(tools=[*tools, _SAY] if self._says else tools, ttl_ms=0)

    @property
    def _says(self) -> bool:
        return self.session.talks and all(tool.name != SAY for tool in self._listed)

    async def _call_tool(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        said = replace(self._reply(params.name, params.arguments), model=_client(context))
        turn = await self.session.reply(said)
        if turn is None:
            return _result("The episode has ended.", {"outcome": "ended", **self._place(), **self.session.closing()})
        self.server.instructions = self._instructions()
        changed = self._relist(turn)
        if changed:
            await self._bus.publish(ToolsListChanged())
            await context.session.send_tool_list_changed()
        facts = {"outcome": outcome_of(turn.facts), **self._place(), "tools_changed": changed}
        if turn.ending:
            facts |= self.session.closing()
        return _result(self._told(turn), facts)

    def _reply(self, name: str, arguments: Mapping[str, Any] | None) -> Reply:
        if name == SAY and self._says:
            text = (arguments or {}).get("text")
            return Reply(text=clean(text if isinstance(text, str) else ""))
        call = ToolCall(id=f"call_{next(self._numbers)}", name=clean(name), arguments=_json(arguments))
        return Reply(calls=(call,), finish="tool_calls")

    def _place(self) -> dict[str, Any]:
        game = self.session.game
        return {"period": game.period, "step": game.step, "ended": bool(game.ending)}

    def _relist(self, turn: Turn) -> bool:
        """Whether other tools are listed than before. Within a period all are listed that it began with: those that are
        not offered any more are refused, as they are to a model that calls them."""
        game = self.session.game
        if turn.ending or not (turn.new_chat or env(game.instance.environment).presentation.one_chat):
            return False
        before, self._listed = self._listed, game.tools
        return before != self._listed

    def _told(self, turn: Turn) -> str:
        """What the reply has led to; behind the end of a chat, how the next one begins."""
        game = self.session.game
        said = [message.text for message in turn.messages]
        if turn.new_chat:
            said += [message.text for message in game.messages]
        if turn.ending:
            said.append(f"The episode has ended ({turn.ending}).")
        return "\n\n".join(text for text in said if text)

    def _instructions(self) -> str:
        return _INTRODUCTION + "\n\n".join(_line(message) for message in self.session.game.messages)

    async def _list_prompts(
        self, _: ServerRequestContext[Any, Any], __: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        about = types.Prompt(name=PROMPT, description="The present chat: what has been said, and what was answered.")
        return types.ListPromptsResult(prompts=[about], ttl_ms=0)

    async def _get_prompt(
        self, _: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt {shown(params.name)!r}, only {PROMPT!r}.")
        messages = [
            types.PromptMessage(
                role="assistant" if message.role == "assistant" else "user",
                content=types.TextContent(text=_line(message)),
            )
            for message in self.session.game.messages
        ]
        return types.GetPromptResult(messages=messages)


def _client(context: ServerRequestContext[Any, Any]) -> str:
    """Name and version of the client that calls, as it tells them; empty if it does not. A run keeps them in the column
    of the served model: they are what answered."""
    told = context.session.client_params
    return shown(f"{told.client_info.name}/{told.client_info.version}") if told else ""


def _tool(tool: Tool) -> types.Tool:
    return types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))


def _result(text: str, facts: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=facts, is_error=facts["outcome"] != "ok"
    )


def _line(message: Message) -> str:
    """A message as text: of what was called, names and arguments."""
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    return "\n".join([*([message.text] if message.text else []), *calls])


def _json(arguments: Mapping[str, Any] | None) -> str:
    """Arguments as a model would have written them."""
    text = json.dumps(arguments or {}, ensure_ascii=False)
    return text if clean(text) == text else json.dumps(arguments)


async def serve_stdio(session: PlaySession) -> None:
    """Serve one episode over stdin and stdout, until the client closes them."""
    episode = EpisodeServer(session)
    async with stdio_server() as (read, write):
        await episode.server.run(read, write, episode.options())
