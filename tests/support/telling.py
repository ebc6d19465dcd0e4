"""Functions in another translation, in which they tell what they do: to `work_tick`, `work_made` and so on, which
`work.py` puts among the builtins while it counts. The translation does what the function does, in the same order."""

import ast
import gc
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

HOOKS = ("tick", "made", "grown", "cut", "contains", "equal", "unequal", "call")
"""What a translation calls, after `work_`."""

_FRAMES = frozenset({"super", "locals", "globals", "vars", "eval", "exec"})
"""They look at the frame that calls them, and are called as they are."""
_BY_FILE: dict[str, list[FunctionType]] = {}
_TELLING: set[int] = set()
"""The ids of all translations. They are kept, so no other code has them."""


@lru_cache(None)
def functions_of(path: str) -> list[tuple[FunctionType, CodeType, CodeType]]:
    """The functions of a file, the code of each, and its translation. Those that are made later: `translation`."""
    if path not in _BY_FILE:
        _look_up_functions()
    found = ((one, one.__code__, translation(one.__code__)) for one in _BY_FILE.get(path, ()))
    return [(one, plain, telling) for one, plain, telling in found if telling is not None]


def translation(code: CodeType) -> CodeType | None:
    """The translation of a function's code; None: it is one, or there is none."""
    if id(code) in _TELLING:
        return None
    alike = _translated(code.co_filename).get(_key(code), [])
    if len(alike) > 1:  # several on one line
        alike = [pair for pair in alike if pair[0] == code]
    return alike[0][1] if alike else None


def _look_up_functions() -> None:
    """Look up what functions there are. Those that were frozen are hidden, unless they are thawed for a moment."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    _BY_FILE.clear()
    for one in gc.get_objects():
        if type(one) is FunctionType:
            _BY_FILE.setdefault(one.__code__.co_filename, []).append(one)
    if frozen:
        gc.freeze()


@lru_cache(None)
def _translated(path: str) -> dict[tuple[object, ...], list[tuple[CodeType, CodeType]]]:
    """By what tells the functions of a file apart: the code of each as it is and as it tells what it does."""
    source = Path(path).read_text(encoding="utf-8")
    plain = compile(source, path, "exec", dont_inherit=True)
    tree = ast.fix_missing_locations(_Telling().visit(ast.parse(source)))
    found: dict[tuple[object, ...], list[tuple[CodeType, CodeType]]] = {}
    for one, two in _pairs(plain, compile(tree, path, "exec", dont_inherit=True)):
        found.setdefault(_key(one), []).append((one, two))
        _TELLING.add(id(two))
    return found


def _key(code: CodeType) -> tuple[object, ...]:
    """Which function of its file it is. Tests are compiled by pytest, which changes their code and keeps lines."""
    return code.co_qualname, code.co_firstlineno, code.co_varnames, code.co_freevars


def _pairs(plain: CodeType, telling: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    inner, other = ([one for one in code.co_consts if isinstance(one, CodeType)] for code in (plain, telling))
    for one, two in zip(inner, other, strict=True):
        assert (one.co_qualname, one.co_freevars) == (two.co_qualname, two.co_freevars)
        yield one, two
        yield from _pairs(one, two)


def _hook(name: str, at: ast.expr, *given: ast.expr) -> ast.Call:
    called = ast.Call(ast.Name(f"work_{name}", ast.Load()), [*given], [])
    return ast.copy_location(called, at)


def _tick(at: Any) -> Any:
    return ast.copy_location(ast.Expr(_hook("tick", at)), at)


class _Telling(ast.NodeTransformer):
    """Writes what tells the work into a module."""

    def visit_FunctionDef(self, node: Any) -> Any:
        node.args = self.visit(node.args)
        node.body = [_tick(node.body[0]), *self._all(node.body)]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name is the node's

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        node.guard, node.body = node.guard and self.visit(node.guard), self._all(node.body)
        return node

    def _all(self, body: list[ast.stmt]) -> list[Any]:
        found: list[Any] = []
        for one in map(self.visit, body):
            found += one if isinstance(one, list) else [one]
        return found

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.args = self.visit(node.args)
        told = ast.BoolOp(ast.And(), [_hook("tick", node.body), self.visit(node.body)])
        node.body = ast.copy_location(told, node.body)
        return node

    def _loop(self, node: Any) -> Any:
        first = node.body[0]
        self.generic_visit(node)
        node.body.insert(0, _tick(first))
        return node

    visit_For = visit_AsyncFor = visit_While = _loop  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs.insert(0, _hook("tick", node.target))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id in _FRAMES):
            node.func = _hook("call", node.func, node.func)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _hook("made", node, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        cut = isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice)
        return _hook("made", node, node) if cut else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        return _hook("made", node, node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        node.value = self.visit(node.value)
        return node

    def _display(self, node: Any) -> Any:
        self.generic_visit(node)
        held = node.keys if isinstance(node, ast.Dict) else node.elts
        copies = any(one is None or isinstance(one, ast.Starred) for one in held)
        return _hook("made", node, node) if copies and isinstance(getattr(node, "ctx", None), ast.Load | None) else node

    visit_List = visit_Tuple = visit_Set = visit_Dict = _display  # noqa: N815

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1:
            return node
        one, other = node.left, node.comparators[0]
        match node.ops[0]:
            case ast.In():
                return _hook("contains", node, one, other)
            case ast.NotIn():
                return ast.copy_location(ast.UnaryOp(ast.Not(), _hook("contains", node, one, other)), node)
            case ast.Eq():
                return _hook("equal", node, one, other)
            case ast.NotEq():
                return _hook("unequal", node, one, other)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        node.value = _hook("made", node.value, node.value)
        if any(isinstance(one, ast.Call) for one in ast.walk(node.target)):
            return node
        again = ast.parse(ast.unparse(node.target), mode="eval").body
        return [node, ast.copy_location(ast.Expr(_hook("grown", again, again)), node)]

    def visit_Delete(self, node: ast.Delete) -> Any:
        told: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not any(isinstance(one, ast.Call) for one in ast.walk(target)):
                holder, place = (
                    ast.parse(ast.unparse(part), mode="eval").body for part in (target.value, _place(target))
                )
                told.append(ast.copy_location(ast.Expr(_hook("cut", holder, holder, place)), node))
        return [*told, node]


def _place(target: ast.Subscript) -> ast.expr:
    """What is between a subscript's brackets, as a value."""
    if not isinstance(target.slice, ast.Slice):
        return target.slice
    parts = [part or ast.Constant(None) for part in (target.slice.lower, target.slice.upper, target.slice.step)]
    return ast.Call(ast.Name("slice", ast.Load()), [*parts], [])
