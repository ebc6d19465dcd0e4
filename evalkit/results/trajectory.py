"""One episode as a reader wants it: what the agent was told, said, called and got back, turn by turn.

The log holds replies and facts; the texts the agent read are rendered again by replaying the replies. Where replay does
not reproduce the log, that is said beside the turn, and the logged reply is shown all the same.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.envs.calls import OK
from evalkit.errors import QUIT
from evalkit.money import show_usd
from evalkit.results.moves import Ask, Move
from evalkit.store.files.record import DOUBTFUL, UNMETERED, UNSCORED
from evalkit.text import BOUND, bounded, many, seconds, visible
from evalkit.wire.thoughts import thoughts_of

# The facts of a turn in words, as its reader wants them: one line a fact, whatever the environment.

KNOWN = frozenset({"period", "turn"})
"""What the turn's heading says."""

TITLES = {"period_end": "period ends", "ended": "episode ends"}

MOST = 300
"""Characters of one line."""

MOST_LISTED = 12
"""Entries of a list that are named."""


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """What happened in a turn, a line a fact; each is safe to print. Empty where there is nothing to say."""
    lines = list[str]()
    for key, value in facts.items():
        if key in KNOWN or value in (None, "", [], {}):
            continue
        if key == "calls" and isinstance(value, list):
            lines += _calls(value)
        else:
            lines.append(f"{TITLES.get(key, _spaced(key))}: {_words(value)}")
    return [bounded(line, MOST) for line in lines]


def _calls(calls: Sequence[Any]) -> Iterator[str]:
    """What came of the calls, those of one outcome that follow one another on one line."""
    known = [call for call in calls if isinstance(call, Mapping)]
    for outcome, group in groupby(known, key=lambda call: str(call.get("outcome", ""))):
        tools = ", ".join(_call(call) for call in group)
        yield f"{tools}: {'done' if outcome == OK else _spaced(outcome)}"


def _call(call: Mapping[str, Any]) -> str:
    more = {name: value for name, value in call.items() if name not in ("tool", "outcome")}
    return f"{call.get('tool', '')}{f' ({_words(more)})' if more else ''}"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_spaced(str(name))} {_words(item)}" for name, item in value.items() if item not in ([], {}))
    if isinstance(value, list):
        more = f" and {len(value) - MOST_LISTED:,} more" if len(value) > MOST_LISTED else ""
        return ", ".join(_item(item) for item in value[:MOST_LISTED]) + more
    return f"{value:,}" if isinstance(value, int | float) else _spaced(str(value)) if value else "none"


def _item(value: Any) -> str:
    """An entry of a list: a pair as `W1 and T5`."""
    return " and ".join(map(_words, value)) if isinstance(value, list) else _words(value)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


Kind = Literal["period", "turn", "read", "ask", "thought", "said", "call", "facts", "warning", "end"]

FACTS_BOUND = 400

FOLD = 160
"""Characters of a thought, or of the reply to an ask, that stand where these are folded."""

