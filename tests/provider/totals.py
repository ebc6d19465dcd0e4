"""Sums over what the test double bills."""

from dataclasses import dataclass, field

from evalkit.serve.outcome import BillLine


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
    by_limit: dict[str, int] = field(default_factory=dict)
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
            self.by_limit[line.limit] = self.by_limit.get(line.limit, 0) + 1
        self.by_outcome[line.outcome] = self.by_outcome.get(line.outcome, 0) + 1

    def leave(self) -> None:
        """One request has been answered, or its client has gone."""
        self.in_flight -= 1
