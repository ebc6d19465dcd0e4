"""What a record names is read where it lies; what is not there, or is something else, is said with record and field."""

import types

import pytest

from evalkit.envs.table import named, named_table
from evalkit.errors import UsageError


def test_what_is_named_is_read() -> None:
    assert named("offers", "report", "math:pi", float) > 3
    assert named_table("offers", "policies", "types:__dict__", object)["ModuleType"] is types.ModuleType


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            "no_such_module:X",
            "offers: report: 'no_such_module:X' cannot be imported: ModuleNotFoundError: No module named "
            "'no_such_module'",
        ),
        ("math:tau_of", "'math:tau_of' cannot be imported: AttributeError: module 'math' has no attribute 'tau_of'"),
        ("math", "'math' cannot be imported"),
        (":pi", "':pi' cannot be imported"),
        ("math:sin", "expected 'module:name' of a float, got 'math:sin'"),
    ],
)
def test_what_cannot_be_read_is_named(place: str, words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        named("offers", "report", place, float)
    assert words in str(flaw.value)


def test_a_wrong_entry_of_a_table_is_named() -> None:
    with pytest.raises(UsageError, match="offers: policies: 'types:__dict__': expected a float as '__name__'"):
        named_table("offers", "policies", "types:__dict__", float)
