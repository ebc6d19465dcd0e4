"""The simulated provider's bill: one line per request, decided when the request arrives.

A line is complete at arrival: what will be sent, when, and what it costs are known then. So nothing of the bill is lost
if the client or the server is killed a moment later. Real providers also bill answers that nobody reads.
"""

from dataclasses import dataclass

import orjson


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
