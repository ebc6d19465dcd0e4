"""The options of the simulated provider: one table of fields, read from a `simulate` table or from flags.

Every value is checked before anything starts; a wrong one is named with its source and the nearest valid name.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.errors import UsageError, nearest
from evalkit.money import Price, pico_per_token
from evalkit.policy.table import is_served, served_names
from evalkit.serve.dialects.table import base_urls
from evalkit.serve.faults import FAULTS
from evalkit.serve.heeding import SETTINGS
from evalkit.serve.latency import INSTANT, Latency, parse_latency
from evalkit.spec.reading import parse_span


def _price(text: str) -> Price:
    parts = text.split(":")
    if not 2 <= len(parts) <= 4:
        raise ValueError(
            f"{text!r} is not a price: write INPUT:OUTPUT in USD per million tokens, such as 1:4. The prices of cached "
            "tokens can follow, to read and to write: 1:4:0.1 or 1:4:0.1:1.25"
        )
    read, written, cached_read, cached_write = (
        pico_per_token(part) for part in (*parts, *([parts[0]] * (4 - len(parts))))
    )
    return Price(input=read, output=written, cached_read=cached_read, cached_write=cached_write)


DEFAULT_PRICE = "1:4"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """The settings of the simulated provider."""

    models: tuple[str, ...] = field(default_factory=served_names)
    """Policies served as models."""
    latency: Latency = INSTANT
    """From a request's arrival to its answer."""
    rpm: float | None = None
    """Requests per minute, for each model; None: unlimited."""
    tpm: float | None = None
    """Tokens per minute, input and output together, for each model; None: unlimited."""
    itpm: float | None = None
    """Input tokens per minute; in Anthropic's dialect without those read from the cache."""
    otpm: float | None = None
    """Output tokens per minute."""
    in_flight: int | None = None
    """Requests being answered at once, each model for itself; one more is refused. None: unlimited."""
    shared_limits: bool = False
    """Whether all models share the five limits above, rather than each having its own."""
    slots: int | None = None
    """Requests processed at once, for all models together; the others wait in a queue. None: all at once."""
    cache_s: float | None = None
    """How long a prompt's beginning stays cached after its last use; None: nothing is cached."""
    reasoning: int = 0
    """Tokens of reasoning that each reply shows before its answer; 0: none."""
    heeds: frozenset[str] | None = None
    """Settings that replies show, of `heeding.SETTINGS`; the others are ignored. None: replies are the policy's."""
    strict_calls: bool = False
    """Whether a request of OpenAI's formats fails if arguments of an earlier call are no JSON object."""
    burst_s: float = 60.0
    """How many seconds' worth of the limits can be saved up."""
    seed: int = 0
    """Of latencies and faults."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Probability of each kind of fault (`faults.FAULTS`); together at most 1."""
    bill_failures: bool = False
    """Whether faults that a client must take to be billed (500, 502, 504, an early reset) are: the reply is made and
    billed, and the fault comes in its place."""
    retry_after_s: float | None = 1.0
    """What an injected 429, 503 or 529 tells the client to wait; None: it tells nothing."""
    retry_after_form: str = "seconds"
    """`seconds` or `date`: how headers say what to wait."""
    drip_s: float = 10.0
    """How long a body that drips takes."""
    stream_first: float = 0.5
    """The part of its latency after which a stream's first byte is sent; its events are spread over the rest."""
    stream_tokens: int = 8
    """Tokens in each delta of a stream, on average."""
    key: str = ""
    """The key that requests must carry; empty: none."""
    context_tokens: int | None = None
    """Input and `max_tokens` together may not be more; None: unlimited."""
    price: Price = field(default_factory=lambda: _price(DEFAULT_PRICE))
    """What models not named in `prices` cost."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By model."""
    bill: str = ""
    """File that gets one JSON line a request, appended; empty: none."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""

    def price_of(self, model: str) -> Price:
        """The price of a model."""
        return self.prices.get(model, self.price)


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
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in OPTIONS:
            raise UsageError(f"{source}: unknown key {key!r}.{nearest(key, OPTIONS)}")
        try:
            read[key] = OPTIONS[key].read(value)
        except ValueError as flaw:
            raise UsageError(f"{source}: {key}: {flaw}.") from flaw
    faults = {kind: read.pop(key) for kind, key in _FAULT_KEYS.items() if key in read}
    if math.fsum(faults.values()) > 1 + 1e-9:
        raise UsageError(
            f"{source}: the probabilities of all faults together are {math.fsum(faults.values()):g}, above 1."
        )
    spans = {f"{key}_s": read.pop(key) for key in _SPANS if key in read}
    return SimulatorOptions(faults=faults, **read, **spans)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each option, read back with `given_flags`; and `--until-eof`, which is the program's own.

    What the parser's help ends with says the base URL of each dialect.
    """
    urls = "\n".join(f"  {line}" for line in base_urls("http://HOST:PORT"))
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, f"base URLs:\n{urls}")))
    for key, option in OPTIONS.items():
        flag = "--" + key.replace("_", "-")
        parser.add_argument(flag, dest=f"option_{key}", metavar=option.metavar, help=option.help)
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")


