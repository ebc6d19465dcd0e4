"""The servers of a lane, and the limits that follow from theirs and its own."""

from collections.abc import Sequence

from evalkit.client.keys import servers_of
from evalkit.engine.freezing.freeze import Endpoint, ResolvedSweep, lane_limits
from evalkit.errors import UsageError
from evalkit.spec.model import Limits, ServerSpec


def limits_over(resolved: ResolvedSweep, lane: str, servers: Sequence[ServerSpec]) -> Limits:
    """A lane's own limits. If it has one server, its limits are the lane's; several have theirs beside the lane's."""
    limits = lane_limits(resolved, lane)
    return limits.within(servers[0].limits) if len(servers) == 1 else limits


def capacity(resolved: ResolvedSweep, endpoint: Endpoint) -> Limits:
    """What a lane may ask of all its servers together, as a plan counts it. Where variables of a URL are not set, as
    far as the provider's file says it."""
    try:
        servers = servers_of(endpoint.provider)
    except UsageError:
        servers = endpoint.provider.servers
    limits = limits_over(resolved, endpoint.lane, servers)
    return limits if len(servers) == 1 else limits.within(_together([server.limits for server in servers]))


def _together(limits: Sequence[Limits]) -> Limits:
    """The sum of each limit that all have."""
    sums = {}
    for key in ("requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "in_flight"):
        each = [getattr(one, key) for one in limits]
        sums[key] = None if None in each else sum(each)
    return Limits(**sums)
