"""Every command: what it does, and examples. `evalkit/cli/GROUP/NAME.py` holds its function. One of the same name in
`options.py` adds its options, unless it reads them all itself.

A command of two words, such as `tools void`, has the functions of its second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    group: str
    """A key of `GROUPS`."""
    summary: str
    examples: tuple[str, ...]
    begins: str = ""
    """What it does first, in words that a terminal shows while its modules are loaded; empty: it answers at once."""


GROUPS: Mapping[str, str] = {
    "play": "plan and play sweeps",
    "read": "read runs",
    "make": "models and suites",
    "tools": "tools for what one seldom needs",
}
"""The parts of the list of commands, with their titles."""

TOOLS = "tools"
"""The word before a command of the last group, none of which the list of all commands names."""

COMMANDS: Mapping[str, Command] = {
    "run": Command(
        "play",
        "start, resume or extend a sweep",
        (
            "evalkit run quickstart",
            "evalkit run runs/nightly.toml --only agent=gpt,suite=scheduling/hard",
            "evalkit run runs/nightly.toml --retry unresponsive --budget 5",
            "evalkit run runs/mine.toml --name high --set agents.gpt.effort=high",
            "evalkit run runs/mine.toml --dir s3://bucket/mine --on ray",
        ),
        "reading the sweep and its suites",
    ),
    "plan": Command(
        "play",
        "predict cost, tokens and time without a request",
        (
            "evalkit plan runs/nightly.toml",
            "evalkit plan runs/nightly.toml --budget 20",
        ),
        "reading the sweep and its suites",
    ),
    "status": Command(
        "play",
        "show progress, cost so far, and the cost to finish",
        (
            "evalkit status runs/nightly",
            "watch evalkit status runs/nightly",
            "evalkit status runs/nightly --money",
        ),
    ),
    "mcp": Command(
        "play",
        "serve an episode to a program that calls its tools",
        (
            "evalkit mcp scheduling/basic --instance seed-0",
            "evalkit mcp costbench/basic --http 8765",
            "evalkit mcp pricing/basic --run tried --agent my-agent",
            "evalkit mcp end runs/tried my-agent:pricing/basic:seed-0:0",
        ),
        "reading the suite",
    ),
    "play": Command(
        "play",
        "play an episode yourself, in the terminal",
        (
            "evalkit play scheduling/basic --instance seed-0",
            "evalkit play costbench/basic --agent anna",
        ),
        "reading the suite",
    ),
    "nightly": Command(
        "play",
        "play tonight's part, plot trends, alarm on a regression",
        (
            "evalkit nightly quickstart --budget 80",
            "evalkit nightly runs/nightly.toml --html nights.html --on-alarm ./tell.sh",
            "evalkit nightly runs/nightly.toml --look",
            "evalkit nightly runs/nightly.toml --accept agent=gpt",
        ),
        "reading the sweep and its suites",
    ),
    "gate": Command(
        "play",
        "decide whether agents have become worse; stop when it is known",
        (
            "evalkit gate runs/mine.toml --against baseline.zip --budget 5",
            "evalkit gate runs/mine.toml --against baseline.zip --again",
            "evalkit gate runs/mine.toml --against old-prompt --margin 2 --markdown comment.md",
            "evalkit gate runs/mine.toml --against runs/main --agent new=old --junit gate.xml",
        ),
        "reading the sweep and its suites",
    ),
    "new": Command(
        "play",
        "write a commented sweep spec, or a package, to start from",
        ("evalkit new runs/mine.toml", "evalkit new --plugin evalkit-auctions"),
    ),
    "ls": Command("read", "list runs: state, money, date, best agent", ("evalkit ls",), "reading the runs"),
    "report": Command(
        "read",
        "show tables of scores with intervals",
        (
            "evalkit report",
            "evalkit report runs/nightly --table scores",
            "evalkit report runs/nightly --markdown > scores.md",
            "evalkit report runs/nightly --beside paper --latex > beside.tex",
            "evalkit report runs/mine --judged runs/mine-judge",
        ),
        "reading the run",
    ),
    "sql": Command(
        "read",
        "query a run with SQL",
        (
            "evalkit sql runs/nightly",
            "evalkit sql runs/nightly 'select agent, avg(score) from episodes where used group by agent'",
        ),
    ),
    "compare": Command(
        "read",
        "compare two runs or agents, with intervals and tests",
        (
            "evalkit compare runs/duel",
            "evalkit compare runs/monday runs/tuesday",
            "evalkit compare baselines --agents knuth random",
            "evalkit compare runs/mine:gpt runs/other:claude",
        ),
        "reading the runs",
    ),
    "show": Command(
        "read",
        "show one trajectory",
        (
            "evalkit show runs/nightly 3f2a",
            "evalkit show runs/nightly knuth:scheduling/basic:seed-0:0 --period 3",
        ),
    ),
    "view": Command(
        "read",
        "show runs in the browser, live while they run",
        ("evalkit view", "evalkit view nightly", "evalkit view runs/monday runs/tuesday --port 8000"),
    ),
    "verify": Command(
        "read",
        "replay every episode and compare it with the log",
        ("evalkit verify runs/nightly", "evalkit verify nightly.zip"),
        "reading the run",
    ),
    "export": Command(
        "read",
        "export chats, CSV files, Inspect logs, or an archive",
        (
            "evalkit export runs/nightly --format jsonl --out nightly.jsonl",
            "evalkit export runs/nightly --format archive --out nightly.zip",
            "evalkit export runs/nightly --format inspect --out logs --only agent=gpt,suite=scheduling/hard",
        ),
    ),
    "suites": Command(
        "make",
        "list suites; describe one, or generate one",
        (
            "evalkit suites",
            "evalkit suites describe costbench/basic",
            "evalkit suites generate scheduling --n 30 --k 3 --out instances/mine/n30.jsonl",
        ),
    ),
    "suites describe": Command(
        "make",
        "show a suite's instances, optima, parameters and tools",
        (
            "evalkit suites describe costbench/basic",
            "evalkit suites describe procurement/hard --json",
        ),
    ),
    "suites generate": Command(
        "make",
        "generate a suite of new instances",
        (
            "evalkit suites generate scheduling --n 30 --k 3 --instances 100 --seed 7 --out instances/mine/n30.jsonl",
            "evalkit suites generate instances/mine/large.jsonl --out instances/mine/large.parquet",
        ),
    ),
    "simulate": Command(
        "make",
        "serve the policies as models of a simulated provider",
        (
            "evalkit simulate --port 8080 --latency lognormal:200ms:0.5 --rpm 600",
            "evalkit simulate --faults 429=0.02,reset=0.01 --bill bill.jsonl",
        ),
    ),
    "providers": Command(
        "make",
        "list providers, models, prices and keys; check that they answer",
        (
            "evalkit providers",
            "evalkit providers openai",
            "evalkit providers openai gpt-6-sol",
            "evalkit providers check",
            "evalkit providers check openai --model gpt-5-mini",
        ),
    ),
    "tools void": Command(
        "tools",
        "exclude episodes from all results, with a reason; undo it",
        (
            'evalkit tools void runs/nightly --only agent=gpt,suite=scheduling/hard --reason "wrong key until noon"',
            'evalkit tools void runs/nightly --episode 3f2a --reason "provider truncated replies"',
            'evalkit tools void runs/nightly --only agent=gpt --undo --reason "key was right after all"',
        ),
    ),
    "tools judge": Command(
        "tools",
        "have a model count the paths that a run's plans enumerate",
        ("evalkit tools judge runs/mine --model openai/gpt-5",),
    ),
    "tools queries": Command(
        "tools",
        "import CostBench's queries, or have a model check or write some",
        (
            "evalkit tools queries import data/queries.json --out instances/mine/test.jsonl",
            "evalkit tools queries raw --split test --out queries_raw.json",
            "evalkit tools queries filter queries_raw.json --out SUITE.jsonl",
            "evalkit tools queries ask SUITE.jsonl --for conflict --model openai/gpt-5 --name checked",
            "evalkit tools queries apply runs/checked SUITE.jsonl --out SOUND.jsonl",
        ),
    ),
    "tools prompts": Command(
        "tools",
        "list prompt packs, or import one from a copy of the reference",
        (
            "evalkit tools prompts list",
            "evalkit tools prompts import ~/src/econ-evals-paper --out paper.toml",
        ),
    ),
    "tools reconcile": Command(
        "tools",
        "release what a run reserved and its provider did not bill",
        (
            "evalkit tools reconcile runs/nightly --spent 41.60",
            "evalkit tools reconcile runs/nightly --spent 3.27 --lane openai/gpt-5-mini",
        ),
    ),
    "tools check-agent": Command(
        "tools",
        "check that an agent's code repeats itself when it is resumed",
        (
            "evalkit tools check-agent mypackage.agents:best_of --suite scheduling/basic",
            "evalkit tools check-agent patterns:react --suite pricing/basic",
        ),
    ),
    "tools schema": Command(
        "tools",
        "print the JSON schema of a kind of TOML file, for editors",
        ("evalkit tools schema sweep > sweep.json", "evalkit tools schema provider"),
    ),
    "tools completion": Command(
        "tools",
        "print a script by which a shell completes commands and names",
        ("evalkit tools completion bash > evalkit.bash", "evalkit tools completion zsh > _evalkit"),
    ),
    "tools plugins": Command(
        "tools",
        "list plug-ins, and what is wrong with them",
        ("evalkit tools plugins", "evalkit tools plugins --json"),
    ),
}
"""All commands by name. Naming one imports nothing but argparse."""

OWN_OPTIONS = frozenset({"suites generate", "simulate"})
"""Commands that add options and help by `add_options`, from what they load."""

TAKES_ANY = frozenset({"suites generate"})
"""Commands that accept options which the parser does not know: an environment's parameters."""


def module_of(name: str) -> str:
    """The module below `evalkit.cli` that has the function of a command."""
    return f"{COMMANDS[name].group}.{called(name)}"


def called(name: str) -> str:
    """What the function of a command is called."""
    return name.rpartition(" ")[2].replace("-", "_")
