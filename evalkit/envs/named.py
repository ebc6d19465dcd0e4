"""What an environment's record names as `module:attribute`: read when it is first needed, from wherever it lies.

An environment lies below policies, reports and commands and imports none of them, so its record names what
it has there.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TypeVar, cast

from evalkit.errors import UsageError

ValueT = TypeVar("ValueT")


@lru_cache(maxsize=256)
def named(environment: str, field: str, reference: str, kind: type[ValueT]) -> ValueT:
    """The value of that kind that a field of an environment's record names. Raises UsageError if there is none."""
    module, _, name = reference.partition(":")
    try:
        value = getattr(import_module(module), name)
    except Exception as flaw:  # a package's own code: whatever it raises is what is wrong with it
        why = f"{type(flaw).__name__}: {flaw}"
        raise UsageError(f"{environment}: {field}: {reference!r} cannot be read: {why}.") from flaw
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
