"""How the loops are compiled; that they then do the same is tested with the optimum."""

from types import CodeType
from typing import Any

import pytest

from evalkit.envs.procurement import branch, kernels, relax


def test_every_function_of_the_loops_is_compiled_and_named_after_them_all() -> None:
    functions = kernels._functions()
    assert {"root", "search", "relax", "direction", "improve", "tighten"} <= set(functions)
    assert all(function.__module__.startswith("evalkit.envs.procurement") for function in functions.values())
    # A function inside a function would be named by its address, and the digest change with every process.
    assert not any(isinstance(const, CodeType) for one in functions.values() for const in one.__code__.co_consts)
    digest = kernels._digest(functions, kernels._SCOPE)
    assert kernels.search.__qualname__ == f"search_{digest}"


def test_another_number_in_any_file_is_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = kernels._functions()
    before = kernels._digest(functions, vars(relax))
    monkeypatch.setattr(relax, "_RIDGE", 1e-9)
    assert kernels._digest(functions, vars(relax)) != before
    other: dict[str, Any] = {**functions, "shrink": branch.cutoff_of}
    assert kernels._digest(other, vars(branch)) != kernels._digest(functions, vars(branch))