PRETTY_BOUND = 20_000
"""Characters of arguments up to which they are set with one entry a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryPart:
    """One piece of a trajectory; its texts are safe to print."""

    kind: Kind
    title: str
    text: str = ""
    move: Move | None = field(default=None, repr=False, compare=False)
    """Of a turn, of its facts, and of the first turn of a period."""
    raw: str = field(default="", repr=False)
    """Of facts: the JSON whose words the text is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode, rendered."""

    header: Mapping[str, str]
    parts: tuple[TrajectoryPart, ...] = field(repr=False)

    def plain(self) -> str:
        """The trajectory as text without styles."""
        width = max(map(len, self.header), default=0)
        lines = [f"{name:<{width}}  {value}" for name, value in self.header.items()]
        for part in self.parts:
            lines += ["", *_plain(part)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.plain()


def _plain(part: TrajectoryPart) -> Iterator[str]:
    if part.kind in ("period", "end"):
        yield f"== {part.title} =="
    elif part.kind == "turn":
        yield f"-- {part.title} --"
    else:
        yield f"[{part.title}]"
    for line in part.text.splitlines():
        yield f"  {line}"


def trajectory_parts(
    played: Iterable[Move], *, period: int | None = None, most: int = BOUND, pending: Sequence[Ask] = ()
) -> Iterator[TrajectoryPart]:
    """The parts of an episode from its moves, in order; `period`: only those of one period, and all warnings.

    `pending`: what an agent's code has asked on its way to a step that is not there yet.

    Texts are cut to `most` characters; where that is more than usual, tools are shown with what they say of themselves.
    """
    system, ending = "", ""
    for move in played:
        ending = move.ending
        if period is None or move.period == period:
            if move.opening:
                yield from _opening(move, system, most)
                system = _system(move)
            yield TrajectoryPart(kind="turn", title=_titled(move.row), move=move)
            yield from _turn(move, most)
        if not move.reproduced:
            yield TrajectoryPart(kind="warning", title="replay differs", text=_difference(move.row))
    if period is None:
        yield from pending_parts(pending, most)
    title = f"ended: {visible(ending)}" if ending and ending not in UNSCORED else "not ended: it remains to be played"
    yield TrajectoryPart(kind="end", title=title)


def pending_parts(pending: Sequence[Ask], most: int = BOUND) -> Iterator[TrajectoryPart]:
    """What an agent's code has asked on its way to a step that is not there yet, below a title; nothing of nothing."""
    if pending:
        yield TrajectoryPart(kind="turn", title=f"step {pending[0].step} · not there yet")
        yield from (_ask(ask, None, most) for ask in pending)


def _titled(row: Mapping[str, Any]) -> str:
    tokens = f"{row['tokens_in']:,} tokens in, {row['tokens_out']:,} out{usage_words([row])}"
    return (
        f"step {row['step']} · period {row['period']}, turn {row['turn']} · {tokens} · {show_usd(row['cost'])} · "
        f"{seconds(row['latency_s'])}"
    )


def usage_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """What is said after the tokens of rows some of which their provider did not count; else empty."""
    words = {str(row.get("attempts", "")).rpartition(",")[2] for row in rows}
    if DOUBTFUL in words:
        return " (figures that contradict each other; the larger reading is charged)"
    return " (not all stated; cost at worst case)" if UNMETERED in words else ""


def _system(move: Move) -> str:
    return "".join(message.text for message in move.opening if message.role == "system")


def _opening(move: Move, system_before: str, most: int) -> Iterator[TrajectoryPart]:
    yield TrajectoryPart(kind="period", title=f"period {move.period}", move=move)
    tools = ", ".join(tool.name for tool in move.offered)
    if most > BOUND:
        tools = "\n".join(map(_tool, move.offered))
    for message in move.opening:
        if message.role == "system" and _system(move) == system_before:
            yield TrajectoryPart(kind="read", title="system", text="(as before)")
        else:
            yield _message(message, {}, most)
    yield TrajectoryPart(kind="read", title="tools", text=bounded(tools, most))


def _tool(tool: Tool) -> str:
    return f"{tool.name}({', '.join(_properties(tool))}): {tool.description}"


def _properties(tool: Tool) -> Iterable[str]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, Mapping) else ()


def _changed_tools(before: Sequence[Tool], after: Sequence[Tool]) -> str:
    """What a list of tools has become within a chat: those gone, and those that are new or say other things."""
    names = {tool.name for tool in after}
    earlier = {tool.name: tool for tool in before}
    gone = [tool.name for tool in before if tool.name not in names]
    lines = [f"gone: {', '.join(gone)}"] if gone else []
    return "\n".join([*lines, *(_tool(tool) for tool in after if earlier.get(tool.name) != tool)])


