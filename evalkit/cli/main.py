"""The command line: one parser, one small module a command, loaded only when its command is called.

Exit codes: 0 complete; 1 complete with failed episodes; 2 could not start; 3 incomplete; 130 interrupted.
"""

import argparse
import functools
import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from evalkit import __version__
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
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    try:
        args = parse(argv)
        command = importlib.import_module(f"evalkit.cli.{args.module}")
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
        importlib.import_module(f"evalkit.cli.{word}").add_options(commands[word])
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


def whole_number(text: str) -> int:
    """An option's value as an int; argparse says of which option it is."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples keep their lines; long options get room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(100, shutil.get_terminal_size().columns - 1))


COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "run": (
        "start, resume or extend a sweep",
        (
            "evalkit run quickstart",
            "evalkit run runs/nightly.toml --only agent=gpt,suite=scheduling/hard",
            "evalkit run runs/nightly.toml --retry unresponsive --budget 5",
        ),
    ),
    "plan": (
        "predict cost, tokens and time without a request",
        (
            "evalkit plan runs/nightly.toml",
            "evalkit plan runs/nightly.toml --from runs/pilot",
            "evalkit plan runs/nightly.toml --budget 20",
        ),
    ),
    "status": (
        "what a run holds, owes and has spent",
        ("evalkit status runs/nightly", "watch evalkit status runs/nightly"),
    ),
    "budget": (
        "where a run's money went; release what was not spent",
        (
            "evalkit budget runs/nightly",
            "evalkit budget reconcile runs/nightly --usage usage.jsonl",
            "evalkit budget reconcile runs/nightly --lane openai/gpt-5-mini --spent 3.27",
        ),
    ),
    "report": (
        "tables of scores with intervals",
        (
            "evalkit report runs/nightly",
            "evalkit report runs/nightly --markdown > scores.md",
            "evalkit report runs/mine --judged runs/mine-judge",
        ),
    ),
    "sql": (
        "a query over a run's views",
        (
            "evalkit sql runs/nightly",
            "evalkit sql runs/nightly 'select agent, avg(score) from episodes where used group by agent'",
        ),
    ),
    "compare": (
        "what differs between two runs or agents, and how surely",
        (
            "evalkit compare runs/monday runs/tuesday",
            "evalkit compare baselines --agents knuth random",
            "evalkit compare runs/mine:gpt runs/other:claude --half-width 0.02",
        ),
    ),
    "show": (
        "one trajectory, readable",
        ("evalkit show runs/nightly 3f2a", "evalkit show runs/nightly knuth:scheduling/basic:seed-0:0 --period 3"),
    ),
    "verify": ("replay every episode and compare it with the log", ("evalkit verify runs/nightly",)),
    "new": ("write a commented sweep spec to start from", ("evalkit new runs/mine.toml",)),
    "generate": (
        "make a suite of fresh instances",
        ("evalkit generate scheduling --n 30 --k 3 --instances 100 --seed 7 --out instances/mine/n30.jsonl",),
    ),
    "simulate": (
        "serve the policies as models of a simulated provider",
        (
            "evalkit simulate --port 8080 --latency lognormal:200ms:0.5 --rpm 600",
            "evalkit simulate --fault-429 0.02 --fault-reset 0.01 --bill bill.jsonl",
        ),
    ),
    "providers": (
        "list providers, models, prices and keys; check that they answer",
        (
            "evalkit providers",
            "evalkit providers openai",
            "evalkit providers openai gpt-6-sol",
            "evalkit providers check",
            "evalkit providers check openai --model gpt-5-mini",
        ),
    ),
    "prompts": (
        "list prompt packs, or import one from a copy of the reference",
        ("evalkit prompts list", "evalkit prompts import ~/src/econ-evals-paper --out paper.toml"),
    ),
    "queries": (
        "import CostBench's queries, or have a model check or write some",
        (
            "evalkit queries import data/queries.json --out instances/mine/test.jsonl",
            "evalkit queries ask SUITE.jsonl --for conflict --model openai/gpt-5 --name checked",
            "evalkit queries apply runs/checked SUITE.jsonl --out SOUND.jsonl",
        ),
    ),
    "judge": (
        "have a model count the paths that a run's plans enumerate",
        ("evalkit judge runs/mine --model openai/gpt-5 --budget 2",),
    ),
    "conform": (
        "compare evalkit with golden files of the reference implementations",
        ("evalkit conform ../shared/goldens --data ../shared/data",),
    ),
}
"""Each command with what it does and examples; `evalkit/cli/NAME.py` holds a function of the same name."""

OWN_OPTIONS = frozenset({"generate", "simulate"})
"""Commands that add to their options and help by `add_options`, from what they load."""

TAKES_ANY = frozenset({"generate"})
"""Commands that read words which the parser does not know: an environment's parameters."""


def parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """(the whole command line, each command's part of it). Building it imports nothing but argparse."""
    listed = "\n".join(f"  {name:<11}{summary}" for name, (summary, _) in COMMANDS.items())
    top = Parser(
        prog="evalkit",
        usage="evalkit COMMAND ...",
        description=f"{DESCRIPTION}\n\ncommands:\n{listed}",
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"evalkit {__version__}")
    # The commands are listed by ourselves: argparse breaks the line after its longest name.
    commands = top.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="evalkit")
    arguments: dict[str, Callable[[argparse.ArgumentParser], None]] = {
        "run": _run,
        "plan": _plan,
        "status": _on_run,
        "budget": _budget,
        "report": _report,
        "sql": _sql,
        "compare": _compare,
        "show": _show,
        "verify": _on_run,
        "new": _new,
        "generate": _generate,
        "simulate": _nothing,
        "providers": _providers,
        "prompts": _prompts,
        "queries": _queries,
        "judge": _judge,
        "conform": _conform,
    }
    made: dict[str, argparse.ArgumentParser] = {}
    for name, (summary, examples) in COMMANDS.items():
        one = made[name] = commands.add_parser(
            name,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
            formatter_class=_Help,
            allow_abbrev=False,
        )
        one.set_defaults(module=name, call=name)
        arguments[name](one)
    return top, made


def _run(sub: argparse.ArgumentParser) -> None:
    _sweep(sub)
    sub.add_argument("--name", metavar="NAME", help="name of the run; its directory is runs/NAME (default: the spec's)")
    sub.add_argument("--dir", metavar="DIR", help="the run's directory itself, instead of runs/NAME")
    sub.add_argument(
        "--only", metavar="WHAT", action="append", default=[], help="agent=NAME and suite=NAME, with commas"
    )
    sub.add_argument("--limit", metavar="N", type=whole_number, help="end at most N episodes a lane, then stop")
    sub.add_argument("--retry", metavar="ENDING", action="append", default=[], help="play episodes that ended so again")
    sub.add_argument(
        "--budget", metavar="USD", help="instead of the spec's: the ceiling of the whole run, not of this call"
    )
    sub.add_argument("--deadline", metavar="SPAN", help="instead of the spec's: stop after this time (90m, 8h)")
    sub.add_argument(
        "--width", metavar="N", type=whole_number, help="instead of the spec's: episodes in flight in each lane"
    )
    sub.add_argument("--repair", action="store_true", help="give up what a damaged log has lost, and go on")
    sub.add_argument("--json", action="store_true", help="JSON lines instead of the live display")


def _plan(sub: argparse.ArgumentParser) -> None:
    _sweep(sub)
    sub.add_argument("--from", metavar="RUN", dest="basis", help="take figures from a run that has ended episodes")
    sub.add_argument("--budget", metavar="USD", help="propose what to play for this much, at once or night by night")
    sub.add_argument("--json", action="store_true", help="the same as JSON")
    sub.add_argument(
        "--only", metavar="WHAT", action="append", default=[], help="agent=NAME and suite=NAME, with commas"
    )


def _budget(sub: argparse.ArgumentParser) -> None:
    sub.usage = "evalkit budget [-h] [--json] RUN\n       evalkit budget reconcile RUN --usage FILE"
    sub.usage += "\n       evalkit budget reconcile RUN --lane PROVIDER/MODEL --spent USD [--since WHEN] [--until WHEN]"
    sub.add_argument("words", metavar="[reconcile] RUN", nargs="+", help="a run directory, or its name below runs/")
    sub.add_argument("--usage", metavar="FILE", help="what the provider billed, a line a request: JSON lines or CSV")
    sub.add_argument("--lane", metavar="LANE", help="instead: PROVIDER/MODEL, whose total is known")
    sub.add_argument("--spent", metavar="USD", help="what the provider billed for the lane")
    sub.add_argument("--since", metavar="WHEN", help="the total is of this time on: 2026-11-21, 2026-11-21T18:00Z")
    sub.add_argument("--until", metavar="WHEN", help="the total is up to this time")
    sub.add_argument("--json", action="store_true", help="the same as JSON")


def _report(sub: argparse.ArgumentParser) -> None:
    _on_run(sub)
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="Markdown tables")
    form.add_argument("--csv", metavar="DIR", help="one CSV file a table in this directory")
    sub.add_argument("--judged", metavar="RUN", help="a judge's run on this one: coverage as the judge counted it")


