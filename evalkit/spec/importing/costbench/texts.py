"""CostBench's texts from a user's copy of its reference repository: instructions, example, tools, events.

Some are constants there, others are made by functions, which are interpreted (`interpret.py`) and never executed. What
tools answer is read in `results.py`. Descriptions of tools and arguments go into the pack one by one
(`tools.of`, `arguments.of`), and so does the worked example of each length (`example.of`), so that a request under the
pack is the reference's, text and schema, byte for byte.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue, title
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import make_world
from evalkit.envs.costbench.prompt import FULL, OPEN, SENTENCES, SYSTEM_TEXTS
from evalkit.errors import UsageError
from evalkit.spec.importing.interpret import Reader, class_methods
from evalkit.spec.importing.interpreted import Thing, Unreadable
from evalkit.spec.importing.record import Texts

RUN, TYPES, EXAMPLE = "env/run.py", "env/core/base_types.py", "env/utils/example_generator.py"
ATOMIC, COMPOSITE, DESCRIPTIONS, STEPS = (
    f"env/domains/travel/{name}.py"
    for name in ("atomic_tools", "composite_tools", "composite_tool_descriptions", "refinement_steps_catalog")
)
CONFIG = "env/config/travel_config.yaml"

LENGTHS = range(3, 9)
"""Of the reference's chains."""

TOLD = "dining"
"""A task that is given the preference of another one."""

UNUSED = frozenset(
    {"arguments.given", "arguments.id", "arguments.made", "arguments.value", "tools.deed", "tools.deeds"}
    | {"tools.stages", "tools.step", "tools.steps", "example.cost", "example.path", "example.text"}
    | {"parts.readable", "parts.readable_ids", "parts.readable_values", "parts.stages", "parts.ways", "parts.ways_many"}
)
"""Texts that no request under the pack holds: others that are read here say the same, for each tool and each length."""

_INSTRUCTION = {
    "task": "title",
    "tool_num_str": "count",
    "tool_types_str": "stages",
    "refinement_content": "refinement",
    "example_content": "example",
    "composite_concept_content": "concept",
    "task_atomic_tool_sequence_str": "sequence",
    "need_loc_pref": "context",
}
"""Fields of the reference's instructions, and ours."""

_ENTRY = re.compile(r'\s+-\s+("(?:[^"\\]|\\.)*")\s*(?:#.*)?')


class Copy:
    """The sources of a user's copy."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo
        self._modules: dict[str, ast.Module] = {}

    def module(self, name: str) -> ast.Module:
        """A source as a tree. Raises UsageError."""
        if name not in self._modules:
            try:
                self._modules[name] = _parsed(self.text(name))
            except (SyntaxError, ValueError) as flaw:
                raise UsageError(f"{self._repo / name} is not Python source: {flaw}") from flaw
        return self._modules[name]

    def text(self, name: str) -> str:
        """A file's text. Raises UsageError."""
        try:
            return (self._repo / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as flaw:
            raise UsageError(f"{self._repo / name} cannot be read: {flaw}") from flaw

    def flaw(self, name: str, what: str, why: object) -> UsageError:
        """What to raise where a source does not hold what it should."""
        return UsageError(f"{self._repo / name}: {what} cannot be read: {why}. Is it the reference's original file?")


def _parsed(text: str) -> ast.Module:
    """A source as a tree, without lines that only print something and that an older Python cannot read.

    The reference has quotes of one kind within each other in such a line, which is Python from 3.12 on.
    """
    lines = text.splitlines(keepends=True)
    while True:
        try:
            return ast.parse("".join(lines))
        except SyntaxError as flaw:
            line = lines[flaw.lineno - 1] if flaw.lineno and flaw.lineno <= len(lines) else ""
            if not line.lstrip().startswith("print("):
                raise
            lines[(flaw.lineno or 1) - 1] = line[: len(line) - len(line.lstrip())] + "pass\n"


def is_copy(repo: Path) -> bool:
    """Whether there is a copy of CostBench's reference repository."""
    return (repo / DESCRIPTIONS).is_file()


def costbench_texts(repo: Path) -> Texts:
    """Texts of the instructions, the example, the tools and the events, by key.

    Raises UsageError naming the file where a text that must be there is not.
    """
    copy = Copy(repo)
    return {
        **_instructions(copy),
        **_examples(copy),
        **_tool_words(copy),
        **_tools(copy),
        **_composites(copy),
        **_events(copy),
    }


def filled_as_ours(copy: Copy, name: str, template: str, fields: Mapping[str, str]) -> str:
    """A template of `str.format` as one of ours: other names for its fields, single braces. Raises UsageError."""
    pieces, plain = [], []
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as flaw:
        raise copy.flaw(name, "a template", flaw) from flaw
    for literal, field, shape, conversion in parsed:
        pieces.append(literal)
        plain.append(literal)
        if field is not None:
            if field not in fields or shape or conversion:
                raise copy.flaw(name, "a template", f"it has an unknown field {field!r}")
            pieces.append("{" + fields[field] + "}")
            plain.append("\n")
    for known in (*fields.values(), *SYSTEM_TEXTS["system"]):
        if f"{{{known}}}" in "".join(plain):
            raise copy.flaw(name, "a template", f"its plain text contains {{{known}}}, which would be filled in")
    return "".join(pieces)


def function(copy: Copy, name: str, wanted: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """A function of a module. Raises UsageError."""
    for node in copy.module(name).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == wanted:
            return node
    raise copy.flaw(name, wanted, "the function is missing")


def _instructions(copy: Copy) -> Texts:
    reader, steps = Reader(copy.module(RUN)), Reader(copy.module(STEPS))
    try:
        criteria = steps.value("REFINEMENT_DIMENSION_MAPPING")
        sequences = steps.value("ATOMIC_SEQUENCE_MAPPING")
        texts = {
            "system": filled_as_ours(copy, RUN, reader.value("QUERY_INSTRUCTION"), _INSTRUCTION),
            "parts.concept": reader.value("COMPOSITE_CONCEPT_CONTENT"),
            "parts.refinement": filled_as_ours(
                copy,
                RUN,
                reader.value("REFINEMENT_CONTENT_TEMPLATE"),
                {"task": "title", "num_dimensions": "count", "refinement_dimensions_str": "criteria"},
            ),
            "parts.sequence": filled_as_ours(
                copy, RUN, reader.value("TASK_ATOMIC_TOOL_SEQUENCE_TEMPLATE"), {"atomic_tool_sequence": "tools"}
            ),
            "parts.stage_names": reader.call("get_tool_types_str", Thing({"refinement_level": 1})),
            "parts.stage_names_short": reader.call("get_tool_types_str", Thing({"refinement_level": 0})),
        }
        texts["parts.context"] = _context(copy, reader)
        texts |= {f"parts.criterion.{step}": criteria[step] for step in range(1, max(LENGTHS) - 2)}
        texts["parts.sequence_joint"] = _joint(copy, sequences)
    except (Unreadable, KeyError) as flaw:
        raise copy.flaw(f"{RUN}, {STEPS}", "the instructions", flaw) from flaw
    return texts


def _context(copy: Copy, reader: Reader) -> str:
    """What the instructions say of the preference from another task."""
    for node in ast.walk(function(copy, RUN, "run_single_query")):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="QUERY_INSTRUCTION"), attr="format"), keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "need_loc_pref":
                        return str(reader.evaluate(keyword.value, {"task": TOLD}))
    raise copy.flaw(RUN, "the instructions", "nothing fills in `need_loc_pref`")


