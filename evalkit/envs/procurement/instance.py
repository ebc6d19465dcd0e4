"""A procurement instance: one line of a suite, checked, and the market it stands for.

Loading a line is cheap: the market is made when an episode starts, and kept for the episodes that follow. A stored
digest and optimum are then compared with what was made: the optimum's plan must be feasible, and cost and support what
the line says. That nothing is better was proven when the line was written; a run does not solve.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evalkit.envs.environment import Parameter
from evalkit.envs.numpy_random_state import MOST_SEED
from evalkit.envs.parameters import check_explicit, checked, generated, text_field
from evalkit.envs.procurement.best import Best, check_best, made_best, read_best, written_best
from evalkit.envs.procurement.explicit import (
    MOST_BUDGET,
    MOST_CATEGORIES,
    MOST_DEALS,
    check_gains,
    read_market,
    read_money,
    write_market,
)
from evalkit.envs.procurement.generate import Made, Shape, native_market, reference_market
from evalkit.envs.procurement.market import ProcurementMarket, market_digest
from evalkit.errors import UsageError, nearest

NAME = "procurement"

MOST_LETTERS = 26
"""Categories the reference's generator has letters for; the native one goes on with AA."""

PARAMETERS: Mapping[str, Parameter] = {
    "categories": Parameter(
        kind=int, help="categories of items, all of which are needed", default=3, least=1, most=MOST_CATEGORIES
    ),
    "products": Parameter(
        kind=int, help="items in all categories together, as many in each", default=12, least=1, most=MOST_DEALS
    ),
    "deals": Parameter(
        kind=int, help="deals on the menu, at least the items; else as many", default=None, least=1, most=MOST_DEALS
    ),
    "p_items": Parameter(kind=float, help="1 / mean number of item slots of a deal", default=0.8, least=0.02, most=1.0),
    "p_quantity": Parameter(
        kind=float, help="1 / mean number of units of an item in a deal", default=0.5, least=0.02, most=1.0
    ),
    "p_budget": Parameter(
        kind=float, help="1 / mean quantity in the plan that the budget pays", default=0.5, least=0.02, most=1.0
    ),
    "effectiveness_least": Parameter(kind=int, help="of an item's effectiveness", default=1, least=1, most=100),
    "effectiveness_most": Parameter(kind=int, help="of an item's effectiveness", default=3, least=1, most=100),
    "slack": Parameter(
        kind=float,
        help="currency the budget has beyond the plan it was made from; else drawn from the seed",
        default=None,
        least=0.0,
        most=1.0,
    ),
    "budget": Parameter(
        kind=float, help="the budget itself, in currency", default=None, least=0.01, most=MOST_BUDGET / 100
    ),
    "periods": Parameter(kind=int, help="plans at most", default=100, least=1, most=10**6),
    "queries": Parameter(kind=int, help="requests a period at most", default=40, least=1, most=10**4),
    "generator": Parameter(
        kind=str,
        help="who makes the market: the reference's generator, ours, or the line itself",
        default="native",
        choices=("reference", "native", "explicit"),
    ),
    "no_action": Parameter(
        kind=str,
        help="a period without an action: go on, or restart it as the reference does",
        default="keep",
        choices=("keep", "restart"),
    ),
    "seed": Parameter(kind=int, help="makes the market", default=0, least=0, most=2**63 - 1),
}

