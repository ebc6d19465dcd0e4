"""What the interpreter of `interpret.py` knows: operators, functions and methods, none of which makes anything large.

What each of them makes is measured before it is made, where a few steps could double it again and again.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_TEXT = 1 << 20
"""Letters of a text, or members of a list."""

MOST_BITS = 4096
"""Of a number."""

TOO_LONG = "its texts become too long"

OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}


class Unreadable(Exception):
    """The source does something that is not understood."""


@dataclass(slots=True)
class Thing:
    """A value of a class of the program: attributes as given, methods as its class in the source defines them."""

    attributes: dict[str, Any] = field(default_factory=dict)
    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)


METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset(
        {"capitalize", "count", "endswith", "find", "isdigit", "lower", "lstrip"}
        | {"rfind", "rstrip", "split", "startswith", "strip", "title", "upper"}
    ),
    list: frozenset({"append", "copy", "index", "pop"}),
    dict: frozenset({"copy", "get", "items", "keys", "update", "values"}),
    set: frozenset({"add", "issubset"}),
}


def joined(op: ast.operator, left: Any, right: Any) -> Any:
    """The value of two with an operator between them. Raises Unreadable."""
    if type(op) not in OPERATORS:
        raise Unreadable("it uses an unknown operator")
    if isinstance(op, ast.Mult) and not (isinstance(left, int) and isinstance(right, int)):
        raise Unreadable("it repeats a text")
    return checked(OPERATORS[type(op)](left, right))


def checked(value: Any) -> Any:
    """A value that was made. Raises Unreadable if it is too large to continue with."""
    if isinstance(value, str | list) and len(value) > MOST_TEXT:
        raise Unreadable(TOO_LONG)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise Unreadable("its numbers become too large")
    return value


def text_of(value: Any) -> str:
    """A value as a string; not a list that holds lists that hold lists many times over."""
    _measured(value, MOST_TEXT)
    return str(value)


def _measured(value: Any, left: int) -> int:
    """What is left of so many letters after a value. Raises Unreadable if nothing is."""
    left -= len(value) if isinstance(value, str) else 1
    if left < 0:
        raise Unreadable(TOO_LONG)
    if isinstance(value, Mapping):
        value = [part for entry in value.items() for part in entry]
    for part in value if isinstance(value, list | tuple | set) else ():
        left = _measured(part, left)
    return left


def method_of(value: Any, name: str) -> Callable[..., Any] | None:
    """A method of a text, list, mapping or set; None if it is not known."""
    if (type(value), name) in _MEASURED:
        measured = _MEASURED[type(value), name]
        return lambda *given: measured(value, *given)
    return getattr(value, name) if name in METHODS.get(type(value), ()) else None


def _replaced(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MOST_TEXT:
        raise Unreadable(TOO_LONG)
    return text.replace(old, new)


def _strung(between: str, parts: Iterable[str]) -> str:
    texts = list(parts)
    if sum(map(len, texts)) + len(between) * len(texts) > MOST_TEXT:
        raise Unreadable(TOO_LONG)
    return between.join(texts)


def _extended(values: list[Any], more: Iterable[Any]) -> None:
    items = list(more)
    if len(values) + len(items) > MOST_TEXT:
        raise Unreadable(TOO_LONG)
    values.extend(items)


_MEASURED: Mapping[tuple[type, str], Callable[..., Any]] = {
    (str, "replace"): _replaced,
    (str, "join"): _strung,
    (list, "extend"): _extended,
}


def _range(*ends: int) -> range:
    numbers = range(*ends)
    if len(numbers) > MOST_TEXT:
        raise Unreadable(TOO_LONG)
    return numbers


def _has(value: Any, name: str) -> bool:
    return isinstance(value, Thing) and (name in value.attributes or name in value.methods)


def _is(value: Any, kind: Any) -> bool:
    kind = str if kind is text_of else kind
    return isinstance(kind, type) and isinstance(value, kind)


def _get(value: Any, name: str, default: Any = None) -> Any:
    return value.attributes.get(name, default) if isinstance(value, Thing) else default


BUILTINS: Mapping[str, Any] = {
    "chr": chr,
    "dict": dict,
    "enumerate": lambda values, start=0: list(enumerate(values, start)),
    "getattr": _get,
    "hasattr": _has,
    "int": int,
    "isinstance": _is,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "ord": ord,
    "print": lambda *_, **__: None,
    "range": _range,
    "set": set,
    "sorted": sorted,
    "str": text_of,
    "tuple": tuple,
}
