"""The options of the simulated provider: one table of fields, read from a `simulate` table or from flags.

Every value is checked before anything starts; a wrong one is named with its source and the nearest valid name.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from evalkit.errors import UsageError, nearest
from evalkit.money import Price, pico_per_token
from evalkit.policy.table import is_served, served_names
from evalkit.seeds import Stream
from evalkit.serve.outcome import FAULTS
from evalkit.spec.model import Provider
from evalkit.spec.reading import parse_span

# How long the simulated provider takes to answer: a distribution, written as one word and drawn by place.
#
# | text | meaning | |---|---| | `50ms` | always that long | | `uniform:10ms:50ms` | between the two | |
# `lognormal:200ms:0.5` | of that median; the logarithm has that standard deviation |

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A distribution of seconds."""

    kind: str
    """`fixed`, `uniform` or `lognormal`."""
    first: float
    """Seconds: the value, the lower end or the median."""
    second: float = 0.0
    """The upper end in seconds, or the standard deviation of the logarithm."""

    def draw(self, draws: Stream) -> float:
        """Seconds for one request; a fixed latency draws nothing."""
        if self.kind == "fixed":
            return self.first
        # Moved off 0 by half a step, so that every logarithm and quantile below is finite.
        quantile = draws.uniform() + 2.0**-54
        if self.kind == "uniform":
            return self.first + (self.second - self.first) * quantile
        return self.first * math.exp(self.second * _NORMAL.inv_cdf(min(quantile, 1 - 2.0**-53)))

    @property
    def mean_s(self) -> float:
        """Seconds on average."""
        if self.kind == "uniform":
            return (self.first + self.second) / 2
        return self.first * math.exp(self.second**2 / 2) if self.kind == "lognormal" else self.first


INSTANT = Latency(kind="fixed", first=0.0)


def parse_latency(text: str) -> Latency:
    """A latency as text (table above). Raises ValueError saying how to write one."""
    kind, *parts = text.strip().split(":")
    if not parts:
        return Latency(kind="fixed", first=parse_span(kind))
    if kind == "uniform" and len(parts) == 2:
        low, high = parse_span(parts[0]), parse_span(parts[1])
        if low > high:
            raise ValueError(f"{text!r}: the lower end {parts[0]} is above the upper end {parts[1]}")
        return Latency(kind=kind, first=low, second=high)
    if kind == "lognormal" and len(parts) == 2:
        return Latency(kind=kind, first=parse_span(parts[0]), second=_spread(parts[1]))
    raise ValueError(
        f"{text!r} is not a latency: write 50ms, uniform:10ms:50ms or lognormal:200ms:0.5 (of that median)"
    )


