"""A server of limited capacity: a fixed number of requests is processed at once, the others wait in a queue.

Pure: when a request will be done is known when it arrives, because what came before it is known.
"""

import heapq
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Slots:
    """Places where requests are worked on. Mutable; changed by `work` alone."""

    free_at_s: list[float]
    """When each place is free, as a heap."""

    def work(self, now_s: float, for_s: float) -> float:
        """Take the place that is free first. Gives the seconds from now until the work of `for_s` is done.

        The work is completed even if its client has disconnected.
        """
        ready_s = max(now_s, self.free_at_s[0]) + for_s
        heapq.heapreplace(self.free_at_s, ready_s)
        return ready_s - now_s


def open_slots(count: int, now_s: float) -> Slots:
    """So many places, all free."""
    return Slots(free_at_s=[now_s] * count)
