"""A line of a suite as an instance: what defines it, its digest, and what a sweep varies of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from evalkit.envs.environment import Environment
from evalkit.errors import UsageError, nearest

DERIVED = frozenset({"id", "digest", "expected", "optimum", "certificate"})
"""Fields of a suite's line that follow from the others."""


def canonical(value: object) -> bytes:
    """A value as JSON with sorted keys: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def instance_digest(environment: str, line: Mapping[str, Any]) -> str:
    """Hex digest of an instance's defining fields."""
    defining = {key: value for key, value in line.items() if key not in DERIVED}
    return hashlib.sha256(canonical([environment, defining])).hexdigest()[:32]


def varied(line: Mapping[str, Any], axes: Mapping[str, Any]) -> Mapping[str, Any]:
    """A line with some parameters set to other values, without what followed from the old ones."""
    if not axes:
        return line
    return {**{key: value for key, value in line.items() if key == "id" or key not in DERIVED}, **axes}


def load_varied(env: Environment[Any, Any], line: Mapping[str, Any], axes: Mapping[str, Any], where: str) -> Any:
    """An instance from a line with some parameters set to other values. Raises UsageError naming the line."""
    for key in axes:
        if key not in env.parameters:
            raise UsageError(f"vary.{key}: {env.name} has no parameter {key!r}.{nearest(key, env.parameters)}")
    try:
        return env.load(varied(line, axes))
    except UsageError as flaw:
        raise UsageError(f"{where}: {flaw}") from flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLine:
    """A line that has been loaded: all that is known of an instance."""

    instance: Any
    """The environment's own value."""
    line: Mapping[str, Any]
    """As the environment describes it."""
    digest: str
    stratum: str


def reach(env: Environment[Any, Any], line: Mapping[str, Any], axes: Mapping[str, Any], where: str) -> LoadedLine:
    """Load a line and describe what comes of it. Raises UsageError naming the line."""
    instance = load_varied(env, line, axes, where)
    described = dict(env.describe(instance))
    return LoadedLine(
        instance=instance,
        line=described,
        digest=instance_digest(env.name, described),
        stratum=env.stratum(instance),
    )
