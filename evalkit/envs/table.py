"""All environments by name: evalkit's own stand here, one line each; others are found by their packages' entry points.

An environment is imported when it is first asked for: all of them together take a tenth of a second of every command.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from evalkit.envs.environment import Environment
from evalkit.errors import RunError
from evalkit.plugins import PluginTable

_PLACES: Mapping[str, tuple[str, str]] = {
    "scheduling": ("evalkit.envs.scheduling.scheduling", "SCHEDULING"),
    "pricing": ("evalkit.envs.pricing.pricing", "PRICING"),
    "procurement": ("evalkit.envs.procurement.procurement", "PROCUREMENT"),
    "costbench": ("evalkit.envs.costbench.costbench", "COSTBENCH"),
    "errand": ("evalkit.envs.errand.errand", "ERRAND"),
}
"""Name -> module and the record in it."""


class _Own(Mapping[str, Environment[Any, Any]]):
    """Those of evalkit."""

    def __getitem__(self, name: str) -> Environment[Any, Any]:
        module, record = _PLACES[name]
        environment: Environment[Any, Any] = getattr(import_module(module), record)
        return environment

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Environments(PluginTable[Environment[Any, Any]]):
    """The table, read as any other mapping; an unknown name raises RunError."""

    def __getitem__(self, name: str) -> Environment[Any, Any]:
        try:
            return super().__getitem__(name)
        except KeyError:
            raise RunError(
                f"This evalkit has no environment {name!r}: its package is not installed, a newer evalkit "
                f"has written the run, or the manifest was changed. Available: {', '.join(self)}."
            ) from None


OWN_ENVIRONMENTS: Mapping[str, Environment[Any, Any]] = _Own()
"""Those of evalkit alone: reading them reads no entry points."""
ENVIRONMENTS: PluginTable[Environment[Any, Any]] = _Environments("environments", OWN_ENVIRONMENTS, Environment)
