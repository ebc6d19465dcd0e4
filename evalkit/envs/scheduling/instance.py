"""A scheduling instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: preferences are made when an episode starts, and kept for the episodes that follow. A stored
digest and expected value are then compared with what was made.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from evalkit.envs.mersenne import MOST_SEED, RandomStateSnapshot, RandomStateStream
from evalkit.envs.parameters import (
    Generator,
    NoAction,
    Periods,
    Queries,
    Seed,
    check_digest,
    check_explicit,
    check_most,
    generated,
    parameters_of,
    read_line,
    written,
)
from evalkit.envs.scheduling.market import (
    MOST_N,
    SchedulingMarket,
    expected_denominator,
    make_market,
    task_ids,
    worker_ids,
)
from evalkit.errors import UsageError
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Places = npt.NDArray[np.int64]


# Preferences from a seed: the reference's generator, draw for draw, and the native one for any size and number.
#
# Four families, as in the paper's appendix D.1. Public scores make preferences correlated: each scored id has a score
# on a ladder, and everybody who ranks it draws a latent value with that mean.
#
# Differs: the paper draws public scores uniformly from [1, 3] and prefers the smaller latent value; the reference
# code, which made the published data, shuffles a geometric ladder from 1 to the gap and prefers the larger. Both
# generators do as the code does.

ALIKE = 0.0
"""The gap that stands for: everybody ranks this side in the same, uniformly drawn order."""

DIFFICULTIES = {"basic": (10, 1), "medium": (20, 2), "hard": (50, 5)}
"""The paper's levels: number of workers, and blocking pairs shown at most."""

REFERENCE_SEEDS = range(12)
"""The seeds of the paper's twelve instances a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How far public scores lie apart: the best one over the worst; 1 is uniform preferences, `ALIKE` is one order."""

    worker: float
    """Of the workers' scores, by which tasks rank them."""
    task: float
    """Of the tasks' scores, by which workers rank them."""


Family = Literal["uniform", "correlated", "correlated_identical", "uniform_identical"]
FAMILIES: Mapping[Family, Gaps] = {
    "uniform": Gaps(worker=1.0, task=1.0),
    "correlated": Gaps(worker=3.0, task=3.0),
    "correlated_identical": Gaps(worker=ALIKE, task=3.0),
    "uniform_identical": Gaps(worker=ALIKE, task=1.0),
}
"""Preference families in the order of the reference's seeds: three seeds each."""


