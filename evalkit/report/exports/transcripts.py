"""`--format jsonl`: one line a chat, in the common chat format, with what is known of its episode."""

from collections.abc import Iterator
from pathlib import Path

import orjson

from evalkit.report.exports.chats import (
    Chat,
    ChatEntry,
    Plain,
    changes_json,
    chats,
    episode_json,
    message_json,
    tokens,
    tools_json,
)
from evalkit.report.exports.episodes import Chosen, Exported, stream
from evalkit.results.episodes import Environments
from evalkit.store.disk import make_directories, write_parts_durably
from evalkit.store.folder import refuse_existing


def write_transcripts(chosen: Chosen, environments: Environments, out: Path) -> int:
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


def transcript_lines(episode: Exported) -> Iterator[Plain]:
    """An episode's lines: one a chat."""
    about = episode_json(episode)
    for chat in chats(episode):
        yield {
            "messages": [message_json(entry) for entry in chat.entries],
            "tools": tools_json(chat.tools),
            **({"tools_changed": changes_json(chat)} if chat.changes else {}),
            **({"asks": list(_asks(episode, chat))} if episode.agent.code is not None else {}),
            "metadata": {**about, "chat": _about(chat)},
        }


def _asks(episode: Exported, chat: Chat) -> Iterator[Plain]:
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
                "cost_usd": ask.cost_pico_usd / 1e12,
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
        "cost_usd": cost / 1e12,
        "cost_pico_usd": cost,
        "tokens": tokens(chat.rows),
        "reproduced": chat.reproduced,
    }
