"""Procurement's texts from a copy of the reference."""

import ast
import re
from collections.abc import Iterator

from evalkit.spec.importing.econ import Source, importing
from evalkit.spec.importing.record import Texts
from evalkit.spec.importing.results import (
    SAME,
    Read,
    added,
    attempts_loop,
    function_named,
    method_named,
    notices,
    template,
)

# Expressions of the reference -> fields of ours.
_PURCHASE = {
    "attempt_num": "{attempt}",
    "alloc_attempts[attempt_num]": "{plan}",
    "alloc_utilities[attempt_num]": "{workers}",
    "alloc_costs[attempt_num]": "{cost}",
    "alloc_infeasible_reasons[attempt_num]": "{reasons}",
}
_FEASIBLE = "alloc_is_feasibles[attempt_num]"
_DEAL = {
    "entry_id": "{deal}",
    "self.id": "{deal}",
    "self.cost": "{price}",
    "self.variable_cost": "{price}",
    "self.fixed_cost": "{fixed}",
    "self.min_quantity": "{least}",
    "contents_str": "{contents}",
    "quantity": "{quantity}",
    "total_cost": "{cost}",
    "budget": "{budget}",
}
_PLURALS = {"unit": "units"}

ATTEMPTS = 100
"""How many attempts the reference's texts speak of."""


def results_of(read: Read) -> Texts:
    """Procurement's: history, notices, the menu, and why a plan cannot be bought."""
    texts = dict(SAME)
    run, rules = read("run_procurement_experiment.py"), read("opt_solver.py")
    if run is not None:
        texts |= _branched_history(run)
        texts |= notices(run)
    if rules is not None:
        texts |= _menu(rules)
        texts |= _shortcomings(rules)
    return texts


def _branched_history(code: ast.Module) -> Texts:
    """The same where an attempt reads one way if its plan can be bought, and another if not."""
    loop = attempts_loop(code)
    if loop is None:
        return {}
    supported: list[str | None] = []
    invalid: list[str | None] = []
    branches = 0
    for node in loop.body:
        if isinstance(node, ast.If):
            branches += ast.unparse(node.test) == _FEASIBLE
            supported += added(node.body, _PURCHASE)
            invalid += added(node.orelse, _PURCHASE)
        else:
            both = added([node], _PURCHASE)
            supported += both
            invalid += both
    if branches != 1 or None in supported or None in invalid:
        return {}
    texts = {"results.history_supported": supported, "results.history_invalid": invalid}
    return {"results.history_empty": "", **{key: "".join(map(str, pieces)) for key, pieces in texts.items()}}


def _menu(code: ast.Module) -> Texts:
    """The menu: a line for each kind of deal, and how what a deal holds is counted and joined."""
    line = next((piece for piece in _sums(method_named(code, "Menu", "to_str")) if "{line}" in piece), "")
    render = method_named(code, "Entry", "to_str")
    texts: Texts = {}
    for node in ast.walk(render) if render and line else ():
        match node:
            case ast.If(
                test=ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str(kind))]),
                body=[ast.Return(value=ast.JoinedStr() as text)],
            ):
                shown = template(text, _DEAL)
                if shown is not None and "{contents}" in shown:
                    texts[f"results.menu_{kind}"] = line.replace("{line}", shown)
            case ast.ListComp(elt=elt):
                texts |= _counted(elt)
            case ast.Call(func=ast.Attribute(attr="join", value=ast.Name())):
                # Joined by a library, in the one way it has.
                texts |= {"results.menu_pair": "{first} and {last}", "results.menu_list": "{first}, and {last}"}
    return texts


def _sums(function: ast.FunctionDef | None) -> Iterator[str]:
    """Texts that a function adds up around one call, each with `{line}` in the call's place."""
    for node in ast.walk(function) if function else ():
        if isinstance(node, ast.AugAssign):
            pieces: list[str] = []
            for part in _summands(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    pieces.append(part.value)
                else:
                    pieces.append("{line}" if isinstance(part, ast.Call) else "")
            if pieces.count("{line}") == 1 and "" not in pieces:
                yield "".join(pieces)


def _summands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _summands(node.left)
        yield from _summands(node.right)
    else:
        yield node


def _counted(node: ast.expr) -> Texts:
    """One unit of an item, and several: a formatted string that inflects a word by their number."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        node = node.func.value
    singular: list[str] = []
    plural: list[str] = []
    for part in node.values if isinstance(node, ast.JoinedStr) else []:
        match part:
            case ast.Constant(value=str(text)):
                pair = text, text
            case ast.FormattedValue(value=ast.Name(id="qty")):
                pair = "1", "{units}"
            case ast.FormattedValue(value=ast.Name(id="id")):
                pair = "{item}", "{item}"
            case ast.FormattedValue(
                value=ast.Call(func=ast.Attribute(attr="plural"), args=[ast.Constant(value=str(word)), *_])
            ) if word in _PLURALS:
                pair = word, _PLURALS[word]
            case _:
                return {}
        singular.append(pair[0])
        plural.append(pair[1])
    return {"results.menu_unit": "".join(singular), "results.menu_units": "".join(plural)} if singular else {}


def _shortcomings(code: ast.Module) -> Texts:
    """Why a plan cannot be bought: too few units of a deal, each on a line of its own, and too much money."""
    texts: Texts = {}
    evaluate, price = function_named(code, "evaluate_alloc"), method_named(code, "Entry", "get_cost")
    ending = ""
    for node in ast.walk(evaluate) if evaluate else ():
        match node:
            case ast.AugAssign(value=ast.JoinedStr() as text):
                shown = template(text, _DEAL)
                if shown is not None and "{budget}" in shown:
                    texts["results.over_budget"] = shown
            case ast.AugAssign(value=ast.BinOp(left=ast.Name(), right=ast.Constant(value=str(end)))):
                ending = end
    for node in ast.walk(price) if price else ():
        match node:
            case ast.Return(value=ast.Tuple(elts=[_, ast.JoinedStr() as text])):
                shown = template(text, _DEAL)
                if shown is not None and "{least}" in shown:
                    texts["results.under_minimum"] = shown + ending
    return texts


def _count_attempts(texts: Texts) -> Texts:
    """Procurement's: the reference says how many attempts there are in its text, we fill the number in."""
    return {**texts, "system": re.sub(rf"\b{ATTEMPTS}\b", "{periods}", texts["system"])}


IMPORT = importing(
    "procurement",
    Source(
        folder="procurement",
        texts={"system": "SYSTEM_PROMPT_V1", "opening": "INITIAL_PROMPT_V1", "reply": "PROMPT_V1"},
        tools="TOOLS_V1",
        variant_texts={"system": "SYSTEM_PROMPT_V1_O3"},
        variant_tools="TOOLS_V1_O3",
        results=results_of,
        fit=_count_attempts,
        wordings={
            "known_horizon": {"system": "SYSTEM_PROMPT_V1_KNOWN_HORIZON"},
            "known_horizon_goal": {"system": "SYSTEM_PROMPT_V1_GRADED_BEST"},
        },
    ),
    20,
)
