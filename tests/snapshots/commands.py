"""Which commands are golden, on which fixture: one line a command. What they print is split where it has parts, so that
a change of one table is a difference of one golden."""

import argparse
import importlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evalkit.cli.commands import COMMANDS, OWN_OPTIONS
from evalkit.cli.main import parser
from tests.net.damage import AFTER_A_KILL, RECIPES
from tests.net.normal import normal
from tests.net.workspace import RUN, call, copy

RUN_READERS = {
    "status": "status runs/sweep",
    "status-json": "status runs/sweep --json",
    "budget": "budget runs/sweep",
    "budget-json": "budget runs/sweep --json",
    "verify": "verify runs/sweep",
    "verify-json": "verify runs/sweep --json",
    "report": "report runs/sweep",
    "report-json": "report runs/sweep --json",
    "report-quotes": "report runs/sweep --quotes",
    "plan": "plan sweep.toml",
    "plan-json": "plan sweep.toml --json",
    "sql-episodes": "sql runs/sweep 'select episode, agent, suite, instance, replicate, ending, steps, "
    "round(score, 9) as score, solved, used, cost from episodes order by all' --csv",
    "sql-outcomes": "sql runs/sweep 'select agent, tool, outcome, count(*) as n from calls group by all order by all'",
    "sql-json": "sql runs/sweep 'select agent, suite, sum(tokens_in) as tokens, sum(usd) as usd from steps "
    "group by all order by all' --json",
    "sql-ledger": "sql runs/sweep 'select kind, lane, count(*) as n, sum(amount) as amount from ledger "
    "group by all order by all' --csv",
}
"""By name: what every fixture that is one run is asked."""

IN_BRIEF = {name: line for name, line in RUN_READERS.items() if name != "report-json"}
"""Without what is large, and of the same code as others'."""

READERS: Mapping[str, Mapping[str, str]] = {
    "finished": {
        **RUN_READERS,
        "report-half-width": "report runs/sweep --half-width 0.05 --json",
        "report-by-family": "report runs/sweep --by family",
        "report-by-tags": "report runs/sweep --by open,proprietary --json",
        "report-ranks": "report runs/sweep --ranks",
        "report-beside": "report runs/sweep --beside paper",
        "report-beside-json": "report runs/sweep --beside paper --json",
        "compare": "compare runs/sweep --agents chat messages",
        "compare-json": "compare runs/sweep --agents chat messages --json",
        "compare-runs": "compare runs/sweep:chat runs/sweep:gemini --half-width 0.02",
        "sql": "sql runs/sweep",
        "plan-from": "plan sweep.toml --from runs/sweep --json",
        "plan-budget": "plan sweep.toml --budget 1 --json",
        "show-scheduling": "show runs/sweep 'chat:scheduling/basic?periods=3:seed-0:0'",
        "show-procurement": "show runs/sweep 'messages:procurement/basic?periods=3:seed-3:1'",
        "show-pricing": "show runs/sweep 'messages:pricing/basic?periods=4:seed-0:0' --period 2",
        "show-costbench": "show runs/sweep 'chat:costbench/basic?block=cost_change:dining-0004:1'",
        "show-full": "show runs/sweep 'gemini:costbench/basic?block=none:dining-0004:0' --full",
        "show-many": "show runs/sweep 0",
    },
    "killed-early": IN_BRIEF,
    "killed-late": {
        **RUN_READERS,
        "compare": "compare runs/sweep --agents chat messages",
        "compare-json": "compare runs/sweep --agents responses gemini --json",
    },
    "faulty": {
        **RUN_READERS,
        "report-ranks": "report runs/sweep --ranks --json",
        "show-void": "show runs/sweep 'chat:scheduling/basic?periods=4:seed-3:0'",
        "sql-log": "sql runs/sweep 'select agent, take, attempts, count(*) as n from log "
        "group by all order by all' --csv",
    },
    "policies": {
        **RUN_READERS,
        "report-markdown": "report runs/sweep --markdown",
        "report-latex": "report runs/sweep --latex",
        "compare-markdown": "compare runs/sweep --agents noisy random --markdown",
        "compare-json": "compare runs/sweep --agents noisy random --json",
        "show-oracle": "show runs/sweep 'oracle:pricing/basic?periods=4:seed-1:1'",
    },
    "merged": {**IN_BRIEF, "compare": "compare runs/sweep --agents oracle noisy"},
    "repaired": IN_BRIEF,
    "judged": {
        "report": "report runs/sweep --judged runs/sweep-judge",
        "report-json": "report runs/sweep --judged runs/sweep-judge --json",
        "judge-status": "status runs/sweep-judge --json",
        "judge-verify": "verify runs/sweep-judge",
        "judge-report": "report runs/sweep-judge",
        "judge-show": "show runs/sweep-judge 0",
        "judge-sql": "sql runs/sweep-judge 'select agent, suite, instance, ending, round(score, 9) as score "
        "from episodes order by all' --csv",
    },
    "nightly": {
        "look": "nightly sweep.toml --look",
        "look-json": "nightly sweep.toml --look --json",
        "look-strict": "nightly sweep.toml --look --alpha 0.0001 --tolerance 5",
        "night-status": "status runs/sweep/nights/2026-11-05",
        "night-report": "report runs/sweep/nights/2026-11-02",
        "night-verify": "verify runs/sweep/nights/2026-11-04",
        "night-budget": "budget runs/sweep/nights/2026-11-05 --json",
        "nights-compare": "compare runs/sweep/nights/2026-11-03:watched runs/sweep/nights/2026-11-04:watched",
        "nights-compare-json": "compare runs/sweep/nights/2026-11-03 runs/sweep/nights/2026-11-04 --json",
    },
}
"""By fixture and name; all of a fixture on one copy, since they only read."""

