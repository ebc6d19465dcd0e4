"""A prompt pack from a user's copy of the reference repository, read as source text and never executed.

Texts are constants there: strings, stripped or joined, and lists of tool descriptions. What a result looks like is
found in the code that renders it (`results.py`), where it is written as we know it; what is not found stays in
our own wording, and the pack says so.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.spec.identity import REASONING
from evalkit.spec.importing.costbench.results import results_texts
from evalkit.spec.importing.costbench.texts import DESCRIPTIONS, UNUSED, Copy, costbench_texts, is_copy
from evalkit.spec.importing.results import Read, Texts, pricing_results, procurement_results, scheduling_results

ROOT = "econ_evals/experiments"

ATTEMPTS = 100
"""How many attempts the reference's texts speak of."""

BOUND = "{upper_bound_price}"
"""What pricing's opening there has in place of the price that it advises not to exceed."""

GAP = "\n\n"


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


def write_pack(repo: Path, wording: str = "") -> str:
    """The pack's TOML text. `wording`: one of `WORDINGS`, which differ in some environments from the plain one.

    Raises UsageError where no environment's prompts are found, a constant is not there, or the wording is none.
    """
    if wording and wording not in WORDINGS:
        raise UsageError(f"The reference has no wording {wording!r}.{nearest(wording, WORDINGS)}")
    tables: list[str] = []
    for environment, source in SOURCES.items():
        folder = repo / ROOT / source.folder
        if environment in ENVIRONMENTS and (folder / "prompts.py").is_file():
            plain, variant = _prompts(folder / "prompts.py", environment, source, wording)
            env: Environment[Any, Any] = ENVIRONMENTS[environment]
            known = env.texts
            plain |= {key: text for key, text in source.results(partial(_read_code, folder)).items() if key in known}
            absent = sorted(known.keys() - env.later_texts.keys() - plain.keys())
            tables.append(f"# Not found there, hence in evalkit's wording: {', '.join(absent) or 'nothing'}.")
            tables.append(_table(f"{environment}", plain))
            if variant:
                tables.append(_table(f"{environment}.{REASONING}", variant))
    if is_copy(repo):
        tables += _costbench(repo)
    if not tables:
        wanted = ", ".join(f"{ROOT}/{source.folder}/prompts.py" for source in SOURCES.values())
        raise UsageError(
            f"{repo}: this is no copy of a reference repository: it holds none of {wanted}, nor {DESCRIPTIONS} of "
            "CostBench."
        )
    head = f"# The wording{f' {wording!r}' if wording else ''} of a copy of the reference repository."
    return "\n".join([head, "", *tables])


def _costbench(repo: Path) -> Iterator[str]:
    """The table of CostBench, with what could not be found in the code that makes results."""
    texts = costbench_texts(repo)
    results, missed = results_texts(Copy(repo))
    texts |= results
    absent = ENVIRONMENTS["costbench"].texts.keys() - texts.keys()
    yield f"# Not found there, hence in evalkit's wording: {', '.join(sorted(absent - UNUSED)) or 'nothing'}."
    yield from (f"# Not understood: {' '.join(what.split())}." for what in missed)
    yield _table("costbench", texts)


def _prompts(path: Path, environment: str, source: Source, wording: str) -> tuple[Texts, Texts]:
    constants = _constants(_parse(path))
    instead = source.wordings.get(wording, {})
    plain: Texts = {}
    for key, name in {**source.texts, **instead}.items():
        if not isinstance(constants.get(name), str):
            raise UsageError(f"{path}: the text {name} is not there, or is not written as a constant.")
        plain[key] = constants[name]
    plain = source.fit(plain)
    plain |= _tool_texts(constants.get(source.tools), environment)
    # What makes the wording is in no text for reasoning models, so its own texts hold for them too.
    variant = {
        key: constants[name]
        for key, name in source.variant_texts.items()
        if isinstance(constants.get(name), str) and key not in instead
    }
    variant |= _tool_texts(constants.get(source.variant_tools), environment)
    return plain, {key: text for key, text in variant.items() if plain.get(key) != text}


