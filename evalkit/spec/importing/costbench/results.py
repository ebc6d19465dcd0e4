"""What CostBench's tools answer, from a user's copy of its reference repository.

The functions that make results are interpreted with a task, a type, an id and criteria of our own making; where these
stand in what they return, a field of ours comes. What cannot be read so stays in our own wording, and the pack says so.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evalkit.errors import UsageError
from evalkit.spec.importing.costbench.texts import COMPOSITE, RUN, TYPES, Copy, function
from evalkit.spec.importing.interpret import Reader, class_methods
from evalkit.spec.importing.interpreted import Thing, Unreadable
from evalkit.spec.importing.record import Texts

DIGITS = "98765"
TASK, KIND = "qqtaskqq", "Qqtypeqq"
STEPS = 5
ONE, OTHER = 1, 2
"""Two steps, distinguished by the criteria that we give them."""

CRITERIA = {step: f"Qqcriterion{'abcde'[step - 1]}qq" for step in range(1, STEPS + 1)}
ARGUMENT, VALUE, OPTION, NAME = "QqargumentCategory", "Qqvalueqq", "Qqoptionqq", "Qqnameqq"
LEVEL = 5
"""Of refinement, where a step is not to be the final one."""

MAP = "filter_dimension_map"

_TOOLS = {
    "first": f"Decide_{TASK.capitalize()}_Preference",
    "second": f"Search_{TASK.capitalize()}_Candidates",
    "step": f"{TASK.capitalize()}_Refinement_Step",
    "last": f"Select_Final_{TASK.capitalize()}",
}
_LABELS = {"first": "Preference", "second": "CandidateSet", "step": "CandidateSet", "last": "Candidate"}


def results_texts(copy: Copy) -> tuple[Texts, tuple[str, ...]]:
    """(texts that could be read, by key; what could not be read, in words)."""
    texts, missed = Texts(), list[str]()
    parts: tuple[tuple[str, Callable[[Copy], Texts]], ...] = (
        ("results of atomic tools", _atomic),
        ("results of composite tools", _composite),
        ("errors of atomic tools", _atomic_errors),
        ("errors of composite tools", _composite_errors),
        ("what the run itself answers", _of_the_run),
    )
    for what, part in parts:
        try:
            texts |= part(copy)
        except (Unreadable, UsageError, KeyError, IndexError, TypeError, AttributeError) as flaw:
            missed.append(f"{what} ({flaw})")
    return texts, tuple(missed)


def _given(**more: Any) -> dict[str, Any]:
    return {"ID_LENGTH": len(DIGITS), MAP: CRITERIA, **more}


def _methods(copy: Copy) -> dict[str, ast.FunctionDef]:
    return {**class_methods(copy.module(TYPES), "Tool"), **class_methods(copy.module(TYPES), "AtomicTool")}


def _tool(copy: Copy, kind: str, step: int = 0, **more: Any) -> Thing:
    """A tool of the invented task."""
    name = _TOOLS[kind] + (str(step) if kind == "step" else "")
    attributes = {"name": name, "output_type": _output(kind, step), "get_self_task": lambda: TASK, "cost": None}
    return Thing({**attributes, **more}, _methods(copy))


def _output(kind: str, step: int) -> str:
    return f"{KIND}{step}" if kind == "step" else KIND


def _as_fields(result: str, kind: str, step: int = 0) -> str:
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
        raise Unreadable(f"a result contains something else from the call: {result!r}")
    return result


def _atomic(copy: Copy) -> Texts:
    reader = Reader(copy.module(TYPES), _given())
    uid = f"<{TASK.capitalize()}Preference{DIGITS}>"

    def result_of(kind: str, step: int = 0, level: int = LEVEL, unique_id: str = uid) -> str:
        text, _ = reader.method(_tool(copy, kind, step), "process_output", Thing({"unique_id": unique_id}), level, {})
        return str(text)

    texts = {f"results.{kind}": _as_fields(result_of(kind), kind) for kind in ("first", "second", "last")}
    texts["results.second_final"] = _as_fields(result_of("second", level=0), "second")
    texts["results.step"] = _as_fields(result_of("step", OTHER), "step", OTHER)
    texts["results.step_final"] = _as_fields(result_of("step", OTHER, OTHER), "step", OTHER)
    texts["results.bad_id"] = result_of("second", unique_id=f"<X{DIGITS[1:]}>")
    texts["results.no_id"] = result_of("second", unique_id="<X>")
    named = next(
        node.value
        for node in ast.walk(_methods(copy)["process_output"])
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == MAP
    )
    criteria = reader.evaluate(named, {})
    texts |= {f"results.criterion.{step}": criteria[step] for step in CRITERIA}
    return {key: f"{{process}}{text}" if _is_result(key) else text for key, text in texts.items()}


def _is_result(key: str) -> bool:
    return key.startswith(("results.first", "results.second", "results.step", "results.last"))


def _composite(copy: Copy) -> Texts:
    atomic = Reader(copy.module(TYPES), _given())
    known = {kind: _tool(copy, kind) for kind in ("first", "second", "last")}
    known |= {f"step{step}": _tool(copy, "step", step) for step in (ONE, OTHER)}
    for tool in known.values():
        tool.attributes["process_output"] = lambda tool=tool, **named: atomic.method(
            Thing({**tool.attributes, "process_output": None}, tool.methods), "process_output", *named.values()
        )[0]
    tools = {tool.attributes["name"]: tool for tool in known.values()}
    helpers = {"get_all_digits": lambda text: "".join(sign for sign in text if sign.isdigit())}
    reader = Reader(copy.module(COMPOSITE), _given(get_all_dynamic_atomic_tools=lambda _: tools, **helpers))
    methods = class_methods(copy.module(COMPOSITE), "CompositeTool")

    def ran(*kinds: str, level: int = LEVEL) -> tuple[str, dict[str, Any]]:
        names = [known[kind].attributes["name"] for kind in kinds]
        tool = Thing({"component_tool_names": names, "refinement_level": level, "name": NAME}, methods)
        preference = Thing({"unique_id": f"<{TASK.capitalize()}Preference{DIGITS}>"})
        text, local = reader.method(tool, "process_output", preference, level, tools)
        return str(text), local

    text, local = ran("first", "second", "step1", "last")
    deeds: list[str] = local["intermediate_steps"]
    texts = {
        f"results.deed.{kind}": deed.replace(CRITERIA[ONE], "{criterion}")
        for kind, deed in zip(("first", "second", "step", "last"), deeds, strict=True)
    }
    texts["results.process_joint"] = _between(local["process_summary"], deeds)
    result = local["final_output_description"]
    if not text.endswith(result):
        raise Unreadable("a composite's result does not end with its last tool's result")
    texts["results.process"] = text.removesuffix(result).replace(local["process_summary"], "{components}")
    short = ran("first", "second")[1]["intermediate_steps"]
    texts["results.deed.second_ends"] = short[1] if len(short) > 1 else ""
    for key, level in (("results.step_composite", LEVEL), ("results.step_final_composite", OTHER)):
        description = ran("first", "second", "step1", "step2", level=level)[1]["final_output_description"]
        texts[key] = "{process}" + _as_fields(description, "step", OTHER)
    return texts


def _between(text: str, parts: list[str]) -> str:
    joint = text.removeprefix(parts[0]).partition(parts[1])[0]
    if joint.join(parts) != text:
        raise Unreadable(f"the parts of {text!r} are not joined in the same way")
    return joint


def _atomic_errors(copy: Copy) -> Texts:
    enums = {ARGUMENT: [Thing({"value": OPTION})]}

    def error_of(arguments: Mapping[str, str]) -> str:
        given = _given(parse_model_outputs=lambda *_: dict(arguments), ENUM_DIRECT_MAPPINGS=enums)
        tool = _tool(copy, "first", input_types=[ARGUMENT])
        answer, _ = Reader(copy.module(TYPES), given).method(tool, "process_input", "")
        return _of_arguments(answer["error_message"])

    broken = Reader(copy.module(TYPES)).value("JSON_DECODE_ERROR_OUTPUT")
    texts = {"results.not_json": broken, "results.not_object": broken}
    texts |= {"results.missing": error_of({}), "results.bad_value": error_of({ARGUMENT: VALUE})}
    for node in ast.walk(function(copy, TYPES, "get_id_from_search_space")):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr) and _names(node) == {_ID}:
            texts["results.unknown_context"] = Reader(copy.module(TYPES)).evaluate(node.value, {_ID: "{id}"})
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


def _composite_errors(copy: Copy) -> Texts:
    enums = {ARGUMENT: [Thing({"value": OPTION})]}
    methods = class_methods(copy.module(COMPOSITE), "CompositeTool")
    attributes = {"name": NAME, "input_types": [ARGUMENT], "component_tool_names": ["x"], "refinement_level": LEVEL}
    tool = Thing({**attributes, "_validate_component_tools": lambda **_: True}, methods)

    def error_of(arguments: Mapping[str, str]) -> str:
        given = _given(
            parse_model_outputs_composite=lambda _: dict(arguments),
            ENUM_DIRECT_MAPPINGS=enums,
            DATA_TYPE_REGISTRY={},
            JSON_DECODE_ERROR_OUTPUT=None,
        )
        answer, _ = Reader(copy.module(COMPOSITE), given).method(tool, "process_input", "")
        return _of_arguments(answer["error_message"])

    failing = {"x": Thing({"input_types": [], "execute": lambda **_: "[ERROR]"})}
    reader = Reader(copy.module(COMPOSITE), _given(get_all_tools=lambda _: failing))
    inner, _ = reader.method(tool, "execute", {}, failing)
    return {
        "results.missing_composite": error_of({}),
        "results.bad_value_composite": error_of({ARGUMENT: VALUE}),
        "results.unknown_context_composite": _of_arguments(inner),
    }


def _of_the_run(copy: Copy) -> Texts:
    """Costs, and the errors that the run tells before a tool is asked."""
    reader = Reader(copy.module(RUN))
    tool = Thing({"cost": "{cost}", "has_cost": lambda: True})
    names = {"tool_name": "{tool}", "tool_obj": tool, "required_types": [KIND], "current_types": [TASK]}
    loop = function(copy, RUN, "run_single_query")
    texts = Texts()
    for node in ast.walk(function(copy, RUN, "_execute_tool_simulation")):
        if isinstance(node, ast.AugAssign):
            texts["results.cost"] = reader.evaluate(node.value, names)
    for node in ast.walk(loop):
        match node:
            case ast.If(test=ast.Name(id="precheck_failed"), body=body):
                message = reader.evaluate(next(_contents(body)), names)
                # The run looks for the word itself, so the cost begins there.
                offset = message.rindex(" Cost:")
                texts["results.cost_inaccessible"] = message[offset:]
                for invented, name in ((repr([KIND]), "{required_list}"), (repr([TASK]), "{current_list}")):
                    message = message.replace(invented, name)
                texts["results.inaccessible"] = message[: message.rindex(" Cost:")]
            case ast.If(test=ast.Name(id="tool_obj"), orelse=[*_, _] as orelse):
                texts["results.unknown_tool"] = reader.evaluate(next(_contents(orelse)), names)
            case ast.For(iter=ast.Subscript(value=ast.Name(id="tool_calls_list"), slice=ast.Slice()), body=body):
                texts["results.extra_parallel"] = reader.evaluate(next(_contents(body)), names)
            case ast.If(test=test, body=body) if "should_tool_call_fail" in ast.dump(test):
                pieces = (child for child in ast.walk(next(_contents(body))) if isinstance(child, ast.JoinedStr))
                texts["results.cost_banned_again"] = reader.evaluate(next(pieces), names)
    return texts


def _contents(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """What messages hold that are made in these statements."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "content":
                        yield value