def family_of_seed(seed: int) -> Family:
    """The family the reference gives to a seed: by its remainder after division by 12, three to a family."""
    return tuple(FAMILIES)[seed % 12 // 3]


def reference_market(n: int, seed: int, gaps: Gaps) -> tuple[SchedulingMarket, RandomStateSnapshot]:
    """The reference's instance, and where its generator then stands: feedback keeps drawing from there."""
    stream = RandomStateStream(seed)
    worker_prefs = _reference_side(stream, n, gaps.task)
    task_prefs = _reference_side(stream, n, gaps.worker)
    return make_market(worker_prefs, task_prefs), stream.freeze()


def native_market(n: int, seed: int, gaps: Gaps) -> SchedulingMarket:
    """An instance of the native generator: each draw keyed by its place."""
    return make_market(_native_side(n, seed, "tasks", gaps.task), _native_side(n, seed, "workers", gaps.worker))


def _reference_side(stream: RandomStateStream, n: int, gap: float) -> "Places | list[list[int]]":
    """Preference lists (n, n) over one side, best first."""
    if gap == ALIKE:
        return [stream.permutation(n)] * n
    scores = _shuffled_ladder(n, gap, stream.permutation)
    return _by_latent(stream.exponentials(scores, n))


def _native_side(n: int, seed: int, side: str, gap: float) -> "Places | list[list[int]]":
    import numpy as np

    if gap == ALIKE:
        return [Stream(seed, "scheduling", side, "order").permutation(n)] * n
    scores = _shuffled_ladder(n, gap, Stream(seed, "scheduling", side, "scores").permutation)
    uniforms = Stream(seed, "scheduling", side, "latent").uniforms(n * n).reshape(n, n)
    return _by_latent(-np.log1p(-uniforms) * np.asarray(scores))


def _shuffled_ladder(n: int, gap: float, permutation: Callable[[int], Sequence[int]]) -> list[float]:
    """Public scores gap^(i/(n-1)), i = 0..n-1, in random order. The order is drawn even where all scores are 1."""
    steps = max(n - 1, 1)
    ladder = [math.pow(gap, i / steps) for i in range(n)]
    return [ladder[i] for i in permutation(n)]


def _by_latent(latent: "Doubles") -> "Places":
    """Lists of ids by latent value, the largest first. latent (n, n): [who ranks, who is ranked]."""
    import numpy as np

    order: Places = np.argsort(-latent, axis=1, kind="stable")
    return order


NAME: Final = "scheduling"

Prefs = tuple[tuple[int, ...], ...]

_MARKETS_KEPT = 64
_EXPLICIT = ("worker_prefs", "task_prefs")
_WRITTEN = (
    *("id", "environment", "generator", "seed", "n", "k", "family", "worker_gap", "task_gap"),
    *("shown", "periods", "queries", "no_action", *_EXPLICIT, "digest", "expected"),
)

Gap = Annotated[float, Meta(ge=0.0)]
_MOST_GAP = 1e9


class SchedulingInstance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scheduling problem and how it is played: a suite's line, whose family is settled."""

    n: Annotated[int, Meta(ge=1, le=MOST_N, description="workers, and as many tasks")] = 10
    k: Annotated[int, Meta(ge=1, le=10**6, description="blocking pairs shown after an assignment, at most")] = 1
    shown: Annotated[
        Literal["random", "first"],
        Meta(description="which blocking pairs are shown: k at random, as in the reference, or the first k in order"),
    ] = "random"
    periods: Annotated[Periods, Meta(description="assignments at most")] = 100
    queries: Queries = 40
    family: Annotated[Family, Meta(description="how preferences are drawn")] | None = None
    generator: Annotated[
        Generator, Meta(description="who makes the preferences: the reference's generator, ours, or the line itself")
    ] = "native"
    no_action: Annotated[
        NoAction,
        Meta(
            description="a period without an action: keep the last assignment and go on, or restart it as the "
            "reference does"
        ),
    ] = "keep"
    worker_gap: (
        Annotated[Gap, Meta(description="best public score of a worker over the worst; 0: all tasks agree")] | None
    ) = None
    task_gap: (
        Annotated[Gap, Meta(description="best public score of a task over the worst; 0: all workers agree")] | None
    ) = None
    seed: Annotated[Seed, Meta(description="makes preferences and feedback")] = 0
    worker_prefs: dict[str, tuple[str, ...]] | None = None
    """Explicit preferences: for each worker, the tasks, best first."""
    task_prefs: dict[str, tuple[str, ...]] | None = None
    id: str = ""
    environment: Literal["scheduling"] = NAME
    digest: str = ""
    """Of the preferences, as the line says; empty: it says nothing."""
    expected: (
        Annotated[tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=1)]], Meta(title="[numerator, denominator]")]
        | None
    ) = None
    """Expected blocking pairs of a random matching, as the line says."""

    @property
    def gaps(self) -> Gaps:
        """The public scores' gaps in force."""
        family = FAMILIES[self.family or family_of_seed(self.seed)]
        return Gaps(
            worker=family.worker if self.worker_gap is None else self.worker_gap,
            task=family.task if self.task_gap is None else self.task_gap,
        )


PARAMETERS = parameters_of(SchedulingInstance)


def load(line: Mapping[str, Any]) -> SchedulingInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    instance = read_line(line, SchedulingInstance, NAME)
    _check_fit(line, instance)
    if instance.family is None and instance.generator != "explicit":
        return msgspec.structs.replace(instance, family=family_of_seed(instance.seed))
    return instance


