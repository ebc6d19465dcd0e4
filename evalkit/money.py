"""Money as an integer count of pico-dollars (1e-12 USD).

One USD per million tokens is exactly 1,000,000 pico-dollars per token, so list prices are whole numbers. Sums are exact
and do not depend on the order in which episodes finish.
"""

from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import NewType

from evalkit.dialogue import Usage

PicoUsd = NewType("PicoUsd", int)

PICO_PER_USD = 10**12
_PICO_PER_TOKEN_AT_ONE_USD_PER_MTOK = 10**6

MOST_USD = 9_000_000
"""The log holds amounts as 64-bit integers, which end at 9,223,372 USD."""
MOST_USD_PER_MTOK = 2_000
"""At this price, a reply of the most tokens that evalkit accepts (2^31 in and out) still costs less than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one token costs, in pico-dollars per token."""

    input: int
    output: int
    cached_read: int
    """An input token read from the prompt cache."""
    cached_write: int
    """An input token written to the prompt cache."""
    lasting: int = 0
    """What it costs more to write one that is kept for longer, if requests ask for that."""
    request: int = 0
    """A fixed charge per request, in pico-dollars."""
    over: int = 0
    """If a prompt has more input tokens than this, the rates below apply to all its tokens and to its reply; 0: the
    same rates apply to all prompts."""
    over_input: int = 0
    over_output: int = 0
    over_cached_read: int = 0
    over_cached_write: int = 0
    over_lasting: int = 0

    def of(self, usage: Usage) -> PicoUsd:
        """The cost of one reply: cached tokens at their own rates, the rest of the input at the list rate."""
        plain = usage.input - usage.cached_read - usage.cached_write
        if self.over and usage.input > self.over:
            rate, read, write, lasting = (
                self.over_input,
                self.over_cached_read,
                self.over_cached_write,
                self.over_lasting,
            )
            output = self.over_output
        else:
            rate, read, write, lasting = self.input, self.cached_read, self.cached_write, self.lasting
            output = self.output
        cached = usage.cached_read * read + usage.cached_write * write + usage.lasting * lasting
        return PicoUsd(self.request + plain * rate + cached + usage.output * output)

    def times(self, factor: Decimal) -> "Price":
        """Every rate so many times as high, rounded up to a whole pico-dollar; `over` stays."""
        rates = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "over"}
        return replace(self, **{name: pico_at_least(rate * factor) for name, rate in rates.items()})

    def writing(self, times: int) -> "Price":
        """The same where requests ask for a cache that is written at so many times the price of input."""
        more = max(0, times * self.input - self.cached_write), max(0, times * self.over_input - self.over_cached_write)
        return replace(self, lasting=more[0], over_lasting=more[1])

    @property
    def caching_may_cost(self) -> bool:
        """Whether a cached token may cost more than one that is not."""
        dearest = max(self.cached_read, self.cached_write + self.lasting)
        long = max(self.over_cached_read, self.over_cached_write + self.over_lasting)
        return dearest > self.input or long > self.over_input

    def most(self, usage: Usage, *, input_tokens: int, output_tokens: int) -> PicoUsd:
        """An upper bound of the cost of one reply with some unknown figures. Unknown input and output are taken at
        these bounds, and unknown cached tokens at the highest rate that can apply to them."""
        if "input" in usage.unknown:
            written = output_tokens if "output" in usage.unknown else usage.output
            return self.worst(input_tokens=input_tokens, output_tokens=written)
        long = self.over and usage.input > self.over
        rates = {
            "": self.over_input if long else self.input,
            "cached_read": self.over_cached_read if long else self.cached_read,
            "cached_write": self.over_cached_write + self.over_lasting if long else self.cached_write + self.lasting,
        }
        # Where a figure is unknown, any token that no known figure counts as cached may have been cached.
        dearest = max(rate for name, rate in rates.items() if not name or name in usage.unknown)
        plain = usage.input - usage.cached_read - usage.cached_write
        extra = output_tokens if "output" in usage.unknown else 0
        return PicoUsd(
            self.of(usage) + plain * (dearest - rates[""]) + extra * (self.over_output if long else self.output)
        )

    def worst(self, *, input_tokens: int, output_tokens: int) -> PicoUsd:
        """An upper bound of the cost of a request within these token bounds, whatever the provider caches."""
        rate, reply_rate = max(self.input, self.cached_read, self.cached_write + self.lasting), self.output
        if self.over and input_tokens > self.over:
            rate = max(rate, self.over_input, self.over_cached_read, self.over_cached_write + self.over_lasting)
            reply_rate = max(reply_rate, self.over_output)
        return PicoUsd(self.request + input_tokens * rate + output_tokens * reply_rate)


