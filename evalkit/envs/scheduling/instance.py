"""A scheduling instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: preferences are made when an episode starts, and kept for the episodes that follow. A stored
digest and expected value are then compared with what was made.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalkit.envs.environment import Parameter
from evalkit.envs.numpy_random_state import MOST_SEED, RandomStateSnapshot
from evalkit.envs.parameters import check_explicit, checked, generated, text_field
from evalkit.envs.scheduling.generate import ALIKE, FAMILIES, Gaps, family_of_seed, native_market, reference_market
from evalkit.envs.scheduling.market import (
    MOST_N,
    SchedulingMarket,
    expected_denominator,
    make_market,
    task_ids,
    worker_ids,
)
from evalkit.errors import UsageError, nearest

NAME = "scheduling"

Prefs = tuple[tuple[int, ...], ...]

PARAMETERS: Mapping[str, Parameter] = {
    "n": Parameter(kind=int, help="workers, and as many tasks", default=10, least=1, most=MOST_N),
    "k": Parameter(kind=int, help="blocking pairs shown after an assignment, at most", default=1, least=1, most=10**6),
    "periods": Parameter(kind=int, help="assignments at most", default=100, least=1, most=10**6),
    "queries": Parameter(kind=int, help="requests a period at most", default=40, least=1, most=10**4),
    "family": Parameter(kind=str, help="how preferences are drawn", default=None, choices=tuple(FAMILIES)),
    "generator": Parameter(
        kind=str,
        help="who makes the preferences: the reference's generator, ours, or the line itself",
        default="native",
        choices=("reference", "native", "explicit"),
    ),
    "no_action": Parameter(
        kind=str,
        help="a period without an action: keep the last assignment and go on, or restart it as the reference does",
        default="keep",
        choices=("keep", "restart"),
    ),
    "worker_gap": Parameter(
        kind=float, help="best public score of a worker over the worst; 0: all tasks agree", default=None, least=0.0
    ),
    "task_gap": Parameter(
        kind=float, help="best public score of a task over the worst; 0: all workers agree", default=None, least=0.0
    ),
    "seed": Parameter(kind=int, help="makes preferences and feedback", default=0, least=0, most=2**63 - 1),
}

_MOST_GAP = 1e9
_MARKETS_KEPT = 64
_EXPLICIT = ("worker_prefs", "task_prefs")
_STORED = ("id", "environment", "digest", "expected")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingInstance:
    """One scheduling problem and how it is played."""

    id: str
    generator: str
    seed: int
    n: int
    k: int
    family: str
    """Empty for explicit preferences."""
    periods: int
    queries: int
    no_action: str
    worker_gap: float | None = None
    """Where it is not the family's."""
    task_gap: float | None = None
    worker_prefs: Prefs | None = None
    """Explicit preferences: for each worker, the tasks' indices, best first."""
    task_prefs: Prefs | None = None
    digest: str = ""
    """Of the preferences, as the line says; empty: it says nothing."""
    expected: tuple[int, int] | None = None
    """Expected blocking pairs of a random matching, as the line says: numerator, denominator."""

    @property
    def gaps(self) -> Gaps:
        """The public scores' gaps in force."""
        family = FAMILIES[self.family]
        return Gaps(
            worker=family.worker if self.worker_gap is None else self.worker_gap,
            task=family.task if self.task_gap is None else self.task_gap,
        )


def load(line: Mapping[str, Any]) -> SchedulingInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    for key in line:
        if key not in PARAMETERS and key not in _STORED and key not in _EXPLICIT:
            raise UsageError(f"{key}: a {NAME} instance has no such field.{nearest(key, (*PARAMETERS, *_EXPLICIT))}")
    if line.get("environment", NAME) != NAME:
        raise UsageError(f"environment: {line['environment']!r} is not {NAME!r}.")
    values = {
        name: checked(PARAMETERS, name, line.get(name, parameter.default)) for name, parameter in PARAMETERS.items()
    }
    explicit = values["generator"] == "explicit"
    _check_fit(line, values, explicit)
    if not explicit and values["family"] is None:
        values["family"] = family_of_seed(values["seed"])
    return SchedulingInstance(
        **{**values, "family": values["family"] or ""},
        id=text_field(line, "id"),
        worker_prefs=_prefs(line, "worker_prefs", values["n"]) if explicit else None,
        task_prefs=_prefs(line, "task_prefs", values["n"]) if explicit else None,
        digest=text_field(line, "digest"),
        expected=_fraction(line.get("expected")),
    )


