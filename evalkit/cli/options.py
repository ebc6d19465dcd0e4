"""The options of each command, as functions that add them to its parser. Imports nothing but argparse."""

import argparse
import functools
import shutil


def whole_number(text: str) -> int:
    """An option's value as an int; argparse adds the option's name to the error."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


class Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of examples; leaves room for long options."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(100, shutil.get_terminal_size().columns - 1))


def run(sub: argparse.ArgumentParser) -> None:
    """Options of `run`."""
    _sweep(sub)
    sub.add_argument("--name", metavar="NAME", help="name of the run; its directory is runs/NAME (default: the spec's)")
    sub.add_argument("--dir", metavar="DIR", help="the run's directory, instead of runs/NAME")
    _only(sub)
    sub.add_argument("--limit", metavar="N", type=whole_number, help="stop after N more episodes per lane")
    sub.add_argument(
        "--retry", metavar="ENDING", action="append", default=[], help="play episodes with this ending again"
    )
    sub.add_argument(
        "--budget", metavar="USD", help="the limit for the whole run, not for this call (default: the spec's)"
    )
    sub.add_argument("--deadline", metavar="SPAN", help="stop after this time, such as 90m or 8h (default: the spec's)")
    sub.add_argument(
        "--workers", metavar="N", help="play in N processes; `cores`: one per core (default: the spec's, or one)"
    )
    sub.add_argument("--on", choices=("here", "ray"), help="`ray`: play nothing here, but in actors of a Ray cluster")
    sub.add_argument("--play-all", action="store_true", help="play on where [decide] has all its answers")
    sub.add_argument(
        "--on-alarm", metavar="COMMAND", help="command to run at the share of the budget that [alerts] names"
    )
    sub.add_argument("--repair", action="store_true", help="drop the damaged part of the log, and continue")
    sub.add_argument("--json", action="store_true", help="JSON lines instead of the live display")


def mcp(sub: argparse.ArgumentParser) -> None:
    """Options of `mcp`."""
    sub.usage = (
        "evalkit mcp [-h] [--instance ID] [--prompts PACK] [--http PORT] [--run NAME]\n"
        "                   [--agent NAME] SUITE\n"
        "       evalkit mcp end RUN EPISODE [--prompts PACK]"
    )
    _outside(sub)
    sub.add_argument(
        "more", metavar="RUN EPISODE", nargs="*", help="behind `end`: end this episode as `quit`, where it was left"
    )
    sub.add_argument(
        "--http", metavar="PORT", type=whole_number, help="over HTTP on this machine, a URL an episode (0: any port)"
    )
    sub.add_argument("--run", metavar="NAME", default="", help="keep the episodes in runs/NAME (default: nothing)")
    sub.add_argument("--agent", metavar="NAME", default="outside", help="the agent's name in the run")


def play(sub: argparse.ArgumentParser) -> None:
    """Options of `play`."""
    _outside(sub)
    sub.add_argument("--run", metavar="NAME", default="human", help="keep the episode in runs/NAME (default: human)")
    sub.add_argument("--agent", metavar="NAME", default="human", help="your name in the run (default: human)")


def _outside(sub: argparse.ArgumentParser) -> None:
    """What is played by somebody outside."""
    sub.add_argument("suite", metavar="SUITE", help="a suite's name, or a .jsonl file")
    sub.add_argument("--instance", metavar="ID", default="", help="the instance (default: the suite's first)")
    sub.add_argument("--prompts", metavar="PACK", default="standard", help="a prompt pack, by name or path")


def nightly(sub: argparse.ArgumentParser) -> None:
    """Options of `nightly`."""
    _sweep(sub)
    sub.add_argument("--budget", metavar="USD", help="the limit for this night (default: the spec's)")
    sub.add_argument("--date", metavar="DATE", help="the night, as 2026-11-21 (default: today, UTC)")
    sub.add_argument(
        "--deadline",
        metavar="SPAN",
        help="time limit from the start of the night, such as 90m or 8h (default: the spec's)",
    )
    sub.add_argument(
        "--tolerance", metavar="X", type=float, default=2.0, help="ignore drops of up to this many points (2)"
    )
    sub.add_argument(
        "--on-alarm",
        metavar="COMMAND",
        help="command to run for new alarms; it reads the facts as JSON from standard input",
    )
    sub.add_argument("--html", metavar="FILE", help="write all nights to one page that opens offline")
    sub.add_argument("--repair", action="store_true", help="drop the damaged part of tonight's log, and continue")
    instead = sub.add_mutually_exclusive_group()
    instead.add_argument("--look", action="store_true", help="play nothing: show the nights so far")
    instead.add_argument("--rebuild", action="store_true", help="play nothing: rebuild the history from the logs")
    instead.add_argument(
        "--accept",
        metavar="WHAT",
        action="append",
        default=[],
        help="play nothing: accept the current level of `all`, or of agent=NAME,suite=NAME, and alarm only on "
        "later drops",
    )
    sub.add_argument("--json", action="store_true", help="JSON lines instead of the live display, JSON at the end")


def gate(sub: argparse.ArgumentParser) -> None:
    """Options of `gate`."""
    _sweep(sub)
    sub.add_argument(
        "--against",
        metavar="OLD",
        required=True,
        help="an agent of the sweep, played too; or a run or an archive, whose scores are taken",
    )
    sub.add_argument(
        "--agent",
        metavar="NEW=OLD",
        action="append",
        default=[],
        help="compare these (default: those of one name; with an agent of the sweep all others); can be repeated",
    )
    sub.add_argument(
        "--again",
        action="store_true",
        help="play the old agents of a run or an archive again, in turns with the new, instead of taking their scores",
    )
    sub.add_argument(
        "--margin",
        metavar="X",
        type=float,
        help="points by which the new may be worse (default: the sweep's [gate], 2)",
    )
    sub.add_argument("--budget", metavar="USD", help="the limit for the gate's run (default: the spec's)")
    sub.add_argument("--deadline", metavar="SPAN", help="stop after this time, such as 20m (default: the spec's)")
    sub.add_argument("--name", metavar="NAME", help="name of the gate's run (default: the spec's, with -gate)")
    sub.add_argument("--junit", metavar="FILE", help="write the checks as JUnit's XML")
    sub.add_argument("--markdown", metavar="FILE", help="write a comment for a pull request")
    sub.add_argument("--json", action="store_true", help="JSON lines instead of the live display, JSON at the end")


def plan(sub: argparse.ArgumentParser) -> None:
    """Options of `plan`."""
    _sweep(sub)
    sub.add_argument("--dir", metavar="DIR", help="the run's directory, or a place in a bucket, instead of runs/NAME")
    sub.add_argument("--budget", metavar="USD", help="what the run may spend, instead of the sweep's; what it pays for")
    sub.add_argument("--json", action="store_true", help="the same as JSON")
    _only(sub)


def status(sub: argparse.ArgumentParser) -> None:
    """Options of `status`."""
    _newest(sub)
    _json(sub)
    sub.add_argument("--money", action="store_true", help="where the money went, instead of progress")


def reconcile(sub: argparse.ArgumentParser) -> None:
    """Options of `tools reconcile`."""
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    _json(sub)
    sub.add_argument("--spent", metavar="USD", required=True, help="what the provider billed for the run")
    sub.add_argument(
        "--lane", metavar="LANE", help="what --spent is for: PROVIDER/MODEL alone; without it, the whole run"
    )


def report(sub: argparse.ArgumentParser) -> None:
    """Options of `report`."""
    _newest(sub)
    _json(sub)
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="Markdown tables")
    form.add_argument("--csv", metavar="DIR", help="one CSV file per table, in this directory")
    form.add_argument("--latex", action="store_true", help="LaTeX tables, for booktabs")
    figures = "each figure as SVG, PNG, PDF, slide and CSV, and a page of all, in this directory"
    form.add_argument("--figures", metavar="DIR", help=figures)
    form.add_argument(
        "--html", metavar="FILE", help="tables, figures and some trajectories in one page that opens offline"
    )
    sub.add_argument(
        "--judged",
        metavar="RUN",
        action="append",
        help="a judge's run on this run: use the judge's counts for coverage; can be given twice, once per kind",
    )
    part = sub.add_argument_group("other tables, instead of the standard ones")
    part.add_argument("--beside", choices=("paper",), help="the papers' tables, each below this run's own")
    part.add_argument("--by", metavar="TAG", help="means of agents that share a tag: family, or open,proprietary")
    part.add_argument(
        "--table",
        metavar="NAME",
        action="append",
        help="this table alone: scores; a name that is none lists all; can be repeated",
    )
    part.add_argument("--quotes", action="store_true", help="one trajectory quoted per kind of error")


def ls(sub: argparse.ArgumentParser) -> None:
    """Options of `ls`."""
    _json(sub)


def sql(sub: argparse.ArgumentParser) -> None:
    """Options of `sql`."""
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("query", metavar="QUERY", nargs="?", help="SQL of DuckDB; without a query, list the views")
    form = sub.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the rows as JSON")
    form.add_argument("--csv", action="store_true", help="the rows as CSV")


def compare(sub: argparse.ArgumentParser) -> None:
    """Options of `compare`."""
    sub.add_argument(
        "first",
        metavar="A",
        nargs="?",
        help="a run, or RUN:AGENT; or several nights: runs/NAME/nights/FIRST..LAST (default: the newest run)",
    )
    sub.add_argument("second", metavar="B", nargs="?", help="a second one; agents with the same name are compared")
    sub.add_argument("--agents", metavar=("X", "Y"), nargs=2, help="two agents of one run (default: its only two)")
    sub.add_argument("--json", action="store_true", help="the same as JSON, with a stable schema")


def show(sub: argparse.ArgumentParser) -> None:
    """Options of `show`."""
    _newest(sub)
    sub.add_argument(
        "episode",
        metavar="EPISODE",
        nargs="?",
        help="an id or the start of one, or agent:suite:instance:replicate (default: list some)",
    )
    sub.add_argument("--period", metavar="N", type=whole_number, help="only this period, counted from 0")
    sub.add_argument(
        "--full",
        action="store_true",
        help="do not shorten texts; show the descriptions of the tools, and facts as JSON too",
    )


def view(sub: argparse.ArgumentParser) -> None:
    """Options of `view`."""
    sub.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        help="a run directory, or its name below runs/; or a sweep with nights (default: all)",
    )
    sub.add_argument("--port", metavar="N", type=whole_number, default=0, help="on 127.0.0.1 (default: any free one)")
    sub.add_argument("--no-open", action="store_true", help="print the address, and open no browser")


def export(sub: argparse.ArgumentParser) -> None:
    """Options of `export`."""
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument(
        "--format",
        metavar="FORMAT",
        required=True,
        help="jsonl: one chat per line; inspect: Inspect AI logs; csv: CSV files; archive: the run and its numbers in "
        "a zip, for `verify`",
    )
    sub.add_argument("--out", metavar="PATH", required=True, help="a file (jsonl, archive) or a folder; must not exist")
    sub.add_argument("--only", metavar="PART", action="append", default=[], help="agent=NAME,suite=NAME")


def verify(sub: argparse.ArgumentParser) -> None:
    """Options of `verify`."""
    _newest(sub, "; or an archive")
    _json(sub)


def void(sub: argparse.ArgumentParser) -> None:
    """Options of `void`."""
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument(
        "--only",
        metavar="WHAT",
        action="append",
        default=[],
        help="episodes of these: agent=NAME,suite=NAME,instance=ID",
    )
    sub.add_argument(
        "--episode", metavar="E", default="", help="an id or the start of one, or agent:suite:instance:replicate"
    )
    sub.add_argument("--reason", metavar="TEXT", required=True, help="the reason; tables show it")
    sub.add_argument("--undo", action="store_true", help="let them count again")


def new(sub: argparse.ArgumentParser) -> None:
    """Options of `new`."""
    sub.add_argument("file", metavar="FILE", nargs="?", help="where to write a sweep; must not exist")
    sub.add_argument(
        "--plugin",
        metavar="DIR",
        help="write a package instead, with an environment, texts, a suite, policies, a table and tests; the "
        "environment is named after the folder, which must be empty or must not exist",
    )


def check_agent(sub: argparse.ArgumentParser) -> None:
    """Options of `tools check-agent`."""
    sub.add_argument("agent", metavar="AGENT", help="`module:function`, or a name that a package brings")
    sub.add_argument("--suite", metavar="SUITE", required=True, help="what it plays")
    sub.add_argument("--policy", metavar="POLICY", help="who answers (default: the environment's stand-in for a model)")


def completion(sub: argparse.ArgumentParser) -> None:
    """Options of `tools completion`."""
    sub.add_argument("shell", nargs="?", choices=("bash", "zsh"), default="bash", help="whose (default: bash)")
    sub.add_argument("--names", metavar="KIND LINE", help=argparse.SUPPRESS)


def schema(sub: argparse.ArgumentParser) -> None:
    """Options of `tools schema`."""
    sub.add_argument("kind", choices=("sweep", "provider", "catalogue", "pack"), help="the kind of file")


def plugins(sub: argparse.ArgumentParser) -> None:
    """Options of `tools plugins`."""
    sub.add_argument("--json", action="store_true", help="the same as JSON, with a stable schema")


def generate(sub: argparse.ArgumentParser) -> None:
    """Options of `generate`."""
    sub.usage = (
        "evalkit suites generate [-h] ENVIRONMENT --out FILE [--instances N] [--seed SEED] [--PARAMETER VALUE ...]"
    )
    sub.add_argument(
        "--instances", metavar="N", type=whole_number, default=12, help="number of instances (default: 12)"
    )
    sub.add_argument(
        "--seed", metavar="SEED", type=whole_number, default=0, help="seed of the whole suite (default: 0)"
    )
    sub.add_argument("--out", metavar="FILE", required=True, help="the new file: .jsonl, or .parquet")


def describe(sub: argparse.ArgumentParser) -> None:
    """Options of `suites describe`."""
    sub.add_argument("suite", metavar="SUITE", help="a suite's name, or its file")
    sub.add_argument("--beside", choices=("paper",), help="its tables that the papers have, each above theirs")
    sub.add_argument("--json", action="store_true", help="the tables as JSON")


def providers(sub: argparse.ArgumentParser) -> None:
    """Options of `providers`."""
    sub.usage = "evalkit providers [-h] [PROVIDER [MODEL ...] | check [PROVIDER ...] [--model MODEL]]"
    sub.add_argument("name", nargs="?", metavar="PROVIDER", help="show only this provider, with its models and prices")
    sub.add_argument(
        "names",
        nargs="*",
        metavar="MODEL",
        help="show only these models, also ones that the provider's file does not list",
    )
    sub.add_argument("--model", metavar="MODEL", help="with `check`: this model instead of the cheapest listed one")


def prompts(sub: argparse.ArgumentParser) -> None:
    """Options of `prompts`."""
    actions = sub.add_subparsers(metavar="ACTION", required=True)
    action = functools.partial(actions.add_parser, epilog=sub.epilog, formatter_class=Help, allow_abbrev=False)
    action("list", help="the packs that can be named").set_defaults(call="list_packs")
    bring = action("import", help="build a pack from a copy of the reference repository, whose code is executed")
    bring.add_argument(
        "repositories",
        metavar="DIR",
        nargs="+",
        help="a copy's top folder: its code is executed; several make one pack",
    )
    bring.add_argument("--out", metavar="FILE", required=True, help="the pack's file, ending in .toml")
    bring.add_argument(
        "--wording", metavar="NAME", help="another of procurement's prompts: known_horizon, known_horizon_goal"
    )
    bring.set_defaults(call="import_pack")


def queries(sub: argparse.ArgumentParser) -> None:
    """Options of `queries`."""
    actions = sub.add_subparsers(metavar="ACTION", required=True)
    action = functools.partial(actions.add_parser, epilog=sub.epilog, formatter_class=Help, allow_abbrev=False)
    bring = action("import", help="make a suite of the reference's queries, with texts or without")
    bring.add_argument("files", metavar="FILE", nargs="+", help="a copy of queries.json; several make one suite")
    bring.set_defaults(call="import_queries")
    sift = action(
        "filter", help="leave out wishes that conflict: by the file's verdicts, else by the domain's conflicts"
    )
    sift.add_argument("files", metavar="FILE", nargs="+", help="raw or filtered queries (.json), or one suite")
    sift.set_defaults(call="leave_out")
    bring.add_argument("--length", metavar="N", type=whole_number, help="tools in a task's chain (default: 5)")
    bring.add_argument(
        "--alternatives", metavar="N", type=whole_number, help="alternative queries per query (default: 3)"
    )
    raw = action("raw", help="construct the reference's raw queries: ids, times, wishes and answers, without texts")
    raw.add_argument(
        "--split", choices=("test", "train"), default="test", help="the split whose values are used (default: test)"
    )
    raw.add_argument(
        "--total", metavar="N", type=whole_number, help="number of queries (default: 1000; for train 6000)"
    )
    raw.add_argument("--seed", metavar="SEED", type=whole_number, default=42, help="of times and wishes (default: 42)")
    raw.add_argument("--out", metavar="FILE", required=True, help="the new file, ending in .json")
    raw.set_defaults(call="raw")
    ask = action("ask", help="have a model check a suite's queries, or write their texts")
    ask.add_argument("suite", metavar="SUITE", help="a suite of costbench (its file, or its name), or raw queries")
    ask.add_argument(
        "--for", metavar="WHAT", required=True, dest="what", help="conflict: do wishes conflict? requirement: a text"
    )
    ask.add_argument("--name", metavar="NAME", required=True, help="name of the run; its sweep is runs/NAME.toml")
    _asked(ask)
    ask.set_defaults(call="ask")
    use = action("apply", help="make a suite from the answers")
    use.add_argument("run", metavar="RUN", help="the finished run of `queries ask`")
    use.add_argument("suite", metavar="SUITE", help="the suite, or the file of queries, that was asked about")
    use.set_defaults(call="apply")
    draw = action("sample", help="draw texts that people check by hand, by stratum, and write a sheet to fill in")
    draw.add_argument("--size", metavar="N", type=whole_number, default=200, help="texts in all (default: 200)")
    draw.add_argument("--seed", metavar="SEED", type=whole_number, default=0, help="of the draw (default: 0)")
    draw.add_argument("--out", metavar="FILE", required=True, help="the new sheet, ending in .csv")
    draw.set_defaults(call="sample")
    compare = action("agree", help="read filled-in sheets: how often each is right, how far they agree (Cohen's kappa)")
    compare.set_defaults(call="agree")
    for command in (draw, compare):
        command.add_argument("of", metavar="SUITE|RUN", help="the suite whose queries, or the run whose plans are read")
        command.add_argument(
            "--judged", metavar="RUN", help="of a run's plans: the judge's run, whose counts are right"
        )
    compare.add_argument("sheets", metavar="SHEET", nargs="+", help="a filled-in copy, one for each annotator")
    compare.add_argument("--json", action="store_true", help="the tables as JSON")
    for command in (bring, sift, use):
        command.add_argument(
            "--seed", metavar="SEED", type=whole_number, help="a file's: seed of costs and alternatives (default: 42)"
        )
        command.add_argument("--out", metavar="FILE", required=True, help="the new suite's file, ending in .jsonl")


def judge(sub: argparse.ArgumentParser) -> None:
    """Options of `judge`."""
    sub.add_argument("run", metavar="RUN", help="a run directory, or its name below runs/")
    sub.add_argument("--name", metavar="NAME", help="name of the judge's run (default: RUN-judge)")
    sub.add_argument(
        "--listed",
        action="store_true",
        help="count everything that a plan lists as a path, valid or not, like the paper's judge (default: "
        "complete paths)",
    )
    _asked(sub)


def _asked(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--model", metavar="PROVIDER/MODEL", required=True, help="the model to ask")


def _sweep(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("sweep", metavar="SPEC", help="a sweep's TOML file, or its name below runs/")
    sub.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="replace a value of the sweep: agents.NAME.effort=high, replicates=2; can be repeated",
    )


def _only(sub: argparse.ArgumentParser) -> None:
    words = "only these agents and suites: agent=NAME,suite=NAME"
    sub.add_argument("--only", metavar="WHAT", action="append", default=[], help=words)


def _newest(sub: argparse.ArgumentParser, more: str = "") -> None:
    words = f"a run directory, or its name below runs/{more} (default: the newest run)"
    sub.add_argument("run", metavar="RUN", nargs="?", help=words)


def _json(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="the same as JSON, with a stable schema")
