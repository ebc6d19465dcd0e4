"""The package's public names with signatures and docstrings, read from the sources; nothing is imported or run."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
PACKAGE = PROJECT / "evalkit"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One public name of a module: a function, a class, a method, a field or a constant."""

    name: str
    """With its class before it: `Store.append`."""
    signature: str
    """As the source has it, without the body."""
    text: str
    """The docstring; empty where there is none."""
    line: int
    needs_text: bool
    """Whether a reader is lost without a docstring: functions, classes and their methods, but not a protocol's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One public module."""

    name: str
    """With dots: `evalkit.envs.environment`."""
    text: str
    entries: tuple[Entry, ...]


def modules() -> Iterator[Module]:
    """Every module that has something public in it, by name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = path.relative_to(PROJECT).with_suffix("").parts
        entries = tuple(_entries(tree.body, ""))
        text = ast.get_docstring(tree) or ""
        if path.name == "__init__.py":
            parts = parts[:-1]
            if not text and not entries:
                continue
        yield Module(name=".".join(parts), text=text, entries=entries)


def _entries(body: list[ast.stmt], inside: str, *, protocol: bool = False) -> Iterator[Entry]:
    for node, behind in zip_longest(body, body[1:]):
        if isinstance(node, Definition):
            if node.name.startswith("_"):
                continue
            text = ast.get_docstring(node) or ""
            yield Entry(
                name=inside + node.name,
                signature=_signature(node),
                text=text,
                line=node.lineno,
                needs_text=not protocol,
            )
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                yield from _entries(node.body, f"{node.name}.", protocol="Protocol" in bases)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            kept = node if inside or _short(node.value) else ast.copy_location(_without_value(node), node)
            yield Entry(
                name=inside + node.target.id,
                signature=ast.unparse(kept),
                text=_text_behind(behind),
                line=node.lineno,
                needs_text=False,
            )


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{kind} {node.name}({ast.unparse(node.args)}){returns}"


def _short(value: ast.expr | None) -> bool:
    return value is None or len(ast.unparse(value)) <= 60


def _without_value(node: ast.AnnAssign) -> ast.AnnAssign:
    return ast.AnnAssign(target=node.target, annotation=node.annotation, value=None, simple=node.simple)


def _text_behind(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""
