"""A procurement instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: the market is made when an episode starts, and kept for the episodes that follow. A stored
digest and optimum are then compared with what was made: the optimum's plan must be feasible, and cost and support what
the line says. That nothing is better was proven when the line was written; a run does not solve.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from evalkit.envs.environment import Parameter
from evalkit.envs.mersenne import MOST_SEED
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
from evalkit.envs.procurement.best import Best, check_best, made_best
from evalkit.envs.procurement.explicit import (
    MOST_BUDGET,
    Items,
    Menu,
    Money,
    check_gains,
    read_market,
    read_money,
    write_market,
)
from evalkit.envs.procurement.generate import MadeMarket, Shape, native_market, reference_market
from evalkit.envs.procurement.market import PRODUCT, market_digest
from evalkit.errors import UsageError, WeakInstanceError

NAME: Final = "procurement"

MOST_REFERENCE = {"seed": MOST_SEED, "categories": 26}
"""Of numbers for the reference's generator: it has 26 letters for categories; the native one continues with AA."""

_SHAPE = ("p_items", "p_quantity", "p_budget", "effectiveness_least", "effectiveness_most")
_RANGES = (("effectiveness_least", "effectiveness_most"), ("price_low", "price_high"), ("bulk_least", "bulk_most"))
"""What is drawn between two bounds."""
_SPARSE = (
    *("price_low", "price_high", "bulk_least", "bulk_most", "weight_basic", "weight_two_part", "weight_bulk"),
    "aggregate",
)
_DRAWN = ("categories", "products", "deals", *_SHAPE, *_SPARSE[:-1], "slack")
"""What only a generator uses."""
_EXPLICIT = ("items", "menu")
_PLAYED = ("periods", "queries", "no_action")
_MARKETS_KEPT = 256
_OPTIMA_KEPT = 1 << 14
"""A sweep describes its suites twice, one whole suite after another: no market is to be solved twice for that."""


