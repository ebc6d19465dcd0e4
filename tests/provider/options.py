"""The options of the test double: those of evalkit's own simulated provider, and more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.errors import UsageError
from evalkit.money import Price, pico_per_token
from evalkit.serve import options as served
from evalkit.serve.options import Option, SimulatorOptions, positive, read_values, span, whole
from evalkit.spec.model import Provider
from evalkit.spec.reading import parse_span
from tests.provider.faults import FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleOptions(SimulatorOptions):
    """The settings of the test double. `faults` are those of `faults.FAULTS`."""

    itpm: float | None = None
    """Input tokens per minute; in Anthropic's dialect without those read from the cache."""
    otpm: float | None = None
    """Output tokens per minute."""
    cache_s: float | None = None
    """How long a prompt's beginning stays cached after its last use; None: nothing is cached."""
    reasoning: int = 0
    """Tokens of reasoning that each reply shows before its answer; 0: none."""
    strict_calls: bool = False
    """Whether a request of OpenAI's formats fails if arguments of an earlier call are no JSON object."""
    bill_failures: bool = False
    """Whether faults that a client must take to be billed (500, 502, 504, an early reset) are: the reply is made and
    billed, and the fault comes in its place."""
    retry_after_s: float | None = 1.0
    """What an injected 429, 503 or 529 tells the client to wait; None: it tells nothing."""
    flex_full: float = 0.0
    """How often the cheap tier has no room, and refuses."""
    flex_slower: float = 3.0
    """How many times as long its replies take."""
    downgraded: float = 0.0
    """How often a request is served by the standard tier that asked for another."""
    drip_s: float = 10.0
    """How long a body that drips takes."""
    stream_tokens: int = 8
    """Tokens in each delta of a stream, on average."""
    context_tokens: int | None = None
    """Input and `max_tokens` together may not be more; None: unlimited."""


def _price(text: str) -> Price:
    """INPUT:OUTPUT, and then the prices of cached tokens, to read and to write; as INPUT where they are left out."""
    parts = text.split(":")
    read, written, *cached = map(pico_per_token, parts)
    cached += [read] * (2 - len(cached))
    return Price(input=read, output=written, cached_read=cached[0], cached_write=cached[1])


def _option(read: Any) -> Option:
    return Option(read=read, metavar="", help="")


OPTIONS: Mapping[str, Option] = {
    **{key: option for key, option in served.OPTIONS.items() if key != "faults"},
    **{f"fault_{kind}": _option(float) for kind in FAULTS},
    "price": _option(_price),
    "itpm": _option(positive),
    "otpm": _option(positive),
    "cache": _option(span),
    "reasoning": _option(lambda value: whole(value, 0, 1_000_000)),
    "strict_calls": _option(bool),
    "bill_failures": _option(bool),
    "retry_after": _option(lambda value: None if value == "none" else parse_span(value)),
    "flex_full": _option(float),
    "flex_slower": _option(positive),
    "downgraded": _option(float),
    "drip": _option(span),
    "stream_tokens": _option(lambda value: whole(value, 1, 1_000_000)),
    "context_tokens": _option(lambda value: whole(value, 1, 2**53)),
}
_SPANS = ("burst", "cache", "retry_after", "drip")


def options_from(values: Mapping[str, Any], source: str = "simulate") -> DoubleOptions:
    """Options from plain values, with a probability at `fault_KIND` for each kind. Raises UsageError."""
    read = read_values(values, OPTIONS, source)
    faults = {kind: read.pop(f"fault_{kind}") for kind in FAULTS if f"fault_{kind}" in read}
    if sum(faults.values()) > 1 + 1e-9:
        raise UsageError(f"{source}: the probabilities of all faults together are above 1.")
    return DoubleOptions(faults=faults, **{f"{key}_s" if key in _SPANS else key: one for key, one in read.items()})


def options_of(provider: Provider) -> DoubleOptions:
    """Those of a provider's file, in any dialect."""
    return options_from(provider.simulate or {}, provider.name)
