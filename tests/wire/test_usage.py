"""Each figure of a reply's usage is judged by itself, in every dialect, and what is missing is bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.money import Price
from evalkit.wire.lenient import loads_lenient
from tests.provider.dialects import SERVED_DIALECTS
from tests.support.each_case import check_each
from tests.support.formats import FORMATS

SAID = Reply(
    text="The answer is 42.",
    calls=(ToolCall(id="c", name="f", arguments='{"k":1}'),),
    finish="tool_calls",
    usage=Usage(input=900, output=300, cached_read=200, cached_write=100, reasoning=20),
)
FIELDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "openai_chat": {
        "input": ("usage", "prompt_tokens"),
        "output": ("usage", "completion_tokens"),
        "cached_read": ("usage", "prompt_tokens_details", "cached_tokens"),
        "cached_write": ("usage", "prompt_tokens_details", "cache_write_tokens"),
        "reasoning": ("usage", "completion_tokens_details", "reasoning_tokens"),
    },
    "openai_responses": {
        "input": ("usage", "input_tokens"),
        "output": ("usage", "output_tokens"),
        "cached_read": ("usage", "input_tokens_details", "cached_tokens"),
        "cached_write": ("usage", "input_tokens_details", "cache_write_tokens"),
        "reasoning": ("usage", "output_tokens_details", "reasoning_tokens"),
    },
    "anthropic_messages": {
        "input": ("usage", "input_tokens"),
        "output": ("usage", "output_tokens"),
        "cached_read": ("usage", "cache_read_input_tokens"),
        "cached_write": ("usage", "cache_creation_input_tokens"),
        "reasoning": ("usage", "output_tokens_details", "thinking_tokens"),
    },
    "gemini": {
        "input": ("usageMetadata", "promptTokenCount"),
        "output": ("usageMetadata", "candidatesTokenCount"),
        "cached_read": ("usageMetadata", "cachedContentTokenCount"),
        "reasoning": ("usageMetadata", "thoughtsTokenCount"),
    },
}
"""By dialect, where each figure stands in a body."""
WRONG = (b"null", b"-7", b'"12"', b"true", b"7.5", b"1e999", b"1" + b"0" * 30, b"[3]", b"{}", b"NaN")
ABSENT = b""
WHOLE = {"anthropic_messages": {"cached_read": "input", "cached_write": "input"}, "gemini": {"reasoning": "output"}}
"""Figures that are summands of another, which is unknown where they are."""
PLACES = [(dialect, figure) for dialect, figures in FIELDS.items() for figure in figures]
PRICE = Price(input=10, output=100, cached_read=3, cached_write=25)
BOUND = {"input_tokens": 2000, "output_tokens": 800}


def body_with(dialect: str, figure: str, value: bytes, *, total: bool = False) -> bytes:
    """A reply's body with other JSON in one figure's place; `total`: with the sum that some formats have."""
    said = SAID if dialect != "gemini" else Reply(text=SAID.text, usage=Usage(input=900, output=300, reasoning=20))
    whole = orjson.loads(SERVED_DIALECTS[dialect].encode_reply(said))
    *path, name = FIELDS[dialect][figure]
    place = whole
    for key in path:
        place = place[key]
    place.pop(name)
    if not total:
        whole[path[0]].pop("totalTokenCount", None)
    if value:
        place[name] = "@"
    return orjson.dumps(whole).replace(b'"@"', value)


def read(dialect: str, body: bytes) -> Usage:
    return FORMATS[dialect].read(loads_lenient(body)[0]).usage


@pytest.mark.parametrize(("dialect", "figure"), PLACES)
def test_a_figure_that_is_none_is_unknown_and_the_others_stand(dialect: str, figure: str) -> None:
    check_each([(value, value) for value in (ABSENT, *WRONG)], lambda value: lose(dialect, figure, value))


def lose(dialect: str, figure: str, value: bytes) -> None:
    good = read(dialect, body_with(dialect, figure, str(getattr(SAID.usage, figure)).encode()))
    found = read(dialect, body_with(dialect, figure, value))
    lost = WHOLE.get(dialect, {}).get(figure, figure)
    if dialect == "gemini" and figure == "cached_read" and value == ABSENT:
        assert (found.unknown, found) == ((), replace(good, cached_read=0))  # the format leaves out what is 0
        return
    assert lost in found.unknown or lost == "reasoning"
    assert getattr(found, lost) == 0
    kept = {"input", "output"} - {lost}
    assert all(getattr(found, name) == getattr(good, name) for name in kept)


@pytest.mark.parametrize(("dialect", "figure"), PLACES)
def test_whatever_is_missing_the_charge_covers_what_any_usage_below_the_bound_costs(dialect: str, figure: str) -> None:
    check_each([(value, value) for value in (ABSENT, *WRONG, b"0")], lambda value: cover(dialect, figure, value))


def cover(dialect: str, figure: str, value: bytes) -> None:
    found = read(dialect, body_with(dialect, figure, value))
    charged = PRICE.most(found, **BOUND)
    for read_part in (0, 0.5, 1):
        for written_part in (0, 0.5, 1):
            tokens = BOUND["input_tokens"] if "input" in found.unknown else found.input
            free = tokens - found.cached_read - found.cached_write
            more_read = int(free * read_part) if {"input", "cached_read"} & set(found.unknown) else 0
            more_write = int((free - more_read) * written_part) if {"input", "cached_write"} & set(found.unknown) else 0
            true = Usage(
                input=tokens,
                output=BOUND["output_tokens"] if "output" in found.unknown else found.output,
                cached_read=found.cached_read + more_read,
                cached_write=found.cached_write + more_write,
            )
            assert PRICE.of(true) <= charged
    assert charged <= PRICE.worst(**BOUND)


@pytest.mark.parametrize("dialect", FORMATS)
def test_no_output_beside_a_reply_that_says_something_is_unknown(dialect: str) -> None:
    silent = SERVED_DIALECTS[dialect].encode_reply(Reply(usage=Usage(input=3), finish="content_filter"))
    assert read(dialect, silent).unknown == ()
    spoken = SERVED_DIALECTS[dialect].encode_reply(Reply(text="42", usage=Usage(input=3)))
    assert read(dialect, spoken).unknown == ("output",)


def test_reasoning_that_is_greater_than_the_output_is_no_figure() -> None:
    for dialect in ("openai_chat", "openai_responses", "anthropic_messages"):
        assert read(dialect, body_with(dialect, "reasoning", b"1000")).unknown == ("output",)


def chat_usage(dialect: str, **counts: Any) -> Usage:
    """Of a reply whose usage is this, `prompt`, `completion`, ... standing for the format's own names."""
    value = orjson.loads(SERVED_DIALECTS[dialect].encode_reply(SAID))
    names = ("prompt", "completion") if dialect == "openai_chat" else ("input", "output")
    value["usage"] = {
        f"{names[0]}_tokens": counts["prompt"],
        f"{names[1]}_tokens": counts["completion"],
        f"{names[0]}_tokens_details": {"cached_tokens": counts.get("cached", 0), "cache_write_tokens": 0},
        f"{names[1]}_tokens_details": {"reasoning_tokens": counts.get("reasoning")},
        "total_tokens": counts.get("total"),
    }
    return read(dialect, orjson.dumps(value))


