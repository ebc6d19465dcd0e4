"""What is printed goes through one guard: nothing in it moves a cursor, or hides or reorders text."""

import ast
import io
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

import evalkit
from evalkit.cli.main import COULD_NOT_START, main
from evalkit.cli.pipes import GuardedStream, guarded_streams
from evalkit.redact import KEYS
from evalkit.report.render.terminal import Output
from evalkit.text import visible

HOSTILE = "a\x1b[2J\x1b]8;;http://x\x07b\rc\x9b31m\u202ed\u2066e\u200bf"
SEEN = "a\\x1b[2J\\x1b]8;;http://x\\x07b\\rc\\x9b31m\\u202ed\\u2066e\\u200bf"
SOURCES = Path(evalkit.__file__).parent


def around(path: str, tree: ast.Module) -> Iterator[str]:
    """What in a module prints past the guard."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.Attribute):
            continue
        words = ast.unparse(node)
        if isinstance(node, ast.Call) and words.startswith("print(") and not path.startswith("cli/"):
            # Where no guard may be: the text itself is made visible, but for the address that a program reads.
            shown = node.args and ast.unparse(node.args[0])
            if not (shown and (shown.startswith("visible(") or "READY" in shown)):
                yield f"{path}:{node.lineno} prints what is not visible: {words:.60}"
        elif words in ("sys.stdout.buffer", "sys.stderr.buffer", "sys.__stdout__", "sys.__stderr__"):
            yield f"{path}:{node.lineno} takes {words}"
        elif isinstance(node, ast.Call) and words.startswith(("os.write(1", "os.write(2", "Console(", "rich.print")):
            yield f"{path}:{node.lineno} prints by {words:.60}"
        elif words.startswith(("sys.stdout.write(", "sys.stderr.write(")):
            yield f"{path}:{node.lineno} writes by {words:.60}"
        elif words.startswith("unguarded(") and path != "cli/main.py":
            yield f"{path}:{node.lineno} takes off the guard"


def test_nothing_prints_past_the_guard() -> None:
    paths = sorted(SOURCES.rglob("*.py"))
    found = [
        flaw
        for path in paths
        for flaw in around(path.relative_to(SOURCES).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(found)


def test_what_prints_past_the_guard_is_noticed() -> None:
    texts = (
        "print(flaw)",
        "print()",
        "sys.stdout.buffer.write(b'')",
        "print('', file=sys.__stderr__)",
        "os.write(2, text)",
        "to = Console(stderr=True)",
        "sys.stderr.write('x')",
        "unguarded(sys.stdout)",
    )
    assert [text for text in texts if not list(around("view/server.py", ast.parse(text)))] == []


def test_errors_show_what_they_quote(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["report", HOSTILE], [HOSTILE], ["plan", f"{HOSTILE}.toml"], ["show", HOSTILE, "x"]):
        assert main(words) == COULD_NOT_START
        said = capsys.readouterr()
        assert said.out == ""
        assert visible(said.err) == said.err, said.err
        assert "x1b[2J" in said.err


def test_tracebacks_and_warnings_go_through_it(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_streams():
        try:
            raise ValueError(HOSTILE)
        except ValueError as flaw:
            traceback.print_exception(flaw)
            sys.excepthook(type(flaw), flaw, None)
    assert capsys.readouterr().err.count(SEEN) == 2


def test_an_answer_is_shown_as_text_and_as_the_same_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "hostile \u202e\x9b31m \U000e0041"
    Path("mine.toml").write_text(
        "[[agents]]\npolicy = 'knuth'\n"
        "[[suites]]\nname = 'scheduling/basic'\ninstances = ['seed-0']\nvary = { periods = [1] }\n"
    )
    assert main(["run", "mine.toml"]) == 0
    query = f"select '{name}' as name"
    shown = {}
    for form in ("", "--csv", "--json"):
        capsys.readouterr()
        assert main(["sql", "mine", query, *([form] if form else [])]) == 0
        shown[form] = capsys.readouterr().out
        assert visible(shown[form]) == shown[form]
    assert "hostile \\u202e\\x9b31m \\U000e0041" in shown[""]
    assert shown["--csv"] == '"name"\n"hostile \\u202e\\x9b31m \\U000e0041"\n'
    assert json.loads(shown["--json"]) == [{"name": name}]


def test_a_console_keeps_its_own_colours_and_shows_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with guarded_streams():
        console = Output(stderr=True, width=200)
        mild = HOSTILE.replace("\x07", "").replace("\r", "")  # what rich itself leaves out
        console.print(Text(mild, style="bold"), Text("[link=http://x]word[/link]"))
        console.print("[link=http://x]word[/link]")
        table = Table(mild)
        table.add_row(mild)
        console.print(table)
        with Live(console=console, transient=True), guarded_streams():
            print(HOSTILE, file=sys.stderr)
    text = terminal.getvalue()
    assert "\x1b[1m" in text
    assert "\x1b]8" not in text
    assert not {"\x9b", "\u202e", "\x07"} & {*text}
    assert text.count(SEEN) == 1
    assert text.count("\\x1b[2J") == 4
    assert text.count("[link=http://x]word[/link]") == 2


KEY = "sk-planted-0123456789abcdefGHIJ"


def test_no_long_piece_of_a_key_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    KEYS.learn(KEY)
    monkeypatch.setenv("COLUMNS", "200")
    for words in (["report", KEY[:20]], [KEY[3:]], ["plan", f"{KEY}.toml"]):
        assert main(words) == COULD_NOT_START
    with guarded_streams():
        print(json.dumps({"a": KEY[2:18]}))
        Output().print(Text(f"An agent said {KEY[:25]}."), KEY[-14:])
        try:
            raise ValueError(KEY[1:16])
        except ValueError as flaw:
            sys.excepthook(type(flaw), flaw, None)
    said = "".join(capsys.readouterr())
    assert [piece for at in range(len(KEY) - 11) if (piece := KEY[at : at + 12]) in said] == []
    assert said.count("***") == 7


def test_a_guarded_stream_is_the_stream_behind_it_in_all_else() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    guarded = GuardedStream(stream)
    assert guarded.write("\x1b") == 1
    assert (guarded.encoding, guarded.isatty(), guarded.buffer) == ("utf-8", False, stream.buffer)
    assert isinstance(Console(file=stream).file, io.TextIOWrapper)
