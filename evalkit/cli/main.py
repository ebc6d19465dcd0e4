"""The command line: one parser, and one small module per command, loaded only when its command is called.

Exit codes: 0 complete; 1 complete with failed episodes; 2 could not start; 3 incomplete, or `gate` undecided; 4
`nightly` or `gate` found a regression; 130 interrupted.
"""

import argparse
import errno
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from evalkit.cli import options
from evalkit.cli.commands import COMMANDS, GROUPS, OWN_OPTIONS, TAKES_ANY, TOOLS, called, module_of
from evalkit.cli.pipes import GuardedStream, give_up, guard_streams, guarded_streams, is_unwritable, unguarded, unread
from evalkit.engine.gc_threshold import COLLECT_EVERY, OLDER_EVERY
from evalkit.errors import EvalkitError, UsageError, nearest
from evalkit.files import TOO_LONG, at_home
from evalkit.version import __version__

COULD_NOT_START = 2
INTERRUPTED = 130

DESCRIPTION = """\
Evaluate language-model agents on economic environments whose optimum is known
exactly. Thousands of episodes run at once, every step is on disk before the
next request is sent, and the budget is never exceeded."""

EPILOG = """\
examples:
  evalkit run quickstart            a demonstration: no key, no cost
  evalkit new runs/mine.toml        write a commented sweep to start from
  evalkit plan runs/mine.toml       predict the cost, without a request
  evalkit run runs/mine.toml        start, resume or extend a run
  evalkit report runs/mine          scores with intervals, behaviour, cost
  evalkit show runs/quickstart knuth:scheduling/basic:seed-0:0

`evalkit COMMAND --help` explains each command.
"""


READS_ONLY = frozenset({"plan", "verify"})
"""Commands that play no agents and write nothing: they need no threads of numpy's, and nothing is collected at their
end."""


NO_LOOP = READS_ONLY | {"report", "compare"}
"""Commands without a loop that a long collection would hold up."""
COLLECT_LATE = 1_000_000
"""New containers between two collections in these."""


def entry() -> NoReturn:
    """The `evalkit` command."""
    open_missing_descriptors()
    guard_streams()  # for good: Python prints a traceback after `main`
    reads_only = not READS_ONLY.isdisjoint(sys.argv[1:2])
    # A command makes many records and few cycles: with the default of 700 a sixth of a report's time is collecting.
    late = not NO_LOOP.isdisjoint(sys.argv[1:2])
    gc.set_threshold(COLLECT_LATE if late else COLLECT_EVERY, OLDER_EVERY, OLDER_EVERY)
    if reads_only:
        # numpy's library would start a thread for each core, whose waiting costs more than the rest of its import.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = main(sys.argv[1:])
    if reads_only and "duckdb" not in sys.modules:  # which reports on standard error what was not collected
        gc.freeze()  # at its end Python collects several times: a tenth of a second or two, to free what ends anyway
    loops = sys.modules.get("evalkit.engine.loop")
    if loops is not None and loops.LEFT:
        os._exit(code)
    sys.exit(code)


def open_missing_descriptors() -> None:
    """Open the null device for each descriptor 0 to 2 that the caller has closed (`evalkit run >&-`).

    Otherwise the next files and sockets would get these numbers and be used as standard input and output.
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
    with guarded_streams():
        try:
            return _run(argv)
        finally:  # here, where a closed pipe or a full disk is no traceback: `--help` and errors leave text, too
            with unread():
                pass


def _run(argv: Sequence[str]) -> int:
    try:
        args = parse([_at_home(word) for word in argv])
        if isinstance(sys.stdout, GuardedStream):
            sys.stdout.holds_json(getattr(args, "json", False))
        with beginning("" if getattr(args, "json", False) else COMMANDS[args.module].begins):
            command = importlib.import_module(f"evalkit.cli.{module_of(args.module)}")
        call: Callable[[argparse.Namespace], int] = getattr(command, args.call)
        code = call(args)
        sys.stdout.flush()
    except EvalkitError as error:
        with unread(sys.stderr):
            print(f"evalkit: {error}", file=sys.stderr)
        return COULD_NOT_START
    except OSError as flaw:
        if flaw.errno == errno.ENAMETOOLONG:
            with unread(sys.stderr):
                print(f"evalkit: {_too_long(flaw.filename)}", file=sys.stderr)
            return COULD_NOT_START
        if not is_unwritable(flaw):
            raise
        give_up(sys.stdout, flaw)
        return 0 if isinstance(flaw, BrokenPipeError) else COULD_NOT_START
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _too_long(name: object) -> str:
    """What to say of a name that no usual file system takes."""
    part = max(str(name).split("/"), key=len)
    return f"{part[:40]}... is no name of a file. {TOO_LONG}"


def _at_home(word: str) -> str:
    """`--dir=~/x` and `'~/x'` as a shell would have given them: it expands `~` only where a word begins with it."""
    option, given, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{given}{at_home(value)}"


@contextmanager
def beginning(words: str) -> Iterator[None]:
    """Within, a terminal shows what a command does first: its modules take longer to load than a reader waits."""
    told = bool(words) and sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb", "unknown")
    if told:
        with unread(sys.stderr):
            unguarded(sys.stderr).write(f"\x1b[1m{words} ...\x1b[0m")
    try:
        yield
    finally:
        if told:
            with unread(sys.stderr):
                unguarded(sys.stderr).write("\r\x1b[2K")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. `rest`: options that a command reads itself. Raises UsageError with the nearest name."""
    argv = _two_words(argv)
    word = next((word for word in argv if not word.startswith("-")), None)
    if word == TOOLS and {"-h", "--help"} & set(argv):
        print(_tools())
        raise SystemExit(0)
    if word is not None and word not in COMMANDS:
        raise _no_command(word)
    top, commands = parser(word)
    if word is None and not {"-h", "--help", "--version"} & set(argv):
        top.print_help()
        raise UsageError("A command is missing.")
    if word in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{module_of(word)}").add_options(commands[word], argv)
    args, rest = top.parse_known_args(argv)
    if rest and args.module not in TAKES_ANY:
        known = re.findall(r"--[\w-]+", commands[args.module].format_usage())
        hint = nearest(rest[0].partition("=")[0], known)
        hint = hint if "Did you mean" in hint else ""  # the whole list is for --help
        raise UsageError(f"{args.module}: unrecognized option {rest[0]!r}.{hint} See `evalkit {args.module} --help`.")
    args.rest = rest
    return args


