import argparse
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from evalkit.cli.commands import COMMANDS, OWN_OPTIONS, module_of
from evalkit.cli.main import main, parse, parser
from evalkit.engine.gc_threshold import COLLECT_EVERY, OLDER_EVERY
from evalkit.errors import UsageError
from evalkit.version import __version__
from tests.support.command_line import Call
from tests.support.patience import PATIENCE_S

HEAVY = ("numpy", "numba", "scipy", "pyarrow", "duckdb", "aiohttp", "rich", "pandas", "msgspec", "asyncio")
MEASURE = """
import json, sys
from evalkit.cli.main import main
for command in {commands!r}:
    try:
        main([*command.split(), "--help"])
    except SystemExit:
        pass
print(json.dumps([name for name in {heavy!r} if name in sys.modules]), file=sys.stderr)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_shows_examples_and_fits_the_terminal(call: Call, command: str) -> None:
    said = call(*command.split(), "--help")
    assert said.code == 0
    examples = said.out.partition("examples:\n")[2]
    assert f"evalkit {command}" in examples
    prose = said.out.partition("examples:")[0].partition("\n\n")[2]
    assert max(map(len, prose.splitlines())) <= 80


def test_examples_parse() -> None:
    lines = [example for one in COMMANDS.values() for example in one.examples]
    words = [shlex.split(line.split(" > ")[0]) for line in lines if line.startswith("evalkit ")]
    assert len(words) >= len(COMMANDS)
    for line in words:
        assert parse(line[1:]).module in (line[1], " ".join(line[1:3]))


def test_a_command_s_parser_is_built_without_the_others() -> None:
    _, all_of_them = parser()
    for name in COMMANDS:
        _, alone = parser(name)
        assert alone.keys() == {name}
        assert alone[name].format_help() == all_of_them[name].format_help()


def test_help_lists_every_command_within_80_columns(call: Call) -> None:
    said = call("--help")
    assert said.code == 0
    tools = call("tools", "--help")
    assert tools.code == 0
    for command, one in COMMANDS.items():
        group, _, tool = command.rpartition(" ")
        if group != "suites":
            shown = tools.out if group else said.out
            assert re.search(rf"^  {tool} +{re.escape(one.summary)}$", shown, re.MULTILINE)
    assert max(map(len, f"{said.out}\n{tools.out}".splitlines())) <= 80


def test_there_are_few_commands_and_options() -> None:
    _, commands = parser()
    for name in OWN_OPTIONS:
        importlib.import_module(f"evalkit.cli.{module_of(name)}").add_options(commands[name])
    assert len({name.partition(" ")[0] for name in COMMANDS}) <= 20
    # 110, and what the papers' workflow takes: seeds of raw queries, samples checked by hand, --beside of a suite. Then
    # the ten of `gate`; ls --json, report --table, view --no-open, run --on-alarm, and --names of completion.
    assert sum(map(_options, commands.values())) <= 132


def _options(one: argparse.ArgumentParser) -> int:
    """How many options a command has, with those of its actions."""
    own = [action for action in one._actions if action.option_strings and action.dest != "help"]
    inner = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
    return len(own) + sum(_options(sub) for action in inner for sub in action.choices.values())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["tools"], "A tool is missing"),
        (["tools", "viod"], "Did you mean 'void'"),
        (["void"], "evalkit tools void"),
        (["describe"], "evalkit suites describe"),
    ],
)
def test_a_tool_that_is_not_named_whole(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(argv)


def test_plan_loads_nothing_that_only_runs_need(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'budget_usd = 5\n[[agents]]\nprovider = "simulated"\nmodel = "knuth"\n[[suites]]\nname = "scheduling/basic"\n'
        'instances = ["seed-0"]\n'
    )
    heavy = ("aiohttp", "pyarrow", "numba", "duckdb", "scipy", "pandas")
    code = f"""
import sys
from evalkit.cli.main import main
code = main(["plan", "mine.toml"])
print(code, [name for name in {heavy!r} if name in sys.modules])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True, cwd=tmp_path
    )
    assert ran.stdout.splitlines()[-1] == "0 []"


def test_help_loads_nothing_heavy() -> None:
    # `simulate` and `suites generate` describe what they load, so their options may cost a little more.
    light = [command for command in COMMANDS if command not in OWN_OPTIONS]
    for commands, heavy in ((light, HEAVY), (OWN_OPTIONS, tuple(set(HEAVY) - {"msgspec"}))):
        code = MEASURE.format(commands=list(commands), heavy=heavy)
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert json.loads(ran.stderr) == []


