"""How much work a call is, counted: the same on every machine, whatever else it does.

While a call is counted, the functions of evalkit that it reaches run in another translation, in which they tell what
they do: one unit for each call and each turn of a loop, and one for each byte, character or item that is read, compared
or copied. What C does cannot be looked into; it is counted by what it is given and what it returns, and a search from
where it begins to where it ends. A regular expression is counted step by step (`regex_steps.py`). Not seen are C code
whose work is no line in what it is given (none is known here but regular expressions), and the standard library's own
loops in Python, which count like C.
"""

import builtins
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

from tests.support.regex_steps import steps
from tests.support.telling import HOOKS, functions_of, translation

LOOKED_INTO = ("evalkit.", "tests.test_growth", "tests.sim.reading")
"""Modules whose functions are translated, by how their names begin."""

_TEXTS = (str, bytes, bytearray)
_SIZED = (*_TEXTS, list, tuple, dict, set, frozenset, KeysView, ValuesView, deque)
_LIGHT = frozenset({
    *(len, isinstance, issubclass, id, type, callable, getattr, hasattr, setattr, next, iter, ord, chr, range, zip),
    *(enumerate, filter, reversed, bool, hash, object, memoryview, staticmethod, classmethod, property),
})  # fmt: skip
"""They take as long whatever they are given; what they make is counted where it is gone through."""
_LIGHT_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(["get", "setdefault", "pop", "popitem", "keys", "values", "items", "clear"]),
    set: frozenset(["add", "discard", "remove", "pop", "clear"]),
    list: frozenset(["append", "clear"]),
    deque: frozenset(["append", "appendleft", "pop", "popleft", "clear"]),
    bytearray: frozenset(["append", "clear"]),
    re.Match: frozenset(["start", "end", "span"]),
}
_SEARCHES = frozenset(["find", "index", "rfind", "rindex", "count"])


