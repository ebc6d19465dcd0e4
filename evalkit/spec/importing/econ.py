"""Texts that lie in a copy of the reference as constants, one module of prompts an environment, and lists of tools.

What a result looks like is found in the code that renders it, where it is written as we know it; what is not found
stays in our own wording, and the pack says so. The source is read as text and never executed.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.spec.identity import REASONING
from evalkit.spec.importing.record import PromptImport, Texts, absent_text, table_text
from evalkit.spec.importing.results import Read


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


ROOT = "econ_evals/experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one environment's texts lie in the reference."""

    folder: str
    """Below `ROOT`."""
    texts: Mapping[str, str]
    """Our keys -> constants of `prompts.py` that must be there."""
    tools: str
    """The constant that lists the tools."""
    variant_texts: Mapping[str, str]
    """For reasoning models; what is not there is left out."""
    variant_tools: str
    results: Callable[[Read], Texts]
    """The result texts that can be found in the code beside it."""
    fit: Callable[[Texts], Texts] = dict
    """The constants as our texts: where fields have other names, or one constant is two texts of ours."""
    wordings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Other wordings that the reference compares: our keys -> the constants that stand in for those above."""


def importing(environment: str, source: Source, position: int) -> PromptImport:
    """The import of an environment whose texts lie so."""
    return PromptImport(
        source=f"{ROOT}/{source.folder}/prompts.py",
        tables=lambda repo, wording: _tables(repo / ROOT / source.folder, environment, source, wording),
        wordings=tuple(source.wordings),
        place=position,
    )


def _tables(folder: Path, environment: str, source: Source, wording: str) -> Iterator[str]:
    if not (folder / "prompts.py").is_file():
        return
    plain, variant = _prompts(folder / "prompts.py", environment, source, wording)
    env = ENVIRONMENTS[environment]
    plain |= {key: text for key, text in source.results(partial(_read_code, folder)).items() if key in env.texts.all}
    yield absent_text(env.texts.all.keys() - env.texts.later.keys() - plain.keys())
    yield table_text(environment, plain)
    if variant:
        yield table_text(f"{environment}.{REASONING}", variant)


def _prompts(path: Path, environment: str, source: Source, wording: str) -> tuple[Texts, Texts]:
    values = constants(parse(path))
    instead = source.wordings.get(wording, {})
    plain: Texts = {}
    for key, name in {**source.texts, **instead}.items():
        if not isinstance(values.get(name), str):
            raise UsageError(f"{path}: the text {name} is missing, or is not a constant.")
        plain[key] = values[name]
    plain = source.fit(plain)
    plain |= _tool_texts(values.get(source.tools), environment)
    # What makes the wording is in no text for reasoning models, so its own texts hold for them too.
    variant = {
        key: values[name]
        for key, name in source.variant_texts.items()
        if isinstance(values.get(name), str) and key not in instead
    }
    variant |= _tool_texts(values.get(source.variant_tools), environment)
    return plain, {key: text for key, text in variant.items() if plain.get(key) != text}


def _tool_texts(tools: object, environment: str) -> Texts:
    """The descriptions in a list of tools, of tools and arguments that our environment has."""
    texts: dict[str, Any] = {}
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            continue
        texts[f"tools.{tool['name']}.description"] = tool.get("description")
        schema = tool.get("input_schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for argument, declared in (properties if isinstance(properties, dict) else {}).items():
            texts[f"tools.{tool['name']}.{argument}"] = (
                declared.get("description") if isinstance(declared, dict) else None
            )
    known = ENVIRONMENTS[environment].texts.all
    return {key: text for key, text in texts.items() if key in known and isinstance(text, str)}


def _read_code(folder: Path, name: str) -> ast.Module | None:
    return parse(folder / name) if (folder / name).is_file() else None