class ProcurementInstance(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One procurement problem and how it is played: a suite's line."""

    slack: (
        Annotated[
            float,
            Meta(
                ge=0.0,
                le=1.0,
                description="currency the budget has beyond the plan it was made from; else drawn from the seed",
            ),
        ]
        | None
    ) = None
    budget: Annotated[Money, Meta(description="the budget itself, in currency")] | None = None
    periods: Annotated[Periods, Meta(description="plans at most")] = 100
    queries: Queries = 40
    generator: Annotated[
        Generator, Meta(description="who makes the market: the reference's generator, ours, or the line itself")
    ] = "native"
    no_action: Annotated[
        NoAction, Meta(description="a period without an action: go on, or restart it as the reference does")
    ] = "keep"
    seed: Annotated[Seed, Meta(description="makes the market")] = 0
    items: Items | None = None
    menu: Menu | None = None
    id: str = ""
    environment: Literal["procurement"] = NAME
    digest: str = ""
    """Of the market, as the line says; empty: it says nothing."""
    optimum: Best | None = None
    """As the line says."""

    @property
    def cents(self) -> int | None:
        """The budget; None: made from a plan and the slack."""
        return None if self.budget is None else read_money("budget", self.budget, MOST_BUDGET)

    def root(self, totals: Sequence[int]) -> int:
        """Workers are which root of what plans are compared by."""
        return len(totals) if self.aggregate == PRODUCT else 1

    @property
    def problem(self) -> "ProcurementInstance":
        """What its market follows from, alike for all that are played on it."""
        return msgspec.structs.replace(self, id="", digest="", optimum=None, periods=1, queries=1, no_action="keep")


PARAMETERS = parameters_of(ProcurementInstance)
PARAMETERS["budget"] = Parameter(
    kind=float, help=PARAMETERS["budget"].help, default=None, least=0.01, most=MOST_BUDGET / 100
)


def load(line: Mapping[str, Any]) -> ProcurementInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    instance = read_line(line, ProcurementInstance, NAME)
    check_explicit(line, _EXPLICIT, instance.generator)
    if instance.generator == "explicit":
        _check_explicit(line, instance)
    else:
        _check_fit(instance)
    return instance


def describe(instance: ProcurementInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the market's digest and its optimum. What is not stored is solved for.

    Raises UsageError if no plan within the budget supports anybody: there is nothing to compare with.
    """
    digest, best = instance.digest, instance.optimum
    if not digest or best is None:
        market_of(instance)  # what is stored must fit before the rest is added to it
        problem = instance.problem
        digest, best = _made(problem)[1], best or _solved(problem)
    if best.product < 1:
        raise WeakInstanceError(f"{instance.id}: budget: no plan within it supports a worker.")
    names = ["id", "environment", "generator", "seed"]
    if instance.generator != "explicit":
        # Deals are left out where they follow, so that a sweep that varies the items varies the deals too.
        names += [name for name in _DRAWN if name != "deals" or instance.offered != instance.products]
    line = written(instance, (*names, "aggregate", "budget", *_PLAYED), _SPARSE)
    if instance.cents is not None:
        line["budget"] = instance.cents / 100
    if instance.generator == "explicit":
        line |= write_market(_made(instance.problem)[0].market)
    return {**line, "digest": digest, "optimum": msgspec.to_builtins(best)}


def optimum_of(instance: ProcurementInstance) -> Best:
    """The stored optimum. Raises UsageError if the line has none: it is solved for when suites are written and when
    runs are planned, not by those who play or score."""
    if instance.optimum is None:
        raise UsageError(f"{instance.id}: optimum: is missing; `describe` adds it.")
    return instance.optimum


def market_of(instance: ProcurementInstance) -> MadeMarket:
    """The instance's market and the plan its budget was made from (of no use where it was not).

    Raises UsageError if the line's digest or optimum is not that of the market made.
    """
    made, digest = _made(instance.problem)
    check_digest(instance.id, instance.digest, digest)
    flaw = check_best(made.market, instance.optimum) if instance.optimum else ""
    if flaw:
        raise UsageError(f"{instance.id}: optimum: {flaw}")
    return made


@lru_cache(maxsize=_MARKETS_KEPT)
def _made(problem: ProcurementInstance) -> tuple[MadeMarket, str]:
    """The market and its digest."""
    if problem.items and problem.menu:
        market = replace(read_market(problem.items, problem.menu, problem.cents or 0), aggregate=problem.aggregate)
        made = MadeMarket(market=market, start=(0,) * len(market.deals))
    else:
        make = reference_market if problem.generator == "reference" else native_market
        made = make(problem, problem.seed, problem.slack, problem.cents)
        check_gains(made.market)
    return made, market_digest(made.market)


@lru_cache(maxsize=_OPTIMA_KEPT)
def _solved(problem: ProcurementInstance) -> Best:
    return made_best(_made(problem)[0])


def stratum(instance: ProcurementInstance) -> str:
    """The market's size, as in `n12k3`: items and categories; markets written out are a group of their own."""
    explicit = instance.generator == "explicit"
    return instance.generator if explicit else f"n{instance.products}k{instance.categories}"


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily, each with its optimum: seeds keyed by place.

    With the reference's generator, its instances of the seeds from `seed` on.
    Raises UsageError for parameters that `load` refuses, and for explicit markets.
    """
    return generated(NAME, PARAMETERS, parameters, count, seed, lambda line: describe(load(line)))


def _check_fit(instance: ProcurementInstance) -> None:
    """What no field says alone."""
    categories, products = instance.categories, instance.products
    if products % categories:
        raise UsageError(f"products: {products} items cannot be shared out evenly among {categories} categories.")
    if instance.offered < products:
        raise UsageError(f"deals: {instance.deals} deals are too few for {products} items: each is in one at least.")
    for lower, upper in _RANGES:
        if getattr(instance, lower) > getattr(instance, upper):
            raise UsageError(f"{lower}: is greater than {upper}.")
    if not instance.kinds:
        raise UsageError("weight_basic: some kind of deal needs a weight above 0.")
    if instance.cents is not None and instance.slack is not None:
        raise UsageError("slack: says nothing where budget is given.")
    if instance.generator == "reference":
        check_most(instance, MOST_REFERENCE)


def _check_explicit(line: Mapping[str, Any], instance: ProcurementInstance) -> None:
    for name in _DRAWN:
        if line.get(name) is not None:
            raise UsageError(f"{name}: is for markets that are generated; `items` and `menu` say all about this one.")
    if instance.cents is None:
        raise UsageError("budget: is missing; a market that is written out needs one.")
    read_market(instance.items or (), instance.menu or (), instance.cents)
