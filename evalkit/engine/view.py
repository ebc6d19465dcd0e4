"""The state of a running sweep at one moment, for the display. It never influences the run."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

import msgspec

from evalkit.client.lanes.stats import ServerStats
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.time_left import TimeLeft
from evalkit.money import usd_number
from evalkit.store.reading.unmetered import UnmeteredReplies


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """One lane at one moment."""

    name: str
    episodes: int
    """All that the sweep plans here."""
    target: int
    """Of them, those that will have ended when this call has done what it is asked to."""
    done: int
    """Ended, earlier calls included."""
    playing: int
    steps: int
    """In this call."""
    rate: float
    """Steps per second over the last few seconds."""
    in_flight: int
    window: int
    """The most requests that the lane may have in flight now; 0: it sends none (a policy in this process)."""
    waiting: int
    """Requests waiting for a limit."""
    waits_for: str = ""
    """What limits its requests in flight, in words; empty: nothing does."""
    ended: str = ""
    """Why it takes no more requests; empty while it does."""
    requests_per_min: float = 0.0
    tokens_per_min: float = 0.0
    """Read and written, of replies in the last seconds."""
    paused_s: float
    latency_s: float
    """Median of recent replies."""
    trouble: str = ""
    """Why its provider does not answer now, in words; empty: it does."""
    failures: Mapping[str, int]
    """Failed attempts by kind."""
    left: Mapping[str, int]
    """Episodes of this call by how they ended or were interrupted."""
    servers: tuple[ServerStats, ...] = ()
    """Where the lane has several."""

    def to_json(self) -> dict[str, Any]:
        """The lane as plain values."""
        return {
            "done": self.done,
            "episodes": self.episodes,
            "target": self.target,
            "playing": self.playing,
            "steps": self.steps,
            "steps_per_s": round(self.rate, 1),
            "in_flight": self.in_flight,
            "window": self.window,
            "waiting": self.waiting,
            "waits_for": self.waits_for,
            "ended": self.ended,
            "requests_per_min": round(self.requests_per_min, 1),
            "tokens_per_min": round(self.tokens_per_min, 1),
            "paused_s": round(self.paused_s, 1),
            "latency_s": round(self.latency_s, 4),
            "trouble": self.trouble,
            "failures": dict(self.failures),
            "left": dict(self.left),
            **({"servers": [server.to_json() for server in self.servers]} if self.servers else {}),
        }


class CellView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on one suite at one moment."""

    agent: str
    suite: str
    planned: int
    ended: int
    """Earlier calls included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The whole run at one moment."""

    name: str
    elapsed_s: float
    lanes: tuple[LaneView, ...]
    spent: int
    """Pico-dollars: steps and charges, earlier calls included."""
    reserved: int
    budget: int | None
    simulated: str
    """Whether its money is real, as of the manifest."""
    stopping: str
    """Why the run is draining; empty while it continues."""
    cells: tuple[CellView, ...] = ()
    unmetered: UnmeteredReplies = field(default_factory=UnmeteredReplies)
    """Replies without usage, earlier calls included."""
    history: tuple[tuple[float, float], ...] = ()
    """(seconds since this call began, steps per second), at most `MOST_KEPT`, oldest first."""
    eta_s: float | None = None
    """Seconds to the end of this call at the present pace; None: not known."""
    requests_left: int | None = None
    """Requests that are expected until then; None: not known."""
    workers: str = ""
    """How many processes play, in words; empty: one."""
    question: dict[str, Any] | None = None
    """What the run is to find out, as `RunQuestion.to_json` has it; None: it was not asked anything."""
    spared: int = 0
    """Episodes that are not played because all questions about their agents are answered."""

    def to_json(self) -> dict[str, Any]:
        """One line of the JSON log; money in USD."""
        return {
            "event": "progress",
            "elapsed_s": round(self.elapsed_s, 1),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            "done": sum(lane.done for lane in self.lanes),
            "episodes": sum(lane.episodes for lane in self.lanes),
            "steps": sum(lane.steps for lane in self.lanes),
            "steps_per_s": round(sum(lane.rate for lane in self.lanes), 1),
            "simulated_money": bool(self.simulated),
            "spent_usd": usd_number(self.spent),
            "budget_usd": None if self.budget is None else usd_number(self.budget),
            "stopping": self.stopping,
            **({"workers": self.workers} if self.workers else {}),
            **self.unmetered.to_json(),
            "lanes": {lane.name: lane.to_json() for lane in self.lanes},
        }

    def published(self) -> dict[str, Any]:
        """What `live.json` holds (`docs/run-directory.md`): the same, with a version, the time, and the cells."""
        return {
            **self.to_json(),
            "event": "live",
            "version": 1,
            "name": self.name,
            "at": time(),
            "reserved_usd": usd_number(self.reserved),
            "history": [list(point) for point in self.history],
            "cells": [[cell.agent, cell.suite, cell.ended, cell.planned] for cell in self.cells],
            **({} if self.question is None else {"question": self.question, "spared": self.spared}),
        }


