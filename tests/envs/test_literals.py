import ast
import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.arguments import MOST_BYTES, ParsedValue, Refusal, read_mapping
from tests.support.growth import assert_linear

OUTCOMES = {
    "ValueError": "unparseable",
    "AssertionError": "not_mapping",
    "TypeError": "unhashable",
    "AttributeError": "wrong_type",
}


def by_the_reference(text: str) -> object:
    """The three readings in order, as the reference has them, with a typed outcome where it raises."""
    for reading in (
        ast.literal_eval,
        lambda said: ast.literal_eval(said.encode().decode("unicode_escape")),
        json.loads,
    ):
        try:
            value = reading(text)
        except TypeError:
            return "unhashable"
        except (ValueError, SyntaxError):
            continue
        return ParsedValue(value) if isinstance(value, dict) else "not_mapping"
    return "unparseable"


def by_the_reference_quietly(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return by_the_reference(text)


def plainly(found: ParsedValue | Refusal) -> object:
    return found.outcome if isinstance(found, Refusal) else found


def test_all_golden_cases_have_the_reference_s_result(shared: Path) -> None:
    cases = [json.loads(row) for row in (shared / "goldens/econagentbench/parse_dict.jsonl").read_text().splitlines()]
    assert len(cases) >= 40
    for case in cases:
        found, expected = read_mapping(case["input"]), case["result"]
        if "raises" in expected:
            assert plainly(found) == OUTCOMES[expected["raises"]], case
        else:
            assert isinstance(found, ParsedValue), case
            if "ok_repr" in expected:
                assert repr(found.value) == expected["ok_repr"]
            else:
                assert _as_json(found.value) == expected["ok"], case


def _as_json(value: object) -> object:
    """A value as the golden file writes it: floats that JSON lacks as `{"float": name}`, tuples as lists."""
    if isinstance(value, dict):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_as_json(inner) for inner in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"float": str(value)}
    if isinstance(value, float) and math.isnan(value):
        return {"float": "nan"}
    return value


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text() | st.integers(), LITERALS))
def test_whatever_python_writes_is_read_back(value: dict[object, object]) -> None:
    expected = by_the_reference_quietly(repr(value))
    assert repr(plainly(read_mapping(repr(value)))) == repr(expected)


BRACKETS = list("{}[](),:+- \n\r")
TOKENS = ["'a'", '"b"', "1", "2j", "0x1f", "True", "null", "set()", "r'x'", "b'y'", "f'z'", "not", "*", "a", "..."]
BITS = ["\\", "'''", ".", "\\'", "é", "'", '"', "#c\n"]
PIECES = st.lists(st.sampled_from([*BRACKETS, *TOKENS, *BITS]), max_size=25).map("".join)


@given(PIECES | PIECES.map(lambda inner: "{'a': " + inner + "}"))
def test_any_text_of_tokens_is_read_as_the_reference_reads_it(text: str) -> None:
    expected = by_the_reference_quietly(text)
    found = plainly(read_mapping(text))
    if "..." in text and found == "unparseable":
        return  # Python's Ellipsis is a literal too, and nobody's task
    assert repr(found) == repr(expected)


@given(st.text() | st.text(alphabet="{}[]()'\"\\:,+- \n#\x00\ud800é1a"))
def test_no_text_ends_in_an_exception(text: str) -> None:
    assert isinstance(read_mapping(text), ParsedValue | Refusal)


@given(st.dictionaries(st.text(alphabet="WTab\"' :,{}1é"), st.text(alphabet="WTab\"' :,{}1é")))
def test_the_ordinary_case_takes_the_short_way_to_the_same_value(value: dict[str, str]) -> None:
    for text in (repr(value), json.dumps(value), repr(value).replace(", ", ","), repr(value).replace("}", ",}")):
        assert plainly(read_mapping(text)) == by_the_reference_quietly(text)


BOMBS = [
    "[" * 30_000,
    "{'W1': " + "[" * 3000 + "]" * 3000 + "}",
    "(" * 101 + ")" * 101,
    "{'a':" * 5000,
    "-" * 60_000 + "1",
    "1" + "+1" * 30_000,
    "1" + "-1j" * 20_000,
    "not " * 15_000 + "1",
    "lambda: " * 8000 + "1",
    "a." * 30_000 + "a",
    "f'{" * 10_000,
    "#'\r" + "[" * 20_000,
    "[']'," * 12_000,
    "'''" * 20_000,
    '"' * 65_000,
    "\\" * 65_000,
    "\\n[" * 20_000,
    "{**" * 20_000,
    "x if x else " * 5000 + "x",
    "\\N{" * 10_000,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: repr(bomb[:8]))
def test_a_bomb_is_refused_in_time_in_proportion_to_it(bomb: str) -> None:
    found = read_mapping(bomb[:MOST_BYTES])
    assert isinstance(found, Refusal)
    assert found.outcome in ("unparseable", "too_deep", "not_mapping", "unhashable")
    assert_linear(lambda size: bomb[:size], read_mapping)


def test_bombs_do_not_end_a_process_with_a_small_stack() -> None:
    script = (
        "import sys, threading\n"
        "from evalkit.envs.arguments import read_mapping\n"
        "threading.stack_size(256 * 1024)\n"
        f"bombs = {BOMBS!r}\n"
        "seen = []\n"
        "work = threading.Thread(target=lambda: seen.extend(type(read_mapping(one)).__name__ for one in bombs))\n"
        "work.start(); work.join()\n"
        "print(len(seen), set(seen))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split(" ", 1)[0] == str(len(BOMBS)), done.stderr


def test_a_text_beyond_the_bound_is_not_looked_at() -> None:
    assert read_mapping("{}" + " " * MOST_BYTES) == Refusal("too_large", {"limit": MOST_BYTES})


@pytest.mark.parametrize("text", [r"{'a': 'x\d'}", "{'a': 0x1fnot 1}", r"{\'a\d\': 1}"])
def test_what_python_would_warn_of_warns_nobody(text: str) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = read_mapping(text)
    assert heard == []
    assert plainly(found) == by_the_reference_quietly(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{'a': 1}",
            "{'a': 0, 'b': 12}",
            '{"a": 1.5, "b": \'x\'}',
            "{'a': 13.095194350066274}",
            "{'a': 0.0, 'a': 2,}",
        ),
        *(
            "{'a': 1.}",
            "{'a': .5}",
            "{'a': 01}",
            "{'a': 00.5}",
            "{'a': 1e3}",
            "{'a': -1}",
            "{'a': 1_000}",
            "{'a': 1 2}",
        ),
        *("{'a': 12345678901234567890}", "{'a': 9007199254740993.0}", "{'a': 1.2.3}", "{'a': 1j}", "{'a': +1}"),
        *("{'a': 0.1000000000000000055511151231257827}", "{'a': 1.0, 'b'}", "{1: 'a'}", "{'a': 1,, }"),
    ],
)
def test_numbers_are_read_as_the_reference_reads_them(text: str) -> None:
    found, wanted = plainly(read_mapping(text)), by_the_reference_quietly(text)
    assert found == wanted
    assert repr(found) == repr(wanted)  # 1 and 1.0 are equal, and other values