WRITERS: Mapping[str, tuple[str, ...]] = {
    "finished/idle": ("run sweep.toml --json",),
    "finished/reconcile": (
        "budget reconcile runs/sweep --lane chat/noisy --spent 0.1",
        "budget reconcile runs/sweep --usage runs/sweep/bill-chat.jsonl",
        "budget runs/sweep --json",
    ),
    "faulty/void": (
        "void runs/sweep --episode 'chat:scheduling/basic?periods=4:seed-3:0' --undo --reason 'it was whole'",
        "void runs/sweep --agent gemini --suite 'scheduling/basic?periods=4' --reason 'wrong key until noon'",
        "void runs/sweep --agent nobody --reason none",
        "sql runs/sweep 'select agent, void, count(*) as n from episodes group by all order by all'",
    ),
    "faulty/reconcile": (
        "budget reconcile runs/sweep --usage runs/sweep/bill-messages.jsonl",
        "budget runs/sweep --json",
    ),
    "killed-late/reconcile": (
        "budget reconcile runs/sweep --usage runs/sweep/bill-chat.jsonl",
        "budget runs/sweep --json",
    ),
    "policies/extend": (
        "run sweep.toml --only agent=knuth --json",
        "run sweep.toml --name fresh --only agent=knuth,suite=scheduling/basic",
        "verify runs/fresh",
        "compare runs/sweep:knuth runs/fresh:knuth --json",
        "merge runs/sweep runs/fresh --out runs/both",
        "status runs/both --json",
        "verify runs/both",
    ),
    "policies/sheets": ("report runs/sweep --csv sheets", "export runs/sweep --format csv --out out"),
    "finished/chats": (
        "export runs/sweep --format jsonl --out chats.jsonl --only agent=messages,suite=scheduling/basic?periods=3",
    ),
    "nightly/rebuild": ("nightly sweep.toml --rebuild", "nightly sweep.toml --look --json"),
    "nightly/accept": (
        "nightly sweep.toml --accept agent=watched",
        "nightly sweep.toml --look --json",
        "nightly sweep.toml --accept agent=nobody",
    ),
}
"""By fixture and name: commands one after the other, on a copy of their own. What they write as tables or chats
(`.csv`, `.jsonl` beside the run) is golden too."""

LEFT_OUT = re.compile("out/(scores|table_)")
"""What is written and large, and golden elsewhere."""