def describe(instance: SchedulingInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the digest of its preferences and the exact expected value.

    A family that follows from the reference's seed is left out, so that a sweep that varies the seed varies it too.
    """
    if not instance.digest or instance.expected is None:
        market, _ = market_of(instance)
        made = (market.numerator, expected_denominator(market.n))
        instance = msgspec.structs.replace(instance, digest=market.digest, expected=made)
    line = written(instance, _WRITTEN, ("shown",))
    if instance.generator == "reference" and instance.family == family_of_seed(instance.seed):
        del line["family"]
    for name, owners in (("worker_prefs", worker_ids(instance.n)), ("task_prefs", task_ids(instance.n))):
        if name in line:
            line[name] = {owner: line[name][owner] for owner in owners}
    return line


def expected_of(instance: SchedulingInstance) -> tuple[int, int]:
    """Expected blocking pairs of a random matching, exactly: numerator and denominator."""
    if instance.expected is not None:
        return instance.expected
    return market_of(instance)[0].numerator, expected_denominator(instance.n)


def market_of(instance: SchedulingInstance) -> tuple[SchedulingMarket, RandomStateSnapshot | None]:
    """The instance's market, and where the reference's generator stands after making it (None for the others).

    Raises UsageError if the line's digest or expected value is not that of the preferences made.
    """
    if instance.worker_prefs is not None and instance.task_prefs is not None:
        market, random_state = _explicit_market(*_rows(instance)), None
    else:
        market, random_state = _made_market(instance.generator, instance.n, instance.seed, instance.gaps)
    check_digest(
        instance.id, instance.digest, market.digest, of="the preferences made from this line have", beside="expected"
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


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily: seeds keyed by place, families in turn unless one is asked for.

    With the reference's generator, its instances of the seeds from `seed` on.
    Raises UsageError for parameters that `load` refuses, and for explicit preferences.
    """
    families = tuple(FAMILIES)
    return generated(NAME, PARAMETERS, parameters, count, seed, lambda line: describe(load(line)), families=families)


def _check_fit(line: Mapping[str, Any], instance: SchedulingInstance) -> None:
    """What no field says alone."""
    for name in ("worker_gap", "task_gap"):
        gap = getattr(instance, name)
        if gap is not None and gap != ALIKE and not 1 <= gap <= _MOST_GAP:
            raise UsageError(f"{name}: {gap} is out of range (1 to {_MOST_GAP:.0f}, or 0 for one common order).")
    check_explicit(line, _EXPLICIT, instance.generator)
    if instance.generator == "reference":
        check_most(instance, {"seed": MOST_SEED})
    if instance.generator == "explicit":
        if any(value is not None for value in (instance.family, instance.worker_gap, instance.task_gap)):
            raise UsageError("family: explicit preferences have no family and no gaps.")
        _rows(instance)


def _rows(instance: SchedulingInstance) -> tuple[Prefs, Prefs]:
    """Explicit preferences of workers and of tasks as rows of indices. Raises UsageError naming the row."""
    workers, tasks = worker_ids(instance.n), task_ids(instance.n)
    return (
        _prefs("worker_prefs", instance.worker_prefs or {}, workers, tasks),
        _prefs("task_prefs", instance.task_prefs or {}, tasks, workers),
    )


def _prefs(name: str, table: Mapping[str, tuple[str, ...]], own: tuple[str, ...], others: tuple[str, ...]) -> Prefs:
    if table.keys() != set(own):
        raise UsageError(f"{name}: expected an object with the keys {own[0]} to {own[-1]}.")
    index = {other: i for i, other in enumerate(others)}
    for owner in own:
        if len(table[owner]) != len(others) or set(table[owner]) != index.keys():
            raise UsageError(f"{name}.{owner}: expected a list with each of {others[0]} to {others[-1]} once.")
    return tuple(tuple(index[other] for other in table[owner]) for owner in own)
