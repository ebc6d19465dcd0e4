"""The result texts of the reference, found in the code that renders them: one function an environment.

Each looks for the one way in which it knows a text to be written, and leaves out what it does not find.
"""

import ast
from collections.abc import Callable, Iterator

Texts = dict[str, str]

Read = Callable[[str], ast.Module | None]
"""A file beside the prompts, by name, as parsed source; None if it is not there."""

# Expressions of the reference -> fields of ours.
_HISTORY_FIELDS = {
    "attempt_num": "{attempt}",
    "matching_attempts[attempt_num]": "{assignment}",
    "i + 1": "{number}",
    "worker": "{worker}",
    "task_of_worker": "{task}",
    "worker_of_task": "{other}",
    "task": "{wanted}",
}
_REASONS = {
    "unmatched_workers": "results.missing_workers",
    "unmatched_tasks": "results.missing_tasks",
    "unknown_workers": "results.unknown_workers",
}


def scheduling_results(read: Read) -> Texts:
    """Scheduling's: history, notices, and why an assignment is refused."""
    found: Texts = {"results.style": "repr", "results.notes_empty": ""}
    run, rules = read("run_scheduling_experiment.py"), read("stable_matching_environment.py")
    if run is not None:
        found |= _history(run)
        found |= _notices(run)
        wrapped = _wrapper(run)
        if rules is not None and wrapped:
            found |= {key: wrapped.replace("{reason}", text) for key, text in _reasons(rules)}
    return found


def _history(code: ast.Module) -> Texts:
    """How an attempt is rendered: the pieces added within the loop over attempts, in order."""
    render = _function(code, "make_readable_previous_attempts_data")
    loop = next((node for node in ast.walk(render) if isinstance(node, ast.For)), None) if render else None
    if loop is None:
        return {}
    attempt: list[str | None] = []
    problem: list[str | None] = []
    for node in loop.body:
        if isinstance(node, ast.For):
            problem += _added(node)
            attempt.append("{problems}")
        elif isinstance(node, ast.AugAssign):
            attempt.append(_template(node.value))
    if None in attempt or None in problem or not problem:
        return {}
    texts = {"results.history_attempt": attempt, "results.history_problem": problem}
    return {"results.history_empty": "", **{key: "".join(map(str, pieces)) for key, pieces in texts.items()}}


def _added(loop: ast.For) -> list[str | None]:
    return [_template(node.value) for node in loop.body if isinstance(node, ast.AugAssign)]


def _template(node: ast.expr) -> str | None:
    """A formatted string with our fields; None where it shows something we have no field for."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            pieces.append(part.value)
        elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) in _HISTORY_FIELDS:
            pieces.append(_HISTORY_FIELDS[ast.unparse(part.value)])
        else:
            return None
    return "".join(pieces)


def _notices(code: ast.Module) -> Texts:
    """What is said when notes were written, and when the history is asked for twice."""
    found: Texts = {}
    for tool, branch in _branches(code):
        for node in (inner for statement in branch for inner in ast.walk(statement)):
            match node:
                case ast.Return(value=ast.Tuple(elts=[ast.Constant(value="SUCCESS"), ast.Constant(value=str(text))])):
                    if tool == "write_notes":
                        found.setdefault("results.notes_written", text)
                case ast.Dict(
                    keys=[ast.Constant(value="previous_attempts_data")], values=[ast.Constant(value=str(text))]
                ):
                    found.setdefault("results.repeat_access", text)
    return found


def _branches(code: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """(tool, statements) for each `if name == "tool":`."""
    for node in ast.walk(code):
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="name"), ops=[ast.Eq()], comparators=[tool]), body=body):
                if isinstance(tool, ast.Constant) and isinstance(tool.value, str):
                    yield tool.value, body


def _wrapper(code: ast.Module) -> str:
    """The formatted string around the reason why an assignment is refused, with `{reason}` in it."""
    for node in ast.walk(code):
        if isinstance(node, ast.JoinedStr) and "invalid_reason" in ast.unparse(node):
            pieces = [
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "{reason}"
                for part in node.values
            ]
            return "".join(pieces) if pieces.count("{reason}") == 1 else ""
    return ""


def _reasons(code: ast.Module) -> Iterator[tuple[str, str]]:
    """(our key, text) for each reason why an assignment is refused; ids are shown as a set."""
    check = _function(code, "is_valid_matching")
    for node in ast.walk(check) if check else ():
        match node:
            case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=False), ast.Constant(value=str(text))])):
                yield "results.not_mapping", text
            case ast.Return(
                value=ast.Tuple(
                    elts=[
                        ast.Constant(value=False),
                        ast.BinOp(left=ast.Constant(value=str(text)), right=ast.Call(args=[ast.Name(id=name)])),
                    ]
                )
            ) if name in _REASONS:
                yield _REASONS[name], text + "{{ids}}"


def _function(code: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((node for node in ast.walk(code) if isinstance(node, ast.FunctionDef) and node.name == name), None)