def test_a_command_is_a_process_that_seldom_collects() -> None:
    code = "import gc, sys; from evalkit.cli.main import entry; sys.argv[1:] = ['--version']\n"
    code += "try: entry()\nfinally: print(*gc.get_threshold())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split()[-3:] == [str(COLLECT_EVERY), str(OLDER_EVERY), str(OLDER_EVERY)]


def test_help_loads_few_modules() -> None:
    def loaded(code: str) -> int:
        code += "\nimport sys; print(len(sys.modules))"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return int(ran.stdout.split()[-1])

    # A module is the unit of what a start costs: those of Python and argparse are half of them.
    help_ = "from evalkit.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded("import argparse") < loaded(help_) < 3 * loaded("import argparse")


def test_version(call: Call) -> None:
    assert call("--version").out.strip() == f"evalkit {__version__}"


def test_no_command_prints_the_help_and_fails(call: Call) -> None:
    said = call()
    assert said.code == 2
    assert said.out == call("--help").out
    assert said.err == "evalkit: A command is missing.\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["rnu"], "There is no command 'rnu'. Did you mean 'run'?"),
        (["run"], "run: the following arguments are required: SPEC"),
        (["run", "mine", "--bugdet", "5"], "Did you mean '--budget'?"),
        (["run", "mine", "--limit", "few"], "--limit: 'few' is not a whole number"),
        (["run", "mine", "theirs"], "unrecognized option 'theirs'"),
        (["run", "mine", "--budget"], "--budget: expected one argument"),
        (["report", "x", "--json", "--markdwon"], "Did you mean '--markdown'?"),
        (["report", "x", "--markdown", "--csv", "d"], "not allowed with"),
        (["simulate", "--fualts", "1"], "Did you mean '--faults'?"),
        (["simulate", "--latency", "soon"], "latency: 'soon' is not a span of time"),
        (["tools", "prompts"], "ACTION"),
        (["tools", "prompts", "imprt"], "invalid choice: 'imprt'"),
        (["--quiet"], "A command is missing"),
    ],
)
def test_a_wrong_word_gets_one_message(call: Call, argv: list[str], words: str) -> None:
    said = call(*argv)
    assert said.code == 2
    assert words in said.err.splitlines()[-1]
    assert len(said.err.splitlines()) == 1


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("argv", ["tools prompts list", "--help", "providers"])
def test_a_reader_that_goes_away_leaves_no_traceback(here: Path, argv: str) -> None:
    late = f"(sleep 0.3; {sys.executable} -m evalkit {argv}) | true"
    ran = subprocess.run(["bash", "-c", late], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_missing_descriptors_are_the_null_device(call: Call, here: Path, spec: Path, closed: str) -> None:
    evalkit = f"{shlex.quote(sys.executable)} -m evalkit"
    calls = (f"run {spec.name} --dir run", "status run", "sql run 'from cells' --csv")
    words = " && ".join(f"{evalkit} {one} {closed}" for one in calls)
    ran = subprocess.run(["sh", "-c", words], cwd=here, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert ("agent" in ran.stdout) is (">&-" not in closed.split())
    # A file of the run that had got a descriptor's number would hold what was printed.
    assert call("verify", "run").code == 0


def test_a_message_that_nobody_can_read_still_has_its_exit_code(here: Path) -> None:
    ran = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m evalkit status nowhere 2>&-"], cwd=here, check=False
    )
    assert ran.returncode == 2


class FakeTerminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "more", "told"), [("xterm", [], True), ("dumb", [], False), ("xterm", ["--json"], False)]
)
def test_a_terminal_is_told_what_begins_before_anything_heavy_is_loaded(
    monkeypatch: pytest.MonkeyPatch, term: str, more: list[str], *, told: bool
) -> None:
    terminal = FakeTerminal()
    seen = []

    def load(module: str) -> object:
        seen.append((module, terminal.getvalue()))
        return SimpleNamespace(run=lambda args: seen.append(("called", terminal.getvalue())) or 0)

    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(importlib, "import_module", load)
    assert main(["run", "quickstart", *more]) == 0
    words = "\x1b[1mreading the sweep and its suites ...\x1b[0m" if told else ""
    assert seen[0] == ("evalkit.cli.play.run", words)
    assert seen[1] == ("called", f"{words}\r\x1b[2K" if told else "")  # the line is free for what comes