def _tool_texts(tools: object, environment: str) -> Texts:
    """The descriptions in a list of tools, of tools and arguments that our environment has."""
    found: dict[str, Any] = {}
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            continue
        found[f"tools.{tool['name']}.description"] = tool.get("description")
        schema = tool.get("input_schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        for argument, said in (properties if isinstance(properties, dict) else {}).items():
            found[f"tools.{tool['name']}.{argument}"] = said.get("description") if isinstance(said, dict) else None
    known = ENVIRONMENTS[environment].texts
    return {key: text for key, text in found.items() if key in known and isinstance(text, str)}


def _table(name: str, texts: Texts) -> str:
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand.
    lines = [
        f"{key} = {json.dumps(text, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, text in texts.items()
    ]
    return "\n".join([f"[{name}]", *lines, ""])


def _read_code(folder: Path, name: str) -> ast.Module | None:
    return _parse(folder / name) if (folder / name).is_file() else None


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as flaw:
        raise UsageError(f"{path} cannot be read: {flaw}") from flaw
    except (SyntaxError, ValueError) as flaw:
        raise UsageError(f"{path} is not Python source: {flaw}") from flaw


def _constants(module: ast.Module) -> dict[str, Any]:
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
        case ast.Subscript(value=inner, slice=ast.Constant(value=int(place))):
            parts = _value(inner, names)
            return parts[place] if isinstance(parts, list) and -len(parts) <= place < len(parts) else None
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


def _count_attempts(texts: Texts) -> Texts:
    """Procurement's: the reference says how many attempts there are in its text, we fill the number in."""
    return {**texts, "system": re.sub(rf"\b{ATTEMPTS}\b", "{periods}", texts["system"])}


def _part_hint(texts: Texts) -> Texts:
    """Pricing's: the paragraph of the opening that names a price is a text of its own, since it can be left out.

    Raises UsageError where it is no paragraph of its own.
    """
    paragraphs = texts["opening"].split(GAP)
    naming = [place for place, paragraph in enumerate(paragraphs) if BOUND in paragraph]
    if not naming:
        return texts
    if len(naming) > 1 or naming[0] == 0:
        raise UsageError(f"pricing's opening has {BOUND} elsewhere than in one paragraph behind the first.")
    place = naming[0]
    said = (GAP + paragraphs[place]).replace(BOUND, "{price_short}")
    return {
        **texts,
        "opening": GAP.join(paragraphs[:place]) + GAP.join(["{hint}", *paragraphs[place + 1 :]]),
        "hint": said,
    }


SOURCES: Mapping[str, Source] = {
    "scheduling": Source(
        folder="scheduling",
        texts={
            "system": "SYSTEM_PROMPT_V1",
            "opening": "INITIAL_PROMPT_V1",
            "opening_last": "INITIAL_PROMPT_FINAL_ATTEMPT_V1",
            "reply": "PROMPT_V1",
        },
        tools="TOOLS_V1",
        variant_texts={"system": "SYSTEM_PROMPT_V1_REASONING"},
        variant_tools="TOOLS_V1_REASONING",
        results=scheduling_results,
    ),
    "procurement": Source(
        folder="procurement",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        tools="TOOLS_V1",
        variant_texts={"system": "SYSTEM_PROMPT_V1_O3"},
        variant_tools="TOOLS_V1_O3",
        results=procurement_results,
        fit=_count_attempts,
        wordings={
            "known_horizon": {"system": "SYSTEM_PROMPT_V1_KNOWN_HORIZON"},
            "known_horizon_goal": {"system": "SYSTEM_PROMPT_V1_GRADED_BEST"},
        },
    ),
    "pricing": Source(
        folder="pricing",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        tools="TOOLS_V1",
        variant_texts={"system": "SYSTEM_PROMPT_V1_REASONING"},
        variant_tools="TOOLS_V1_REASONING",
        results=pricing_results,
        fit=_part_hint,
    ),
}
"""Where each environment's texts lie; another environment is another entry."""

WORDINGS = tuple(dict.fromkeys(name for source in SOURCES.values() for name in source.wordings))
"""Wordings that the reference compares with its plain one (table 5 of the paper)."""