class Work:
    """What has been counted."""

    def __init__(self) -> None:
        self.units = 0
        self.turns = 0
        """Calls and turns of loops alone: what Python does itself."""
        self._looked_into: set[str] = set()
        self._now: list[tuple[FunctionType, CodeType]] = []

    def look_into(self, module: str) -> None:
        """Translate a module's functions, until `restore`."""
        self._looked_into.add(module)
        path = getattr(sys.modules.get(module), "__file__", None)
        for function, plain, telling in functions_of(path) if path else ():
            self._translate(function, plain, telling)

    def _translate(self, function: FunctionType, plain: CodeType, telling: CodeType) -> None:
        self._now.append((function, plain))
        function.__code__ = telling

    def restore(self) -> None:
        for function, plain in self._now:
            function.__code__ = plain

    def tick(self) -> bool:
        self.units += 1
        self.turns += 1
        return True

    def made(self, value: Any) -> Any:
        self.units += size(value)
        return value

    def grown(self, value: object) -> None:
        """What `+=` made: a text is copied whole, a list is not."""
        if isinstance(value, (*_TEXTS, tuple)) and not isinstance(value, bytearray):
            self.units += len(value)

    def cut(self, holder: object, place: object) -> None:
        """What `del` moves: all of a list that lies behind."""
        if isinstance(holder, list):
            first = place.start if isinstance(place, slice) else place
            self.units += len(holder) - (first if isinstance(first, int) and first >= 0 else 0)

    def contains(self, one: Any, many: Any) -> bool:
        found: bool = one in many
        if isinstance(many, _TEXTS):
            at = many.find(one) if found else len(many)
            self.units += at + (len(one) if isinstance(one, _TEXTS) else 1)
        elif isinstance(many, list | tuple | deque):
            self.units += many.index(one) + 1 if found else len(many)
        return found

    def equal(self, one: Any, other: Any) -> Any:
        self._compared(one, other)
        return one == other

    def unequal(self, one: Any, other: Any) -> Any:
        self._compared(one, other)
        return one != other

    def _compared(self, one: object, other: object) -> None:
        if one is not other and isinstance(one, _SIZED) and isinstance(other, _SIZED):
            self.units += size(one) if size(one) == size(other) else 0

    def call(self, function: Any) -> Any:
        """What to call in place of this: the same, and it is counted."""
        self.units += 1
        self.turns += 1
        kind = type(function)
        if kind is FunctionType or kind is MethodType:
            plain = function.__func__ if kind is MethodType else function
            if not self._is_ours(plain.__module__):
                return self._opaque(function, None)
            if type(plain) is FunctionType and (telling := translation(plain.__code__)) is not None:
                self._translate(plain, plain.__code__, telling)  # it was made since functions were looked up
            return function
        if isinstance(function, type):
            if function in _LIGHT or self._is_ours(function.__module__):
                return function
            return self._mapped if function is map else self._opaque(function, None)
        if isinstance(function, BuiltinFunctionType):
            return function if function in _LIGHT else self._method(function, function.__self__)
        if kind is MethodDescriptorType:
            return self._opaque(function, None)
        return self._opaque(function, None) if function.__class__.__module__ != "builtins" else function

    def _is_ours(self, module: str | None) -> bool:
        if module in self._looked_into:
            return True
        if module is None or not module.startswith(LOOKED_INTO):
            return False
        self.look_into(module)
        return True

    def _method(self, function: Any, owner: Any) -> Any:
        name, kind = function.__name__, type(owner)
        if name in _LIGHT_METHODS.get(kind, ()):
            return function
        if kind is re.Pattern:
            return self._matching(function, owner, name)
        if isinstance(owner, _TEXTS):
            if name in _SEARCHES:
                return self._search(function, owner, name)
            if name in ("startswith", "endswith"):
                return self._opaque(function, None)
        if kind in (list, bytearray) and name == "extend":
            return self._opaque(function, None)
        if kind is list and name in ("pop", "insert"):
            return self._shifted(function, owner)
        return self._opaque(function, owner)

    def _opaque(self, function: Any, owner: object) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            self.units += size(owner) + sum(map(size, given)) + sum(map(size, named.values()))
            return self.made(function(*given, **named))

        return counted

    def _mapped(self, function: Any, *given: Any) -> Any:
        def one_by_one(*one: Any) -> Any:
            return self.call(function)(*one)

        return map(one_by_one, *given)

    def _shifted(self, function: Any, owner: list[Any]) -> Any:
        def counted(at: int = -1, *more: Any) -> Any:
            self.units += min(-at, len(owner)) if at < 0 else max(0, len(owner) - at)
            return function(at, *more)

        return counted

    def _search(self, function: Any, owner: Any, name: str) -> Any:
        def counted(what: Any, start: int | None = None, stop: int | None = None) -> int:
            begin, end, _ = slice(start, stop).indices(len(owner))
            found: int = function(what, start, stop)
            if name not in ("count", "rindex", "rfind") and found >= 0:
                end = found
            elif name != "count" and found >= 0:
                begin = found
            self.units += max(0, end - begin) + size(what)
            return found

        return counted

    def _matching(self, function: Any, pattern: re.Pattern[Any], name: str) -> Any:
        if name in ("search", "match", "fullmatch"):

            def matched(text: Any, at: int = 0, end: int = sys.maxsize) -> Any:
                found = function(text, at, end)
                taken, span = _steps(pattern, text, at, end, name)
                assert span == (found and found.span()), f"{pattern.pattern!r} is not searched as `re` does"
                self.units += taken
                return found

            return matched

        def each(text: Any, at: int = 0, end: int = sys.maxsize) -> Iterator[Any]:
            for found in pattern.finditer(text, at, end):
                self.units += _steps(pattern, text, at, end, "search")[0]
                yield found
                at = max(found.end(), at + 1)
            self.units += _steps(pattern, text, at, end, "search")[0]

        if name == "finditer":
            return each

        def whole(*given: Any) -> Any:
            """`sub`, `subn`, `split` and `findall`."""
            deque(each(given[1] if name.startswith("sub") else given[0]), maxlen=0)
            return self.made(function(*given))

        return whole


@lru_cache(512)
def _steps(pattern: re.Pattern[Any], text: Any, at: int, end: int, how: str) -> tuple[int, tuple[int, int] | None]:
    return steps(pattern, text, at, end, how=how)


def size(value: object) -> int:
    """What it takes to read a value through: its bytes, characters or items."""
    if isinstance(value, _SIZED):
        return len(value)
    return value.bit_length() // 64 if type(value) is int else 0


@contextmanager
def counting() -> Iterator[Work]:
    """Count, while it is open."""
    work = Work()
    hooks = {f"work_{name}": getattr(work, name) for name in HOOKS}
    vars(builtins).update(hooks)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * limit)  # what is counted takes a frame more for what calls back
    try:
        yield work
    finally:
        sys.setrecursionlimit(limit)
        work.restore()
        for name in hooks:
            delattr(builtins, name)


def modules_reached(call: Callable[[], object]) -> set[str]:
    """Modules to look into of which this call reaches a function."""
    reached = set()

    def heard(frame: Any, event: str, _: object) -> None:
        if event == "call":
            reached.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {name for name in reached if name.startswith(LOOKED_INTO)}
