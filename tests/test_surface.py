"""How much there is to know: names of the Python interface, fields of an environment, keys of files.

A change that raises a bound names what it adds, and why it cannot replace something.
"""

from dataclasses import fields

import evalkit
from evalkit import extend, testing

ELSEWHERE = frozenset({"likeness", "compiled_saves_s", "kernels", "compiled_ahead"})
"""Fields that leave with the compiled kernels and the large suites."""


def test_names_of_the_python_interface() -> None:
    names = [*evalkit.__all__, *extend.__all__, *testing.__all__]
    assert len(names) <= 70
    assert len(set(names)) == len(names)


def test_fields_of_an_environment() -> None:
    assert len({field.name for field in fields(evalkit.Environment)} - ELSEWHERE) <= 24