def test_figures_that_contradict_each_other_are_read_as_the_larger_use_and_marked() -> None:
    cases: dict[str, tuple[dict[str, Any], Usage, bool]] = {
        "thoughts in the total alone": (
            {"prompt": 900, "completion": 20, "total": 1420},
            Usage(input=900, output=520, reasoning=500),
            True,
        ),
        "thoughts stated as none": (
            {"prompt": 900, "completion": 20, "total": 1420, "reasoning": 0},
            Usage(input=900, output=520, reasoning=500),
            True,
        ),
        "thoughts stated beside": (
            {"prompt": 900, "completion": 20, "total": 1420, "reasoning": 500},
            Usage(input=900, output=520, reasoning=500),
            False,
        ),
        "cached beyond the prompt": (
            {"prompt": 3, "completion": 20, "cached": 897},
            Usage(input=900, output=20, cached_read=897),
            True,
        ),
        "cached beyond the prompt, in the total": (
            {"prompt": 3, "completion": 20, "cached": 897, "total": 920},
            Usage(input=900, output=20, cached_read=897),
            True,
        ),
        "both": (
            {"prompt": 3, "completion": 20, "cached": 897, "total": 1420},
            Usage(input=900, output=520, cached_read=897, reasoning=500),
            True,
        ),
        "a total that is too small": (
            {"prompt": 900, "completion": 20, "cached": 100, "total": 23},
            Usage(input=900, output=20, cached_read=100),
            False,
        ),
        "nothing odd": (
            {"prompt": 900, "completion": 20, "cached": 900, "total": 920},
            Usage(input=900, output=20, cached_read=900),
            False,
        ),
    }

    def check(case: tuple[dict[str, Any], Usage, bool]) -> None:
        counts, expected, doubtful = case
        for dialect in ("openai_chat", "openai_responses"):
            usage = chat_usage(dialect, **counts)
            assert (usage, usage.unknown, usage.doubtful) == (expected, (), doubtful)

    check_each(cases.items(), check)


