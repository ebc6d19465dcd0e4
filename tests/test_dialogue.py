"""The values that replies are made of: frozen, equal by value, and dataclasses to whoever takes them for such."""

import copy
import pickle
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import pytest

from evalkit.dialogue import Message, Reply, ToolCall, Usage
from evalkit.wire.http import HttpResponse

CALL = ToolCall(id="1", name="look", arguments="{}")
REPLY = Reply(text="x", calls=(CALL,), usage=Usage(input=3, output=2), model="m")
VALUES = (CALL, REPLY, REPLY.usage, REPLY.message(), HttpResponse(status=200, headers={}, body=b"{}"))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_frozen_and_its_copies_are_equal(value: Any) -> None:
    first = fields(value)[0].name
    with pytest.raises(AttributeError):
        setattr(value, first, getattr(value, first))
    again = type(value)(**{field.name: getattr(value, field.name) for field in fields(value)})
    assert (again, replace(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))) == (value,) * 4
    assert is_dataclass(value)


def test_the_functions_of_dataclasses_take_it() -> None:
    assert replace(REPLY, text="y").message() == Message(role="assistant", text="y", calls=(CALL,))
    assert asdict(REPLY.message())["calls"] == ({"id": "1", "name": "look", "arguments": "{}"},)
    assert [field.name for field in fields(CALL)] == ["id", "name", "arguments"]
    with pytest.raises(TypeError):
        replace(CALL, nothing=1)  # type: ignore[call-arg]


def test_usages_with_the_same_figures_are_equal_whatever_was_not_stated() -> None:
    known, unsure = Usage(input=3), Usage(input=3, unknown=("cached_read",))
    assert (known, hash(known)) == (unsure, hash(unsure))
    assert known != Usage(input=4)
    assert known != 3
