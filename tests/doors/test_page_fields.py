"""Fields from JSON schemas, and arguments from what was filled in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evalkit
from evalkit.dialogue import Tool
from evalkit.doors.page.fields import ArgumentField, as_object, fields_of, flaws_in
from evalkit.doors.page.forms import Sent, TurnForms, empty_forms, filled_forms
from evalkit.view.render import environment

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["count", "kind", "names"],
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many."},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        "kind": {"enum": ["a", 1, None]},
        "sure": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 3},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "who": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "integer"}, "x": {"type": "string"}},
        },
        "free": {},
        "several": {"type": ["integer", "string"]},
        "maybe": {"type": ["string", "null"], "minLength": 2},
    },
}
GOOD = {"a.0": "3", "a.2": "0", "a.4": "x\ny"}
PLACES = {name: f"a.{place}" for place, name in enumerate(SCHEMA["properties"])}


def test_each_argument_has_the_field_that_its_schema_asks_for() -> None:
    fields, found = fields_of(SCHEMA)
    kinds = {field.label: field.kind for field in fields}
    assert kinds == {
        "count": "number",
        "share": "number",
        "kind": "choice",
        "sure": "choice",
        "names": "list",
        "prices": "json",
        "who": "group",
        "free": "json",
        "several": "json",
        "maybe": "text",
    }
    by_name = {field.label: field for field in fields}
    count = by_name["count"]
    assert (count.least, count.most, count.step, count.needed, count.about) == ("1", "10", "1", True, "How many.")
    assert (by_name["share"].step, by_name["share"].needed) == ("any", False)
    assert [choice.text for choice in by_name["kind"].choices] == ["choose", "a", "1", "null"]
    assert [choice.text for choice in by_name["sure"].choices] == ["leave out", "true", "false"]
    assert [inner.name for inner in by_name["who"].fields] == ["a.6.0", "a.6.1"]
    assert found == {}
    assert not flaws_in(fields)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"share": "0.25"}, {"share": 0.25}),
        ({"share": " 5e-2 "}, {"share": 0.05}),
        ({"kind": "2"}, {"kind": None}),
        ({"kind": "1"}, {"kind": 1}),
        ({"sure": "1"}, {"sure": False}),
        ({"names": '["q", "r"]'}, {"names": ["q", "r"]}),
        ({"names": "q\r\n\r\nr"}, {"names": ["q", "r"]}),
        ({"prices": '{"A": 1.5}'}, {"prices": {"A": 1.5}}),
        ({"who": "ignored", "a.6.0": "7"}, {"who": {"id": 7}}),
        ({"free": '[1, {"a": null}]'}, {"free": [1, {"a": None}]}),
        ({"several": '"5"'}, {"several": "5"}),
        ({"maybe": "  kept "}, {"maybe": "  kept "}),
    ],
)
def test_what_is_filled_in_becomes_arguments(given: dict[str, str], expected: dict[str, Any]) -> None:
    fields, found = fields_of(SCHEMA, GOOD | {PLACES.get(name, name): text for name, text in given.items()})
    assert not flaws_in(fields)
    assert found == {"count": 3, "kind": "a", "names": ["x", "y"]} | expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("count", "", "needed"),
        ("count", "11", "at least 1 and at most 10"),
        ("count", "1.5", "whole number"),
        ("count", "\u0661", "whole number"),
        ("count", "9" * 5000, "whole number"),
        ("share", "0", "more than 0"),
        ("share", "nan", "number"),
        ("share", "1e999", "at most 0.5"),
        ("kind", "3", "Choose one"),
        ("kind", "-1", "Choose one"),
        ("kind", "a", "Choose one"),
        ("names", "a\nlong", "Line 2: This has 4 characters"),
        ("names", "a\nb\nc\nd", "1 to 3"),
        ("names", "[", "not JSON"),
        ("prices", "[1]", "an object"),
        ("prices", "{", "not JSON"),
        ("prices", "[" * 500, "too deeply"),
        ("prices", '{"a": "' + "x" * 70_000 + '"}', "too long"),
        ("free", "words", "not JSON"),
        ("maybe", "x", "at least 2"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_alone(name: str, text: str, words: str) -> None:
    fields, _ = fields_of(SCHEMA, GOOD | {PLACES[name]: text})
    flawed = {field.label: field.flaw for field in fields if field.flaw}
    assert list(flawed) == [name]
    assert words in flawed[name]
    (same,) = [field for field in fields if field.label == name]
    assert same.value == text


def test_an_object_that_is_left_out_owes_nothing_and_one_that_is_begun_owes_all() -> None:
    assert not flaws_in(fields_of(SCHEMA, GOOD)[0])
    begun, found = fields_of(SCHEMA, GOOD | {"a.6.1": "x"})
    assert flaws_in(begun)
    wrong, _ = fields_of(SCHEMA, GOOD | {"a.6.0": "x"})
    assert flaws_in(wrong)
    assert found["who"] == {"x": "x"}
    needed = {**SCHEMA, "required": ["who"]}
    assert flaws_in(fields_of(needed, {})[0])


def values() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    keys = ("type", "properties", "items", "enum", "const", "required", "minimum", "maximum", "minItems", "maxLength")
    words = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
    return st.recursive(
        scalars | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner),
        max_leaves=12,
    )


@pytest.mark.exhaustive
@given(values(), st.dictionaries(st.sampled_from(["a.0", "a.1", "a.0.0"]), st.text(max_size=8)))
def test_a_senseless_schema_makes_no_error(schema: Any, filled: dict[str, str]) -> None:
    fields, found = fields_of(schema, filled)
    json.dumps(found)
    assert isinstance(flaws_in(fields), bool)
    fields_of({"type": "object", "properties": {"x": schema}}, filled)


def test_arguments_as_json_are_an_object() -> None:
    assert as_object("") == {}
    assert as_object('{"a": [1]}') == {"a": [1]}
    for wrong in ("[1]", "{", "5", "[" * 1000):
        assert isinstance(as_object(wrong), str), wrong


HOSTILE = "<script>window.hacked = 1</script>\"'><img src=x>\u202e"


def rendered(forms: TurnForms) -> str:
    template = environment().from_string(
        '{% import "_forms.html" as forms %}{{ forms.turn(page, "token") }}',
        globals=dict(environment().globals),
    )
    return template.render(page={"forms": forms, "action": "/play/x", "step": 3, "talks": True})


def test_names_and_descriptions_of_tools_are_text() -> None:
    inner = {"type": "string", "description": HOSTILE, "enum": [HOSTILE, "b"]}
    properties = {HOSTILE: inner, "b": {"type": "object", "properties": {HOSTILE: {"type": "string"}}}}
    tool = Tool(name=HOSTILE, description=HOSTILE, parameters={"type": "object", "properties": properties})
    sent = Sent(way="fields", tool=HOSTILE, given={"a.0": "0", "a.1.0": HOSTILE})
    filled = filled_forms([tool], sent, 3)
    for forms in (empty_forms([tool]), filled):
        text = rendered(forms)
        assert "<script>" not in text
        assert "<img" not in text
        assert "&lt;script&gt;" in text
    assert filled.reply is not None
    (call,) = filled.reply.calls
    assert (call.name, call.id) == (HOSTILE, "call_3")
    assert json.loads(call.arguments) == {HOSTILE: HOSTILE, "b": {HOSTILE: HOSTILE}}


@pytest.mark.parametrize("suite", ["scheduling/basic", "pricing/basic", "procurement/basic", "costbench/basic"])
def test_every_tool_that_evalkit_brings_has_fields_for_its_arguments(suite: str) -> None:
    for tool in evalkit.game(evalkit.suite(suite)[0]).tools:
        (form,) = empty_forms([tool]).tools
        properties: Any = tool.parameters["properties"]
        assert [field.label for field in form.fields] == list(properties)
        assert form.bare == (not properties)
        assert all(field.kind != "json" for field in form.fields)


def flat(fields: list[ArgumentField]) -> list[ArgumentField]:
    return [inner for field in fields for inner in (field, *flat(list(field.fields)))]


def test_no_two_fields_share_a_name() -> None:
    names = [field.name for field in flat(fields_of(SCHEMA)[0])]
    assert len(names) == len(set(names))
