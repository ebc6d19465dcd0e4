"""The result texts of the reference, found in the code that renders them: one function an environment.

Each looks for the one way in which it knows a text to be written, and leaves out what it does not find.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from evalkit.envs.pricing.prices import BARE_NUMBER
from evalkit.envs.rules import repeat_key

Texts = dict[str, str]

Read = Callable[[str], ast.Module | None]
"""A file beside the prompts, by name, as parsed source; None if it is not there."""

_RENDERER = "make_readable_previous_attempts_data"

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
_PRICES = {
    "i": "{attempt}",
    "product_ids[j]": "{product}",
    "prices_list[i][product_ids[j]]": "{price_signed}",
    "quantities_list[i][product_ids[j]]": "{quantity_signed}",
    "profits_list[i][product_ids[j]]": "{profit_signed}",
    "costs[product_ids[j]]": "{cost}",
}
_REASONS = {
    "unmatched_workers": "results.missing_workers",
    "unmatched_tasks": "results.missing_tasks",
    "unknown_workers": "results.unknown_workers",
    "unpriced_products": "results.missing_products",
    "extra_products": "results.unknown_products",
}
"""What holds the offending ids there; they are shown as a set."""

_PLURALS = {"unit": "units"}

_SAME: Texts = {"results.style": "repr", "results.notes_empty": ""}
"""What is so in all of its environments."""


def scheduling_results(read: Read) -> Texts:
    """Scheduling's: history, notices, and why an assignment is refused."""
    found = dict(_SAME)
    run, rules = read("run_scheduling_experiment.py"), read("stable_matching_environment.py")
    if run is not None:
        found |= _nested_history(run, _MATCHING, "problem", "{problems}")
        found |= _notices(run)
        wrapped = _wrapper(run)
        if rules is not None and wrapped:
            found |= {key: wrapped.replace("{reason}", text) for key, text in _reasons(rules)}
    return found


def procurement_results(read: Read) -> Texts:
    """Procurement's: history, notices, the menu, and why a plan cannot be bought."""
    found = dict(_SAME)
    run, rules = read("run_procurement_experiment.py"), read("opt_solver.py")
    if run is not None:
        found |= _branched_history(run)
        found |= _notices(run)
    if rules is not None:
        found |= _menu(rules)
        found |= _shortcomings(rules)
    return found


def pricing_results(read: Read) -> Texts:
    """Pricing's: history, notices, and why prices are refused."""
    found = dict(_SAME)
    run = read("run_pricing_experiment.py")
    if run is not None:
        found |= _nested_history(run, _PRICES, "product", "{products}")
        found |= _notices(run)
        found |= _price_refusals(run)
    return found


def _nested_history(code: ast.Module, fields: Mapping[str, str], part: str, place: str) -> Texts:
    """How an attempt is rendered: the pieces added within the loop over attempts, in order.

    `part` names the inner loop's text, which stands at `place` in the attempt's.
    """
    loop = _loop(code)
    if loop is None:
        return {}
    attempt: list[str | None] = []
    inner: list[str | None] = []
    for node in loop.body:
        if isinstance(node, ast.For):
            inner += _added(node.body, fields)
            attempt.append(place)
        else:
            attempt += _added([node], fields)
    if None in attempt or None in inner or not inner:
        return {}
    texts = {"results.history_attempt": attempt, f"results.history_{part}": inner}
    return {"results.history_empty": "", **{key: "".join(map(str, pieces)) for key, pieces in texts.items()}}


def _branched_history(code: ast.Module) -> Texts:
    """The same where an attempt reads one way if its plan can be bought, and another if not."""
    loop = _loop(code)
    if loop is None:
        return {}
    supported: list[str | None] = []
    invalid: list[str | None] = []
    branches = 0
    for node in loop.body:
        if isinstance(node, ast.If):
            branches += ast.unparse(node.test) == _FEASIBLE
            supported += _added(node.body, _PURCHASE)
            invalid += _added(node.orelse, _PURCHASE)
        else:
            both = _added([node], _PURCHASE)
            supported += both
            invalid += both
    if branches != 1 or None in supported or None in invalid:
        return {}
    texts = {"results.history_supported": supported, "results.history_invalid": invalid}
    return {"results.history_empty": "", **{key: "".join(map(str, pieces)) for key, pieces in texts.items()}}


def _loop(code: ast.Module) -> ast.For | None:
    render = _function(code, _RENDERER)
    return next((node for node in ast.walk(render) if isinstance(node, ast.For)), None) if render else None


