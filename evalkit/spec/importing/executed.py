"""Modules of a user's copy of a reference, executed; only in the child process that `pack.py` starts.

Only the sources that are named are executed. Other modules of the copy, and libraries that are not loaded, are blank:
whatever is taken from them can be called, indexed and inherited from, and does nothing.
"""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from evalkit.errors import UsageError


class Blank(ModuleType):
    """Stands in for a library, and for everything in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> "Blank":
        if name.startswith("__"):
            raise AttributeError(name)
        return Blank(name)

    def __call__(self, *_: Any, **__: Any) -> "Blank":
        return self

    def __getitem__(self, key: Any) -> "Blank":
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class Copy:
    """A copy whose `sources` are executed, by dotted name: files below it. `given`: values of names, whatever the
    sources set them to."""

    def __init__(self, repo: Path, sources: Mapping[str, str], given: Mapping[str, Any] | None = None) -> None:
        self._repo, self._sources, self._given = repo, sources, given or {}

    def __enter__(self) -> "Copy":
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        for name, module in list(sys.modules.items()):
            if isinstance(module, Blank) or name in self._sources:
                del sys.modules[name]

    def module(self, name: str) -> Any:
        """A source, executed. Raises UsageError if it cannot be read."""
        return importlib.import_module(name)

    def text(self, file: str) -> str:
        """A file's text. Raises UsageError."""
        try:
            return (self._repo / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as flaw:
            raise UsageError(f"{self._repo / file} cannot be read: {flaw}") from flaw

    def tree(self, name: str) -> ast.Module:
        """A source as a tree, without lines that only print something and that an older Python cannot read: the
        references have quotes of one kind within each other there, which is Python from 3.12 on."""
        lines = self.text(self._sources[name]).splitlines(keepends=True)
        while True:
            try:
                return ast.parse("".join(lines))
            except SyntaxError as flaw:
                line = lines[flaw.lineno - 1] if flaw.lineno and flaw.lineno <= len(lines) else ""
                if not line.lstrip().startswith("print("):
                    raise UsageError(f"{self._repo / self._sources[name]} is not Python source: {flaw}") from flaw
                lines[(flaw.lineno or 1) - 1] = line[: len(line) - len(line.lstrip())] + "pass\n"

    def flaw(self, name: str, what: str, why: object) -> UsageError:
        """What to raise where a source does not hold what it should."""
        place = self._repo / self._sources.get(name, name)
        return UsageError(f"{place}: {what} cannot be read: {why}. Is it the reference's original file?")

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """As the import system asks."""
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or not isinstance(sys.modules.get(top, Blank(top)), Blank)
        return None if known and name not in self._sources else spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """A blank, or None for a module as Python makes it."""
        return None if spec.name in self._sources else Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Executes a source; a blank stays as it is."""
        name = module.__name__
        if name in self._sources:
            tree = self.tree(name)
            for node in ast.walk(tree):
                match node:
                    case ast.Assign(targets=[ast.Name(id=given)]) if given in self._given:
                        node.value = ast.parse(repr(self._given[given]), mode="eval").body
            place = str(self._repo / self._sources[name])
            module.__file__ = place
            exec(compile(ast.fix_missing_locations(tree), place, "exec"), module.__dict__)  # noqa: S102 - what it is for


def with_locals(function: Callable[..., Any], *values: Any) -> tuple[Any, dict[str, Any]]:
    """(what a function returns, its local names at the end)."""
    seen: dict[str, Any] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is function.__code__:
            seen.update(frame.f_locals)

    sys.setprofile(watch)
    try:
        return function(*values), seen
    finally:
        sys.setprofile(None)