@pytest.mark.parametrize(
    ("total", "reasoning", "output"),
    [
        (14428, 2809, 1499 + 2809),  # beside the output: prompt + completion + reasoning
        (11619, 809, 1499),  # within it, as a rule
        (99999, 809, 1499),  # a total that counts something else
        (None, 809, 1499),
        (11619, 0, 1499),
        (11619, 2809, None),  # neither: greater than its whole
    ],
)
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_reasoning_that_is_counted_beside_the_output_is_output(
    dialect: str, total: int | None, reasoning: int, output: int | None
) -> None:
    value = orjson.loads(SERVED_DIALECTS[dialect].encode_reply(SAID))
    for figure, count in (("input", 10120), ("output", 1499), ("reasoning", reasoning)):
        *path, name = FIELDS[dialect][figure]
        place = value
        for key in path:
            place = place[key]
        place[name] = count
    value["usage"]["total_tokens"] = total
    usage = read(dialect, orjson.dumps(value))
    assert usage.unknown == (("output",) if output is None else ())
    assert (usage.output, usage.reasoning) == ((0, 0) if output is None else (output, reasoning))


def test_gemini_leaves_out_what_is_zero_and_its_total_proves_it() -> None:
    def usage(**counts: object) -> Usage:
        value = {"candidates": [{"content": {"parts": [{"text": "x"}]}}], "usageMetadata": counts}
        return FORMATS["gemini"].read(value).usage

    known = usage(promptTokenCount=9, candidatesTokenCount=5, totalTokenCount=14)
    assert (known, known.unknown) == (Usage(input=9, output=5), ())
    thought = usage(promptTokenCount=9, candidatesTokenCount=5, totalTokenCount=44)
    assert (thought, thought.unknown) == (Usage(input=9, output=35, reasoning=30), ())
    cut = usage(promptTokenCount=9, thoughtsTokenCount=30, totalTokenCount=39)
    assert (cut, cut.unknown) == (Usage(input=9, output=30, reasoning=30), ())
    assert usage(promptTokenCount=9, candidatesTokenCount=5, totalTokenCount=13).unknown == ("output",)
    assert usage(promptTokenCount=9, candidatesTokenCount=5).unknown == ("output",)
    assert usage(candidatesTokenCount=5, thoughtsTokenCount=0, totalTokenCount=14).unknown == ("input",)


def test_long_prompts_are_bounded_at_their_own_rates() -> None:
    steps: dict[str, Any] = {"over": 500, "over_input": 20, "over_output": 150, "over_cached_write": 50}
    price = Price(input=10, output=100, cached_read=3, cached_write=10, over_cached_read=6, **steps)
    usage = Usage(input=600, output=7, unknown=("cached_write", "output"))
    assert price.most(usage, input_tokens=9, output_tokens=11) == 600 * 50 + 7 * 150 + 11 * 150
    assert price.most(Usage(input=400, output=7), input_tokens=9, output_tokens=11) == 400 * 10 + 7 * 100