ALONE = {
    "version": "--version",
    "no-command": "",
    "help": "--help",
    "prompts-list": "prompts list",
    "providers": "providers",
    "providers-one": "providers anthropic",
    "describe-scheduling": "describe scheduling/basic",
    "describe-procurement": "describe procurement/medium --json",
    "describe-pricing": "describe pricing/hard --markdown",
    "describe-costbench": "describe costbench/basic --json",
    "plan-quick": "plan quick.toml",
    "plan-quick-json": "plan quick.toml --json",
    "refused-command": "reprot runs/sweep",
    "refused-option": "report runs/sweep --jsno",
    "refused-run": "report runs/nothing",
    "refused-no-run": "status .",
    "refused-episode": "show runs/sweep nobody:scheduling/basic:seed-0:0",
    "refused-period": "show runs/sweep 'oracle:pricing/basic?periods=4:seed-1:1' --period 99",
    "refused-agents": "compare runs/sweep --agents knuth kunth",
    "refused-compare": "compare runs/sweep",
    "refused-sql": "sql runs/sweep 'select nothing from nowhere'",
    "refused-only": "run sweep.toml --only agent=kunth",
    "refused-limit": "run sweep.toml --limit 0",
    "refused-width": "run sweep.toml --width 0",
    "refused-budget": "run sweep.toml --budget much",
    "refused-sweep": "run nothing.toml",
    "refused-date": "nightly sweep.toml --date 2026-13-01",
    "refused-suite": "describe scheduling/basics",
    "refused-provider": "providers opnai",
    "refused-agent": "run unknown-agent.toml",
    "refused-key": "run unknown-key.toml",
    "refused-toml": "run torn.toml",
    "refused-twice": "run twice.toml",
    "refused-other": "run other.toml --dir runs/sweep",
    "refused-out": "export runs/sweep --format jsonl --out sweep.toml",
    "refused-merge": "merge runs/sweep --out runs/sweep",
    "refused-void": "void runs/sweep --reason none",
    "refused-reconcile": "budget reconcile runs/sweep --usage sweep.toml",
    "refused-import": "prompts import nowhere --out pack.toml",
    "refused-generate": "generate scheduling --n many --out new.jsonl",
}
"""By name: commands on the fixture `policies` and on the specs beside it."""

SUITE = '[[suites]]\nname = "scheduling/basic"\n'
SHORT_SUITE = f'{SUITE}instances = ["seed-0"]\nvary = {{ periods = [3] }}\n'
KNUTH = '[[agents]]\npolicy = "knuth"\n'

SPECS = {
    "quick.toml": '[[agents]]\nprovider = "simulated"\nmodel = "knuth"\n'
    f'[[agents]]\nname = "mini"\nprovider = "openai"\nmodel = "gpt-4.1-mini"\n{SHORT_SUITE}',
    "unknown-agent.toml": f'[[agents]]\npolicy = "kunth"\n{SUITE}',
    "unknown-key.toml": f"replicate = 2\n{KNUTH}{SUITE}",
    "torn.toml": '[[agents]]\npolicy = "knuth\n',
    "twice.toml": f'{KNUTH}[[agents]]\nname = "again"\npolicy = "knuth"\n{SUITE}',
    "other.toml": f'[[agents]]\nname = "knuth"\npolicy = "random"\n{SHORT_SUITE}',
}
"""Specs that `ALONE` names, by file name."""

AFTER_DAMAGE = {
    "verify": "verify runs/sweep",
    "status": "status runs/sweep",
    "report": "report runs/sweep --json",
    "sql": "sql runs/sweep 'select count(*) as n from episodes'",
    "budget": "budget runs/sweep --json",
    "show": "show runs/sweep 'random:pricing/basic?periods=4:seed-1:1'",
    "run": "run sweep.toml --json",
    "repair": "run sweep.toml --json --repair",
    "verify-repaired": "verify runs/sweep",
}
"""What a damaged run is asked, in this order, on one copy."""

AFTER_DAMAGE_AND_KILL = {
    "verify": "verify runs/sweep",
    "status": "status runs/sweep --json",
    "sql": "sql runs/sweep 'select count(*) as n from log'",
    "budget": "budget runs/sweep --json",
    "plan": "plan sweep.toml --json",
}
"""The same of a killed run, which only a provider could repair."""


def parts(name: str, text: str) -> Iterator[tuple[str, str]]:
    """What a command printed, by golden id: whole, or table by table where it holds several."""
    head, mark, out = text.partition("--- stdout\n")
    pieces = _tables_of_json(out) or _tables_of_text(out) if mark else {}
    if len(pieces) < 2:
        yield name, text
        return
    yield f"{name}/all", head + "tables: " + ", ".join(pieces)
    for piece, value in pieces.items():
        yield f"{name}/{piece}", value