def describe(instance: SchedulingInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the digest of its preferences and the exact expected value.

    A family that follows from the reference's seed is left out, so that a sweep that varies the seed varies it too.
    """
    line: dict[str, Any] = {"id": instance.id, "environment": NAME, "generator": instance.generator}
    line |= {"seed": instance.seed, "n": instance.n, "k": instance.k}
    follows = instance.generator == "reference" and instance.family == family_of_seed(instance.seed)
    if instance.family and not follows:
        line["family"] = instance.family
    line |= {
        name: getattr(instance, name) for name in ("worker_gap", "task_gap") if getattr(instance, name) is not None
    }
    line |= {"periods": instance.periods, "queries": instance.queries, "no_action": instance.no_action}
    if instance.worker_prefs is not None and instance.task_prefs is not None:
        workers, tasks = worker_ids(instance.n), task_ids(instance.n)
        line["worker_prefs"] = _named(instance.worker_prefs, workers, tasks)
        line["task_prefs"] = _named(instance.task_prefs, tasks, workers)
    digest, expected = instance.digest, instance.expected
    if not digest or expected is None:
        market, _ = market_of(instance)
        digest, expected = market.digest, (market.numerator, expected_denominator(market.n))
    return {**line, "digest": digest, "expected": list(expected)}


def expected_of(instance: SchedulingInstance) -> tuple[int, int]:
    """Expected blocking pairs of a random matching, exactly: numerator and denominator."""
    if instance.expected is not None:
        return instance.expected
    return market_of(instance)[0].numerator, expected_denominator(instance.n)


def market_of(instance: SchedulingInstance) -> tuple[SchedulingMarket, RandomStateSnapshot | None]:
    """The instance's market, and where the reference's generator stands after making it (None for the others).

    Raises UsageError where the line's digest or expected value is not that of the preferences made.
    """
    if instance.worker_prefs is not None and instance.task_prefs is not None:
        market, random_state = _explicit_market(instance.worker_prefs, instance.task_prefs), None
    else:
        market, random_state = _made_market(instance.generator, instance.n, instance.seed, instance.gaps)
    if instance.digest and instance.digest != market.digest:
        raise UsageError(
            f"{instance.id}: digest: the preferences made from this line have digest {market.digest}, the line says "
            f"{instance.digest}. Leave `digest` and `expected` out if the line was changed on purpose."
        )
    made = (market.numerator, expected_denominator(market.n))
    if instance.expected is not None and instance.expected[0] * made[1] != made[0] * instance.expected[1]:
        raise UsageError(f"{instance.id}: expected: it is {list(made)}, the line says {list(instance.expected)}.")
    return market, random_state


@lru_cache(maxsize=_MARKETS_KEPT)
def _made_market(generator: str, n: int, seed: int, gaps: Gaps) -> tuple[SchedulingMarket, RandomStateSnapshot | None]:
    if generator == "reference":
        return reference_market(n, seed, gaps)
    return native_market(n, seed, gaps), None


@lru_cache(maxsize=_MARKETS_KEPT)
def _explicit_market(worker_prefs: Prefs, task_prefs: Prefs) -> SchedulingMarket:
    return make_market(worker_prefs, task_prefs)


def stratum(instance: SchedulingInstance) -> str:
    """The preference family; instances with preferences of their own are a group of their own."""
    return instance.family or instance.generator


def likeness(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a line its stratum follows from. Raises TypeError for a seed that is no number."""
    family = line.get("family")
    if family is None:
        family = family_of_seed(line.get("seed", PARAMETERS["seed"].default))
    return line.get("generator"), family


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily: seeds keyed by place, families in turn unless one is asked for.

    With the reference's generator, its instances of the seeds from `seed` on.
    Raises UsageError for parameters that `load` refuses, and for explicit preferences.
    """
    lines = generated(NAME, PARAMETERS, parameters, count, seed, families=tuple(FAMILIES))
    return (describe(load(line)) for line in lines)


def _check_fit(line: Mapping[str, Any], values: Mapping[str, Any], explicit: bool) -> None:
    """What no field says alone."""
    for name in ("worker_gap", "task_gap"):
        gap = values[name]
        if gap is not None and gap != ALIKE and not 1 <= gap <= _MOST_GAP:
            raise UsageError(f"{name}: {gap} is out of range (1 to {_MOST_GAP:.0f}, or 0 for one common order).")
    check_explicit(line, _EXPLICIT, values["generator"])
    if explicit and any(values[name] is not None for name in ("family", "worker_gap", "task_gap")):
        raise UsageError("family: explicit preferences have no family and no gaps.")
    if values["generator"] == "reference" and values["seed"] > MOST_SEED:
        raise UsageError(f"seed: {values['seed']} is out of range for the reference's generator (0 to {MOST_SEED}).")


def _fraction(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    fits = isinstance(value, Sequence) and len(value) == 2 and all(type(part) is int for part in value)
    if not fits or value[0] < 0 or value[1] < 1:
        raise UsageError(f"expected: expected [numerator, denominator], got {value!r}.")
    return value[0], value[1]


def _prefs(line: Mapping[str, Any], name: str, n: int) -> Prefs:
    """`{"W1": ["T3", ...], ...}` (or tasks over workers) as rows of indices. Raises UsageError naming the row."""
    own, others = worker_ids(n), task_ids(n)
    if name == "task_prefs":
        own, others = others, own
    table = line[name]
    if not isinstance(table, Mapping) or table.keys() != set(own):
        raise UsageError(f"{name}: expected an object with the keys {own[0]} to {own[-1]}.")
    index = {other: i for i, other in enumerate(others)}
    rows = []
    for owner in own:
        row = table[owner]
        wanted = isinstance(row, Sequence) and len(row) == n and all(isinstance(other, str) for other in row)
        if not wanted or set(row) != index.keys():
            raise UsageError(f"{name}.{owner}: expected a list with each of {others[0]} to {others[-1]} once.")
        rows.append(tuple(index[other] for other in row))
    return tuple(rows)


def _named(prefs: Prefs, own: Sequence[str], others: Sequence[str]) -> dict[str, list[str]]:
    return {owner: [others[i] for i in row] for owner, row in zip(own, prefs, strict=True)}
