"""The simulated provider's bill: one line per request, decided when the request arrives, and the running totals.

A line is complete at arrival: what will be sent, when, and what it costs are known then. So nothing of the bill is lost
if the client or the server is killed a moment later. Real providers also bill answers that nobody reads.
"""

from dataclasses import asdict, dataclass, field

import orjson

from evalkit.money import PICO_PER_USD


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One request to a model, billed or not."""

    n: int
    """Order of arrival, from 1."""
    seen_s: float
    """When it arrived, in seconds since the provider started."""
    answered_s: float | None
    """When its outcome is due, on the same clock; None for a stall."""
    request_id: str
    """The id that the client sends: `X-Client-Request-Id`."""
    model: str
    """As asked for; empty if the body could not be read."""
    status: int
    """HTTP status; 0 if none is sent."""
    outcome: str
    """`ok`, `rate_limit`, a fault's name, or the code of a refused request (`invalid_api_key`, ...)."""
    billed: bool
    tokens_in: int
    """0 if nothing is billed, like the next four."""
    tokens_out: int
    tokens_cached: int
    """Part of `tokens_in` that was read from the prompt cache."""
    tokens_cache_write: int
    """Part of `tokens_in` that is billed as written to it."""
    cost: int
    """1e-12 USD."""
    limit: str
    """The limit that refused the request (`requests`, `tokens`, `input_tokens`, `output_tokens`,
    `in_flight`); empty if no limit refused it, an injected 429 included."""
    seed: int | None
    """The seed of the reply; None if the body could not be read."""

    def json(self) -> bytes:
        """The line as it stands in the bill's file, newline included."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)


@dataclass(slots=True, kw_only=True)
class BillTotals:
    """Sums over the bill, and the requests being answered now. Mutable."""

    requests: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    billed: int = 0
    """Requests that cost something."""
    bill: int = 0
    """1e-12 USD."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_cache_write: int = 0
    over_limit: int = 0
    """Requests refused because a limit was reached; injected 429s are none."""
    by_limit: dict[str, int] = field(default_factory=dict)
    by_status: dict[str, int] = field(default_factory=dict)
    by_outcome: dict[str, int] = field(default_factory=dict)

    def add(self, line: BillLine) -> None:
        """Count one more request, now in flight."""
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.billed += line.billed
        self.bill += line.cost
        self.tokens_in += line.tokens_in
        self.tokens_out += line.tokens_out
        self.tokens_cached += line.tokens_cached
        self.tokens_cache_write += line.tokens_cache_write
        if line.limit:
            self.over_limit += 1
            self.by_limit[line.limit] = self.by_limit.get(line.limit, 0) + 1
        status = str(line.status)
        self.by_status[status] = self.by_status.get(status, 0) + 1
        self.by_outcome[line.outcome] = self.by_outcome.get(line.outcome, 0) + 1

    def leave(self) -> None:
        """One request has been answered, or its client has gone."""
        self.in_flight -= 1

    def json(self) -> bytes:
        """All of it as a JSON object, with the bill in USD."""
        return orjson.dumps({**asdict(self), "bill_usd": self.bill / PICO_PER_USD})