RATE_OVER_S = 5.0

HELD_BY = {
    "": "",
    "budget": "room in the budget",
    "deadline": "time before the deadline",
    "partners": "slower agents that it is compared with",
    "trouble": "provider that does not answer",
}
"""By what holds a lane's next episode back: what it waits for, in words."""

MOST_KEPT = 120
"""Points of the rate's history, from the beginning of this call."""


@dataclass(slots=True)
class Pace:
    """How many steps each lane had made at the last few looks."""

    began: float = field(default_factory=monotonic)
    looks: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)
    history: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since this call began, steps per second), evenly spaced."""
    _every_s: float = 0.0

    def remember(self, now: float, rate: float) -> None:
        """Keep the rate, if the last one kept is old enough; when there are too many, every second one goes."""
        elapsed = now - self.began
        if self.history and elapsed < self.history[-1][0] + self._every_s:
            return
        self.history.append((round(elapsed, 1), round(rate, 1)))
        if len(self.history) >= MOST_KEPT:
            del self.history[1::2]
            self._every_s = 2 * elapsed / MOST_KEPT

    def rates(self, now: float, steps: dict[str, int]) -> dict[str, float]:
        """Steps per second of each lane over the last seconds."""
        self.looks.append((now, steps))
        while now - self.looks[0][0] > RATE_OVER_S and len(self.looks) > 2:
            self.looks.popleft()
        since, before = self.looks[0]
        span = now - since
        return {name: (count - before.get(name, 0)) / span if span > 0 else 0.0 for name, count in steps.items()}


def view_of(
    jobs: Sequence[LaneJob],
    endpoints: Endpoints | None,
    resolved: ResolvedSweep,
    pace: Pace,
    *,
    time_left: TimeLeft,
    spent_before: int,
    unmetered_before: UnmeteredReplies,
    workers: str = "",
    question: dict[str, Any] | None = None,
) -> View:
    """The run as it stands; `spent_before` and `unmetered_before` are of earlier calls."""
    now = monotonic()
    eta_s = time_left.look(now)
    rates = pace.rates(now, {job.name: job.context.steps for job in jobs})
    pace.remember(now, sum(rates.values()))
    money = endpoints.budget.stats() if endpoints is not None and endpoints.budget is not None else None
    return View(
        name=resolved.sweep.name,
        elapsed_s=now - pace.began,
        history=tuple(pace.history),
        eta_s=eta_s,
        requests_left=time_left.requests() if eta_s is None else None,
        lanes=tuple(_lane_view(job, endpoints, rates[job.name]) for job in jobs),
        spent=spent_before if money is None else money.spent,
        reserved=0 if money is None else money.reserved,
        workers=workers,
        question=question,
        spared=sum(job.spared.total() for job in jobs),
        budget=resolved.sweep.budget,
        simulated=resolved.manifest.simulated,
        unmetered=unmetered_before if money is None else unmetered_before + money.unmetered,
        stopping=next((job.context.stop.reason for job in jobs if job.context.stop.reason), ""),
        cells=tuple(
            CellView(agent=agent, suite=suite, planned=cell.planned, ended=cell.ended)
            for job in jobs
            for (agent, suite), cell in job.cells.items()
        ),
    )


def _lane_view(job: LaneJob, endpoints: Endpoints | None, rate: float) -> LaneView:
    context = job.context
    lane = endpoints.lanes.get(job.name) if endpoints is not None else None
    stats = lane.stats() if lane is not None else None
    return LaneView(
        name=job.name,
        episodes=job.episodes,
        target=job.planned,
        done=job.done,
        playing=context.playing,
        steps=context.steps,
        rate=rate,
        in_flight=context.playing if stats is None else stats.in_flight,
        window=0 if stats is None else stats.window,
        waiting=0 if stats is None else stats.waiting,
        waits_for="" if stats is None else stats.waits_for or HELD_BY["trouble" if stats.trouble else job.held_by],
        ended="" if stats is None else stats.ended,
        requests_per_min=0.0 if stats is None else stats.requests_per_min,
        tokens_per_min=0.0 if stats is None else stats.input_tokens_per_min + stats.output_tokens_per_min,
        paused_s=0.0 if stats is None else stats.paused_s,
        latency_s=0.0 if stats is None else stats.median_latency_s,
        trouble="" if stats is None else stats.trouble,
        failures={} if stats is None else stats.failures,
        left=dict(context.ended),
        servers=() if stats is None else stats.servers,
    )
