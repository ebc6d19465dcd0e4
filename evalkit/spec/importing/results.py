"""The result texts of a reference, found in the code that renders them: what its environments have in common.

Each function looks for the one way in which it knows a text to be written, and leaves out what it does not find.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from evalkit.envs.rules import repeat_key
from evalkit.spec.importing.record import Texts

Read = Callable[[str], ast.Module | None]
"""A file beside the prompts, by name, as parsed source; None if it is not there."""

_RENDERER = "make_readable_previous_attempts_data"

SAME: Texts = {"results.style": "repr", "results.notes_empty": ""}
"""What is so in all of its environments."""


def nested_history(code: ast.Module, fields: Mapping[str, str], part: str, slot: str) -> Texts:
    """How an attempt is rendered: the pieces added within the loop over attempts, in order.

    `part` names the inner loop's text, which stands at `slot` in the attempt's.
    """
    loop = attempts_loop(code)
    if loop is None:
        return {}
    attempt: list[str | None] = []
    inner: list[str | None] = []
    for node in loop.body:
        if isinstance(node, ast.For):
            inner += added(node.body, fields)
            attempt.append(slot)
        else:
            attempt += added([node], fields)
    if None in attempt or None in inner or not inner:
        return {}
    texts = {"results.history_attempt": attempt, f"results.history_{part}": inner}
    return {"results.history_empty": "", **{key: "".join(map(str, pieces)) for key, pieces in texts.items()}}


def attempts_loop(code: ast.Module) -> ast.For | None:
    """The loop over attempts of the function that renders them."""
    render = function_named(code, _RENDERER)
    return next((node for node in ast.walk(render) if isinstance(node, ast.For)), None) if render else None


def added(body: Iterable[ast.stmt], fields: Mapping[str, str]) -> list[str | None]:
    """What statements add to a text, as templates."""
    return [template(node.value, fields) for node in body if isinstance(node, ast.AugAssign)]


def template(node: ast.expr, fields: Mapping[str, str]) -> str | None:
    """A formatted string with our fields; None if it shows something we have no field for."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            pieces.append(part.value)
        elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) in fields:
            pieces.append(fields[ast.unparse(part.value)])
        else:
            return None
    return "".join(pieces)


def notices(code: ast.Module) -> Texts:
    """What is said when notes were written, and when a tool is asked twice, each as its own branch shows it."""
    texts: Texts = {}
    for tool, branch in _branches(code):
        for statement in branch:
            again = _shown_again(statement)
            if again is not None:
                texts.setdefault(repeat_key(tool), again)
        for node in (inner for statement in branch for inner in ast.walk(statement)):
            match node:
                case ast.Return(value=ast.Tuple(elts=[ast.Constant(value="SUCCESS"), ast.Constant(value=str(text))])):
                    if tool == "write_notes":
                        texts.setdefault("results.notes_written", text)
                case ast.Dict(keys=[ast.Constant(value=str(key))], values=[ast.Constant(value=str(text))]):
                    if key.startswith("previous_"):
                        texts.setdefault("results.repeat_access", text)
    return texts


def _shown_again(statement: ast.stmt) -> str | None:
    """The text that a branch shows at once where a flag of the agent is set: a constant, or the repr of a mapping of
    constants; None if it is something else."""
    match statement:
        case ast.If(
            test=ast.Attribute(value=ast.Name(id="self")),
            body=[ast.Return(value=ast.Tuple(elts=[ast.Constant(value="SUCCESS"), shown]))],
        ):
            if isinstance(shown, ast.Call) and ast.unparse(shown.func) == "str" and len(shown.args) == 1:
                shown = shown.args[0]
            try:
                value = ast.literal_eval(shown)
            except ValueError:
                return None
            return str(value) if isinstance(value, str | dict) else None
    return None


def _branches(code: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """(tool, statements) for each `if name == "tool":`."""
    for node in ast.walk(code):
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="name"), ops=[ast.Eq()], comparators=[tool]), body=body):
                if isinstance(tool, ast.Constant) and isinstance(tool.value, str):
                    yield tool.value, body


def function_named(code: ast.AST, name: str) -> ast.FunctionDef | None:
    """The function of that name, wherever it stands."""
    return next((node for node in ast.walk(code) if isinstance(node, ast.FunctionDef) and node.name == name), None)


def method_named(code: ast.Module, owner: str, name: str) -> ast.FunctionDef | None:
    """The method of that name of a class."""
    classes = (node for node in ast.walk(code) if isinstance(node, ast.ClassDef) and node.name == owner)
    return next((method for owner_class in classes if (method := function_named(owner_class, name)) is not None), None)
