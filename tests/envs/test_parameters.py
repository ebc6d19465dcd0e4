from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from evalkit.envs.environment import Parameter
from evalkit.envs.parameters import checked, parameters_of, read_line, written
from evalkit.errors import UsageError

PARAMETERS = {
    "n": Parameter(kind=int, help="", default=3, least=1, most=9),
    "gap": Parameter(kind=float, help="", default=None, least=0.5),
    "kind": Parameter(kind=str, help="", default="plain", choices=("plain", "fancy")),
    "hint": Parameter(kind=bool, help="", default=True),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 1), ("n", 9), ("gap", None), ("gap", 0.5), ("gap", 1e9), ("kind", "fancy"), ("hint", False)],
)
def test_a_fitting_value_is_kept(name: str, value: Any) -> None:
    assert checked(PARAMETERS, name, value) == value


def test_a_whole_number_will_do_for_a_float() -> None:
    assert type(checked(PARAMETERS, "gap", 2)) is float


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n", 0, "n: 0 is out of range (1 to 9)."),
        ("n", 10, "n: 10 is out of range (1 to 9)."),
        ("n", None, "n: expected a whole number, got None."),
        ("n", True, "n: expected a whole number, got True."),
        ("n", 2.0, "n: expected a whole number, got 2.0."),
        ("gap", 0.4, "gap: 0.4 is out of range (0.5 to any)."),
        ("gap", float("nan"), "gap: nan is out of range (0.5 to any)."),
        ("gap", "1", "gap: expected a number, got '1'."),
        ("kind", "fanzy", "kind: there is no 'fanzy'. Did you mean 'fancy'?"),
        ("hint", 1, "hint: expected true or false, got 1."),
    ],
)
def test_any_other_is_refused_by_name(name: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        checked(PARAMETERS, name, value)
    assert str(flaw.value).startswith(words)


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[a-z]+$", title="small letters")]
    sizes: tuple[Annotated[int, Meta(ge=1)], ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    n: Annotated[int, Meta(ge=1, le=9, description="how many")] = 3
    gap: Annotated[float, Meta(ge=0.5, description="how far")] | None = None
    kind: Annotated[Literal["plain", "fancy"], Meta(description="how")] = "plain"
    hint: Annotated[bool, Meta(description="whether")] = True
    file: Annotated[str | dict[str, Any], Meta(description="where")] = "here"
    id: str = ""
    environment: Literal["game"] = "game"
    parts: dict[str, Part] | None = None
    pair: Annotated[tuple[int, int], Meta(title="[low, high]")] | None = None


def test_a_line_s_described_fields_are_its_parameters() -> None:
    known = parameters_of(Line)
    assert list(known) == ["n", "gap", "kind", "hint", "file"]
    assert known["n"] == Parameter(kind=int, help="how many", default=3, least=1, most=9)
    assert known["gap"] == Parameter(kind=float, help="how far", default=None, least=0.5)
    assert known["kind"] == Parameter(kind=str, help="how", default="plain", choices=("plain", "fancy"))
    assert known["file"].kind is str


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"n": 0}, "n: 0 is out of range (1 to 9)."),
        ({"n": 10**30}, "n: 1000000000000000000000000000000 is out of range (1 to 9)."),
        ({"gap": 10**400}, f"gap: 1{'0' * 99}... is out of range (0.5 to any)."),
        ({"kind": 3}, "kind: expected a string, got 3."),
        ({"environment": "gane"}, "environment: expected 'game', got 'gane'."),
        ({"idd": "x"}, "idd: a game instance has no such field. Did you mean 'id'?"),
        ({"parts": []}, "parts: expected an object, got []."),
        ({"parts": {"a": {"name": "b", "sizes": [1, 0]}}}, "parts.a.sizes[1]: 0 is out of range (1 to any)."),
        ({"parts": {"a": {"name": "B"}}}, "parts.a.name: expected small letters, got 'B'."),
        ({"parts": {"a": {}}}, "parts.a.name: is missing."),
        ({"parts": {"a": {"nam": "b"}}}, "parts.a.nam: there is no such field. Did you mean 'name'?"),
        ({"pair": [1]}, "pair: expected [low, high], got [1]."),
        ({"pair": [1, "2"]}, "pair[1]: expected a whole number, got '2'."),
    ],
)
def test_the_part_of_a_line_that_is_wrong_is_named_with_its_value(line: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        read_line(line, Line, "game")
    assert str(flaw.value) == words


def test_a_line_is_written_in_order_without_what_says_nothing() -> None:
    line = read_line({"n": 4, "pair": (1, 2), "parts": {"a": {"name": "b"}}}, Line, "game")
    assert written(line, ("pair", "n", "gap", "kind", "hint"), ("kind", "hint")) == {"pair": [1, 2], "n": 4}
