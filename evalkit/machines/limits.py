"""The limits of a run as the coordinator divides them and as a worker's lanes apply them, under the same names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evalkit.client.keys import servers_of
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.shared import Pool
from evalkit.engine.freezing.freeze import ResolvedSweep, lane_shares
from evalkit.engine.servers import limits_over
from evalkit.machines.messages import LaneReport
from evalkit.spec.model import Limits

UNITS = {
    "requests": "requests_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
    "in_flight": "in_flight",
}
LEAST_PER_MIN = 6.0
"""A worker that may send less than this of a lane's requests does not play the lane at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One figure that a provider or the sweep states."""

    scope: str
    """`lane NAME`, `shared NAME` where several lanes share it, or `server NUMBER of NAME` of a lane's server."""
    unit: str
    most: float
    lanes: tuple[str, ...]
    server: int | None = None
    """The number of the server whose limit it is; None: of all."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.unit} {self.scope}"

    def in_flight(self, lane: LaneReport) -> int:
        """Requests of a lane in flight that count for it."""
        if lane.stats is None or self.server is None:
            return 0 if lane.stats is None else lane.stats.in_flight
        return sum(one.in_flight for one in lane.stats.servers[self.server : self.server + 1])


def limits_of(resolved: ResolvedSweep, lanes: Mapping[str, object]) -> list[Limit]:
    """All limits of these lanes."""
    sharing: dict[str, tuple[Limits, list[str]]] = {}
    limits: list[Limit] = []
    for lane in lanes:
        endpoint = next(one for one in resolved.endpoints.values() if one.lane == lane)
        servers = servers_of(endpoint.provider)
        limits += _figures(f"lane {lane}", limits_over(resolved, lane, servers), (lane,))
        for number, server in enumerate(servers) if len(servers) > 1 else ():
            limits += _figures(_of_server(lane, number), server.limits, (lane,), number)
        for shared in lane_shares(resolved, endpoint):
            sharing.setdefault(shared.name, (shared.limits, []))[1].append(lane)
    for name, (figures, own) in sharing.items():
        limits += _figures(f"shared {name}", figures, tuple(own))
    return limits


def _of_server(lane: str, number: int) -> str:
    return f"server {number} of {lane}"


def _figures(scope: str, limits: Limits, lanes: tuple[str, ...], server: int | None = None) -> Iterator[Limit]:
    for unit, attribute in UNITS.items():
        most = getattr(limits, attribute)
        if most is not None:
            yield Limit(scope=scope, unit=unit, most=float(most), lanes=lanes, server=server)


def seats(limits: list[Limit], lane: str) -> int:
    """How many workers can play a lane at once, so that each has some of its limits."""
    # Servers do not count: who has nothing of one asks another.
    own = [limit for limit in limits if lane in limit.lanes and limit.server is None]
    few = [limit.most // len(limit.lanes) for limit in own if limit.unit == "in_flight"]
    few += [limit.most // LEAST_PER_MIN for limit in own if limit.unit == "requests"]
    return max(1, int(min(few, default=1 << 30)))


def apply(lanes: Mapping[str, Lane], pools: Mapping[str, Pool], parts: Mapping[str, float], share: float) -> None:
    """Let a worker's lanes use these parts of the limits, and this share of what headers state."""

    def of(scope: str) -> tuple[dict[str, float], float]:
        named = {unit: parts[f"{unit} {scope}"] for unit in UNITS if f"{unit} {scope}" in parts}
        return named, named.pop("in_flight", float("inf"))

    for name, pool in pools.items():
        pool.reshare(*of(f"shared {name}"))
    for name, lane in lanes.items():
        for number in range(lane.servers):
            lane.reshare_server(number, *of(_of_server(name, number)))
        lane.reshare(*of(f"lane {name}"), share)
