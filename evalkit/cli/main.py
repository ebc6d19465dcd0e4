"""The command line: one parser, one small module a command, loaded only when its command is called.

Exit codes: 0 complete; 1 complete with failed episodes; 2 could not start; 3 incomplete; 4 `nightly` found a
regression; 130 interrupted.
"""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from evalkit import __version__
from evalkit.cli.commands import COMMANDS, GROUPS, OWN_OPTIONS, TAKES_ANY
from evalkit.cli.options import Help
from evalkit.errors import EvalkitError, UsageError, nearest

COULD_NOT_START = 2
INTERRUPTED = 130

DESCRIPTION = """\
Evaluate language-model agents on economic environments whose optimum is known
exactly: thousands of episodes at once, every step on disk before the next is
asked for, never beyond the budget."""

EPILOG = """\
examples:
  evalkit run quickstart            try it: policies over HTTP; no key, no cost
  evalkit new runs/mine.toml        a commented sweep to start from
  evalkit plan runs/mine.toml       what it will cost, without a request
  evalkit run runs/mine.toml        start, resume, extend: always this command
  evalkit report runs/mine          scores with intervals, behaviour, money
  evalkit show runs/quickstart knuth:scheduling/basic:seed-0:0

`evalkit COMMAND --help` has more of each.
"""


def entry() -> NoReturn:
    """The `evalkit` command."""
    open_missing_descriptors()
    sys.exit(main(sys.argv[1:]))


def open_missing_descriptors() -> None:
    """Open on the null device what of the descriptors 0 to 2 the caller has closed (`evalkit run >&-`).

    Else the next files and sockets that are opened get these numbers, and are taken for standard input and output.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        args = parse(argv)
        command = importlib.import_module(f"evalkit.cli.{COMMANDS[args.module].group}.{args.module}")
        call: Callable[[argparse.Namespace], int] = getattr(command, args.call)
        code = call(args)
        sys.stdout.flush()  # here, where a reader that has gone is no error
    except EvalkitError as error:
        print(f"evalkit: {error}", file=sys.stderr)
        return COULD_NOT_START
    except BrokenPipeError:
        # The reader (`head`) has what it wanted; what is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line as values; what a command reads itself is in `rest`. Raises UsageError with the nearest name."""
    word = next((word for word in argv if not word.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        raise UsageError(f"There is no command {word!r}.{nearest(word, COMMANDS)}")
    top, commands = parser()
    if word is None and not {"-h", "--help", "--version"} & set(argv):
        top.print_help()
        raise UsageError("A command is missing.")
    if word in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{COMMANDS[word].group}.{word}").add_options(commands[word])
    args, rest = top.parse_known_args(argv)
    if rest and args.module not in TAKES_ANY:
        known = re.findall(r"--[\w-]+", commands[args.module].format_usage())
        hint = nearest(rest[0].partition("=")[0], known)
        hint = hint if "Did you mean" in hint else ""  # the whole list is for --help
        raise UsageError(f"{args.module}: {rest[0]!r} means nothing here.{hint} See `evalkit {args.module} --help`.")
    args.rest = rest
    return args


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one message, as everything else does."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing the usage and leaving."""
        raise UsageError(f"{self.prog.removeprefix('evalkit').strip()}: {message}. See `{self.prog} --help`.")


def parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """(the whole command line, each command's part of it). Building it imports nothing but argparse."""
    listed = "\n\n".join(_listed(group, title) for group, title in GROUPS.items())
    top = Parser(
        prog="evalkit",
        usage="evalkit COMMAND ...",
        description=f"{DESCRIPTION}\n\n{listed}",
        epilog=EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"evalkit {__version__}")
    # The commands are listed by ourselves: argparse breaks the line after its longest name.
    commands = top.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="evalkit")
    subparsers: dict[str, argparse.ArgumentParser] = {}
    for name, command in COMMANDS.items():
        sub = subparsers[name] = commands.add_parser(
            name,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
            formatter_class=Help,
            allow_abbrev=False,
        )
        sub.set_defaults(module=name, call=name)
        command.options(sub)
    return top, subparsers


def _listed(group: str, title: str) -> str:
    lines = [f"  {name:<11}{command.summary}" for name, command in COMMANDS.items() if command.group == group]
    return "\n".join([f"{title}:", *lines])
