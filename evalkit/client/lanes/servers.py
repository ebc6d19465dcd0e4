"""Which of several servers of one model a request is sent to. Arithmetic only, tested by table.

A request goes where the load is least: requests in flight, it included, relative to what the server may have in flight
now (its window). So a server that is twice as fast gets twice as many. Of equal ones the first counts.

The next request of an episode contains all that came before it, and the server that answered last has that in its
cache: elsewhere it is read anew. So it goes there again, unless that server's load is more than `STAYS` above the
least. Nobody waits for a full server while another has room. While all are full, requests wait in one queue, and the
first of them mostly belongs elsewhere than where the next reply came. So it lets a few behind it go first that belong
there (`LOOK_AHEAD`), but each is passed at most `MOST_PASSED` times.

A server that is down is sent a single request now and then. An attempt that failed is repeated elsewhere, so no request
probes twice in a row.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

STAYS = 0.25
"""Of what it may have in flight. On a server that answers many at once, a request with a quarter more beside it takes
at most that much longer; a prompt of some thousand tokens that is read anew takes longer than a short answer, and holds
up all others meanwhile. `python -m bench.calibrations.servers`: with 0, half full servers give 27 % fewer replies, full
ones 42 %. With 0.1 the former give 10 % fewer, and with twice as many episodes as the servers take a third fewer. With
0.5 nothing changes there; but after an outage, the servers that stayed would keep their episodes for longer."""
LOOK_AHEAD = 64
"""Waiting requests that are looked at, the first included; so the work for a request stays the same however many wait.
Those that belong to the slowest server gather at the front. With 1, full servers give 28 % fewer replies, and half as
many where twice as many episodes play as the servers take; with 16 a third fewer there."""
MOST_PASSED = 16
NOWHERE = -1
"""In place of a server's number: none has the prompt in its cache."""


class Wish(NamedTuple):
    """Where a request should go, by numbers of servers."""

    cached: int = NOWHERE
    """The one that has its prompt in the cache."""
    failed: int = NOWHERE
    """The one at which its last attempt has failed."""


ANYWHERE = Wish()


class ServerLoad(NamedTuple):
    """One server at this moment."""

    wait_s: float
    """Seconds until a request may be sent to it; 0: now; `inf`: not before another one is answered."""
    in_flight: int
    most: float
    """Requests that it may have in flight."""
    down: bool
    """Whether a request to it would be a probe."""

    @property
    def with_one_more(self) -> float:
        """Its load if one more were sent to it."""
        return (self.in_flight + 1) / max(1.0, self.most)


def chosen(servers: Sequence[ServerLoad], wish: Wish = ANYWHERE) -> int:
    """The number of the server that a request is sent to now; `NOWHERE`: none can take it."""
    cached, failed = wish
    least, least_load = NOWHERE, math.inf
    for number, server in enumerate(servers):
        if server.wait_s <= 0 and number != failed:
            if server.down:
                return number
            load = server.with_one_more
            if load < least_load:
                least, least_load = number, load
    if least == NOWHERE and failed != NOWHERE and servers[failed].wait_s <= 0:
        return failed
    if NOWHERE in (least, cached) or cached == failed or servers[cached].wait_s > 0:
        return least
    return cached if servers[cached].with_one_more <= least_load + STAYS else least


def may_be_passed(servers: Sequence[ServerLoad], wish: Wish, passed: int) -> bool:
    """Whether the first of those who wait lets others go first: it belongs to a server that is only full, and was not
    passed too often."""
    if wish.cached == NOWHERE or passed >= MOST_PASSED:
        return False
    server = servers[wish.cached]
    return server.wait_s == math.inf and not server.down


def belongs(servers: Sequence[ServerLoad], wish: Wish) -> bool:
    """Whether the server that has a request's prompt in its cache can take it now."""
    cached = wish.cached
    return cached != NOWHERE and servers[cached].wait_s <= 0 and not servers[cached].down
