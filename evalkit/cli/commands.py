"""Every command: what it does, examples, which options it takes. `evalkit/cli/GROUP/NAME.py` holds its function."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evalkit.cli import options


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    group: str
    """A key of `GROUPS`."""
    summary: str
    examples: tuple[str, ...]
    options: Callable[[argparse.ArgumentParser], None]
    """Adds its options to its parser."""
    begins: str = ""
    """What it does first, in words that a terminal shows while its modules are loaded; empty: it answers at once."""


GROUPS: Mapping[str, str] = {
    "play": "plan and play sweeps",
    "read": "read runs",
    "make": "models, suites and prompts",
}
"""The parts of the list of commands, with their titles."""

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
        options.run,
        "reading the sweep and its suites",
    ),
    "plan": Command(
        "play",
        "predict cost, tokens and time without a request",
        (
            "evalkit plan runs/nightly.toml",
            "evalkit plan runs/nightly.toml --from runs/pilot",
            "evalkit plan runs/nightly.toml --budget 20",
        ),
        options.plan,
        "reading the sweep and its suites",
    ),
    "status": Command(
        "play",
        "show progress, cost so far, and the cost to finish",
        (
            "evalkit status runs/nightly",
            "watch evalkit status runs/nightly",
        ),
        options.on_run,
    ),
    "budget": Command(
        "play",
        "show where the money went; release what was not spent",
        (
            "evalkit budget runs/nightly",
            "evalkit budget reconcile runs/nightly --usage usage.jsonl",
            "evalkit budget reconcile runs/nightly --lane openai/gpt-5-mini --spent 3.27",
        ),
        options.budget,
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
        options.mcp,
        "reading the suite",
    ),
    "play": Command(
        "play",
        "play an episode yourself, in the terminal",
        (
            "evalkit play scheduling/basic --instance seed-0",
            "evalkit play costbench/basic --agent anna",
        ),
        options.play,
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
        options.nightly,
        "reading the sweep and its suites",
    ),
    "new": Command(
        "play",
        "write a commented sweep spec, or a package, to start from",
        ("evalkit new runs/mine.toml", "evalkit new --plugin evalkit-auctions"),
        options.new,
    ),
    "report": Command(
        "read",
        "show tables of scores with intervals",
        (
            "evalkit report runs/nightly",
            "evalkit report runs/nightly --markdown > scores.md",
            "evalkit report runs/nightly --beside paper --latex > beside.tex",
            "evalkit report runs/mine --judged runs/mine-judge",
        ),
        options.report,
        "reading the run",
    ),
    "sql": Command(
        "read",
        "query a run with SQL",
        (
            "evalkit sql runs/nightly",
            "evalkit sql runs/nightly 'select agent, avg(score) from episodes where used group by agent'",
        ),
        options.sql,
    ),
    "compare": Command(
        "read",
        "compare two runs or agents, with intervals and tests",
        (
            "evalkit compare runs/monday runs/tuesday",
            "evalkit compare baselines --agents knuth random",
            "evalkit compare runs/mine:gpt runs/other:claude --half-width 0.02",
        ),
        options.compare,
        "reading the runs",
    ),
    "show": Command(
        "read",
        "show one trajectory",
        (
            "evalkit show runs/nightly 3f2a",
            "evalkit show runs/nightly knuth:scheduling/basic:seed-0:0 --period 3",
        ),
        options.show,
    ),
    "view": Command(
        "read",
        "show runs in the browser, live while they run",
        ("evalkit view", "evalkit view nightly", "evalkit view runs/monday runs/tuesday --port 8000"),
        options.view,
    ),
    "verify": Command(
        "read",
        "replay every episode and compare it with the log",
        ("evalkit verify runs/nightly", "evalkit verify nightly.zip"),
        options.verify,
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
        options.export,
    ),
    "merge": Command(
        "read",
        "merge runs into a new one; the originals stay unchanged",
        (
            "evalkit merge runs/monday runs/tuesday --out runs/both",
            "evalkit merge runs/a runs/b runs/c --out runs/all --prefer first",
        ),
        options.merge,
    ),
    "void": Command(
        "read",
        "exclude episodes from all results, with a reason; undo it",
        (
            'evalkit void runs/nightly --agent gpt --suite scheduling/hard --reason "wrong key until noon"',
            'evalkit void runs/nightly --episode 3f2a --reason "provider truncated replies"',
            'evalkit void runs/nightly --agent gpt --undo --reason "key was right after all"',
        ),
        options.void,
    ),
    "judge": Command(
        "read",
        "have a model count the paths that a run's plans enumerate",
        ("evalkit judge runs/mine --model openai/gpt-5 --budget 2",),
        options.judge,
    ),
    "describe": Command(
        "make",
        "show a suite's instances, optima, parameters and tools",
        (
            "evalkit describe costbench/basic",
            "evalkit describe procurement/hard --markdown",
        ),
        options.describe,
    ),
    "generate": Command(
        "make",
        "generate a suite of new instances",
        (
            "evalkit generate scheduling --n 30 --k 3 --instances 100 --seed 7 --out instances/mine/n30.jsonl",
            "evalkit generate instances/mine/large.jsonl --out instances/mine/large.parquet",
        ),
        options.generate,
    ),
    "simulate": Command(
        "make",
        "serve the policies as models of a simulated provider",
        (
            "evalkit simulate --port 8080 --latency lognormal:200ms:0.5 --rpm 600",
            "evalkit simulate --faults 429=0.02,reset=0.01 --bill bill.jsonl",
        ),
        options.nothing,
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
            "evalkit providers check openai --settings",
        ),
        options.providers,
    ),
    "prompts": Command(
        "make",
        "list prompt packs, or import one from a copy of the reference",
        (
            "evalkit prompts list",
            "evalkit prompts import ~/src/econ-evals-paper --out paper.toml",
        ),
        options.prompts,
    ),
    "queries": Command(
        "make",
        "import CostBench's queries, or have a model check or write some",
        (
            "evalkit queries import data/queries.json --out instances/mine/test.jsonl",
            "evalkit queries raw --split test --out queries_raw.json",
            "evalkit queries ask SUITE.jsonl --for conflict --model openai/gpt-5 --name checked",
            "evalkit queries apply runs/checked SUITE.jsonl --out SOUND.jsonl",
        ),
        options.queries,
    ),
    "plugins": Command(
        "make",
        "list plug-ins, and what is wrong with them",
        ("evalkit plugins", "evalkit plugins --json"),
        options.plugins,
    ),
    "agents": Command(
        "make",
        "check that an agent's code repeats itself when it is resumed",
        (
            "evalkit agents check mypackage.agents:best_of --suite scheduling/basic",
            "evalkit agents check patterns:react --suite pricing/basic --policy random",
        ),
        options.agents,
    ),
}
"""All commands by name. Naming one imports nothing but argparse."""

OWN_OPTIONS = frozenset({"generate", "simulate"})
"""Commands that add options and help by `add_options`, from what they load."""

TAKES_ANY = frozenset({"generate"})
"""Commands that accept options which the parser does not know: an environment's parameters."""
