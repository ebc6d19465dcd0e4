"""`evalkit play`: an episode played by a person in the terminal, and kept in a run."""

import argparse
import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from evalkit.api.games import Game
from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.envs.arguments import clean
from evalkit.envs.replay import Turn
from evalkit.envs.table import is_litmus
from evalkit.integrations.play_session import PlaySession, outcome_of
from evalkit.integrations.recorded import Outsider, recorded
from evalkit.report.render.terminal import Output
from evalkit.text import visible

# What a person who plays sees, and how they are asked. What the environment says is never read as markup.

HELP = """\
a tool's number or name     its arguments are asked for, one by one
NAME {"argument": ...}      the same as JSON, in one line
? NUMBER                    what the tool does, and its arguments
say TEXT                    a reply without a call
quit                        leave; the episode waits for you"""

_STYLES = {"system": "cyan", "user": "green", "tool": "yellow", "assistant": "dim"}


def hello(session: PlaySession) -> None:
    """The episode, and all that its chat has said so far."""
    console = Output()
    console.print(Text(session.tag, style="bold"))
    console.print(Text(HELP, style="dim"))
    _messages(console, session.game.messages)


def show(turn: Turn, game: Game) -> None:
    """What a reply has led to."""
    console = Output()
    outcome = outcome_of(turn.facts)
    if outcome != "ok":
        console.print(Text(f"Refused: {outcome}", style="red"))
    _messages(console, turn.messages)
    if turn.new_chat:
        means = "between its two ends" if is_litmus(game.instance.environment) else "1 is the optimum"
        console.print(Text(f"Score so far: {game.score().value:.3f} ({means})", style="bold"))
        _messages(console, game.messages)


def closing(session: PlaySession, command: str) -> None:
    """The score, or how to go on."""
    console, game = Output(), session.game
    if not game.ending:
        console.print(Text(f"The episode waits at step {game.step}. Go on: {command}"))
        return
    score = game.score()
    solved = "" if is_litmus(game.instance.environment) else ", solved" if score.solved else ", not solved"
    console.print(Text(f"The episode has ended ({game.ending}). Score {score.value:.3f}{solved}.", style="bold"))


def ask(game: Game) -> Reply | None:
    """The person's next reply; None if they leave."""
    console = Output()
    while True:
        names = "  ".join(f"{number} {visible(tool.name)}" for number, tool in enumerate(game.tools, 1))
        console.print(Text(names, style="magenta"))
        line = _line(console, f"[{game.period}:{game.turn}] ")
        if line is None or line in ("quit", "exit", "q"):
            return None
        said = re.fullmatch(r"say\s+(.*)", line, re.DOTALL)
        if said:
            return Reply(text=said[1])
        about, word, rest = _split(line)
        tool = _tool(game.tools, word)
        if tool is None:
            console.print(Text(HELP, style="dim"))
        elif about:
            _describe(console, tool)
        else:
            arguments = rest or _arguments(console, tool)
            if arguments is not None:
                call = ToolCall(id=f"call_{game.step}", name=tool.name, arguments=arguments)
                return Reply(calls=(call,), finish="tool_calls")


def _split(line: str) -> tuple[bool, str, str]:
    """(whether it asks about a tool, the tool, what follows)."""
    about = line.startswith("?")
    word, _, rest = line.lstrip("? ").partition(" ")
    return about, word, rest.strip()


def _tool(tools: Sequence[Tool], word: str) -> Tool | None:
    if word.isdecimal() and len(word) < 6:
        number = int(word)
        return tools[number - 1] if 1 <= number <= len(tools) else None
    return next((tool for tool in tools if tool.name == word), None)


def _arguments(console: Console, tool: Tool) -> str | None:
    """What the person gives for each argument, as JSON; None if they change their mind."""
    found: dict[str, Any] = {}
    required: Any = tool.parameters.get("required", ())
    for name, schema in _properties(tool).items():
        kind = schema.get("type", "")
        needed = name in required
        hint = f"  {visible(name)} ({kind or 'any'}{'' if needed else ', may be empty'}): "
        text = _line(console, hint)
        if text is None:
            return None
        if text or needed:
            found[name] = text if kind == "string" else _value(text)
    return json.dumps(found, ensure_ascii=False)


def _value(text: str) -> Any:
    """A JSON value, or the text itself if it is none: the environment says what is wrong with it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _properties(tool: Tool) -> Mapping[str, Mapping[str, Any]]:
    properties: Any = tool.parameters.get("properties", {})
    return properties if isinstance(properties, Mapping) else {}


def _describe(console: Console, tool: Tool) -> None:
    console.print(Text(visible(tool.description)))
    for name, schema in _properties(tool).items():
        console.print(Text(f"  {visible(name)}: {visible(json.dumps(dict(schema), ensure_ascii=False))}", style="dim"))


def _messages(console: Console, messages: Sequence[Message]) -> None:
    for message in messages:
        calls = [f"{call.name}({call.arguments})" for call in message.calls]
        text = "\n".join([*([message.text] if message.text else []), *calls])
        title = Text(visible(message.name or message.role))
        console.print(Panel(Text(visible(text)), title=title, title_align="left", style=_STYLES[message.role]))


def _line(console: Console, prompt: str) -> str | None:
    """A line from the person; None at the end of the input, and on Ctrl-C."""
    try:
        return clean(console.input(Text(prompt))).strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return None


def play(args: argparse.Namespace) -> int:
    """Ask for reply after reply until the episode ends or the person leaves; 0 if it ended, else 3."""
    outsider = Outsider(
        run=args.run,
        agent=args.agent,
        policy="human",
        suite=args.suite,
        prompts=args.prompts,
        replicates=1,
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def begin() -> PlaySession:
            record = await stack.enter_async_context(recorded(outsider))
            return await record.sit(args.instance, 0)

        try:
            session = runner.run(begin())
            hello(session)
            while not session.game.ending:
                reply = ask(session.game)
                if reply is None:
                    break
                turn = runner.run(session.reply(reply))
                if turn is not None:
                    show(turn, session.game)
        finally:
            runner.run(stack.aclose())
    closing(session, f"evalkit play {args.suite} --instance {session.game.instance.id} --run {args.run}")
    return 0 if session.game.ending else 3
