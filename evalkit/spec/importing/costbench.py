"""CostBench's texts in a copy of its reference; executed in the child.

Descriptions of tools and arguments go into the pack one by one (`tools.of`, `arguments.of`), and so does the worked
example of each length (`example.of`), so that a request under the pack is the reference's, text and schema, byte for
byte. Functions that make results are called with a task, a type, an id and criteria of our own making; where these
stand in what they return, a field of ours comes. What stands in the middle of the run's own loop is an expression that
is found there, and evaluated alone.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from types import SimpleNamespace
from typing import Any

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.domain.catalogue import Catalogue, title
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import make_world
from evalkit.envs.costbench.prompt import FULL, OPEN, SENT_NAME, SENTENCES, SYSTEM_TEXTS, YES
from evalkit.envs.errand import errand
from evalkit.spec.importing.executed import Copy, PromptImport, Texts, absent_text, table_text, with_locals

RUN, TYPES, EXAMPLE, ASKED = "env.run", "env.core.base_types", "env.utils.example_generator", "env.utils.prompts"
ATOMIC, COMPOSITE, DESCRIPTIONS, STEPS, ENUMS, REGISTRY = (
    f"env.domains.travel.{name}"
    for name in (
        "atomic_tools",
        "composite_tools",
        "composite_tool_descriptions",
        "refinement_steps_catalog",
        "enums",
        "tool_registry",
    )
)
SOURCES = {
    name: f"{name.replace('.', '/')}.py"
    for name in (RUN, TYPES, "env.core.data_types", EXAMPLE, ASKED, ATOMIC, COMPOSITE, DESCRIPTIONS, STEPS, ENUMS)
}
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
_REFINED = {"task": "title", "num_dimensions": "count", "refinement_dimensions_str": "criteria"}
_ENTRY = re.compile(r'\s+-\s+("(?:[^"\\]|\\.)*")\s*(?:#.*)?')

DIGITS = "98765"
TASK, KIND = "qqtaskqq", "Qqtypeqq"
CRITERIA = {step: f"Qqcriterion{'abcde'[step - 1]}qq" for step in range(1, 6)}
ARGUMENT, VALUE, OPTION, NAME = "QqargumentCategory", "Qqvalueqq", "Qqoptionqq", "Qqnameqq"
LEVEL = 5
"""Of refinement, where a step is not to be the final one."""
MAP = "filter_dimension_map"
PREFERENCE = f"<{TASK.capitalize()}Preference{DIGITS}>"
_TOOLS = {
    "first": f"Decide_{TASK.capitalize()}_Preference",
    "second": f"Search_{TASK.capitalize()}_Candidates",
    "step": f"{TASK.capitalize()}_Refinement_Step",
    "last": f"Select_Final_{TASK.capitalize()}",
}
_LABELS = {"first": "Preference", "second": "CandidateSet", "step": "CandidateSet", "last": "Candidate"}


def _tables(repo: Path, wording: str) -> Iterator[str]:
    del wording  # its reference has one alone
    if not (repo / SOURCES[DESCRIPTIONS]).is_file():
        return
    with Copy(repo, SOURCES) as copy:
        texts = {**_instructions(copy), **_tool_words(copy), **_tools(copy), **_events(copy)}
        criteria = next(_values(copy, TYPES, MAP))
        errands = _errands(copy)
    with Copy(repo, SOURCES, {MAP: CRITERIA}) as copy:
        copy.module(RUN).ID_LENGTH = len(DIGITS)
        enums = copy.module(ENUMS)
        enums.ENUM_DIRECT_MAPPINGS = {ARGUMENT: [SimpleNamespace(value=OPTION)]}
        texts |= _atomic(copy) | {f"results.criterion.{step}": criteria[step] for step in CRITERIA}
        texts |= {**_composite(copy), **_errors(copy), **_of_the_run(copy)}
    yield absent_text(COSTBENCH.texts.all.keys() - texts.keys() - UNUSED)
    yield table_text(COSTBENCH.name, texts)
    yield table_text(errand.NAME, errands)


def _values(copy: Copy, source: str, wanted: str) -> Iterator[Any]:
    """What a source sets a name to, wherever it does; each evaluated alone."""
    for node in ast.walk(copy.tree(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == wanted:
            yield _value(copy, source, node.value, {})


def _value(copy: Copy, source: str, node: ast.expr, names: Mapping[str, Any]) -> Any:
    """An expression of a source, evaluated with some of its names given."""
    code = compile(ast.Expression(node), source, "eval")
    return eval(code, {**vars(copy.module(source)), **names})  # noqa: S307 - the copy's own code, as all here


def _filled_as_ours(copy: Copy, source: str, template: str, fields: Mapping[str, str]) -> str:
    """A template of `str.format` as one of ours: other names for its fields, single braces. Raises UsageError."""
    pieces, plain = [], []
    for literal, name, shape, conversion in Formatter().parse(template):
        pieces.append(literal)
        plain.append(literal)
        if name is not None:
            if name not in fields or shape or conversion:
                raise copy.flaw(source, "a template", f"it has an unknown field {name!r}")
            pieces.append("{" + fields[name] + "}")
            plain.append("\n")
    for known in (*fields.values(), *SYSTEM_TEXTS["system"]):
        if f"{{{known}}}" in "".join(plain):
            raise copy.flaw(source, "a template", f"its plain text contains {{{known}}}, which would be filled in")
    return "".join(pieces)


def _errands(copy: Copy) -> Texts:
    """What its judge, its validator and its writer are asked: one message each, without instructions apart.

    The judge counts whatever is listed as a path, so these are the words of `enumeration`.
    """
    asked = copy.module(ASKED)
    keys = {"features" if key == "feature_package" else key: key for key in shipped("travel").keys}
    fields = {"task": "task", "model_plan": "text"}
    fields |= {name: f"wish_{key}" for name, key in keys.items()}
    fields |= {f"{name}_candidates": f"choice_{key}" for name, key in keys.items()}
    written = {
        errand.ENUMERATION: asked.COUNT_COVERAGE_INSTRUCTION
        + _filled_as_ours(copy, ASKED, asked.COUNT_COVERAGE_PROMPT, fields),
        errand.CONFLICT: asked.QUERY_VALIDATION_INSTRUCTION
        + _filled_as_ours(copy, ASKED, asked.QUERY_VALIDATION_PROMPT, fields),
        errand.REQUIREMENT: _filled_as_ours(
            copy, ASKED, asked.QUERY_GENERATION_INSTRUCTION + asked.QUERY_GENERATION_PROMPT, fields
        ),
    }
    return {f"{kind}.system": "" for kind in written} | {f"{kind}.user": text for kind, text in written.items()}


def _instructions(copy: Copy) -> Texts:
    run, steps, example = (copy.module(name) for name in (RUN, STEPS, EXAMPLE))
    texts = {
        "system": _filled_as_ours(copy, RUN, run.QUERY_INSTRUCTION, _INSTRUCTION),
        "parts.concept": run.COMPOSITE_CONCEPT_CONTENT,
        "parts.refinement": _filled_as_ours(copy, RUN, run.REFINEMENT_CONTENT_TEMPLATE, _REFINED),
        "parts.sequence": _filled_as_ours(
            copy, RUN, run.TASK_ATOMIC_TOOL_SEQUENCE_TEMPLATE, {"atomic_tool_sequence": "tools"}
        ),
        "parts.stage_names": run.get_tool_types_str(SimpleNamespace(refinement_level=1)),
        "parts.stage_names_short": run.get_tool_types_str(SimpleNamespace(refinement_level=0)),
        "parts.context": _context(copy),
    }
    texts |= {f"parts.criterion.{step}": steps.REFINEMENT_DIMENSION_MAPPING[step] for step in CRITERIA}
    texts["parts.sequence_joint"] = _joint(copy, steps.ATOMIC_SEQUENCE_MAPPING)
    return texts | {f"example.of.{length}": example.example_for_refinement_level(length - 3) for length in LENGTHS}


def _context(copy: Copy) -> str:
    """What the instructions say of the preference from another task."""
    for node in ast.walk(copy.tree(RUN)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="QUERY_INSTRUCTION"), attr="format"), keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "need_loc_pref":
                        return str(_value(copy, RUN, keyword.value, {"task": TOLD}))
    raise copy.flaw(RUN, "the instructions", "nothing fills in `need_loc_pref`")


def _joint(copy: Copy, sequences: Mapping[int, str]) -> str:
    """What stands between the tools of a sequence."""
    joint = ""
    for length in LENGTHS:
        names = make_world(shipped("travel"), TOLD, length, whole=False).sequence
        sequence = sequences[length - 3].replace("{task}", title(TOLD))
        joint = joint or sequence.removeprefix(names[0]).partition(names[1])[0]
        if sequence != joint.join(names):
            raise copy.flaw(STEPS, "ATOMIC_SEQUENCE_MAPPING", f"the tools of {sequence!r} are not {', '.join(names)}")
    return joint


def _made(kind: Any, **attributes: Any) -> Any:
    """A tool of a class of the copy, with these attributes alone."""
    made = object.__new__(kind)
    made.__dict__ |= attributes
    return made


def _tool_words(copy: Copy) -> Texts:
    """How descriptions are put together, and what is said of each argument."""
    catalogue = shipped("travel")
    types = dict(_argument_types(catalogue))
    copy.module(ENUMS).ENUM_DIRECT_MAPPINGS = {
        name: [SimpleNamespace(value="{options}")] for name, listed in types.items() if listed
    }

    def made(kind: str, explained: bool, inputs: list[str]) -> Mapping[str, Any]:
        tool = _made(
            copy.module(TYPES).AtomicTool,
            name="",
            input_types=inputs,
            output_type="{type}",
            cost="{cost}",
            description="{text}",
            component_tool_names=["{components}"],
            get_tool_type=lambda: kind,
        )
        declaration: Mapping[str, Any] = tool.generate_interface(explained)["function"]
        return declaration

    plain = made("atomic", False, [])["description"]
    terms = plain.removeprefix("{text}")
    texts = {
        "tools.detail": FULL,
        "tools.schema": OPEN,
        SENT_NAME: YES,
        "tools.plain": "{text}",
        "tools.terms": terms,
    }
    for kind in ("atomic", "composite"):
        description = made(kind, True, [])["description"]
        if plain != "{text}" + terms or not description.endswith(terms):
            why = "the sentence on the cost is not at the end of a tool's description"
            raise copy.flaw(TYPES, "generate_interface", why)
        texts[f"tools.{kind}"] = description.removesuffix(terms)
    for name, schema in made("atomic", True, list(types))["parameters"]["properties"].items():
        texts[f"arguments.of.{name}"] = schema["description"]
    return texts


def _argument_types(catalogue: Catalogue) -> Iterator[tuple[str, bool]]:
    """Every type that is an argument of some tool, and whether its values are listed."""
    for task in catalogue.tasks:
        for length in LENGTHS:
            world = make_world(catalogue, task, length, whole=False)
            yield from ((name, name in world.dimensions) for tool in world.tools for name in tool.inputs)


def _tools(copy: Copy) -> Texts:
    """What tools do: composite ones are described by the names of their components there, by their own names here."""
    atomic, described = copy.module(ATOMIC), copy.module(DESCRIPTIONS).COMPOSITE_DESCRIPTIONS
    kind, texts = copy.module(TYPES).AtomicTool, Texts()
    for tool in vars(atomic).values():
        if isinstance(tool, kind):
            texts[f"tools.of.{tool.name}"] = tool.description
    for task in shipped("travel").tasks:
        tool = atomic.create_dynamic_select_tool(task, 0)
        texts[f"tools.of.{tool.name}"] = tool.description
    for task in shipped("travel").tasks:
        for length in LENGTHS:
            world = make_world(shipped("travel"), task, length, whole=True)
            if missing := [tool.name for tool in world.tools[:length] if f"tools.of.{tool.name}" not in texts]:
                raise copy.flaw(ATOMIC, missing[0], "it is not described there")
            for composite in world.tools[length:]:
                if composite.components not in described:
                    why = f"{', '.join(composite.components)} are not described"
                    raise copy.flaw(DESCRIPTIONS, composite.name, why)
                texts[f"tools.of.{composite.name}"] = described[composite.components]
    return texts


def _events(copy: Copy) -> Texts:
    """What is said of a ban, and of a change of mind."""
    messages = {"location_pref_str": "", "new_user_message": ""}
    names: dict[str, Any] = {"task": TOLD, "pref_loc": "{id}", "location_pref_str": "{context}"}
    names["final_blocking_result"] = {"new_user_requirement": "{requirements}"}
    for node in ast.walk(copy.tree(RUN)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in messages:
            messages[node.targets[0].id] = _value(copy, RUN, node.value, names)
    if "{requirements}" not in messages["new_user_message"]:
        raise copy.flaw(RUN, "new_user_message", "the new requirements are missing in it")
    texts = {"changes.context": messages["location_pref_str"], "changes.constants": "", "changes.none": ""}
    texts |= {f"banned.{n}": text for n, text in enumerate(_listed(copy, "ban_tool_return_sentences"), 1)}
    for n, text in enumerate(_listed(copy, "preference_change_user_message_templates"), 1):
        template = _filled_as_ours(copy, CONFIG, text, {"new_user_message": "message"})
        texts[f"changed.{n}"] = template.replace("{message}", messages["new_user_message"])
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
            texts.append(json.loads(entry[1]))
    if len(texts) != SENTENCES:
        raise copy.flaw(CONFIG, key, f"expected {SENTENCES} texts in double quotes, one per line; found {len(texts)}")
    return texts


def _tool(copy: Copy, kind: str, step: int = 0, **more: Any) -> Any:
    """A tool of the invented task."""
    name = _TOOLS[kind] + (str(step) if kind == "step" else "")
    attributes = {"name": name, "output_type": _output(kind, step), "get_self_task": lambda: TASK, "cost": None}
    return _made(copy.module(TYPES).AtomicTool, **attributes, **more)


def _output(kind: str, step: int) -> str:
    return f"{KIND}{step}" if kind == "step" else KIND


def _as_fields(copy: Copy, result: str, kind: str, step: int = 0) -> str:
    """A result with fields where our inventions stand."""
    passed = ", ".join(CRITERIA[number] for number in range(1, step + 1))
    fields = (
        (f"<{TASK.capitalize()}{_LABELS[kind]}{DIGITS}>", "{id}"),
        (_output(kind, step), "{type}"),
        # Of the first step alone both would be the same.
        (passed if step > 1 else "", "{criteria}"),
        (CRITERIA.get(step, ""), "{criterion}"),
        (TASK, "{task}"),
    )
    for invented, name in fields:
        result = result.replace(invented, name) if invented else result
    if any(mark in result for mark in (DIGITS, "Qq", "qq")):
        raise copy.flaw(TYPES, "process_output", f"a result contains something else from the call: {result!r}")
    return result


def _atomic(copy: Copy) -> Texts:
    def result_of(kind: str, step: int = 0, level: int = LEVEL, unique_id: str = PREFERENCE) -> str:
        text: str = _tool(copy, kind, step).process_output(SimpleNamespace(unique_id=unique_id), level, {})
        return text

    asked = {kind: (kind, 0, LEVEL) for kind in ("first", "second", "last")}
    asked |= {"second_final": ("second", 0, 0), "step": ("step", 2, LEVEL), "step_final": ("step", 2, 2)}
    texts = {
        f"results.{key}": "{process}" + _as_fields(copy, result_of(kind, step, level), kind, step)
        for key, (kind, step, level) in asked.items()
    }
    texts["results.bad_id"] = result_of("second", unique_id=f"<X{DIGITS[1:]}>")
    texts["results.no_id"] = result_of("second", unique_id="<X>")
    return texts


def _composite(copy: Copy) -> Texts:
    known = {kind: _tool(copy, kind) for kind in ("first", "second", "last")}
    known |= {f"step{step}": _tool(copy, "step", step) for step in (1, 2)}
    tools = {tool.name: tool for tool in known.values()}
    copy.module(ATOMIC).get_all_dynamic_atomic_tools = lambda _: tools
    kind = copy.module(COMPOSITE).CompositeTool

    def ran(*kinds: str, level: int = LEVEL) -> tuple[str, dict[str, Any]]:
        names = [known[kind].name for kind in kinds]
        tool = _made(kind, component_tool_names=names, refinement_level=level, name=NAME)
        return with_locals(tool.process_output, SimpleNamespace(unique_id=PREFERENCE), level, tools)

    text, local = ran("first", "second", "step1", "last")
    deeds: list[str] = local["intermediate_steps"]
    texts = {
        f"results.deed.{kind}": deed.replace(CRITERIA[1], "{criterion}")
        for kind, deed in zip(("first", "second", "step", "last"), deeds, strict=True)
    }
    summary, result = local["process_summary"], local["final_output_description"]
    joint = texts["results.process_joint"] = summary.removeprefix(deeds[0]).partition(deeds[1])[0]
    if joint.join(deeds) != summary or not text.endswith(result):
        raise copy.flaw(
            COMPOSITE, "process_output", "deeds are not joined in one way, or the last result is not at the end"
        )
    texts["results.process"] = text.removesuffix(result).replace(summary, "{components}")
    short = ran("first", "second")[1]["intermediate_steps"]
    texts["results.deed.second_ends"] = short[1] if len(short) > 1 else ""
    for key, level in (("results.step_composite", LEVEL), ("results.step_final_composite", 2)):
        description = ran("first", "second", "step1", "step2", level=level)[1]["final_output_description"]
        texts[key] = "{process}" + _as_fields(copy, description, "step", 2)
    return texts


def _errors(copy: Copy) -> Texts:
    """What tools say of arguments that they do not accept."""
    types, composites = copy.module(TYPES), copy.module(COMPOSITE)
    failing = {"x": SimpleNamespace(input_types=[], execute=lambda **_: "[ERROR]")}
    copy.module(REGISTRY).get_all_tools = lambda _: failing
    composite = _made(
        composites.CompositeTool,
        name=NAME,
        input_types=[ARGUMENT],
        component_tool_names=["x"],
        refinement_level=LEVEL,
        _validate_component_tools=lambda **_: True,
    )

    def error_of(tool: Any, arguments: Mapping[str, str]) -> str:
        return _of_arguments(tool.process_input(json.dumps(arguments))["error_message"])

    atomic = _tool(copy, "first", input_types=[ARGUMENT])
    broken = types.JSON_DECODE_ERROR_OUTPUT
    texts = {"results.not_json": broken, "results.not_object": broken}
    texts |= {"results.missing": error_of(atomic, {}), "results.bad_value": error_of(atomic, {ARGUMENT: VALUE})}
    for node in ast.walk(copy.tree(TYPES)):
        match node:
            case ast.Return(value=ast.JoinedStr() as text) if _names(text) == {_ID}:
                texts["results.unknown_context"] = _value(copy, TYPES, text, {_ID: "{id}"})
    texts["results.missing_composite"] = error_of(composite, {})
    texts["results.bad_value_composite"] = error_of(composite, {ARGUMENT: VALUE})
    texts["results.unknown_context_composite"] = _of_arguments(composite.execute({}, failing))
    return texts


_ID = "LocationPreferenceID"


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _of_arguments(message: str) -> str:
    for invented, name in (
        (repr([OPTION]), "{options_list}"),
        (OPTION, "{options}"),
        (VALUE, "{value}"),
        (ARGUMENT, "{argument}"),
        (NAME, "{tool}"),
    ):
        message = message.replace(invented, name)
    return message


def _of_the_run(copy: Copy) -> Texts:
    """Costs, and the errors that the run tells before a tool is asked."""
    tool = SimpleNamespace(cost="{cost}", has_cost=lambda: True)
    names = {"tool_name": "{tool}", "tool_obj": tool, "required_types": [KIND], "current_types": [TASK]}
    texts = Texts()

    def said(body: list[ast.stmt]) -> Any:
        return _value(copy, RUN, next(_contents(body)), names)

    for node in ast.walk(copy.tree(RUN)):
        match node:
            case ast.FunctionDef(name="_execute_tool_simulation"):
                (added,) = (child.value for child in ast.walk(node) if isinstance(child, ast.AugAssign))
                texts["results.cost"] = _value(copy, RUN, added, names)
            case ast.If(test=ast.Name(id="precheck_failed"), body=body):
                message = said(body)
                # The run looks for the word itself, so the cost begins there.
                texts["results.cost_inaccessible"] = message[message.rindex(" Cost:") :]
                for invented, name in ((repr([KIND]), "{required_list}"), (repr([TASK]), "{current_list}")):
                    message = message.replace(invented, name)
                texts["results.inaccessible"] = message[: message.rindex(" Cost:")]
            case ast.If(test=ast.Name(id="tool_obj"), orelse=[*_, _] as orelse):
                texts["results.unknown_tool"] = said(orelse)
            case ast.For(iter=ast.Subscript(value=ast.Name(id="tool_calls_list"), slice=ast.Slice()), body=body):
                texts["results.extra_parallel"] = said(body)
            case ast.If(test=test, body=body) if "should_tool_call_fail" in ast.dump(test):
                pieces = (child for child in ast.walk(next(_contents(body))) if isinstance(child, ast.JoinedStr))
                texts["results.cost_banned_again"] = _value(copy, RUN, next(pieces), names)
    return texts


def _contents(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """What messages hold that are made in these statements."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "content":
                        yield value


IMPORT = PromptImport(source=f"{SOURCES[DESCRIPTIONS]} of CostBench", tables=_tables, place=40)
