"""How wide a lane may open by the limits that its provider announces in a reply's headers. Arithmetic only.

A window that starts at a few requests needs ten round trips to reach some hundreds: minutes, where a reply takes 20
seconds. A provider that announces its limits has said how much it takes.
"""

from collections.abc import Iterator

from evalkit.wire.allowance import Allowance

MINUTE_S = 60.0
"""Chosen: a limit is taken as one per minute, which it is for nearly all providers. Where it is counted by the day,
what remains of it bounds the window, and the buckets slow down when little remains."""


def announced_room(
    requests: Allowance | None, tokens: Allowance | None, *, in_flight: int, took_s: float, used: int
) -> float:
    """Requests in flight that the announced limits allow; 0 where no limit was announced.

    By each limit it is the lower of two: as many as come back in the time of one reply at the limit's rate, and those
    in flight with what remains. `in_flight`: requests, the answered one among them. `took_s`: seconds that it took.
    `used`: its tokens; if more than that is missing from the limit per request in flight, that counts.
    """
    return min(_rooms(requests, tokens, in_flight, took_s, used), default=0.0)


def _rooms(
    requests: Allowance | None, tokens: Allowance | None, in_flight: int, took_s: float, used: int
) -> Iterator[float]:
    if requests is not None:
        yield _room(requests, 1.0, in_flight, took_s)
    if tokens is not None:
        missing = (tokens.limit - tokens.remaining) / max(1, in_flight)
        yield _room(tokens, max(1.0, used, missing), in_flight, took_s)


def _room(limit: Allowance, need: float, in_flight: int, took_s: float) -> float:
    return min(limit.limit / need * took_s / MINUTE_S, in_flight + limit.remaining / need)
