"""Every reader of what a model wrote: linear in any text, total, no number of more digits than Python takes."""

from collections.abc import Callable

import pytest

from evalkit.dialogue import Reply
from evalkit.envs.arguments import (
    ParsedValue,
    Refusal,
    clean,
    listed,
    read_arguments,
    read_json,
    read_mapping,
    whole_argument,
)
from evalkit.envs.costbench.coverage import count_paths
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import make_world
from evalkit.envs.costbench.repair import MARKS, read_call
from evalkit.envs.costbench.step import ends_turn, read_answer
from evalkit.envs.errand.errand import count_in, verdict_in, written
from evalkit.replies import decode_reply, encode_reply
from evalkit.report.exports.inspect_log import arguments_of
from evalkit.results.trajectory import _pretty
from evalkit.text import bounded, visible
from tests.support.each_case import check_each
from tests.support.growth import assert_linear
from tests.support.hostile_replies import BODIES

WORLD = make_world(shipped("travel"), "dining", 5, whole=False)


def again(piece: str, *, before: str = "", after: str = "") -> Callable[[int], str]:
    """A piece as often as it fits, between two others."""
    return lambda n: before + piece * max(1, n // len(piece)) + after


TEXTS: dict[str, Callable[[int], str]] = {
    **{name: lambda n, make=make: make(n).decode("latin-1") for name, make in BODIES.items()},  # type: ignore[misc]
    "answer tags": again("<answer>"),
    "answer tags that close": again("</answer>", before="<answer>"),
    "pairs of answer tags": again("<answer>1</answer>"),
    "an endless answer": again("7", before="<answer>", after="</answer>"),
    "candidates": again("<TravelLocation", before="<answer>", after="</answer>"),
    "candidates and blanks": again(" ", before="<answer><Location Candidate ", after="</answer>"),
    "open braces in an answer": again("{ ", before="<answer>Candidate", after="</answer>"),
    "thoughts": again("<think></think>"),
    "thoughts that never end": again("<think>"),
    "bold marks": again("**"),
    "bold conflicts": again("** no conflict"),
    "conflicts": again("no conflict "),
    "negations": again("not ", after="conflict"),
    "words and apostrophes": again("n't'", after=" conflict"),
    "a word without an end": again("n", after="'t conflict"),
    "digits and commas": again("123,", after=" "),
    "digits in groups": again("123,456,789,", before="answer: "),
    "totals": again("total is "),
    "totals and marks": again("total" + " " * 8),
    "lines": again("\n"),
    "lines of marks": again("- \n"),
    "lines of numbers": again("12\n"),
    "arrows": again("->"),
    "names and arrows": again("Tool_0 -> "),
    "open brackets behind a name": again("(", before="Tool_0 "),
    "brackets behind names": again("Tool_0 (((("),
    "list marks": again("1. Tool_0\n"),
    "blanks before a mark": again(" ", after="-"),
    "a name without an end": again("a"),
    "underscores": again("\\_"),
    "marks of chat templates": again(MARKS[0], before='{"a":1}'),
    "marks and blanks": again(f"{MARKS[1]} ", before='{"a":1}'),
    "single quotes": again("'"),
    "triple quotes": again("'''"),
    "triple quotes of both kinds": again("'''\"\"\""),
    "escaped triple quotes": again("'''\\"),
    "prefixed quotes": again("rb'"),
    "quoted pairs": again("'a': 'b', ", before="{", after="}"),
    "pairs that do not close": again("'a': 'b', ", before="{"),
    "pairs and blanks": again(" ", before="{'a'", after="}"),
    "unhashable keys": again("[]: 1, ", before="{", after="}"),
    "tuples": again("(", after=")"),
    "a hexadecimal number": again("f", before="{'a': 0x", after="}"),
    "a binary number": again("1", before="{'a': 0b", after="}"),
    "an octal number": again("7", before="{'a': 0o", after="}"),
    "digits and underscores": again("1_", before="{'a': ", after="1}"),
    "a long number": again("9", before="{'a': ", after="}"),
    "a long number in JSON": again("9", before='{"a": ', after="}"),
    "a long number as text": again("9", before='{"a": "', after='"}'),
    "long numbers": again("9" * 4300 + ", ", before="{'a': [", after="]}"),
    "an imaginary number": again("9", before="{'a': ", after="j}"),
    "signs": again("-", before="{'a': ", after="1}"),
    "sums": again("1+", before="{'a': ", after="1}"),
    "comments of Python": again("#\n"),
    "line ends": again("\r"),
    "escapes of Python": again("\\x41", before="{'a': '", after="'}"),
    "names of characters": again("\\N{DIGIT ONE}", before="{'a': '", after="'}"),
    "bad escapes": again("\\q", before="{'a': '", after="'}"),
    "direction marks": again("\u202e"),
    "half surrogates as they are": again("\ud800"),
    "characters beyond the plane": again("\U0001f600"),
}
READERS: dict[str, Callable[[str], object]] = {
    "arguments": read_arguments,
    "JSON": read_json,
    "a mapping": read_mapping,
    "a call": read_call,
    "whether it ends": lambda text: ends_turn(text, 5),
    "an answer": lambda text: read_answer(text, WORLD, 5),
    "paths": lambda text: count_paths(text, WORLD),
    "a verdict": lambda text: verdict_in(written(text)),
    "a count": lambda text: count_in(written(text)),
    "clean": clean,
    "visible": visible,
    "bounded": bounded,
    "pretty": _pretty,
    "an export": arguments_of,
    "the log": lambda text: decode_reply(encode_reply(Reply(text=clean(text)))),
}


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_reading_is_linear_in_any_text(read: Callable[[str], object]) -> None:
    for name, make in TEXTS.items():
        assert_linear(make, read, what=name)


@pytest.mark.parametrize("n", [1, 100, 4_299, 4_301, 5_000, 60_000])
def test_whatever_was_read_can_be_shown(n: int) -> None:
    check_each(TEXTS.items(), lambda make: show(make(n)))


def show(text: str) -> None:
    """What each reader finds in a text, shown."""
    for read in (read_arguments, read_json, read_mapping, read_call):
        found = read(text)
        value = found.value if isinstance(found, ParsedValue) else found
        if isinstance(value, dict):
            listed(list(value))
            for name in value:
                if isinstance(name, str):
                    whole_argument(value, name)
        assert isinstance(found, ParsedValue | Refusal | dict)