def _tables_of_json(out: str) -> dict[str, str]:
    try:
        value = json.loads(out)
    except ValueError:
        return {}
    if not isinstance(value, dict) or not isinstance(value.get("tables"), dict):
        return {}
    tables = value.pop("tables")
    rest = {"rest": json.dumps(value, indent=1, ensure_ascii=False)}
    return rest | {name: json.dumps(table, indent=1, ensure_ascii=False) for name, table in tables.items()}


TITLES = (
    re.compile(r"^(?=\S[^\n]*\n [^\n]*\n─)", re.MULTILINE),
    re.compile(r"^(?=### )", re.MULTILINE),
    re.compile(r"(?<=\\end\{table\}\n)", re.MULTILINE),
)
"""Where a table begins: printed, in Markdown, in LaTeX."""


def _tables_of_text(out: str) -> dict[str, str]:
    for title in TITLES:
        found = [piece for piece in title.split(out) if piece.strip()]
        if len(found) > 1:
            named: dict[str, str] = {}
            for piece in found:
                label = re.search(r"\\label\{tab:(\w+)\}", piece)
                name = _slug(label[1] if label else piece.strip().partition("\n")[0])
                while name in named:
                    name += "-"
                named[name] = piece
            return named
    return {}


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60]


def of_fixture(fixture: str) -> Callable[[Path], dict[str, str]]:
    """What all readers print of one fixture, in a folder that is made for it."""

    def make(folder: Path) -> dict[str, str]:
        place = copy(fixture, folder)
        return _all(place, f"commands/{fixture}", READERS[fixture])

    return make


def of_writers(folder: Path) -> dict[str, str]:
    """What writing commands print and leave."""
    made: dict[str, str] = {}
    for name, lines in WRITERS.items():
        fixture, _, what = name.partition("/")
        place = copy(fixture, folder, as_name=f"{fixture}-{what}")
        before = {path.relative_to(place) for path in place.rglob("*")}
        for number, line in enumerate(lines):
            said = call(place, *shlex.split(line))
            made |= parts(f"writers/{name}/{number}-{line.split()[0]}", normal(str(said), place))
        for path in sorted(place.rglob("*")):
            inside = path.relative_to(place)
            made_here = inside not in before and inside.parts[0] != RUN.parts[0]
            if made_here and path.suffix in (".csv", ".jsonl") and not LEFT_OUT.match(inside.as_posix()):
                made[f"writers/{name}/{inside.with_suffix('').as_posix()}"] = normal(path.read_text())
    return made


def of_nothing(folder: Path) -> dict[str, str]:
    """What commands print that need no run, and what those do that are refused."""
    place = copy("policies", folder, as_name="alone")
    for name, text in SPECS.items():
        (place / name).write_text(text)
    return _all(place, "alone", ALONE)


def of_flags(folder: Path) -> dict[str, str]:
    """Every command's words and flags, with what each takes: they keep their names."""
    made, commands = {}, parser()[1]
    for name in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{COMMANDS[name].group}.{name}").add_options(commands[name])
    for name, command in commands.items():
        made[f"flags/{name}"] = "\n".join(_flags(command, "")) + "\n"
    return made


def _flags(command: argparse.ArgumentParser, before: str) -> Iterator[str]:
    for action in command._actions:
        words = "|".join(action.option_strings) or action.dest
        yield f"{before}{words} {action.metavar or ''} {action.nargs or ''} {action.default!r} {action.required}"
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _flags(inner, f"{before}{name} ")
        elif action.choices is not None:
            yield f"{before}{words} takes {', '.join(map(str, action.choices))}"


def of_damage(folder: Path) -> dict[str, str]:
    """What commands say of damaged runs, and what a repair leaves."""
    made: dict[str, str] = {}
    plain = [(name, "policies", recipe, AFTER_DAMAGE) for name, recipe in RECIPES.items()]
    killed = [(name, "killed-late", recipe, AFTER_DAMAGE_AND_KILL) for name, recipe in AFTER_A_KILL.items()]
    for name, fixture, recipe, lines in plain + killed:
        place = copy(fixture, folder, as_name=name)
        recipe(place / RUN)
        for what, line in lines.items():
            said = call(place, *shlex.split(line))
            text = normal(str(said), place)
            if what == "report" and said.code == 0:
                text = "exit 0\n"  # its tables are golden elsewhere
            made[f"damage/{name}/{what}"] = text
    return made


def _all(place: Path, group: str, lines: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, line in lines.items():
        made |= parts(f"{group}/{name}", normal(str(call(place, *shlex.split(line))), place))
    return made
