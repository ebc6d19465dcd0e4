"""All environments by name. A plain table: adding an environment is adding a line here and a folder beside it.

An environment is imported when it is first asked for: all of them together take a tenth of a second of every command.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from evalkit.envs.environment import Environment
from evalkit.errors import RunError

_PLACES: Mapping[str, tuple[str, str]] = {
    "scheduling": ("evalkit.envs.scheduling.scheduling", "SCHEDULING"),
    "pricing": ("evalkit.envs.pricing.pricing", "PRICING"),
    "procurement": ("evalkit.envs.procurement.procurement", "PROCUREMENT"),
    "costbench": ("evalkit.envs.costbench.costbench", "COSTBENCH"),
    "errand": ("evalkit.envs.errand.errand", "ERRAND"),
}
"""Name -> module and the record in it."""


class _Environments(Mapping[str, Environment[Any, Any]]):
    """The table, read as any other mapping; an unknown name raises RunError."""

    def __getitem__(self, name: str) -> Environment[Any, Any]:
        if name not in _PLACES:
            raise RunError(
                f"This evalkit has no environment {name!r}: a newer one may have written the run, or its manifest was "
                f"changed. It has {', '.join(_PLACES)}."
            )
        module, record = _PLACES[name]
        found: Environment[Any, Any] = getattr(import_module(module), record)
        return found

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


ENVIRONMENTS: Mapping[str, Environment[Any, Any]] = _Environments()