def _turn(move: Move, most: int) -> Iterator[TrajectoryPart]:
    for ask in move.asks:
        yield _ask(ask, move.reply, most)
    if move.reply is None:
        refused = "The agent ended the episode." if move.ending == QUIT else "The provider refused this request."
        said = (move.row.get("raw") or b"").decode("utf-8", "replace")
        words = f" It said: {visible(bounded(said, most))}" if said and move.ending != QUIT else ""
        yield TrajectoryPart(kind="warning", title="no reply", text=refused + words)
        return
    yield from _thought(move.reply, move.row.get("tokens_reasoning") or 0, most)
    yield from _said(move.reply, most)
    names = _names(move.reply.calls)
    yield from (_message(message, names, most) for message in move.messages)
    if move.offered_next is not None:
        yield TrajectoryPart(
            kind="read", title="tools", text=bounded(_changed_tools(move.offered, move.offered_next), most)
        )
    yield TrajectoryPart(
        kind="facts",
        title="what happened",
        text="\n".join(fact_lines(move.facts)) or "nothing",
        move=move,
        raw=bounded(move.facts_text, FACTS_BOUND if most <= BOUND else most),
    )


def _difference(row: Mapping[str, Any]) -> str:
    return (
        f"At step {row['step']} this evalkit does not reproduce the log: the agent may have read other texts. "
        f"Logged facts: {bounded(_text(row['facts']), FACTS_BOUND)}"
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _ask(ask: Ask, act: Reply | None, most: int) -> TrajectoryPart:
    """One request of an agent's code; of a reply that it acts on, the words stand below."""
    took = f"{ask.tokens_in:,} tokens in, {ask.tokens_out:,} out · {show_usd(ask.cost_pico_usd)}"
    title = f"asks {bounded(ask.role, 80)} ({bounded(ask.key or 'main', 80)}.{ask.n}) · {took}"
    if ask.reply is None:
        return TrajectoryPart(kind="ask", title=f"{title} · refused: {bounded(ask.refused, 80)}")
    if ask.reply == act:
        return TrajectoryPart(kind="ask", title=f"{title} · and acts on the reply")
    calls = [f"{call.name}({call.arguments})" for call in ask.reply.calls]
    text = bounded("\n".join(filter(None, [ask.reply.text, *calls])), most)
    return TrajectoryPart(kind="ask", title=title, text=text or "(an empty reply)")


def _thought(reply: Reply, tokens: int, most: int) -> Iterator[TrajectoryPart]:
    """What the model thought, with its tokens; nothing of one that did not."""
    thoughts = thoughts_of(reply)
    if not (thoughts.text or thoughts.hidden or tokens):
        return
    counted = [many(tokens, "token")] if tokens else []
    hidden = [] if thoughts.text else ["encrypted" if thoughts.hidden else "not shown by the provider"]
    title = ", ".join(["agent thinks", *counted, *hidden])
    yield TrajectoryPart(kind="thought", title=title, text=bounded(thoughts.text, most))


def folded(part: TrajectoryPart) -> TrajectoryPart:
    """The part with no more of a thought, or of the reply to an ask, than its beginning."""
    if part.kind not in ("thought", "ask") or len(part.text) <= FOLD:
        return part
    return replace(part, text=f"{part.text[:FOLD]}... ({len(part.text):,} characters; --full shows them)")


def unfolded(part: TrajectoryPart) -> TrajectoryPart:
    """The part with the JSON of facts below their words."""
    return replace(part, text=f"{part.text}\n{part.raw}") if part.raw else part


def _said(reply: Reply, most: int) -> Iterator[TrajectoryPart]:
    if reply.text:
        yield TrajectoryPart(kind="said", title="agent", text=bounded(reply.text, most))
    for call in reply.calls:
        arguments = bounded(_pretty(call.arguments), most)
        yield TrajectoryPart(kind="call", title=f"agent calls {bounded(call.name, 80)}", text=arguments)
    if not reply.text and not reply.calls:
        yield TrajectoryPart(kind="said", title="agent", text=f"(an empty reply, finish {bounded(reply.finish, 80)})")


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


def _names(calls: Sequence[ToolCall]) -> Mapping[str, str]:
    """The tool that each id calls: the first one, where a model gives an id twice."""
    return {call.id: call.name for call in reversed(calls)}


def _message(message: Message, names: Mapping[str, str], most: int) -> TrajectoryPart:
    name = names.get(message.call_id, "") if message.role == "tool" else ""
    title = f"{message.role} {bounded(name, 80)}".strip()
    return TrajectoryPart(kind="read", title=title, text=bounded(message.text, most))
