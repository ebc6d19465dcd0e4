"""Environments and suites by name: what can be played."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.api.specs import checked_names
from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.frozen.suite_file import from_rows
from evalkit.spec.model import SuiteInstance, SuiteUse
from evalkit.spec.suites import Expanded, expand


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a suite: one problem with its known optimum. Frozen, hashable and picklable.

    environment   name of the environment that plays it
    id            its name within the suite
    suite         the suite's name, with `?k=2` after it where parameters were varied
    digest        32 hexadecimal digits of its definition: equal problems have equal digests, whatever their names
    stratum       the group it belongs to (a difficulty, a kind), for balanced samples
    line          a mapping: the instance as in a suite's file, with its optimum

    >>> import evalkit
    >>> instance = evalkit.suite("pricing/basic")[0]
    >>> instance.environment, instance.id, instance.line["periods"]
    ('pricing', 'seed-0', 100)
    """

    environment: str
    id: str
    suite: str
    digest: str
    stratum: str
    line: Mapping[str, Any] = field(repr=False, hash=False)


def env(name: str) -> Environment[Any, Any]:
    """The environment of that name: a frozen record of pure functions, such as `start`, `step` and `score`.

    `costbench`, `errand`, `pricing`, `procurement` and `scheduling` come with evalkit. To play one by hand, use
    `game`. docs/add-an-environment.md explains each field.

    Raises UsageError with the nearest name.

    >>> import evalkit
    >>> pricing = evalkit.env("pricing")
    >>> pricing.name, pricing.score_range[1]
    ('pricing', 1.0)
    >>> sorted(pricing.parameters)[:3]
    ['cost_high', 'cost_low', 'family']
    """
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {name!r}.{nearest(str(name), ENVIRONMENTS)}")
    return ENVIRONMENTS[name]


def suite(name: str, *, instances: Sequence[str] = (), vary: Mapping[str, Sequence[Any]] = {}) -> list[Instance]:
    """The instances of a suite. Each prefix of the order has all strata in proportion.

    Args:
        name: a suite's name, such as `scheduling/basic`, or the path of a file that ends in `.jsonl` or `.parquet`. A
            folder `instances/` in the current directory is searched before evalkit's suites.
        instances: the ids to use (default: all).
        vary: parameters to change, each with a list of values. Every combination of values gives all instances once,
            under a name such as `NAME?k=2`. Combinations with the same instances are given once.

    Raises UsageError for unknown names, ids and parameters, and for values out of range.

    >>> import evalkit
    >>> [one.id for one in evalkit.suite("scheduling/basic", instances=["seed-3", "seed-0"])]
    ['seed-0', 'seed-3']
    >>> [one.suite for one in evalkit.suite("scheduling/basic", instances=["seed-0"], vary={"k": [1, 2]})]
    ['scheduling/basic?k=1', 'scheduling/basic?k=2']
    """
    if not isinstance(name, str):
        raise UsageError(f"name: expected a suite's name or file, got {type(name).__name__}.")
    wanted = checked_names(instances, "instances")
    ids = tuple(instance_id for instance_id in dict.fromkeys(instances) if instance_id in wanted)
    use = SuiteUse(name=name, vary={key: _values(vary, key) for key in _mapping(vary)}, instances=ids)
    return [instance for base, _, expanded in expand(use) for instance in _instances(base, expanded)]


def _mapping(vary: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    if not isinstance(vary, Mapping) or not all(isinstance(key, str) for key in vary):
        raise UsageError(f"vary: expected a mapping from parameters to lists of values, got {vary!r}.")
    return vary


def _values(vary: Mapping[str, Sequence[Any]], key: str) -> tuple[Any, ...]:
    values = vary[key]
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"vary.{key}: expected a list of values, got {values!r}.")
    if not values:
        raise UsageError(f"vary.{key}: the list of values is empty.")
    return tuple(values)


def _instances(name: str, expanded: Expanded) -> Iterator[Instance]:
    if isinstance(expanded, list):
        yield from map(_listed, expanded)
        return
    for one in from_rows(expanded, spread=True):
        yield Instance(
            environment=one.line["environment"],
            id=one.id,
            suite=name,
            digest=one.digest,
            stratum=one.stratum,
            line=one.line,
        )


def _listed(instance: SuiteInstance) -> Instance:
    return Instance(
        environment=instance.environment,
        id=instance.id,
        suite=instance.suite,
        digest=instance.digest,
        stratum=instance.stratum,
        line=dict(ENVIRONMENTS[instance.environment].describe(instance.instance)),
    )


def checked_instance(instance: Instance) -> Environment[Any, Any]:
    """The environment that plays an instance. Raises UsageError for other values."""
    if not isinstance(instance, Instance):
        raise UsageError(f"instance: expected an instance from `evalkit.suite`, got {type(instance).__name__}.")
    return env(instance.environment)
