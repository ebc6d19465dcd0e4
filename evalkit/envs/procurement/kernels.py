"""The branch and bound, compiled: the functions of `branch.py` and of what it calls, as they stand there.

Only `best.py` imports this file, and only for big markets: numba costs most of a second before its first result.
The functions call one another, so that each is bound to a set of globals in which the others are compiled too. Numba
notices a change only in the file of the function that it keeps; here its name holds a digest of them all.
"""

import hashlib
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from numba import njit

from evalkit.compiled import keep_here
from evalkit.envs.procurement import branch, improve, relax

keep_here()

_MODULES = (relax, improve, branch)
_ENTRIES = ("root", "search")


def _kernel(function: Callable[..., Any], inner: bool) -> Callable[..., Any]:
    """The function, compiled at its first call.

    inner: only other kernels call it, so that no wrapper for Python is made, which takes a fifth of the time.
    """
    compiler: Callable[..., Any] = njit  # its stub does not know of wrappers
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": inner, "no_cfunc_wrapper": True}
    kernel: Callable[..., Any] = compiler(cache=True, **options)(function)
    return kernel


def _functions() -> dict[str, FunctionType]:
    return {
        name: value
        for module in _MODULES
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    }


def _digest(functions: dict[str, FunctionType], scope: dict[str, Any]) -> str:
    """Of all that is compiled: the functions' code, and the numbers of their modules, which become part of it."""
    digest = hashlib.sha256()
    digest.update(repr([(name, value) for name, value in scope.items() if isinstance(value, int | float)]).encode())
    for name, function in functions.items():
        code: CodeType = function.__code__
        digest.update(repr((name, code.co_code, code.co_consts, code.co_names)).encode())
    return digest.hexdigest()[:12]


def _compiled() -> dict[str, Any]:
    functions = _functions()
    scope: dict[str, Any] = {name: value for module in _MODULES for name, value in vars(module).items()}
    digest = _digest(functions, scope)
    for name, function in functions.items():
        bound = FunctionType(function.__code__, scope, name, function.__defaults__)
        bound.__qualname__ = f"{name}_{digest}"
        bound.__module__ = function.__module__
        scope[name] = _kernel(bound, inner=name not in _ENTRIES)
    return scope


_SCOPE = _compiled()
root: Callable[..., float] = _SCOPE["root"]
search: Callable[..., tuple[int, float]] = _SCOPE["search"]
