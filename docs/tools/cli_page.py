"""Writes docs/cli.md from the command line's own parser: every command, every option. `make docs` calls it."""

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from evalkit.cli.commands import COMMANDS, GROUPS, OWN_OPTIONS, module_of
from evalkit.cli.main import parser

PAGE = Path(__file__).resolve().parent.parent / "cli.md"

HEAD = """\
# Commands

Every command with its options. `evalkit COMMAND --help` prints the same in the terminal. The page is generated from the
command line's parser by `make docs`, and a test compares the two.

A *sweep* (or *spec*) is a TOML file that says which agents play which suites. A *run* is the directory with its
results. A *lane* is one provider and model within a run. The [glossary](glossary.md) has all words.

| exit code | meaning |
|---|---|
| 0 | complete; of `gate`: pass |
| 1 | complete, but some episodes failed |
| 2 | could not start |
| 3 | incomplete: episodes remain; of `gate`: undecided |
| 4 | `nightly`: an alarm; `gate`: fail |
| 5 | only `nightly`: no measurement, no episode of the night has a score |
| 130 | interrupted |
"""


def page() -> str:
    """The whole page, as Markdown."""
    _, commands = parser()
    for name in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{module_of(name)}").add_options(commands[name])
    parts = [HEAD]
    for group, title in GROUPS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [_command(name, commands[name]) for name, command in COMMANDS.items() if command.group == group]
    return "\n".join(parts)


def _command(name: str, sub: argparse.ArgumentParser) -> str:
    lines = [f"### evalkit {name}\n", f"{sub.description}\n"]
    lines += _table(sub)
    for action, inner in _actions(sub):
        lines += [f"`evalkit {name} {action}`: {_help_of(sub, action)}.\n", *_table(inner)]
    lines += ["```", *COMMANDS[name].examples, "```\n"]
    if name == "suites generate":
        lines.append("The parameters of each environment are listed by `evalkit suites generate --help`.\n")
    return "\n".join(lines)


def _table(sub: argparse.ArgumentParser) -> list[str]:
    rows = [f"| {_term(one)} | {_help(sub, one)} |" for one in sub._actions if _shown(one)]
    return ["| | |", "|---|---|", *rows, ""] if rows else []


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    return not hidden and action.help != argparse.SUPPRESS


def _term(action: argparse.Action) -> str:
    value = action.metavar if action.metavar is not None else action.dest.upper()
    if action.choices and action.metavar is None:
        value = " or ".join(map(str, action.choices))
    words = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{words}`"
    takes = "" if action.nargs == 0 else f" {words}"
    return f"`{', '.join(action.option_strings)}{takes}`"


def _help(sub: argparse.ArgumentParser, action: argparse.Action) -> str:
    said = sub._get_formatter()._expand_help(action) if action.help else ""
    return re.sub(r"\s+", " ", said).replace("|", "\\|")


def _actions(sub: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for one in sub._actions:
        if isinstance(one, argparse._SubParsersAction):
            yield from one.choices.items()


def _help_of(sub: argparse.ArgumentParser, action: str) -> str:
    for one in sub._actions:
        if isinstance(one, argparse._SubParsersAction):
            return next(str(choice.help) for choice in one._choices_actions if choice.dest == action)
    raise LookupError(action)


if __name__ == "__main__":
    PAGE.write_text(page())
