"""A player for whatever is offered: its calls fit the schemas, and no schema makes it fail or run on."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Request, Sampling, Tool
from evalkit.envs.table import ENVIRONMENTS
from evalkit.policy.any_tool import MOST, any_tool
from evalkit.policy.conversation import answer
from evalkit.policy.table import find_policy, served

SAMPLING = Sampling(temperature=1.0, max_tokens=4096, tool_choice="auto")

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 3, "maximum": 5},
        "price": {"type": "number", "minimum": 0.5, "maximum": 1.5},
        "kind": {"enum": ["a", "b"]},
        "either": {"anyOf": [{"type": "boolean"}, {"const": 7}]},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
        "maybe": {"type": ["null", "integer"]},
        "inner": {"properties": {"deep": {"type": "integer", "maximum": -20}}},
    },
}

WORDS = (
    *("type", "properties", "items", "enum", "anyOf", "oneOf", "const"),
    *("minimum", "maximum", "minItems", "maxItems", "object", "array", "integer"),
)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner | st.sampled_from(["object", "array", "integer", "number", "string", "boolean"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


def offering(*tools: Tool, seed: int = 0) -> Request:
    return Request(messages=(Message(role="user", text="Go."),), tools=tools, sampling=SAMPLING, seed=seed)


def tool(name: str, schema: Any = SCHEMA) -> Tool:
    return Tool(name=name, description="", parameters=schema)


@pytest.mark.parametrize("seed", range(40))
def test_arguments_fit_their_schema(seed: int) -> None:
    (call,) = answer("random", any_tool, offering(tool("act"), seed=seed)).calls
    found = json.loads(call.arguments)
    assert call.name == "act"
    assert found["count"] in (3, 4, 5)
    assert 0.5 <= found["price"] <= 1.5
    assert found["kind"] in ("a", "b")
    assert found["either"] in (True, False, 7)
    assert 2 <= len(found["names"]) <= 4
    assert all(isinstance(one, str) for one in found["names"])
    assert type(found["maybe"]) is int
    assert found["inner"]["deep"] <= -20


def test_every_tool_is_called_equally_often() -> None:
    tools = [tool(name, {}) for name in "abcd"]
    called = Counter(answer("random", any_tool, offering(*tools, seed=seed)).calls[0].name for seed in range(800))
    assert set(called) == set("abcd")
    assert min(called.values()) > 140


@given(ANYTHING)
def test_no_schema_makes_it_fail(schema: Any) -> None:
    (call,) = answer("random", any_tool, offering(tool("act", {"type": "object", "properties": {"x": schema}}))).calls
    assert set(json.loads(call.arguments)) == {"x"}
    (call,) = answer("random", any_tool, offering(tool("act", schema))).calls
    assert isinstance(json.loads(call.arguments), dict)


def test_what_it_gives_is_bounded() -> None:
    wide = {"type": "array", "minItems": 10**9, "items": {"type": "string"}}
    (call,) = answer("random", any_tool, offering(tool("act", {"properties": {"x": wide}}))).calls
    assert len(json.loads(call.arguments)["x"]) == MOST
    nested: Any = {"type": "integer"}
    for _ in range(2000):
        nested = {"type": "object", "properties": {"a": nested, "b": {"type": "integer"}}}
    (call,) = answer("random", any_tool, offering(tool("act", nested))).calls
    assert len(call.arguments) < 1000


def test_nothing_offered_is_answered_in_words() -> None:
    reply = any_tool(offering(), None)  # type: ignore[arg-type]
    assert reply.text
    assert not reply.calls


def test_random_plays_what_nobody_has_told_it_of() -> None:
    reply = answer("random", served("random"), offering(tool("offer_of_nobody_known")))
    assert [call.name for call in reply.calls] == ["offer_of_nobody_known"]


def test_every_environment_has_a_stand_in_that_plays_it() -> None:
    for name, env in ENVIRONMENTS.items():
        assert find_policy(env.stand_in, name) is not None
