"""One episode as a reader wants it: what the agent was told, said, called and got back, turn by turn.

The log holds replies and facts; the texts the agent read are rendered again by replaying the replies. A digest that does
not come out the same is said beside the turn, and the logged reply is shown all the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.env.environment import Environment, Kit
from evalkit.env.replay import Position, Turn, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.report.visible import bounded, visible
from evalkit.store.replies import decode_reply

Kind = Literal["period", "turn", "read", "said", "call", "facts", "warning", "end"]

FACTS_BOUND = 400
DEEPEST = 20
"""Levels of nesting down to which arguments are set on lines of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a trajectory; its texts are safe to print."""

    kind: Kind
    title: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode, rendered."""

    header: Mapping[str, str]
    parts: tuple[Part, ...] = field(repr=False)

    def plain(self) -> str:
        """The trajectory as text without styles."""
        width = max(map(len, self.header), default=0)
        lines = [f"{name:<{width}}  {value}" for name, value in self.header.items()]
        for part in self.parts:
            lines += ["", *_plain(part)]
        return "\n".join(lines) + "\n"


def _plain(part: Part) -> Iterator[str]:
    if part.kind in ("period", "end"):
        yield f"== {part.title} =="
    elif part.kind == "turn":
        yield f"-- {part.title} --"
    else:
        yield f"[{part.title}]"
    for line in part.text.splitlines():
        yield f"  {line}"


def trajectory_parts(
    env: Environment[Any, Any], instance: Any, kit: Kit, rows: Sequence[Mapping[str, Any]], *, period: int | None = None
) -> Iterator[Part]:
    """The parts of an episode from its rows in effect, in order; `period`: only those of one period.

    A row has `step`, `period`, `turn`, `reply` (JSON or None), `facts`, `step_digest`, `ending`, and what `_titled`
    shows of it. Raises CorruptLogError if a reply cannot be read or follows the episode's end.
    """
    position = begin(env, instance, kit)
    system = ""
    at = -1
    for row in rows:
        wanted = period is None or position.period == period
        if position.turn == 0 or at != position.period:
            if wanted and position.turn == 0:
                yield from _opening(position, system)
            system = _system(position)
        at = position.period
        if wanted:
            yield Part(kind="turn", title=_titled(row))
        yield from _turn(env, position, row, wanted)
    if position.ending or (rows and rows[-1]["ending"]):
        yield Part(kind="end", title=f"ended: {visible(position.ending or rows[-1]['ending'])}")
    else:
        yield Part(kind="end", title="not ended: it is owed")


def _titled(row: Mapping[str, Any]) -> str:
    return f"step {row['step']} · period {row['period']}, turn {row['turn']}"


def _system(position: Position) -> str:
    return "".join(message.text for message in position.messages if message.role == "system")


def _opening(position: Position, system_before: str) -> Iterator[Part]:
    yield Part(kind="period", title=f"period {position.period}")
    tools = ", ".join(tool.name for tool in position.tools)
    for message in position.messages:
        if message.role == "system" and _system(position) == system_before:
            yield Part(kind="read", title="system", text="(as before)")
        else:
            yield _message(message)
    yield Part(kind="read", title="tools", text=bounded(tools))


def _turn(env: Environment[Any, Any], position: Position, row: Mapping[str, Any], wanted: bool) -> Iterator[Part]:
    if row["reply"] is None:
        if wanted:
            yield Part(kind="warning", title="no reply", text="The provider refused this request.")
        return
    if position.ending:
        raise CorruptLogError(f"step {row['step']} follows the end of its episode ({position.ending}).")
    data = row["reply"].encode() if isinstance(row["reply"], str) else row["reply"]
    reply = decode_reply(data)
    turn = advance(env, position, reply, data)
    if wanted:
        yield from _said(reply)
        yield from (_message(message, reply.calls) for message in turn.messages)
        yield Part(kind="facts", title="facts", text=bounded(turn.facts_bytes.decode(), FACTS_BOUND))
    if turn.step_digest != row["step_digest"]:
        yield Part(kind="warning", title="replay differs", text=_difference(turn, row))


def _difference(turn: Turn, row: Mapping[str, Any]) -> str:
    return (
        f"At step {turn.step} this evalkit does not reproduce what was logged, so the texts shown here may not be those "
        f"that the agent read. Logged facts: {bounded(_text(row['facts']), FACTS_BOUND)}"
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _said(reply: Reply) -> Iterator[Part]:
    if reply.text:
        yield Part(kind="said", title="agent", text=bounded(reply.text))
    for call in reply.calls:
        yield Part(kind="call", title=f"agent calls {bounded(call.name, 80)}", text=bounded(_pretty(call.arguments)))
    if not reply.text and not reply.calls:
        yield Part(kind="said", title="agent", text=f"(an empty reply, finish {bounded(reply.finish, 80)})")


def _pretty(arguments: str) -> str:
    """Arguments with one entry a line, if they are JSON that is neither huge nor deep; else as they came."""
    if len(arguments) > 64_000 or arguments.count("[") + arguments.count("{") > 10_000:
        return arguments
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if value == {}:
        return "{}"
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if _depth(value) <= DEEPEST else arguments


def _depth(value: object) -> int:
    """Levels of nesting, counted without recursion: the text is a model's."""
    depth, level = 0, [value]
    while level and depth <= DEEPEST:
        depth += 1
        level = [inner for one in level for inner in _inner(one)]
    return depth


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _message(message: Message, calls: Sequence[ToolCall] = ()) -> Part:
    name = next((call.name for call in calls if call.id == message.call_id), "") if message.role == "tool" else ""
    title = f"{message.role} {bounded(name, 80)}".strip()
    return Part(kind="read", title=title, text=bounded(message.text))
