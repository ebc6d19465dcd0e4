"""Sums what the workers of a session report, so that displays and whoever admits episodes see one run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.stats import LaneStats, SeenElsewhere, together
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.scheduler import LaneJob
from evalkit.machines.allocator import Allocator
from evalkit.machines.messages import LaneReport, WorkReport
from evalkit.store.reading.unmetered import UnmeteredReplies


def show(jobs: Sequence[LaneJob], endpoints: Endpoints, allocator: Allocator, ended: list[WorkReport]) -> None:
    """Show what workers report, where the session's own lanes and budget would show what is played here. `ended`: the
    last reports of those that have ended."""
    present = [member.report for member in allocator.members.values() if member.report is not None]
    all_ = present + ended
    for job in jobs:
        own, context = [one.lanes[job.name] for one in present if job.name in one.lanes], job.context
        context.steps = sum([one.lanes[job.name].steps for one in all_ if job.name in one.lanes])
        context.playing = sum([lane.playing for lane in own])
        context.unavailable = _first(lane.unavailable for lane in own) or context.unavailable
        context.refused = _first(lane.refused for lane in own) or context.refused
        context.too_large = _first(lane.too_large for lane in own) or context.too_large
        context.stopped |= allocator.lanes[job.name].agents_stopped
        if job.lane is not None:
            _show_lane(job.lane, own)
    if endpoints.budget is not None:
        endpoints.budget.mirror(
            {scope: (balance.spent, balance.reserved) for scope, balance in allocator.balances.items()},
            charged=sum([one.charged for one in all_]),
            unmetered=sum([one.unmetered for one in all_], UnmeteredReplies()),
            largest=[(name, lane.largest) for one in present for name, lane in one.lanes.items()],
        )


def _show_lane(lane: Lane, own: list[LaneReport]) -> None:
    stats = [one.stats for one in own if one.stats is not None]
    if not stats:
        return
    if any(one.acted for one in own):
        lane.acted()
    if lane.pace is not None:
        lane.pace.quick.mean_s = max((one.quick_s for one in own), default=0.0)
    lane.notice = _first(one.notice for one in own) or lane.notice
    lane.elsewhere = SeenElsewhere(
        proven=sum([one.proven for one in own]),
        stats=LaneStats(**{name: _in_all(name, [getattr(one, name) for one in stats]) for name in _FIGURES}),
    )


_FIGURES = LaneStats.__struct_fields__


def _in_all(name: str, values: list[Any]) -> Any:
    """One figure of a lane, of all workers together."""
    if name == "servers":
        return together(values)
    if name == "failures":
        return sum(map(Counter, values), Counter[str]())
    if isinstance(values[0], str):
        return _first(values)
    return max(values) if name in ("paused_s", "median_latency_s") else sum(values)


def _first(words: Iterable[str]) -> str:
    """The first that says something."""
    return next(filter(None, words), "")