def _spread(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 5:
        raise ValueError(f"{text!r} is not a spread: expected the logarithm's standard deviation, from 0 to 5")
    return value


def price_of(text: str) -> Price:
    """A price as text. Raises ValueError saying how to write one."""
    parts = text.split(":")
    if len(parts) != 2:
        raise ValueError(f"{text!r} is not a price: write INPUT:OUTPUT in USD per million tokens, such as 1:4")
    read, written = map(pico_per_token, parts)
    return Price(input=read, output=written, cached_read=read, cached_write=read)


DEFAULT_PRICE = "1:4"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """The settings of the simulated provider."""

    models: tuple[str, ...] = ()
    """Policies served as models; empty: all that can be."""
    latency: Latency = INSTANT
    """From a request's arrival to its answer."""
    rpm: float | None = None
    """Requests per minute, for each model; None: unlimited."""
    tpm: float | None = None
    """Tokens per minute, input and output together, for each model; None: unlimited."""
    in_flight: int | None = None
    """Requests being answered at once, each model for itself; one more is refused. None: unlimited."""
    burst_s: float = 60.0
    """How many seconds' worth of the limits can be saved up."""
    seed: int = 0
    """Of latencies and faults."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Probability of each kind of fault (`faults.FAULTS`); together at most 1."""
    key: str = ""
    """The key that requests must carry; empty: none."""
    price: Price = field(default_factory=lambda: price_of(DEFAULT_PRICE))
    bill: str = ""
    """File that gets one JSON line a request, appended; empty: none."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One key of a `simulate` table, and the flag of the same name."""

    read: Callable[[Any], Any]
    """A plain value (text, number, list, table) as the field's. Raises ValueError."""
    metavar: str
    help: str


def options_from(values: Mapping[str, Any], source: str = "simulate") -> SimulatorOptions:
    """Options from plain values, as a TOML table or `given_flags` holds them.

    Raises UsageError naming `source`, the key, what is wrong with its value, and the nearest valid name.
    """
    read = read_values(values, OPTIONS, source)
    return SimulatorOptions(**{"burst_s" if key == "burst" else key: value for key, value in read.items()})


def read_values(values: Mapping[str, Any], options: Mapping[str, Option], source: str) -> dict[str, Any]:
    """Plain values as the fields of their options. Raises UsageError, as `options_from` does."""
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in options:
            raise UsageError(f"{source}: unknown key {key!r}.{nearest(key, options)}")
        try:
            read[key] = options[key].read(value)
        except ValueError as flaw:
            raise UsageError(f"{source}: {key}: {flaw}.") from flaw
    return read


def options_of(provider: Provider) -> SimulatorOptions:
    """Those of a provider that a run starts for itself. Raises UsageError naming the provider's file."""
    where = f"providers/{provider.name}.toml"
    if provider.dialect != SPOKEN:
        raise UsageError(
            f"{where}: dialect: a simulated provider speaks {SPOKEN}, and not {provider.dialect}: write "
            f'dialect = "{SPOKEN}", or a `url` in place of the table `simulate`.'
        )
    return options_from(provider.simulate or {}, f"{where}: simulate")


SPOKEN = "openai_chat"
"""The dialect of every simulated provider."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each option, read back with `given_flags`."""
    for key, option in OPTIONS.items():
        if key in TABLE_ALONE:
            continue
        flag = "--" + key.replace("_", "-")
        parser.add_argument(flag, dest=f"option_{key}", metavar=option.metavar, help=option.help)


def given_flags(arguments: argparse.Namespace) -> dict[str, str]:
    """The options that were given as flags, for `options_from`."""
    values = {key: getattr(arguments, f"option_{key}", None) for key in OPTIONS}
    return {key: value for key, value in values.items() if value is not None}


def _number(value: Any, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not {what}")
    return number


def whole(value: Any, least: int, most: int) -> int:
    """A whole number in these bounds. Raises ValueError."""
    number = _number(value, "a whole number")
    if number != int(number) or not least <= number <= most:
        raise ValueError(f"{value!r} is not a whole number from {least} to {most}")
    # Not through the float: beyond 2**53 that would be another number.
    return int(str(value)) if str(value).lstrip("+-").isdigit() else int(number)


def positive(value: Any) -> float:
    """A limit. Raises ValueError."""
    number = _number(value, "a number")
    if number <= 0:
        raise ValueError(f"{value!r} is not positive; leave it out for no limit")
    return number


def _probability(value: Any) -> float:
    number = _number(value, "a probability")
    if not 0 <= number <= 1:
        raise ValueError(f"{value!r} is not a probability: it must be from 0 to 1")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def span(value: Any) -> float:
    """A time above 0, in seconds. Raises ValueError."""
    seconds = parse_span(_text(value))
    if seconds <= 0:
        raise ValueError(f"{value!r} is not positive")
    return seconds


def _models(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(f"{value!r} is not a list of models")
    for name in names:
        if not isinstance(name, str) or not is_served(name):
            near = nearest(str(name), served_names()).rstrip(".")
            raise ValueError(f"no policy {name!r} can be served as a model.{near}")
    return tuple(names)


def _probabilities(value: Any) -> dict[str, float]:
    if isinstance(value, str):
        value = {kind: share for kind, _, share in (part.partition("=") for part in value.split(",") if part)}
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table of FAULT = PROBABILITY")
    for kind in value:
        if kind not in FAULTS:
            raise ValueError(f"there is no fault {kind!r}.{nearest(kind, FAULTS).rstrip('.')}")
    found = {kind: _probability(share) for kind, share in value.items()}
    if math.fsum(found.values()) > 1 + 1e-9:
        raise ValueError(f"the probabilities of all faults together are {math.fsum(found.values()):g}, above 1")
    return found


OPTIONS: Mapping[str, Option] = {
    "models": Option(
        read=_models,
        metavar="NAMES",
        help="policies to serve, separated by commas (default: all that need only the conversation)",
    ),
    "latency": Option(
        read=lambda value: parse_latency(_text(value)),
        metavar="TIME",
        help="time to answer: 50ms, uniform:10ms:50ms, lognormal:200ms:0.5 (default: 0s)",
    ),
    "rpm": Option(read=positive, metavar="N", help="requests per minute that each model allows (default: unlimited)"),
    "tpm": Option(read=positive, metavar="N", help="tokens per minute that each model allows (default: unlimited)"),
    "in_flight": Option(
        read=lambda value: whole(value, 1, 2**31),
        metavar="N",
        help="requests in flight that each model allows; a further one gets a 429 (default: unlimited)",
    ),
    "burst": Option(read=span, metavar="SPAN", help="how much unused limit can accumulate, as a time (default: 60s)"),
    "seed": Option(
        read=lambda value: whole(value, 0, 2**63 - 1), metavar="SEED", help="seed of latencies and faults (default: 0)"
    ),
    "faults": Option(
        read=_probabilities,
        metavar="FAULT=P,...",
        help="probability of each fault: " + ". ".join(f"{kind}: {what}" for kind, what in FAULTS.items()),
    ),
    "key": Option(read=_text, metavar="KEY", help="a key that requests must carry (default: none)"),
    "price": Option(
        read=lambda value: price_of(_text(value)),
        metavar="IN:OUT",
        help=f"USD per million tokens (default: {DEFAULT_PRICE})",
    ),
    "bill": Option(read=_text, metavar="FILE", help="append one JSON line per request to this file"),
    "host": Option(read=_text, metavar="HOST", help="address to listen on (default: 127.0.0.1)"),
    "port": Option(
        read=lambda value: whole(value, 0, 65535), metavar="PORT", help="port to listen on (default: any free one)"
    ),
}
"""Every key of a `simulate` table."""

TABLE_ALONE = frozenset({"burst", "host", "key"})
"""Keys that are no flags of `evalkit simulate`."""