def _added(body: Iterable[ast.stmt], fields: Mapping[str, str]) -> list[str | None]:
    return [_template(node.value, fields) for node in body if isinstance(node, ast.AugAssign)]


def _template(node: ast.expr, fields: Mapping[str, str]) -> str | None:
    """A formatted string with our fields; None where it shows something we have no field for."""
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


def _notices(code: ast.Module) -> Texts:
    """What is said when notes were written, and when a tool is asked twice, each as its own branch shows it."""
    found: Texts = {}
    for tool, branch in _branches(code):
        for statement in branch:
            again = _shown_again(statement)
            if again is not None:
                found.setdefault(repeat_key(tool), again)
        for node in (inner for statement in branch for inner in ast.walk(statement)):
            match node:
                case ast.Return(value=ast.Tuple(elts=[ast.Constant(value="SUCCESS"), ast.Constant(value=str(text))])):
                    if tool == "write_notes":
                        found.setdefault("results.notes_written", text)
                case ast.Dict(keys=[ast.Constant(value=str(key))], values=[ast.Constant(value=str(text))]):
                    if key.startswith("previous_"):
                        found.setdefault("results.repeat_access", text)
    return found


def _shown_again(statement: ast.stmt) -> str | None:
    """The text that a branch shows at once where a flag of the agent is set: a constant, or the repr of a mapping of
    constants; None where it is something else."""
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


def _price_refusals(code: ast.Module) -> Texts:
    """Why prices are refused: a text for a bare number, and formatted strings that end in the offending ids, which are
    shown as a set."""
    found: Texts = {}
    for node in ast.walk(code):
        match node:
            case ast.If(
                test=test,
                body=[ast.Return(value=ast.Tuple(elts=[ast.Constant(), ast.Constant(value=str(text))]))],
            ) if "isinstance" in ast.unparse(test):
                found.setdefault(f"results.{BARE_NUMBER}", text)
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue(value=ast.Name(id=name))]) if (
                name in _REASONS
            ):
                found[_REASONS[name]] = text + "{{ids}}"
    return found


def _menu(code: ast.Module) -> Texts:
    """The menu: a line for each kind of deal, and how what a deal holds is counted and joined."""
    line = next((piece for piece in _sums(_method(code, "Menu", "to_str")) if "{line}" in piece), "")
    render = _method(code, "Entry", "to_str")
    found: Texts = {}
    for node in ast.walk(render) if render and line else ():
        match node:
            case ast.If(
                test=ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str(kind))]),
                body=[ast.Return(value=ast.JoinedStr() as text)],
            ):
                shown = _template(text, _DEAL)
                if shown is not None and "{contents}" in shown:
                    found[f"results.menu_{kind}"] = line.replace("{line}", shown)
            case ast.ListComp(elt=elt):
                found |= _counted(elt)
            case ast.Call(func=ast.Attribute(attr="join", value=ast.Name())):
                # Joined by a library, in the one way it has.
                found |= {"results.menu_pair": "{first} and {last}", "results.menu_list": "{first}, and {last}"}
    return found


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
    one: list[str] = []
    several: list[str] = []
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
        one.append(pair[0])
        several.append(pair[1])
    return {"results.menu_unit": "".join(one), "results.menu_units": "".join(several)} if one else {}


def _shortcomings(code: ast.Module) -> Texts:
    """Why a plan cannot be bought: too few units of a deal, each on a line of its own, and too much money."""
    found: Texts = {}
    evaluate, price = _function(code, "evaluate_alloc"), _method(code, "Entry", "get_cost")
    ending = ""
    for node in ast.walk(evaluate) if evaluate else ():
        match node:
            case ast.AugAssign(value=ast.JoinedStr() as text):
                shown = _template(text, _DEAL)
                if shown is not None and "{budget}" in shown:
                    found["results.over_budget"] = shown
            case ast.AugAssign(value=ast.BinOp(left=ast.Name(), right=ast.Constant(value=str(end)))):
                ending = end
    for node in ast.walk(price) if price else ():
        match node:
            case ast.Return(value=ast.Tuple(elts=[_, ast.JoinedStr() as text])):
                shown = _template(text, _DEAL)
                if shown is not None and "{least}" in shown:
                    found["results.under_minimum"] = shown + ending
    return found


def _function(code: ast.AST, name: str) -> ast.FunctionDef | None:
    return next((node for node in ast.walk(code) if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _method(code: ast.Module, owner: str, name: str) -> ast.FunctionDef | None:
    classes = (node for node in ast.walk(code) if isinstance(node, ast.ClassDef) and node.name == owner)
    return next((found for one in classes if (found := _function(one, name)) is not None), None)
