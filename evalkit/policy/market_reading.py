"""What the market environments' getters say, whatever their wording: menus, budgets, plans and their results, prices.

The texts are the prompt pack's. So only what every wording must hold is read: ids, numbers, the dollar sign and the
order of things. A text may be plain, or the repr (or JSON) of a one-key mapping, whose newlines and quotes are escaped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_ESCAPES = re.compile(r"""\\([nrt'"\\])""")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_ANY_NUMBER = re.compile(_NUMBER)
_DECIMAL = re.compile(r"-?\d+\.\d+")
_DEAL = re.compile(r"^[^$\n]*?\b([A-Za-z][\w.-]*): ([^:\n]+)$", re.MULTILINE)
_CONTENT = re.compile(r"(\d+)[^\d$]*?\b([A-Za-z][A-Za-z_.-]*)(\d+)\b")
_MONEY = re.compile(r"\$\s*(\d+)(?:\.(\d\d?))?(?!\d)")
_WHOLE = re.compile(r"\d+")
# A quantity of zero says nothing, and most of a long plan is zeros.
_ENTRY = re.compile(r"""['"]([^'"{}:,]+)['"]\s*:\s*(-?(?:[1-9][\d.eE+-]*|0\.[\d.eE+-]*)|[^\s\d,}-][^,}]*)""")
_LABELS = (("price",), ("quantit", "sold", "unit"), ("profit", "earn"), ("cost",))


def unwrapped(text: str) -> str:
    """The text with its escapes undone where it is the repr of a mapping; otherwise as it is."""
    if not text.lstrip().startswith("{") or "\\" not in text:
        return text
    return unescaped(text)


def unescaped(text: str) -> str:
    """The text with its escapes undone."""
    return _ESCAPES.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def whole(text: str) -> int | None:
    """The first whole number in a text, such as a period's."""
    match = _WHOLE.search(text)
    return int(match[0]) if match else None


def hint(text: str) -> float | None:
    """The last number with decimals in a text, such as the highest sensible price in an opening; None without one."""
    numbers = _DECIMAL.findall(text)
    return abs(float(numbers[-1])) if numbers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDeal:
    """One line of the menu."""

    id: str
    price: int
    """Cents a unit."""
    fixed: int
    """Cents upfront; 0 for none."""
    least: int
    """Units at least, if any are bought; 1 where nothing is said."""
    contents: tuple[tuple[str, int], ...]
    """(item, units of it in one unit of the deal), in order."""

    def cost(self, quantity: int) -> int:
        """Cents of so many units."""
        return self.fixed + self.price * quantity if quantity else 0

    def most(self, cents: int) -> int:
        """Units that so much money pays; 0 if it does not pay the least."""
        units = max(0, cents - self.fixed) // max(1, self.price)
        return units if units >= self.least else 0


@lru_cache(maxsize=64)
def read_menu(text: str) -> tuple[ReadDeal, ...]:
    """The deals of a menu: lines `id: ... price for units of items`.

    Of the amounts with a dollar sign before the contents the last is the price of a unit, another one is upfront; a
    number without one is the least quantity. Lines without a price or contents are not deals.
    """
    deals = []
    for name, rest in _DEAL.findall(unwrapped(text)):
        contents = list(_CONTENT.finditer(rest))
        if not contents:
            continue
        head = rest[: contents[0].start()]
        amounts = [int(units) * 100 + int(cents.ljust(2, "0") or 0) for units, cents in _MONEY.findall(head)]
        bare = _ANY_NUMBER.findall(_MONEY.sub("", head))
        if amounts:
            deals.append(
                ReadDeal(
                    id=name,
                    price=amounts[-1],
                    fixed=sum(amounts[:-1]),
                    least=int(float(bare[0])) if bare else 1,
                    contents=tuple((content[2] + content[3], int(content[1])) for content in contents),
                )
            )
    return tuple(deals)


def read_budget(text: str) -> int | None:
    """A budget in cents: the last number of the text."""
    numbers = _ANY_NUMBER.findall(text)
    return round(float(numbers[-1]) * 100) if numbers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPlan:
    """A plan that was carried out, as the history shows it."""

    quantities: Mapping[str, int]
    """ReadDeal -> units of it, those of none left out."""
    workers: float
    """As shown: two decimals."""


def read_purchases(text: str, deals: Sequence[ReadDeal], budget: int) -> list[PastPlan]:
    """The feasible plans of a history, in order, each with its workers.

    Whether a plan is feasible, and what it costs, follows from the menu: of the numbers with decimals after it, the
    cost is recognised by its value, and the one before it (after it, if none is) is the workers. Plans for which that
    fails are left out.
    """
    by_id = {deal.id: deal for deal in deals}
    purchases = []
    text = unwrapped(text)
    # The repr's own brace opens no plan: what follows it holds none of the deals' quantities before the next brace.
    for part in text.split("{")[1:]:
        inside, closed, tail = part.partition("}")
        quantities = _quantities(inside, by_id) if closed else None
        cost = _feasible_cost(quantities, by_id, budget) if quantities else None
        workers = _workers(tail, cost / 100) if cost is not None else None
        if quantities and workers is not None:
            purchases.append(PastPlan(quantities=quantities, workers=workers))
    return purchases


def _quantities(inside: str, by_id: Mapping[str, ReadDeal]) -> dict[str, int] | None:
    """A plan's quantities other than zero; None if one is not a natural number or belongs to no deal."""
    quantities = {}
    for name, value in _ENTRY.findall(inside):
        try:
            quantity = float(value)
        except ValueError:
            return None
        if name not in by_id or not quantity.is_integer() or quantity < 0:
            return None
        quantities[name] = int(quantity)
    return quantities


def _feasible_cost(quantities: Mapping[str, int], by_id: Mapping[str, ReadDeal], budget: int) -> int | None:
    if any(quantity < by_id[name].least for name, quantity in quantities.items()):
        return None
    cost = sum(by_id[name].cost(quantity) for name, quantity in quantities.items())
    return cost if cost <= budget else None


def _workers(tail: str, cost: float) -> float | None:
    numbers = [float(digits) for digits in _DECIMAL.findall(tail)[:4]]
    indices = [i for i, number in enumerate(numbers) if abs(number - cost) < 0.006]
    if not indices or len(numbers) < 2:
        return None
    # Where the workers happen to equal the cost, either of the two will do.
    return numbers[indices[-1] - 1] if indices[-1] else numbers[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sold:
    """One product in one period, as the history shows it: all with two decimals."""

    price: float
    quantity: float
    profit: float
    cost: float


def read_sales(text: str, products: Sequence[str]) -> dict[int, dict[str, Sold]]:
    """Period -> product -> what was sold, from a history of blocks of four numbers after each product's id.

    Numbers are distinguished by their labels, or, where the words are others, by their order: price, quantity, profit,
    cost. A period's index is the last whole number between the blocks, if it is greater than the one before it.
    """
    if not products:
        return {}
    text = unwrapped(text)
    names = "|".join(map(re.escape, sorted(products, key=len, reverse=True)))
    gap = rf"([^\d]*?)({_NUMBER})"
    block = re.compile(rf"(?<![\w-])({names})(?![\w-])" + gap * 4)
    sales: dict[int, dict[str, Sold]] = {}
    period, end = -1, 0
    for match in block.finditer(text):
        period = _period(text[end : match.start()], match[1], sales.get(period), period)
        end = match.end()
        sold = _sold(match.groups()[1::2], [float(number) for number in match.groups()[2::2]])
        sales.setdefault(period, {})[match[1]] = sold
    return sales


def _period(between: str, product: str, so_far: Mapping[str, Sold] | None, last: int) -> int:
    if so_far is not None and product not in so_far:
        return last
    stated = [int(number) for number in _WHOLE.findall(between)]
    return stated[-1] if stated and last < stated[-1] <= last + 10_000 else last + 1


def _sold(labels: Sequence[str], numbers: Sequence[float]) -> Sold:
    """Four numbers in the order price, quantity, profit, cost, if their labels name no other."""
    ordered: list[float] = []
    for words in _LABELS:
        named = [i for i, label in enumerate(labels) if any(word in label.lower() for word in words)]
        if len(named) != 1:
            ordered = list(numbers)
            break
        ordered.append(numbers[named[0]])
    price, quantity, profit, cost = ordered
    return Sold(price=price, quantity=quantity, profit=profit, cost=cost)
