from pathlib import Path

import msgspec
import pytest

from evalkit.errors import UsageError
from evalkit.spec.reading import parse_span, read_toml


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    width: int = 1
    vary: dict[str, list[int]] = {}


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    inner: list[Inner] = []
    by_name: dict[str, Inner] = {}


def read(tmp_path: Path, text: str) -> Outer:
    path = tmp_path / "file.toml"
    path.write_text(text)
    return read_toml(path, Outer)


def test_a_good_file_becomes_its_record(tmp_path: Path) -> None:
    got = read(tmp_path, 'name = "a"\n[[inner]]\nwidth = 3\n[by_name.x]\nwidth = 4\n')
    assert got == Outer(name="a", inner=[Inner(width=3)], by_name={"x": Inner(width=4)})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae = 'a'", r"file\.toml: unknown key 'nmae'\. Did you mean 'name'\?"),
        ("[[inner]]\n[[inner]]\nwidht = 3", r"unknown key 'inner\[2\]\.widht'\. Did you mean 'width'\?"),
        ("[by_name.x]\nwidht = 3", r"unknown key 'by_name\.x\.widht'"),
        ("[[inner]]\nwidth = 'many'", r"file\.toml: inner\[1\]\.width: expected a whole number, got a string\."),
        ("name = 3", r"file\.toml: name: expected a string, got a whole number\."),
        (
            "[[inner]]\n[[inner]]\nvary = {k = 3}",
            r"file\.toml: inner\[2\]\.vary\.k: expected a list, got a whole number\.",
        ),
        ("[[inner]]\nvary = {k = [3, 'x']}", r"inner\[1\]\.vary\.k\[2\]: expected a whole number, got a string\."),
        ("name = = 3", r"file\.toml is not valid TOML: .*line 1"),
    ],
)
def test_a_bad_file_is_refused_by_file_place_and_nearest_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml: no such file"):
        read_toml(tmp_path / "absent.toml", Outer)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("250ms", 0.25), ("2 h", 7200)]
)
def test_spans_of_time_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5", "1h and a bit", "-3s"])
def test_what_is_no_span_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a span of time"):
        parse_span(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 1" + "0" * 5000, r"file\.toml: an integer of thousands of digits is too long \(at line 1\)"),
        ("[[inner]]\nwidth = 9223372036854775808", r"file\.toml: inner\[1\]\.width: an integer of 64 bits is too long"),
        ("name = 'a'\n[by_name.x]\nwidth = " + "9" * 5000, r"file\.toml: an integer of thousands of .* \(at line 3\)"),
        ("name = 'a'\n[by_name.x]\nwidth = " + "9_9" * 5000, r"file\.toml: an integer of thousands .* \(at line 3\)"),
        ("inner = " + "[" * 20_000, r"file\.toml: lists or tables are nested too deeply"),
        ("[by_name.x]\nwidth = -1" + "0" * 400, r"file\.toml: by_name\.x\.width: an integer of \d+ bits is too long"),
        ("name = [1, [2, 1" + "0" * 30 + "]]", r"file\.toml: name\[2\]\[2\]: an integer"),
    ],
)
def test_integers_that_no_log_could_hold_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(tmp_path, text)


def test_the_longest_integer_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "[[inner]]\nwidth = 9223372036854775807").inner == [Inner(width=2**63 - 1)]


def test_files_of_editors_are_read_with_utf8s_mark_and_others_are_told(tmp_path: Path) -> None:
    path, text = tmp_path / "file.toml", 'name = "é"\r\n[[inner]]\r\nwidth = 3\r\n'
    wanted = Outer(name="é", inner=[Inner(width=3)])
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_bytes(text.encode(encoding))
        assert read_toml(path, Outer) == wanted
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        path.write_bytes(text.encode(encoding))
        with pytest.raises(UsageError, match=r"file\.toml is not UTF-8 text, but UTF-16 or UTF-32\. Save it as UTF-8"):
            read_toml(path, Outer)
    path.write_bytes(b"[[inner]]\n" + text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"file\.toml is not UTF-8 text \(at line 2\)\. Save it as UTF-8"):
        read_toml(path, Outer)