def _sql(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("query", metavar="QUERY", nargs="?", help="SQL as DuckDB speaks it; without one, the views")
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the rows as JSON")
    form.add_argument("--csv", action="store_true", help="the rows as CSV")


def _compare(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("first", metavar="A", help="a run, or RUN:AGENT")
    sub.add_argument("second", metavar="B", nargs="?", help="another; agents of the same name are compared")
    sub.add_argument("--agents", metavar=("X", "Y"), nargs=2, help="two agents of one run")
    sub.add_argument("--half-width", metavar="X", type=float, default=0.05, help="say what ± X takes (0.05: 5 points)")
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the same as JSON, with a stable schema")
    form.add_argument("--markdown", action="store_true", help="Markdown tables")
    form.add_argument("--csv", metavar="DIR", help="one CSV file a table in this directory")


def _show(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("episode", metavar="EPISODE", help="an id or the start of one, or agent:suite:instance:replicate")
    sub.add_argument("--period", metavar="N", type=whole_number, help="only this period, from 0")
    sub.add_argument("--full", action="store_true", help="cut no text, and show what each tool says of itself")


def _nothing(sub: argparse.ArgumentParser) -> None:
    """The command reads all its options itself."""


def _new(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("file", metavar="FILE", help="where to write it; must not exist yet")


def _generate(sub: argparse.ArgumentParser) -> None:
    sub.usage = "evalkit generate [-h] ENVIRONMENT --out FILE [--instances N] [--seed SEED] [--PARAMETER VALUE ...]"
    sub.add_argument("--instances", metavar="N", type=whole_number, default=12, help="how many (default: 12)")
    sub.add_argument("--seed", metavar="SEED", type=whole_number, default=0, help="of the whole suite (default: 0)")
    sub.add_argument("--out", metavar="FILE", required=True, help="the suite's file, ending in .jsonl")


def _providers(sub: argparse.ArgumentParser) -> None:
    sub.usage = "evalkit providers [-h] [PROVIDER [MODEL ...] | check [PROVIDER ...] [--model MODEL]]"
    sub.add_argument("name", nargs="?", metavar="PROVIDER", help="only this one, with its models and prices")
    sub.add_argument(
        "names", nargs="*", metavar="MODEL", help="only these, also such as the provider's file leaves out"
    )
    sub.add_argument("--model", metavar="MODEL", help="after `check`: this one instead of the cheapest that is listed")


def _prompts(sub: argparse.ArgumentParser) -> None:
    actions = sub.add_subparsers(metavar="ACTION", required=True)
    action = functools.partial(actions.add_parser, epilog=sub.epilog, formatter_class=_Help, allow_abbrev=False)
    action("list", help="the packs that can be named").set_defaults(call="list_packs")
    bring = action("import", help="build a pack from a copy of the reference repository")
    bring.add_argument("repository", metavar="DIR", help="the copy's top folder")
    bring.add_argument("--out", metavar="FILE", required=True, help="the pack's file, ending in .toml")
    bring.add_argument(
        "--wording", metavar="NAME", help="another of procurement's prompts: known_horizon, known_horizon_goal"
    )
    bring.set_defaults(call="import_pack")


def _queries(sub: argparse.ArgumentParser) -> None:
    actions = sub.add_subparsers(metavar="ACTION", required=True)
    action = functools.partial(actions.add_parser, epilog=sub.epilog, formatter_class=_Help, allow_abbrev=False)
    bring = action("import", help="make a suite of the reference's queries.json")
    bring.add_argument("files", metavar="FILE", nargs="+", help="a copy of queries.json; of several, one suite")
    bring.add_argument("--length", metavar="N", type=whole_number, help="tools in a task's chain (default: 5)")
    bring.add_argument("--seed", metavar="SEED", type=whole_number, help="makes costs and alternatives (default: 42)")
    bring.add_argument(
        "--alternatives", metavar="N", type=whole_number, help="queries to change to, for each (default: 3)"
    )
    bring.set_defaults(call="import_queries")
    ask = action("ask", help="have a model check a suite's queries, or write their texts")
    ask.add_argument("suite", metavar="SUITE", help="a suite of costbench: its file, or its name")
    ask.add_argument(
        "--for", metavar="WHAT", required=True, dest="what", help="conflict: do wishes conflict? requirement: a text"
    )
    ask.add_argument("--name", metavar="NAME", required=True, help="name of the run; its sweep is runs/NAME.toml")
    _asked(ask)
    ask.set_defaults(call="ask")
    use = action("apply", help="make the suite that the answers come to")
    use.add_argument("run", metavar="RUN", help="the finished run of `queries ask`")
    use.add_argument("suite", metavar="SUITE", help="the suite it was asked about")
    use.set_defaults(call="apply")
    for one in (bring, use):
        one.add_argument("--out", metavar="FILE", required=True, help="the new suite's file, ending in .jsonl")


def _judge(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("--name", metavar="NAME", help="name of the judge's run (default: RUN-judge)")
    _asked(sub)


def _asked(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--model", metavar="PROVIDER/MODEL", required=True, help="who is asked")
    sub.add_argument("--budget", metavar="USD", help="hard ceiling of the run (default: none)")


def _conform(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("goldens", metavar="DIR", help="a directory laid out like the golden data")
    sub.add_argument("--data", metavar="DIR", help="the reference's own data set")


def _sweep(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("sweep", metavar="SPEC", help="a sweep's TOML file, or its name below runs/")


def _on_run(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("--json", action="store_true", help="the same as JSON, with a stable schema")