def _joint(copy: Copy, sequences: Mapping[int, str]) -> str:
    """What stands between the tools of a sequence."""
    catalogue = shipped("travel")
    joint = ""
    for length in LENGTHS:
        names = make_world(catalogue, TOLD, length, whole=False).sequence
        sequence = sequences[length - 3].replace("{task}", title(TOLD))
        joint = joint or sequence.removeprefix(names[0]).partition(names[1])[0]
        if sequence != joint.join(names):
            raise copy.flaw(STEPS, "ATOMIC_SEQUENCE_MAPPING", f"the tools of {sequence!r} are not {', '.join(names)}")
    return joint


def _examples(copy: Copy) -> Texts:
    reader = Reader(copy.module(EXAMPLE))
    try:
        return {f"example.of.{length}": reader.call("example_for_refinement_level", length - 3) for length in LENGTHS}
    except Unreadable as flaw:
        raise copy.flaw(EXAMPLE, "the worked example", flaw) from flaw


def _tool_words(copy: Copy) -> Texts:
    """How descriptions are put together, and what is said of each argument."""
    try:
        methods = class_methods(copy.module(TYPES), "Tool")
    except Unreadable as flaw:
        raise copy.flaw(TYPES, "generate_interface", flaw) from flaw
    catalogue = shipped("travel")
    types = dict(_argument_types(catalogue))
    enums = {name: [Thing({"value": "{options}"})] for name, listed in types.items() if listed}
    reader = Reader(copy.module(TYPES), {"ENUM_DIRECT_MAPPINGS": enums})

    def made(kind: str, explained: bool, inputs: list[str]) -> Mapping[str, Any]:
        tool = Thing(
            {
                "name": "",
                "input_types": inputs,
                "output_type": "{type}",
                "cost": "{cost}",
                "description": "{text}",
                "component_tool_names": ["{components}"],
                "get_tool_type": lambda: kind,
            },
            methods,
        )
        interface, _ = reader.method(tool, "generate_interface", explained)
        declaration: Mapping[str, Any] = interface["function"]
        return declaration

    try:
        plain = made("atomic", False, [])["description"]
        terms = plain.removeprefix("{text}")
        texts = {"tools.detail": FULL, "tools.schema": OPEN, "tools.plain": "{text}", "tools.terms": terms}
        for kind in ("atomic", "composite"):
            description = made(kind, True, [])["description"]
            if plain != "{text}" + terms or not description.endswith(terms):
                raise Unreadable("the sentence on the cost is not at the end of a tool's description")
            texts[f"tools.{kind}"] = description.removesuffix(terms)
        for name, schema in made("atomic", True, list(types))["parameters"]["properties"].items():
            texts[f"arguments.of.{name}"] = schema["description"]
    except (Unreadable, KeyError, TypeError) as flaw:
        raise copy.flaw(TYPES, "generate_interface", flaw) from flaw
    return texts


