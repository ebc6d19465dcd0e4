"""Constants of Python source, told without running it: strings, stripped or joined, and lists and mappings of them."""

import ast
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from evalkit.errors import UsageError


def parse(path: Path) -> ast.Module:
    """A file as a tree. Raises UsageError."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"{path} cannot be read: {flaw}") from flaw
    except (SyntaxError, ValueError) as flaw:
        raise UsageError(f"{path} is not Python source: {flaw}") from flaw


def constants(module: ast.Module) -> dict[str, Any]:
    """The module's names whose values can be told without running it."""
    names: dict[str, Any] = {}
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and value is not None:
            names[targets[0].id] = _value(value, names)
    return names


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """A constant expression's value; None for any other."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = _value(left, names), _value(right, names)
            joined = all(isinstance(part, str) for part in parts) or all(isinstance(part, list) for part in parts)
            return parts[0] + parts[1] if joined else None
        case ast.JoinedStr(values=values):
            pieces = [_value(part.value if isinstance(part, ast.FormattedValue) else part, names) for part in values]
            return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else None
        case ast.Subscript(value=inner, slice=ast.Constant(value=int(index))):
            parts = _value(inner, names)
            return parts[index] if isinstance(parts, list) and -len(parts) <= index < len(parts) else None
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, names) for item in items]
        case ast.Dict(keys=keys, values=values):
            entries = [
                (_value(key, names), _value(value, names)) for key, value in zip(keys, values, strict=True) if key
            ]
            return {key: value for key, value in entries if isinstance(key, str)}
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "lstrip" | "rstrip" as way), args=[]):
            text = _value(inner, names)
            return getattr(text, way)() if isinstance(text, str) else None
        case ast.Call(func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[inner]):
            text = _value(inner, names)
            return dedent(text) if isinstance(text, str) else None
    return None
