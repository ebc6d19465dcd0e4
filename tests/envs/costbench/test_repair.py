import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.arguments import MOST_BYTES, MOST_DEPTH, Refusal
from evalkit.envs.costbench.repair import MARKS, read_call

PAIR = {"a": "<X00012>", "b": 'say "hi"'}
TEXT = json.dumps(PAIR)


def nested(rounds: int) -> str:
    text = TEXT
    for _ in range(rounds):
        text = json.dumps(text)
    return text


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"  {TEXT}\n",
        nested(1),
        nested(2),
        nested(3),
        *(TEXT + mark for mark in MARKS),
        TEXT + "</tool_call>\n<|im_end|>",
        f"'{TEXT}'",
        f"`{TEXT}`",
        f"Here are the arguments: {TEXT}",
        f"{TEXT} That should do.",
        f"```json\n{TEXT}\n```",
        TEXT[1:-1],
        json.dumps(TEXT)[1:-1],
        json.dumps(TEXT[1:-1]),
        json.dumps(TEXT + "<|call|>"),
    ],
)
def test_what_can_only_have_been_meant_is_read_so(text: str) -> None:
    assert read_call(text) == PAIR


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("", "not_json"),
        ("  ", "not_json"),
        ("{not json", "not_json"),
        ("a", "not_json"),
        ('"a"', "not_json"),
        (nested(4), "not_json"),
        ("[1, 2]", "not_object"),
        ("3", "not_object"),
        ("null", "not_object"),
        ('"[1]"', "not_object"),
        ("{" + "'a': 1" + "}", "not_json"),
        ('{"a": ' + "9" * 5000 + "}", "not_json"),
        ("[" * (MOST_DEPTH + 1), "too_deep"),
        ('{"a": "' + "x" * MOST_BYTES + '"}', "too_large"),
        (json.dumps("[" * (MOST_DEPTH + 1)), "too_deep"),
    ],
)
def test_what_is_no_object_is_refused_with_the_reason(text: str, outcome: str) -> None:
    found = read_call(text)
    assert isinstance(found, Refusal)
    assert found.outcome == outcome


def test_a_valid_object_is_never_repaired() -> None:
    said = {"a": '{"a": 2}', "b": "x</tool_call>", "c": "'q'"}
    assert read_call(json.dumps(said)) == said


PIECES = st.sampled_from(["{", "}", '"', "'", "\\", "a", ":", ",", "[", "]", "1", " ", *MARKS, TEXT, "\ud800", "\x00"])


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=30).map("".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_call(text)
    if isinstance(found, Refusal):
        assert found.outcome in ("too_large", "too_deep", "not_json", "not_object")
    else:
        assert all(isinstance(key, str) for key in found)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), min_size=1, max_size=4), st.integers(0, 3))
def test_objects_survive_any_wrapping_in_texts(said: dict[str, str], rounds: int) -> None:
    text = json.dumps(said)
    for _ in range(rounds):
        text = json.dumps(text)
    assert read_call(text) == said