def _argument_types(catalogue: Catalogue) -> Iterator[tuple[str, bool]]:
    """Every type that is an argument of some tool, and whether its values are listed."""
    for task in catalogue.tasks:
        for length in LENGTHS:
            world = make_world(catalogue, task, length, whole=False)
            yield from ((name, name in world.dimensions) for tool in world.tools for name in tool.inputs)


def _tools(copy: Copy) -> Texts:
    """What atomic tools do."""
    reader, texts = Reader(copy.module(ATOMIC)), Texts()
    tasks = tuple(shipped("travel").tasks)
    calls: list[tuple[ast.Call, Mapping[str, str]]] = []
    for node in copy.module(ATOMIC).body:
        if isinstance(node, ast.Assign):
            calls += [(call, {}) for call in _made(node)]
    for call in _made(function(copy, ATOMIC, "create_dynamic_select_tool")):
        calls += [(call, {"subtask": task}) for task in tasks]
    try:
        for call, names in calls:
            arguments = {keyword.arg: keyword.value for keyword in call.keywords}
            known = {**names, "tool_name": f"Select_Final_{title(names['subtask'])}"} if names else {}
            name = reader.evaluate(arguments["name"], known)
            texts[f"tools.of.{name}"] = reader.evaluate(arguments["description"], known)
    except (Unreadable, KeyError) as flaw:
        raise copy.flaw(ATOMIC, "a tool", flaw) from flaw
    wanted = {
        name
        for task in tasks
        for length in LENGTHS
        for name in make_world(shipped("travel"), task, length, whole=False).sequence
    }
    if missing := sorted(wanted - {key.removeprefix("tools.of.") for key in texts}):
        raise copy.flaw(ATOMIC, missing[0], "it is not described there")
    return texts


def _made(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that make a tool."""
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "AtomicTool":
            yield child


def _composites(copy: Copy) -> Texts:
    """What composite tools do; by the names of their components there, by their own names here."""
    try:
        descriptions = Reader(copy.module(DESCRIPTIONS)).value("COMPOSITE_DESCRIPTIONS")
    except Unreadable as flaw:
        raise copy.flaw(DESCRIPTIONS, "COMPOSITE_DESCRIPTIONS", flaw) from flaw
    texts = Texts()
    for task in shipped("travel").tasks:
        for length in LENGTHS:
            for tool in make_world(shipped("travel"), task, length, whole=True).tools[length:]:
                if tool.components not in descriptions:
                    raise copy.flaw(DESCRIPTIONS, tool.name, f"{', '.join(tool.components)} are not described")
                texts[f"tools.of.{tool.name}"] = descriptions[tool.components]
    return texts


def _events(copy: Copy) -> Texts:
    """What is said of a ban, and of a change of mind."""
    reader = Reader(copy.module(RUN))
    messages = {"location_pref_str": "", "new_user_message": ""}
    names = {"task": TOLD, "pref_loc": "{id}", "location_pref_str": "{context}"}
    names |= {"final_blocking_result": {"new_user_requirement": "{requirements}"}}  # type: ignore[dict-item]
    try:
        for node in ast.walk(function(copy, RUN, "run_single_query")):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id in messages
            ):
                messages[node.targets[0].id] = reader.evaluate(node.value, names)
    except Unreadable as flaw:
        raise copy.flaw(RUN, "what is said of a change of mind", flaw) from flaw
    if "{requirements}" not in messages["new_user_message"]:
        raise copy.flaw(RUN, "new_user_message", "the new requirements are missing in it")
    texts = {"changes.context": messages["location_pref_str"], "changes.constants": "", "changes.none": ""}
    banned = _listed(copy, "ban_tool_return_sentences")
    changed = _listed(copy, "preference_change_user_message_templates")
    texts |= {f"banned.{number}": text for number, text in enumerate(banned, 1)}
    for number, text in enumerate(changed, 1):
        template = filled_as_ours(copy, CONFIG, text, {"new_user_message": "message"})
        texts[f"changed.{number}"] = template.replace("{message}", messages["new_user_message"])
    return texts


def _listed(copy: Copy, key: str) -> list[str]:
    """A list of texts in double quotes in the configuration, a text a line."""
    texts: list[str] = []
    lines = iter(copy.text(CONFIG).splitlines())
    for line in lines:
        if line.strip() == f"{key}:":
            break
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry is None and line.strip() and not line.lstrip().startswith("#"):
            break
        if entry is not None:
            try:
                texts.append(json.loads(entry[1]))
            except json.JSONDecodeError as flaw:
                raise copy.flaw(CONFIG, key, flaw) from flaw
    if len(texts) != SENTENCES:
        raise copy.flaw(CONFIG, key, f"expected {SENTENCES} texts in double quotes, one per line; found {len(texts)}")
    return texts
