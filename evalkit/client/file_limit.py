"""Room for connections: the file-descriptor limit, raised towards what a run's width needs."""

import resource

KEPT = 64
"""Descriptors for everything except connections: log, libraries, terminal."""


def make_room(in_flight: int) -> int:
    """Raise the soft limit for `in_flight` requests; returns how many there is room for, at most `in_flight`.

    Two descriptors per request: a connection may be closing while its successor opens.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * in_flight + KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        except (ValueError, OSError):  # macOS refuses more than its kernel's own limit, whatever `hard` says
            raised = soft
        soft = max(soft, raised)
    if soft == resource.RLIM_INFINITY:
        return in_flight
    return max(1, min(in_flight, (soft - KEPT) // 2))
