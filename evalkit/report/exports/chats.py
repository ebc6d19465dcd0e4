"""Episodes as chats in the common format: messages with role, content and tool calls, and the tools on offer.

An episode is one chat a period, as it was played: CostBench has one, EconAgentBench one an attempt. What a provider
keeps in parts that only its dialect understands (encrypted reasoning, signatures) is no part of a chat; reasoning that
it shows is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from evalkit.dialogue import Message, Tool, ToolCall
from evalkit.money import usd_number
from evalkit.report.exports.episodes import ExportChoice, ExportedEpisode, stream
from evalkit.results.episodes import Environments
from evalkit.results.moves import Move
from evalkit.store.disk import make_directories, write_parts_durably
from evalkit.store.folder import refuse_existing
from evalkit.wire.thoughts import Thoughts, thoughts_of

Plain = dict[str, Any]
TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEntry:
    """One message of a chat, with the row of the log that it belongs to."""

    message: Message
    row: Mapping[str, Any] | None
    """Of a reply, the row that holds it; None of what the agent read."""
    calls: tuple[ToolCall, ...] = ()
    """Of a tool's answer, the calls of the reply before it."""
    thoughts: Thoughts | None = None
    """Of a reply, what the model thought."""

    @property
    def tool(self) -> str:
        """Of a tool's answer, the tool's name."""
        named = (call.name for call in self.calls if call.id == self.message.call_id)
        return self.message.name or next(named, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One period of an episode."""

    period: int
    entries: tuple[ChatEntry, ...]
    tools: tuple[Tool, ...]
    """On offer when the chat began."""
    changes: tuple[tuple[int, tuple[Tool, ...]], ...]
    """(number of the first message that knows them, tools) where the offer changed within the chat."""
    rows: tuple[Mapping[str, Any], ...]
    reproduced: bool
    ending: str
    """Why the episode ended in this chat; empty if it went on."""


def chats(episode: ExportedEpisode) -> Iterator[Chat]:
    """The chats of an episode, in order."""
    chat_moves: list[Move] = []
    for move in episode.moves:
        if chat_moves and move.turn == 0:
            yield _chat(chat_moves)
            chat_moves = []
        chat_moves.append(move)
    if chat_moves:
        yield _chat(chat_moves)


def _chat(chat_moves: Sequence[Move]) -> Chat:
    entries = [ChatEntry(message=message, row=None) for message in chat_moves[0].opening]
    changes = []
    for move in chat_moves:
        if move.reply is None:
            continue
        entries.append(ChatEntry(message=move.reply.message(), row=move.row, thoughts=thoughts_of(move.reply)))
        entries += [ChatEntry(message=message, row=None, calls=move.reply.calls) for message in move.messages]
        if move.offered_next is not None:
            changes.append((len(entries), move.offered_next))
    return Chat(
        period=chat_moves[0].period,
        entries=tuple(entries),
        tools=chat_moves[0].offered,
        changes=tuple(changes),
        rows=tuple(move.row for move in chat_moves),
        reproduced=all(move.reproduced for move in chat_moves),
        ending=chat_moves[-1].ending,
    )


def message_json(entry: ChatEntry) -> Plain:
    """A message as chat APIs and training tools take it; arguments are the text that the model wrote."""
    message = entry.message
    fields: Plain = {"role": message.role, "content": message.text}
    if entry.thoughts is not None and entry.thoughts.text:
        fields["reasoning_content"] = entry.thoughts.text
    if message.calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.role == "tool":
        fields["tool_call_id"] = message.call_id
        fields["name"] = entry.tool
    return fields


def tools_json(tools: Iterable[Tool]) -> list[Plain]:
    """Tools as chat APIs take them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def tokens(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The tokens of some rows together."""
    all_rows = list(rows)
    return {name.removeprefix("tokens_"): sum(row[name] for row in all_rows) for name in TOKENS}


def episode_json(episode: ExportedEpisode) -> Plain:
    """What is known of an episode beside its texts; money of the whole episode."""
    result, agent, suite = episode.result, episode.agent, episode.cell.suite
    return {
        "episode": result.id,
        "agent": agent.name,
        "provider": agent.provider,
        "model": agent.model or agent.policy,
        "served_model": ", ".join(dict.fromkeys(row["served_model"] for row in episode.rows if row["served_model"])),
        "prompts": episode.cell.pack,
        "environment": result.environment,
        "suite": result.suite,
        "base": suite.base,
        "axes": dict(result.axes),
        "instance": result.instance,
        "stratum": result.stratum,
        "replicate": result.replicate,
        "ending": result.ending,
        "score": result.score,
        "solved": result.solved,
        "metrics": dict(result.metrics),
        "used": episode.used,
        "steps": result.steps,
        "periods": result.periods,
        "cost_usd": usd_number(result.cost),
        "cost_pico_usd": result.cost,
        "tokens": tokens(episode.rows),
        "latency_s": result.latency_s,
        "reproduced": episode.reproduced,
    }


# `--format jsonl`: one line a chat, in the common chat format, with what is known of its episode.


def write_transcripts(chosen: ExportChoice, environments: Environments, out: Path) -> int:
    """Write the file, whole or not at all; how many episodes this evalkit does not reproduce.

    Raises UsageError if it exists, StorageError, CorruptLogError.
    """
    refuse_existing(out)
    make_directories(out.absolute().parent)
    differing = 0

    def lines() -> Iterator[bytes]:
        nonlocal differing
        for episode in stream(chosen, chosen.cells, environments):
            differing += not episode.reproduced
            for line in transcript_lines(episode):
                yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    write_parts_durably(out, lines())
    return differing


def transcript_lines(episode: ExportedEpisode) -> Iterator[Plain]:
    """An episode's lines: one a chat."""
    about = episode_json(episode)
    for chat in chats(episode):
        changed = [{"from_message": index, "tools": tools_json(tools)} for index, tools in chat.changes]
        yield {
            "messages": [message_json(entry) for entry in chat.entries],
            "tools": tools_json(chat.tools),
            **({"tools_changed": changed} if changed else {}),
            **({"asks": list(_asks(episode, chat))} if episode.agent.code is not None else {}),
            "metadata": {**about, "chat": _about(chat)},
        }


def _asks(episode: ExportedEpisode, chat: Chat) -> Iterator[Plain]:
    """What an agent's code asked on its way to the chat's steps; its own words to a model are not in the log."""
    steps = {row["step"] for row in chat.rows}
    for ask in episode.asks:
        if ask.step in steps:
            said = None if ask.reply is None else ChatEntry(message=ask.reply.message(), row=None)
            yield {
                "step": ask.step,
                "key": ask.key,
                "n": ask.n,
                "model": ask.role,
                "message": None if said is None else message_json(said),
                "refused": ask.refused,
                "cost_usd": usd_number(ask.cost_pico_usd),
                "cost_pico_usd": ask.cost_pico_usd,
                "tokens": {"in": ask.tokens_in, "out": ask.tokens_out},
                "latency_s": ask.latency_s,
            }


def _about(chat: Chat) -> Plain:
    """What is known of one chat: its place, and what it alone took."""
    cost = sum(row["cost"] for row in chat.rows)
    return {
        "period": chat.period,
        "first_step": chat.rows[0]["step"],
        "steps": len(chat.rows),
        "last": bool(chat.ending),
        "cost_usd": usd_number(cost),
        "cost_pico_usd": cost,
        "tokens": tokens(chat.rows),
        "reproduced": chat.reproduced,
    }