Tier = str
"""How a provider serves a request: one of `TIERS`; with `/us` after it where that is done in one country alone, which
costs more."""
STANDARD, FLEX, PRIORITY = "standard", "flex", "priority"
TIERS = (STANDARD, FLEX, PRIORITY)

FREE = Price(input=0, output=0, cached_read=0, cached_write=0)


def pico_per_token(usd_per_mtok: str | int) -> int:
    """A list price in USD per million tokens, as text, as whole pico-dollars per token.

    Raises ValueError if the text is not a number, is negative, is above `MOST_USD_PER_MTOK`, or is finer than one
    pico-dollar per token.
    """
    what = "a price in USD per million tokens"
    return _whole(usd_per_mtok, _PICO_PER_TOKEN_AT_ONE_USD_PER_MTOK, what, MOST_USD_PER_MTOK)


def parse_usd(text: str | int) -> PicoUsd:
    """An amount of USD as text (`"2.50"`). Raises ValueError as `pico_per_token` does, above `MOST_USD`."""
    return PicoUsd(_whole(text, PICO_PER_USD, "an amount in USD", MOST_USD))


def usd(amount: int) -> Decimal:
    """An amount of pico-dollars in USD, exactly."""
    return Decimal(amount) / PICO_PER_USD


def usd_number(amount: float) -> float:
    """Pico-dollars in USD, for JSON: the number nearest to the amount, which reads as exactly that up to 15 digits."""
    return round(amount) / PICO_PER_USD


def pico_at_least(amount: Decimal) -> int:
    """An amount of pico-dollars, rounded up to a whole one."""
    return int(amount.to_integral_value(ROUND_CEILING))


def _whole(text: str | int, unit: int, what: str, most: int) -> int:
    try:
        amount = Decimal(str(text))
        above = amount > most
    except InvalidOperation as flaw:
        raise ValueError(f"{text!r} is not {what}") from flaw
    if above:
        raise ValueError(f"{text!r} is not {what}: it must be at most {most:,}")
    value = amount * unit
    if not value.is_finite() or value < 0 or value != value.to_integral_value():
        raise ValueError(f"{text!r} is not {what}: it must be finite, not negative, and no finer than 1e-12 USD")
    return int(value)


def show_usd(amount: int) -> str:
    """An amount for people: `$12.35`, `$0.0421`, `$0`."""
    if amount == 0:
        return "$0"
    usd = Decimal(amount) / PICO_PER_USD
    places = 2 if abs(usd) >= 1 else 4
    shown = f"{usd:.{places}f}"
    return f"${shown}" if Decimal(shown) != 0 else f"${usd:.2g}"


def money_words(spent: int, budget: int | None, simulated: str) -> str:
    """`$1.80 of $5.00 spent (simulated money)`; `simulated`: as of a manifest."""
    of = "" if budget is None else f" of {show_usd(budget)}"
    return f"{show_usd(spent)}{of} spent{simulated_words(simulated)}"


def simulated_words(simulated: str) -> str:
    """What marks an amount of money that nobody pays: ` (simulated money)`; empty where it is real."""
    return f" ({simulated} money)" if simulated else ""
