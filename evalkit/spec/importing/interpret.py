"""Texts that a program makes, from its source alone: an interpreter of the small part of Python that makes texts.

Nothing is executed: there are texts, numbers, lists, tuples, mappings and things with attributes that the caller gives;
no import, no file, no attribute that was not given. What is not understood, or takes too long, raises `Unreadable`.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.spec.importing.interpreted import (
    BUILTINS,
    OPERATORS,
    Thing,
    Unreadable,
    checked,
    joined,
    method_of,
    text_of,
)

MOST_STEPS = 2_000_000
"""Nodes that one reading may take."""

MOST_DEPTH = 60


@dataclass(slots=True)
class _Function:
    node: ast.FunctionDef | ast.Lambda
    scope: "_Scope"
    bound: Thing | None = None


@dataclass(slots=True)
class _Scope:
    values: dict[str, Any]
    outer: "_Scope | None" = None


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def class_methods(module: ast.Module, name: str) -> dict[str, ast.FunctionDef]:
    """The methods of a class by name. Raises Unreadable if there is no such class."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}
    raise Unreadable(f"the class {name} is missing")


class Reader:
    """One module, read with some of its names given by the caller, who also gives what it would import."""

    def __init__(self, module: ast.Module, given: Mapping[str, Any] | None = None) -> None:
        self._given = dict(given or {})
        """Names in any scope, assignments included: what the program sets them to is passed over."""
        self._defined: dict[str, ast.expr | ast.FunctionDef] = {}
        for node in module.body:
            if isinstance(node, ast.FunctionDef):
                self._defined[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._defined[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self._defined[node.target.id] = node.value
        self._scope = _Scope({})
        self._steps, self._depth = 0, 0

    def value(self, name: str) -> Any:
        """What a name of the module stands for. Raises Unreadable."""
        return self._guarded(lambda: self._lookup(name, self._scope))

    def evaluate(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """An expression's value, with some names given. Raises Unreadable."""
        return self._guarded(lambda: self._eval(node, _Scope(dict(names), self._scope)))

    def call(self, name: str, *values: Any) -> Any:
        """What a function of the module returns. Raises Unreadable."""
        return self._guarded(lambda: self._call(self._lookup(name, self._scope), list(values), {}))

    def method(self, thing: Thing, name: str, *values: Any) -> tuple[Any, dict[str, Any]]:
        """(what a method returns, its local names at the end). Raises Unreadable."""
        scope = _Scope({}, self._scope)
        returned = self._guarded(
            lambda: self._enter(_Function(thing.methods[name], self._scope, thing), list(values), {}, scope)
        )
        return returned, scope.values

    def _guarded(self, reading: Callable[[], Any]) -> Any:
        self._steps = self._depth = 0
        try:
            return reading()
        except (_Return, _Break, _Continue, RecursionError, ArithmeticError) as flaw:
            raise Unreadable(f"it does not end, or divides by zero ({type(flaw).__name__})") from flaw
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as flaw:
            raise Unreadable(f"a value has the wrong type or is missing ({flaw})") from flaw

    def _lookup(self, name: str, scope: _Scope | None) -> Any:
        if name in self._given:
            return self._given[name]
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        definition = self._defined.get(name)
        if isinstance(definition, ast.FunctionDef):
            return _Function(definition, self._scope)
        if definition is not None:
            self._scope.values[name] = self._eval(definition, self._scope)
            return self._scope.values[name]
        if name in BUILTINS:
            return BUILTINS[name]
        raise Unreadable(f"the name {name} is unknown")

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Unreadable("it takes too long")

    def _call(self, function: Any, values: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(function, _Function):
            return self._enter(function, values, named, _Scope({}, function.scope))
        if not callable(function):
            raise Unreadable("it calls something that is not a function")
        plain = [self._host(value) for value in values]
        return checked(function(*plain, **{key: self._host(value) for key, value in named.items()}))

    def _host(self, value: Any) -> Any:
        """A value as a built-in function takes it: a function of the program becomes one that can be called."""
        if isinstance(value, _Function):
            return lambda *values: self._call(value, list(values), {})
        return value

    def _enter(self, function: _Function, values: list[Any], named: dict[str, Any], scope: _Scope) -> Any:
        node, arguments = function.node, function.node.args
        if function.bound is not None:
            values = [function.bound, *values]
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        later = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True)
        scope.values |= {name: self._eval(default, function.scope) for name, default in later}
        scope.values |= dict(zip(names, values, strict=False)) | named
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise Unreadable("its calls are nested too deep")
        try:
            if isinstance(node, ast.Lambda):
                return self._eval(node.body, scope)
            self._run(node.body, scope)
        except _Return as done:
            return done.value
        finally:
            self._depth -= 1
        return None

    def _run(self, body: Sequence[ast.stmt], scope: _Scope) -> None:
        for node in body:
            self._count()
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: _Scope) -> None:
        match node:
            case ast.Expr(value=value):
                self._eval(value, scope)
            case ast.Assign(targets=targets, value=value):
                result = self._eval(value, scope)
                for target in targets:
                    self._bind(target, result, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._bind(target, self._eval(value, scope), scope)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                result = joined(op, self._lookup(name, scope), self._eval(value, scope))
                scope.values[name] = result
            case ast.If(test=test, body=body, orelse=orelse):
                self._run(body if self._eval(test, scope) else orelse, scope)
            case ast.For():
                self._loop(node, scope)
            case ast.Try(body=body):
                self._run(body, scope)
            case ast.Return(value=value):
                raise _Return(None if value is None else self._eval(value, scope))
            case ast.FunctionDef(name=name):
                scope.values[name] = _Function(node, scope)
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Global():
                pass
            case _:
                raise Unreadable(f"line {node.lineno} is not understood")

    def _loop(self, node: ast.For, scope: _Scope) -> None:
        for value in self._eval(node.iter, scope):
            self._bind(node.target, value, scope)
            try:
                self._run(node.body, scope)
            except _Continue:
                continue
            except _Break:
                break

    def _bind(self, target: ast.expr, value: Any, scope: _Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.values[name] = self._given.get(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for element, part in zip(targets, value, strict=True):
                    self._bind(element, part, scope)
            case ast.Subscript(value=inner, slice=key):
                self._eval(inner, scope)[self._eval(key, scope)] = value
            case _:
                raise Unreadable(f"line {target.lineno} is not understood")

    def _eval(self, node: ast.expr, scope: _Scope) -> Any:
        self._count()
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._lookup(name, scope)
            case ast.JoinedStr(values=values):
                return checked("".join([self._piece(part, scope) for part in values]))
            case ast.BinOp(left=left, op=op, right=right):
                return joined(op, self._eval(left, scope), self._eval(right, scope))
            case ast.BoolOp(op=op, values=values):
                result = None
                for term in values:
                    result = self._eval(term, scope)
                    if bool(result) is isinstance(op, ast.Or):
                        break
                return result
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._eval(operand, scope)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._eval(operand, scope)
            case ast.Compare():
                return self._compared(node, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._eval(body if self._eval(test, scope) else orelse, scope)
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(self._eval(inner, scope), name)
            case ast.Call():
                return self._called(node, scope)
            case ast.Lambda():
                return _Function(node, scope)
        return self._collection(node, scope)

    def _collection(self, node: ast.expr, scope: _Scope) -> Any:
        match node:
            case ast.List(elts=items):
                return [self._eval(item, scope) for item in items]
            case ast.Tuple(elts=items):
                return tuple([self._eval(item, scope) for item in items])
            case ast.Set(elts=items):
                return {self._eval(item, scope) for item in items}
            case ast.Dict(keys=keys, values=values):
                entries = zip(keys, values, strict=True)
                return {self._eval(key, scope): self._eval(value, scope) for key, value in entries if key is not None}
            case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                ends = [None if end is None else self._eval(end, scope) for end in (lower, upper)]
                return self._eval(inner, scope)[ends[0] : ends[1]]
            case ast.Subscript(value=inner, slice=key):
                return self._eval(inner, scope)[self._eval(key, scope)]
            case ast.ListComp(elt=item, generators=generators) | ast.GeneratorExp(elt=item, generators=generators):
                return [self._eval(item, inner) for inner in self._scopes(generators, scope)]
        raise Unreadable(f"line {node.lineno} is not understood")

    def _scopes(self, generators: Sequence[ast.comprehension], scope: _Scope) -> Iterator[_Scope]:
        first, *others = generators
        for value in self._eval(first.iter, scope):
            inner = _Scope({}, scope)
            self._bind(first.target, value, inner)
            if all(self._eval(test, inner) for test in first.ifs):
                yield from self._scopes(others, inner) if others else (inner,)

    def _piece(self, node: ast.expr, scope: _Scope) -> str:
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None or node.conversion != -1:
                raise Unreadable(f"line {node.lineno}: how a value is formatted is not understood")
            return text_of(self._eval(node.value, scope))
        return text_of(self._eval(node, scope))

    def _compared(self, node: ast.Compare, scope: _Scope) -> bool:
        left = self._eval(node.left, scope)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self._eval(other, scope)
            if not OPERATORS[type(op)](left, right):
                return False
            left = right
        return True

    def _attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Thing):
            if name in value.attributes:
                return value.attributes[name]
            if name in value.methods:
                return _Function(value.methods[name], self._scope, value)
        elif (method := method_of(value, name)) is not None:
            return method
        raise Unreadable(f"the attribute .{name} is unknown")

    def _called(self, node: ast.Call, scope: _Scope) -> Any:
        values = [self._eval(argument, scope) for argument in node.args]
        named = {keyword.arg: self._eval(keyword.value, scope) for keyword in node.keywords if keyword.arg is not None}
        return self._call(self._eval(node.func, scope), values, named)
