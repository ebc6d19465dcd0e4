"""Every public name says what it is, with an example; every example gives what it says it gives, offline."""

import doctest
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import evalkit

EXCEPT = {"Facts", "AgentFn"}
"""Names of types alone: nothing can be said of an alias."""


def documented() -> dict[str, Any]:
    """Every public function and class, and every public method and property of these, by dotted name."""
    found: dict[str, Any] = {"evalkit": evalkit}
    for name in evalkit.__all__:
        value = getattr(evalkit, name)
        found[name] = value
        if inspect.isclass(value) and not issubclass(value, Exception):
            members = ((key, one) for key, one in vars(value).items() if not key.startswith("_"))
            found |= {f"{name}.{key}": one for key, one in members if callable(one) or isinstance(one, property)}
    return {name: value for name, value in found.items() if name not in EXCEPT}


@pytest.mark.parametrize("name", documented())
def test_every_public_name_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(documented()[name]) or ""
    assert len(text) > 15
    assert text[0].isupper() or text.startswith(("evalkit", "`"))


def has_example(value: Any) -> bool:
    return ">>> " in (inspect.getdoc(value) or "")


def test_functions_and_types_have_examples() -> None:
    found = documented()
    needy = [
        name
        for name, value in found.items()
        if inspect.isfunction(value) or (inspect.isclass(value) and "." not in name)
    ]
    assert len(needy) > 25
    assert [name for name in needy if not has_example(found[name]) and not is_small(name)] == []


def is_small(name: str) -> bool:
    """Methods of records: their class has the example."""
    owner, _, method = name.partition(".")
    return bool(method) and owner not in ("Run", "Game")


@pytest.mark.exhaustive(but=5)
@pytest.mark.parametrize("name", [name for name, value in documented().items() if has_example(value)])
def test_every_example_gives_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = documented()[name]
    module = sys.modules[evalkit.__name__ if name == "evalkit" else value.__module__]
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    test = parser.get_doctest(inspect.getdoc(value) or "", {"__name__": "example"}, name, module.__file__, 0)
    assert test.examples
    outcome = runner.run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)
