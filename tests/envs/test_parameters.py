from typing import Any

import pytest

from evalkit.envs.environment import Parameter
from evalkit.envs.parameters import checked
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
        ("n", None, "n: expected int, got None."),
        ("n", True, "n: expected int, got True."),
        ("n", 2.0, "n: expected int, got 2.0."),
        ("gap", 0.4, "gap: 0.4 is out of range (0.5 to any)."),
        ("gap", float("nan"), "gap: nan is out of range (0.5 to any)."),
        ("gap", "1", "gap: expected float, got '1'."),
        ("kind", "fanzy", "kind: there is no 'fanzy'. Did you mean 'fancy'?"),
        ("hint", 1, "hint: expected bool, got 1."),
    ],
)
def test_any_other_is_refused_by_name(name: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        checked(PARAMETERS, name, value)
    assert str(flaw.value).startswith(words)