def given_flags(arguments: argparse.Namespace) -> dict[str, str]:
    """The options that were given as flags, for `options_from`."""
    values = {key: getattr(arguments, f"option_{key}", None) for key in OPTIONS}
    return {key: value for key, value in values.items() if value is not None}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Plain values as the command line that gives them, for a child process."""
    return [f"--{key.replace('_', '-')}={_as_text(value)}" for key, value in values.items()]


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_as_text(item)}" for key, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _number(value: Any, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not {what}")
    return number


def _whole(value: Any, least: int, most: int) -> int:
    number = _number(value, "a whole number")
    if number != int(number) or not least <= number <= most:
        raise ValueError(f"{value!r} is not a whole number from {least} to {most}")
    # Not through the float: beyond 2**53 that would be another number.
    return int(str(value)) if str(value).lstrip("+-").isdigit() else int(number)


def _positive(value: Any) -> float:
    number = _number(value, "a number")
    if number <= 0:
        raise ValueError(f"{value!r} is not positive; leave it out for no limit")
    return number


def _probability(value: Any, what: str = "a probability") -> float:
    number = _number(value, what)
    if not 0 <= number <= 1:
        raise ValueError(f"{value!r} is not {what}: it must be from 0 to 1")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _truth(value: Any) -> bool:
    if value in (True, "true", "True"):
        return True
    if value in (False, "false", "False"):
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def _form(value: Any) -> str:
    if value not in ("seconds", "date"):
        raise ValueError(f"{value!r} is neither `seconds` nor `date`")
    return str(value)


def _span(value: Any) -> float:
    seconds = parse_span(_text(value))
    if seconds <= 0:
        raise ValueError(f"{value!r} is not positive")
    return seconds


def _retry_after(value: Any) -> float | None:
    return None if value == "none" else parse_span(_text(value))


def _models(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(f"{value!r} is not a list of models")
    for name in names:
        _refuse_unknown_model(name)
    return tuple(names)


def _heeds(value: Any) -> frozenset[str]:
    names = frozenset(name.strip() for name in _text(value).split(",")) - {""}
    for name in sorted(names - set(SETTINGS)):
        raise ValueError(f"{name!r} is no setting that replies can show.{nearest(name, SETTINGS).rstrip('.')}")
    return names


def _prices(value: Any) -> dict[str, Price]:
    if isinstance(value, str):
        entries = [part.partition("=") for part in value.split(",") if part]
        value = {name: text for name, _, text in entries}
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table of model = INPUT:OUTPUT")
    for name in value:
        _refuse_unknown_model(name)
    return {name: _price(_text(text)) for name, text in value.items()}


def _refuse_unknown_model(name: object) -> None:
    if not isinstance(name, str) or not is_served(name):
        near = nearest(str(name), served_names()).rstrip(".")
        raise ValueError(f"no policy {name!r} can be served as a model.{near}")


_SPANS = ("burst", "retry_after", "drip", "cache")
"""Options whose fields count seconds and end in `_s`."""
_FAULT_KEYS = {kind: f"fault_{kind}" for kind in FAULTS}

OPTIONS: Mapping[str, Option] = {
    "models": Option(
        read=_models,
        metavar="NAMES",
        help="policies to serve, separated by commas (default: all that need only the conversation)",
    ),
    "latency": Option(
        read=lambda value: parse_latency(_text(value)),
        metavar="TIME",
        help="time to answer: 50ms, uniform:10ms:50ms, exponential:200ms, lognormal:200ms:0.5 (default: 0s)",
    ),
    "rpm": Option(read=_positive, metavar="N", help="requests per minute that each model allows (default: unlimited)"),
    "tpm": Option(read=_positive, metavar="N", help="tokens per minute that each model allows (default: unlimited)"),
    "itpm": Option(read=_positive, metavar="N", help="input tokens per minute that each model allows"),
    "otpm": Option(read=_positive, metavar="N", help="output tokens per minute that each model allows"),
    "in_flight": Option(
        read=lambda value: _whole(value, 1, 2**31),
        metavar="N",
        help="requests in flight that each model allows; a further one gets a 429 (default: unlimited)",
    ),
    "shared_limits": Option(read=_truth, metavar="true", help="one set of limits for all models together"),
    "slots": Option(
        read=lambda value: _whole(value, 1, 1_000_000),
        metavar="N",
        help="requests processed at once; others wait in a queue: no 429s, but longer waits (default: unlimited)",
    ),
    "reasoning": Option(
        read=lambda value: _whole(value, 0, 1_000_000),
        metavar="N",
        help="tokens of reasoning that each reply shows before its answer, as its dialect has it (default: 0)",
    ),
    "heeds": Option(
        read=_heeds,
        metavar="NAMES",
        help=f"reply as a model that heeds these settings ({', '.join(SETTINGS)}; empty: none) and ignores the others "
        "(default: as the policy does)",
    ),
    "strict_calls": Option(
        read=_truth,
        metavar="true",
        help="fail (500) if arguments of an earlier call are no JSON object, as servers of open models do",
    ),
    "burst": Option(read=_span, metavar="SPAN", help="how much unused limit can accumulate, as a time (default: 60s)"),
    "seed": Option(
        read=lambda value: _whole(value, 0, 2**63 - 1), metavar="SEED", help="seed of latencies and faults (default: 0)"
    ),
    **{
        key: Option(read=_probability, metavar="P", help=f"probability of this fault: {FAULTS[kind]}")
        for kind, key in _FAULT_KEYS.items()
    },
    "bill_failures": Option(
        read=_truth,
        metavar="true",
        help="bill the failures that a provider may bill: 408, early resets, 5xx except 503 and 529",
    ),
    "retry_after": Option(
        read=_retry_after,
        metavar="SPAN",
        help="how long injected 429s, 503s and 529s ask to wait, or none (default: 1s)",
    ),
    "retry_after_form": Option(
        read=_form, metavar="FORM", help="how headers state this wait: seconds or date (default: seconds)"
    ),
    "drip": Option(read=_span, metavar="SPAN", help="how long the `drip` fault takes to send a body (default: 10s)"),
    "stream_first": Option(
        read=lambda value: _probability(value, "a part"),
        metavar="PART",
        help="part of the latency that passes before a stream's first byte; the events are spread over the rest "
        "(default: 0.5)",
    ),
    "stream_tokens": Option(
        read=lambda value: _whole(value, 1, 1_000_000),
        metavar="N",
        help="tokens in each delta of a stream, on average (default: 8)",
    ),
    "cache": Option(
        read=_span,
        metavar="SPAN",
        help="cache prompts as the dialect's provider does, until this long after their last use "
        "(default: nothing is cached)",
    ),
    "key": Option(read=_text, metavar="KEY", help="a key that requests must carry (default: none)"),
    "context_tokens": Option(
        read=lambda value: _whole(value, 1, 2**53), metavar="N", help="context of every model (default: unlimited)"
    ),
    "price": Option(
        read=lambda value: _price(_text(value)),
        metavar="IN:OUT[:READ[:WRITE]]",
        help="USD per million tokens; READ and WRITE are for tokens read from the cache and written to it "
        f"(default: {DEFAULT_PRICE}, cached tokens as IN)",
    ),
    "prices": Option(read=_prices, metavar="MODEL=PRICE,...", help="prices of single models"),
    "bill": Option(read=_text, metavar="FILE", help="append one JSON line per request to this file"),
    "host": Option(read=_text, metavar="HOST", help="address to listen on (default: 127.0.0.1)"),
    "port": Option(
        read=lambda value: _whole(value, 0, 65535), metavar="PORT", help="port to listen on (default: any free one)"
    ),
}
"""Every key of a `simulate` table and every flag of `evalkit simulate`."""
