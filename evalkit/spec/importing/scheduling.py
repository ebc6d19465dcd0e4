"""Scheduling's texts from a copy of the reference."""

import ast
from collections.abc import Iterator

from evalkit.spec.importing.econ import Source, importing
from evalkit.spec.importing.record import Texts
from evalkit.spec.importing.results import SAME, Read, function_named, nested_history, notices

# Expressions of the reference -> fields of ours.
_MATCHING = {
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
"""What holds the offending ids there; they are shown as a set."""


def results_of(read: Read) -> Texts:
    """Scheduling's: history, notices, and why an assignment is refused."""
    texts = dict(SAME)
    run, rules = read("run_scheduling_experiment.py"), read("stable_matching_environment.py")
    if run is not None:
        texts |= nested_history(run, _MATCHING, "problem", "{problems}")
        texts |= notices(run)
        wrapped = _wrapper(run)
        if rules is not None and wrapped:
            texts |= {key: wrapped.replace("{reason}", text) for key, text in _reasons(rules)}
    return texts


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
    check = function_named(code, "is_valid_matching")
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


IMPORT = importing(
    "scheduling",
    Source(
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
        results=results_of,
    ),
    10,
)
