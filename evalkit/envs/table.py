"""All environments by name: evalkit's own stand here, one line each; others are found by their packages' entry points.

An environment is imported when it is first asked for: all of them together take a tenth of a second of every command.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar, cast

from evalkit.envs.environment import ActionShare, Environment, Presentation
from evalkit.errors import RunError, UsageError
from evalkit.plugins import PluginTable, importing

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


# What an environment's record says to who reads logs; of one that is not installed, what is safe to assume.
#
# A run can be read where its environment is not: its log holds facts and scores.


def known(name: str) -> Environment[Any, Any] | None:
    """The environment of that name; None if there is none."""
    if name not in ENVIRONMENTS:
        return None
    return ENVIRONMENTS[name]


def score_range(name: str) -> tuple[float, float]:
    """Between what an environment's scores can be; where nobody knows it, anything up to the optimum."""
    env = known(name)
    return env.score_range if env else (-math.inf, 1.0)


def presented(name: str) -> Presentation:
    """What reports say of an environment; as little as can be where nobody knows it."""
    env = known(name)
    return env.presentation if env else Presentation()


def is_litmus(name: str) -> bool:
    """Whether an environment claims no optimum: its scores lie between two ways of acting."""
    return presented(name).scale == "litmus"


OPTIMUM_UNIT = "100 = optimum"
LITMUS_UNIT = "0 and 100 = the two ends"
"""Of scores between two ways of acting."""


def score_unit(litmus: Iterable[bool]) -> str:
    """The unit of a column of scores; `litmus`: of each, whether its environment claims no optimum."""
    scales = set(litmus)
    if scales == {True}:
        return LITMUS_UNIT
    return f"{OPTIMUM_UNIT}; of litmus tests, one of two ends" if True in scales else OPTIMUM_UNIT


def scale_words(names: Iterable[str]) -> str:
    """What 100 and 0 stand for, of these environments."""
    played = list(dict.fromkeys(names))
    litmus = [name for name in played if is_litmus(name)]
    zeros = {name: words for name in played if name not in litmus and (words := presented(name).zero_means)}
    said = []
    if len(zeros) == 1:
        said = [f"100 = optimal, 0 = {next(iter(zeros.values()))}"]
    elif zeros or len(litmus) < len(played):
        each = ", ".join(f"{words} ({name})" for name, words in zeros.items())
        said = [f"100 = optimal, 0 = {each}" if each else "100 = optimal"]
    for name in litmus:
        ends = presented(name)
        said.append(f"{name}: 100 = {ends.one_means}, 0 = {ends.zero_means}, neither is better")
    return "; ".join(said)


def one_chats(played: Iterable[str]) -> list[str]:
    """Those of the played environments whose episodes are one chat, by name."""
    return sorted({name for name in played if presented(name).one_chat})


def shares_of(names: Iterable[str]) -> dict[str, ActionShare]:
    """The secondary metrics of their own that these environments have reports show."""
    return {name: share for one in dict.fromkeys(names) for name, share in presented(one).shares.items()}


# What an environment's record names as `module:attribute`: read when it is first needed, from wherever it lies.
#
# An environment lies below policies, reports and commands and imports none of them, so its record names what it has
# there.

ValueT = TypeVar("ValueT")


@lru_cache(maxsize=256)
def named(environment: str, field: str, reference: str, kind: type[ValueT]) -> ValueT:
    """The value of that kind that a field of an environment's record names. Raises UsageError if there is none."""
    module, _, name = reference.partition(":")
    with importing(f"{environment}: {field}: {reference!r}"):
        value = getattr(import_module(module), name)
    if not isinstance(value, kind):
        raise UsageError(f"{environment}: {field}: expected 'module:name' of {_article(kind)}, got {reference!r}.")
    return value


def named_table(environment: str, field: str, reference: str, kind: type[ValueT]) -> Mapping[str, ValueT]:
    """The table of values of that kind, by name, that a field of an environment's record names. Raises UsageError."""
    table = named(environment, field, reference, cast("type[Mapping[str, object]]", Mapping))
    for name, value in table.items():
        if not isinstance(value, kind):
            raise UsageError(
                f"{environment}: {field}: {reference!r}: expected {_article(kind)} as {name!r}, got {value!r}."
            )
    return cast(Mapping[str, ValueT], table)


def _article(kind: type[object]) -> str:
    return f"a{'n' * (kind.__name__[0] in 'AEIOU')} {kind.__name__}"
