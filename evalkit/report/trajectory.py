"""One episode as a reader wants it: what the agent was told, said, called and got back, turn by turn.

The log holds replies and facts; the texts the agent read are rendered again by replaying the replies. Where replay does
not reproduce the log, that is said beside the turn, and the logged reply is shown all the same.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.env.environment import Environment, Kit
from evalkit.env.replay import Position, Turn, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.money import show_usd
from evalkit.report.tables import seconds
from evalkit.report.visible import BOUND, bounded, visible
from evalkit.store.replies import decode_reply

Kind = Literal["period", "turn", "read", "said", "call", "facts", "warning", "end"]

ROW = (
    *("step", "period", "turn", "reply", "facts", "step_digest", "ending"),
    *("tokens_in", "tokens_out", "cost", "latency_s"),
)
"""What of the log a trajectory reads."""

FACTS_BOUND = 400

PRETTY_BOUND = 20_000
"""Characters of arguments up to which they are set with one entry a line."""


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
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.plain()


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
    env: Environment[Any, Any],
    instance: Any,
    kit: Kit,
    rows: Sequence[Mapping[str, Any]],
    *,
    period: int | None = None,
    most: int = BOUND,
) -> Iterator[Part]:
    """The parts of an episode from its rows in effect, in order; `period`: only those of one period.

    Texts are cut to `most` characters; where that is more than usual, tools are shown with what they say of themselves.

    A row has the columns `ROW`. Raises CorruptLogError if a reply cannot be read or follows the episode's end.
    """
    position = begin(env, instance, kit)
    system = ""
    for row in rows:
        wanted = period is None or position.period == period
        if wanted:
            if position.turn == 0:
                yield from _opening(position, system, most)
                system = _system(position)
            yield Part(kind="turn", title=_titled(row))
        yield from _turn(env, position, row, wanted, most)
    if position.ending or (rows and rows[-1]["ending"]):
        yield Part(kind="end", title=f"ended: {visible(position.ending or rows[-1]['ending'])}")
    else:
        yield Part(kind="end", title="not ended: it is owed")


def _titled(row: Mapping[str, Any]) -> str:
    tokens = f"{row['tokens_in']:,} tokens in, {row['tokens_out']:,} out"
    return (
        f"step {row['step']} · period {row['period']}, turn {row['turn']} · {tokens} · {show_usd(row['cost'])} · "
        f"{seconds(row['latency_s'])}"
    )


def _system(position: Position) -> str:
    return "".join(message.text for message in position.messages if message.role == "system")


def _opening(position: Position, system_before: str, most: int) -> Iterator[Part]:
    yield Part(kind="period", title=f"period {position.period}")
    tools = ", ".join(tool.name for tool in position.tools)
    if most > BOUND:
        tools = "\n".join(map(_tool, position.tools))
    for message in position.messages:
        if message.role == "system" and _system(position) == system_before:
            yield Part(kind="read", title="system", text="(as before)")
        else:
            yield _message(message, (), most)
    yield Part(kind="read", title="tools", text=bounded(tools, most))


def _tool(tool: Tool) -> str:
    return f"{tool.name}({', '.join(_properties(tool))}): {tool.description}"


def _properties(tool: Tool) -> Iterable[str]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, Mapping) else ()


def _changed_tools(before: Sequence[Tool], after: Sequence[Tool]) -> str:
    """What a list of tools has become within a chat: those gone, and those that are new or say other things."""
    names = {tool.name for tool in after}
    said = {tool.name: tool for tool in before}
    gone = [tool.name for tool in before if tool.name not in names]
    lines = [f"gone: {', '.join(gone)}"] if gone else []
    return "\n".join([*lines, *(_tool(tool) for tool in after if said.get(tool.name) != tool)])


def _turn(
    env: Environment[Any, Any], position: Position, row: Mapping[str, Any], wanted: bool, most: int
) -> Iterator[Part]:
    if row["reply"] is None:
        if wanted:
            yield Part(kind="warning", title="no reply", text="The provider refused this request.")
        return
    if position.ending:
        raise CorruptLogError(f"step {row['step']} follows the end of its episode ({position.ending}).")
    data = row["reply"].encode() if isinstance(row["reply"], str) else row["reply"]
    reply = decode_reply(data)
    offered = position.tools
    turn = advance(env, position, reply, data)
    if wanted:
        yield from _said(reply, most)
        yield from (_message(message, reply.calls, most) for message in turn.messages)
        if position.tools is not offered and not turn.new_chat and not turn.ending:
            yield Part(kind="read", title="tools", text=bounded(_changed_tools(offered, position.tools), most))
        yield Part(kind="facts", title="facts", text=bounded(turn.facts_bytes.decode(), FACTS_BOUND))
    if turn.step_digest != row["step_digest"]:
        yield Part(kind="warning", title="replay differs", text=_difference(turn, row))


def _difference(turn: Turn, row: Mapping[str, Any]) -> str:
    return (
        f"At step {turn.step} this evalkit does not reproduce the log: the agent may have read other texts. "
        f"Logged facts: {bounded(_text(row['facts']), FACTS_BOUND)}"
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _said(reply: Reply, most: int) -> Iterator[Part]:
    if reply.text:
        yield Part(kind="said", title="agent", text=bounded(reply.text, most))
    for call in reply.calls:
        arguments = bounded(_pretty(call.arguments), most)
        yield Part(kind="call", title=f"agent calls {bounded(call.name, 80)}", text=arguments)
    if not reply.text and not reply.calls:
        yield Part(kind="said", title="agent", text=f"(an empty reply, finish {bounded(reply.finish, 80)})")


def _pretty(arguments: str) -> str:
    """Arguments with one entry a line, if they are JSON of moderate size that loses nothing by it; else as they came.

    What is lost would be a second value for a key, or the digits of a number: a reader must see what the model wrote.
    """
    if len(arguments) > PRETTY_BOUND:
        return arguments
    try:
        value = json.loads(arguments)
        same = arguments in (json.dumps(value, ensure_ascii=False), json.dumps(value, separators=(",", ":")))
    except (ValueError, RecursionError):
        return arguments
    return json.dumps(value, ensure_ascii=False, indent=2) if same and isinstance(value, dict) and value else arguments


def _message(message: Message, calls: Sequence[ToolCall], most: int) -> Part:
    name = next((call.name for call in calls if call.id == message.call_id), "") if message.role == "tool" else ""
    title = f"{message.role} {bounded(name, 80)}".strip()
    return Part(kind="read", title=title, text=bounded(message.text, most))
