import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.arguments import (
    MOST_BYTES,
    MOST_DEPTH,
    ParsedValue,
    Refusal,
    clean,
    read_arguments,
    read_json,
    shown,
    text_argument,
    whole_argument,
)
from tests.support.growth import assert_linear

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def outcome(found: object) -> str:
    return found.outcome if isinstance(found, Refusal) else "ok"


@given(VALUES)
def test_valid_json_is_read_as_it_is(value: object) -> None:
    found = read_json(json.dumps(value))
    assert isinstance(found, ParsedValue)
    assert found.value == value


@given(st.text(alphabet='[]{}":,\\ 1aé\ud800\n'))
def test_any_text_has_an_outcome_and_agrees_with_the_standard_parser(text: str) -> None:
    found = read_json(text)
    try:
        assert found == ParsedValue(json.loads(text))
    except ValueError:
        assert outcome(found) == "not_json"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "ok"),
        ("  \n", "ok"),
        ("{}", "ok"),
        ("[]", "not_object"),
        ("null", "not_object"),
        ("{'a': 1}", "not_json"),
        ("{", "not_json"),
        ('{"a": ' + "9" * 5000 + "}", "not_json"),
        ('{"a": "' + "x" * MOST_BYTES + '"}', "too_large"),
        ('{"a": "' + "é" * (MOST_BYTES // 2) + '"}', "too_large"),
        ("[" * 3000 + "]" * 3000, "too_deep"),
        ('{"a":' * 101 + "1" + "}" * 101, "too_deep"),
        ('{"a":' * 100 + "1" + "}" * 100, "ok"),
        ('{"a": "' + "[" * 5000 + '"}', "ok"),
        ('{"a": "\\"' + "[" * 5000 + '"}', "ok"),
        ('["]]]]", ' * 200, "too_deep"),
    ],
)
def test_each_kind_of_arguments_has_its_outcome(text: str, expected: str) -> None:
    assert outcome(read_arguments(text)) == expected


@pytest.mark.parametrize("piece", ['"', '\\"', "[", "[]", '"\\', "{[", "\\", '[\\"', '"a":', "\ud800", "é"])
def test_no_text_takes_more_than_time_in_proportion_to_it(piece: str) -> None:
    assert_linear(lambda size: piece * (size // len(piece)), read_arguments)


def test_depth_is_counted_before_a_parser_sees_the_text() -> None:
    nested: object = 1
    for _ in range(MOST_DEPTH):
        nested = [nested]
    assert outcome(read_json(json.dumps(nested))) == "ok"
    assert read_json(json.dumps([nested])) == Refusal("too_deep", {"limit": MOST_DEPTH})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (3.0, 3),
        ("3", 3),
        (" 3.0 ", 3),
        ("-2", -2),
        (10**30, 10**30),
        (2.5, "wrong_type"),
        (True, "wrong_type"),
        (None, "wrong_type"),
        ("soon", "wrong_type"),
        ("3.5", "wrong_type"),
        ("9" * 100, "wrong_type"),
        (float("inf"), "wrong_type"),
        (float("nan"), "wrong_type"),
        ([3], "wrong_type"),
        ({}, "wrong_type"),
    ],
)
def test_a_whole_number_may_be_written_in_several_ways(value: object, expected: object) -> None:
    found = whole_argument({"x": value}, "x")
    assert (found.outcome if isinstance(found, Refusal) else found) == expected


def test_missing_and_mistyped_arguments_are_named() -> None:
    assert whole_argument({}, "x") == Refusal("missing", {"argument": "x"})
    assert text_argument({}, "x") == Refusal("missing", {"argument": "x"})
    assert text_argument({"x": 1}, "x") == Refusal("wrong_type", {"argument": "x", "type": "string"})


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_cleaned_text_can_be_encoded_and_a_clean_one_stays(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    assert len(shown(text * 50)) <= 64
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert cleaned == text
