"""Output that its encoding cannot hold, or its disk, and paths that a shell would have expanded."""

import io
import json
import sys
from pathlib import Path

import pytest

import evalkit
from evalkit.cli.main import COULD_NOT_START, main
from evalkit.cli.pipes import GuardedStream
from evalkit.spec.suites import find_suite
from tests.support.each_case import check_each

WORDS = "77.9–92.3 │ ┏━┓ █ é … 日本 \U0001f600 \ud800 \u00a0→ ±"


def ended(words: list[str]) -> int | str | None:
    """A command's exit code."""
    try:
        return main(words)
    except SystemExit as how:
        return how.code


@pytest.mark.parametrize("as_json", [False, True])
def test_every_encoding_takes_any_text(as_json: bool) -> None:
    def check(encoding: str) -> None:
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        guarded = GuardedStream(stream)
        guarded.holds_json(as_json)
        print(json.dumps({"a": WORDS}, ensure_ascii=False) if as_json else WORDS, file=guarded, flush=True)
        shown = raw.getvalue().decode(encoding)
        if as_json:
            assert json.loads(shown)["a"] == WORDS
        else:
            assert shown.startswith("77.9"), shown
            assert shown[4] in "-–"
            assert "\\ud800" in shown  # the half of a surrogate pair, which no encoding has

    names = ("ascii", "latin-1", "iso-8859-15", "cp437", "cp1252", "koi8-r", "shift_jis", "utf-8")
    check_each([(name, name) for name in names], check)


def test_lines_and_dashes_become_plain_ones() -> None:
    raw = io.BytesIO()
    guarded = GuardedStream(io.TextIOWrapper(raw, encoding="ascii"))
    print("1–2 │ ┏━┓ █ … é ≤ “x”", file=guarded, flush=True)
    assert raw.getvalue() == b'1-2 | +-+ # ... e <= "x"\n'


def test_commands_print_in_an_encoding_without_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["sql", "--help"], ["nothing–there"]):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        assert ended(words) in (0, COULD_NOT_START)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["providers"], COULD_NOT_START)])
def test_a_full_disk_behind_the_output_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdout", full)
        assert ended(words) == code
    assert capsys.readouterr().err == "evalkit: the output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    "words",
    [["--dir=~/here"], ["--dir", "~/here"], ["--name=x", "--dir=~/a/../here"]],
)
def test_a_path_in_the_home_directory_is_found_where_no_shell_has_expanded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (tmp_path / "home" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("mine.toml").write_text(
        '[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
        "vary = { periods = [1] }\n"
    )
    assert main(["run", "~/../elsewhere/mine.toml", *words]) == 0
    assert list((tmp_path / "home" / "here").iterdir())
    assert [path.name for path in Path().iterdir()] == ["mine.toml"]


def test_a_program_and_a_sweep_may_name_places_at_home_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    line = find_suite("scheduling/basic").read_bytes().splitlines(keepends=True)[0]
    (tmp_path / "home" / "own.jsonl").write_bytes(line)
    (tmp_path / "home" / "mine.toml").write_text(
        '[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "~/own.jsonl"\nvary = { periods = [1] }\n'
    )
    outcome = evalkit.run("~/mine.toml", directory="~/here")
    assert outcome.directory == tmp_path / "home" / "here"
    assert evalkit.load("~/here").directory == outcome.directory
    assert not list(Path().iterdir())