def _two_words(argv: Sequence[str]) -> list[str]:
    """The command line with the two words of a command as one, which is its name."""
    words = list(argv)
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    name = " ".join(words[at : at + 2])
    if name in COMMANDS or (words[at : at + 1] == [TOOLS] and not name.startswith(f"{TOOLS} -")):
        words[at : at + 2] = [name]
    return words


def _no_command(word: str) -> UsageError:
    """What to say of a first word, or of `tools` and a second one, that is no command."""
    group, _, tool = word.partition(" ")
    if group != TOOLS:
        lasts = {name.rpartition(" ")[2]: name for name in COMMANDS if " " in name}
        if word in lasts:
            return UsageError(f"There is no command {word!r}: write `evalkit {lasts[word]}`.")
        return UsageError(f"There is no command {word!r}.{nearest(word, [*_named(), TOOLS])}")
    if not tool:
        return UsageError(f"A tool is missing. `evalkit {TOOLS} --help` lists them.")
    return UsageError(f"There is no tool {tool!r}.{nearest(tool, [name.partition(' ')[2] for name in _tool_names()])}")


def _named() -> list[str]:
    """The commands that the list of all commands names."""
    return [name for name in COMMANDS if " " not in name]


def _tool_names() -> list[str]:
    return [name for name, command in COMMANDS.items() if command.group == TOOLS]


def _tools() -> str:
    """The help of `evalkit tools`."""
    lines = [f"  {name.partition(' ')[2]:<13}{COMMANDS[name].summary}" for name in _tool_names()]
    usage = f"usage: evalkit {TOOLS} TOOL ..."
    return "\n".join([usage, "", f"{GROUPS[TOOLS]}:", *lines, "", f"`evalkit {TOOLS} TOOL --help` explains each."])


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one-line messages, like all other errors."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of printing the usage and exiting."""
        raise UsageError(f"{self.prog.removeprefix('evalkit').strip()}: {message}. See `{self.prog} --help`.")


def parser(only: str | None = None) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """(the parser, each command's parser). Building them imports nothing but argparse.

    `only`: the one command that the parser will know; building all takes ten times as long.
    """
    listed = "\n\n".join(_listed(group, title) for group, title in GROUPS.items() if group != TOOLS)
    listed += (
        f"\n  {TOOLS:<11}{', '.join(name.partition(' ')[2] for name in _tool_names()[:4])} and others: {TOOLS} --help"
    )
    top = Parser(
        prog="evalkit",
        usage="evalkit COMMAND ...",
        description=f"{DESCRIPTION}\n\n{listed}",
        epilog=EPILOG,
        formatter_class=options.Help,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"evalkit {__version__}")
    # We list the commands ourselves, since argparse breaks the line after its longest name.
    commands = top.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="evalkit")
    subparsers: dict[str, argparse.ArgumentParser] = {}
    for name, command in COMMANDS.items() if only is None else [(only, COMMANDS[only])]:
        sub = subparsers[name] = commands.add_parser(
            name,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
            formatter_class=options.Help,
            allow_abbrev=False,
        )
        sub.set_defaults(module=name, call=called(name))
        if add := getattr(options, called(name), None):
            add(sub)
    return top, subparsers


def _listed(group: str, title: str) -> str:
    lines = [f"  {name:<11}{COMMANDS[name].summary}" for name in _named() if COMMANDS[name].group == group]
    return "\n".join([f"{title}:", *lines])