_SHAPE = ("p_items", "p_quantity", "p_budget", "effectiveness_least", "effectiveness_most")
_DRAWN = ("categories", "products", "deals", *_SHAPE, "slack")
"""What only a generator uses."""
_EXPLICIT = ("items", "menu")
_STORED = ("id", "environment", "digest", "optimum")
_MARKETS_KEPT = 256
_OPTIMA_KEPT = 1 << 14
"""A sweep describes its suites twice, one whole suite after another: no market is to be solved twice for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a market follows from."""

    generator: str
    seed: int
    shape: Shape | None
    """None for a market written out."""
    slack: float | None
    budget: int | None
    """Cents; None: made from a plan and the slack."""
    market: ProcurementMarket | None
    """A market written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcurementInstance:
    """One procurement problem and how it is played."""

    id: str
    problem: Problem
    periods: int
    queries: int
    no_action: str
    digest: str = ""
    """Of the market, as the line says; empty: it says nothing."""
    optimum: Best | None = None
    """As the line says."""


def load(line: Mapping[str, Any]) -> ProcurementInstance:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    for key in line:
        if key not in PARAMETERS and key not in _STORED and key not in _EXPLICIT:
            raise UsageError(f"{key}: a {NAME} instance has no such field.{nearest(key, (*PARAMETERS, *_EXPLICIT))}")
    if line.get("environment", NAME) != NAME:
        raise UsageError(f"environment: {line['environment']!r} is not {NAME!r}.")
    values = {name: _value(name, line.get(name, parameter.default)) for name, parameter in PARAMETERS.items()}
    explicit = values["generator"] == "explicit"
    _check_fit(line, values, explicit)
    return ProcurementInstance(
        id=text_field(line, "id"),
        problem=Problem(
            generator=values["generator"],
            seed=values["seed"],
            shape=None if explicit else _shape(values),
            slack=values["slack"],
            budget=values["budget"],
            market=read_market(line["items"], line["menu"], values["budget"]) if explicit else None,
        ),
        periods=values["periods"],
        queries=values["queries"],
        no_action=values["no_action"],
        digest=text_field(line, "digest"),
        optimum=read_best(line.get("optimum")),
    )


def describe(instance: ProcurementInstance) -> dict[str, Any]:
    """An instance as a suite's line, with the market's digest and its optimum. What is not stored is solved for.

    Raises UsageError where no plan within the budget supports anybody: there is nothing to compare with.
    """
    problem, shape = instance.problem, instance.problem.shape
    line: dict[str, Any] = {"id": instance.id, "environment": NAME, "generator": problem.generator}
    line |= {"seed": problem.seed}
    if shape is not None:
        line |= {"categories": shape.categories, "products": shape.products}
        # Left out where they follow, so that a sweep that varies the items varies the deals too.
        line |= {"deals": shape.deals} if shape.deals != shape.products else {}
        line |= {name: getattr(shape, name) for name in _SHAPE}
    line |= {} if problem.slack is None else {"slack": problem.slack}
    line |= {} if problem.budget is None else {"budget": problem.budget / 100}
    line |= {"periods": instance.periods, "queries": instance.queries, "no_action": instance.no_action}
    if problem.market is not None:
        line |= write_market(problem.market)
    digest, best = instance.digest, instance.optimum
    if not digest or best is None:
        market_of(instance)  # what is stored must fit before the rest is added to it
        digest, best = _made(problem)[1], best or _solved(problem)
    if best.product < 1:
        raise UsageError(f"{instance.id}: budget: no plan within it supports a worker.")
    return {**line, "digest": digest, "optimum": written_best(best)}


def optimum_of(instance: ProcurementInstance) -> Best:
    """The stored optimum. Raises UsageError where the line has none: it is solved for when suites are written and when
    runs are planned, not by those who play or score."""
    if instance.optimum is None:
        raise UsageError(f"{instance.id}: optimum: is missing; `describe` adds it.")
    return instance.optimum


def market_of(instance: ProcurementInstance) -> Made:
    """The instance's market and the plan its budget was made from (of no use where it was not).

    Raises UsageError where the line's digest or optimum is not that of the market made.
    """
    made, digest = _made(instance.problem)
    if instance.digest and instance.digest != digest:
        raise UsageError(
            f"{instance.id}: digest: the market made from this line has digest {digest}, the line says "
            f"{instance.digest}. Leave `digest` and `optimum` out if the line was changed on purpose."
        )
    flaw = check_best(made.market, instance.optimum) if instance.optimum else ""
    if flaw:
        raise UsageError(f"{instance.id}: optimum: {flaw}")
    return made


@lru_cache(maxsize=_MARKETS_KEPT)
def _made(problem: Problem) -> tuple[Made, str]:
    """The market and its digest."""
    if problem.market is not None:
        made = Made(market=problem.market, start=(0,) * len(problem.market.deals))
    elif problem.shape is not None:
        make = reference_market if problem.generator == "reference" else native_market
        made = make(problem.shape, problem.seed, problem.slack, problem.budget)
        check_gains(made.market)
    else:
        raise ValueError("a problem has a shape or a market")
    return made, market_digest(made.market)


@lru_cache(maxsize=_OPTIMA_KEPT)
def _solved(problem: Problem) -> Best:
    return made_best(_made(problem)[0])


def stratum(instance: ProcurementInstance) -> str:
    """The market's size, as in `n12k3`: items and categories; markets written out are a group of their own."""
    shape = instance.problem.shape
    return f"n{shape.products}k{shape.categories}" if shape else instance.problem.generator


def likeness(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a line its stratum follows from."""
    return line.get("generator"), line.get("products"), line.get("categories")


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily, each with its optimum: seeds keyed by place.

    With the reference's generator, its instances of the seeds from `seed` on.
    Raises UsageError for parameters that `load` refuses, and for explicit markets.
    """
    return (describe(load(line)) for line in generated(NAME, PARAMETERS, parameters, count, seed))


def _shape(values: Mapping[str, Any]) -> Shape:
    deals = values["products"] if values["deals"] is None else values["deals"]
    return Shape(
        categories=values["categories"],
        products=values["products"],
        deals=deals,
        **{name: values[name] for name in _SHAPE},
    )


def _value(name: str, value: Any) -> Any:
    """A parameter's value; the budget in cents."""
    if name == "budget" and value is not None:
        return read_money(name, value, MOST_BUDGET)
    return checked(PARAMETERS, name, value)


def _check_fit(line: Mapping[str, Any], values: Mapping[str, Any], explicit: bool) -> None:
    """What no field says alone."""
    check_explicit(line, _EXPLICIT, values["generator"])
    if explicit:
        _check_explicit(line, values)
        return
    categories, products = values["categories"], values["products"]
    if products % categories:
        raise UsageError(f"products: {products} items cannot be shared out evenly among {categories} categories.")
    if values["deals"] is not None and values["deals"] < products:
        raise UsageError(f"deals: {values['deals']} deals are too few for {products} items: each is in one at least.")
    if values["effectiveness_least"] > values["effectiveness_most"]:
        raise UsageError("effectiveness_least: is greater than effectiveness_most.")
    if values["slack"] is not None and values["budget"] is not None:
        raise UsageError("slack: says nothing where budget is given.")
    if values["generator"] != "reference":
        return
    if values["seed"] > MOST_SEED:
        raise UsageError(f"seed: {values['seed']} is out of range for the reference's generator (0 to {MOST_SEED}).")
    if categories > MOST_LETTERS:
        raise UsageError(f"categories: {categories} are too many for the reference's generator (1 to {MOST_LETTERS}).")


def _check_explicit(line: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in _DRAWN:
        if line.get(name) is not None:
            raise UsageError(f"{name}: is for markets that are generated; `items` and `menu` say all about this one.")
    if values["budget"] is None:
        raise UsageError("budget: is missing; a market that is written out needs one.")
