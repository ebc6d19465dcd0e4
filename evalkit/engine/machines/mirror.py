"""Shows in a session's own lanes, jobs and budget what its workers report, so that displays and limits of the whole run
see one run."""

from collections import Counter
from dataclasses import dataclass, field

from evalkit.client.budget import RUN as RUN_SCOPE
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.stats import LaneStats, SeenElsewhere, together
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.machines.coordinator import Coordinator
from evalkit.engine.machines.messages import RUN, LaneReport, Renew
from evalkit.engine.session import Session
from evalkit.store.reading.unmetered import Unmetered


@dataclass(slots=True)
class _Ended:
    """Sums of workers that have ended."""

    steps: Counter[str] = field(default_factory=Counter)
    charged: int = 0
    unmetered: Unmetered = field(default_factory=Unmetered)


class Mirror:
    """What the workers of a session report, in the session's objects."""

    def __init__(self, session: Session, endpoints: Endpoints, coordinator: Coordinator) -> None:
        self._session, self._endpoints, self._coordinator = session, endpoints, coordinator
        self._spent_before = {name: spent for name, spent, _ in coordinator.leases.spent()}
        self._ended = _Ended()

    def retire(self, writer: str) -> None:
        """Keep the sums of a worker that ends."""
        report = self._coordinator.members[writer].report
        if report is not None:
            self._ended.steps.update({name: lane.steps for name, lane in report.lanes.items()})
            self._ended.charged += report.charged
            self._ended.unmetered += report.unmetered

    def show(self, workers: str) -> None:
        """Show it now; `workers`: in words, how many there are."""
        reports = [member.report for member in self._coordinator.members.values() if member.report is not None]
        largest: dict[str, int] = {}
        for job in self._session.jobs:
            own = [report.lanes[job.name] for report in reports if job.name in report.lanes]
            context = job.context
            context.steps, context.playing = self._ended.steps[job.name], 0
            for lane in own:
                context.steps += lane.steps
                context.playing += lane.playing
            context.unavailable = _first([lane.unavailable for lane in own]) or context.unavailable
            context.refused = _first([lane.refused for lane in own]) or context.refused
            context.too_large = _first([lane.too_large for lane in own]) or context.too_large
            context.stopped = self._coordinator.agents_stopped.get(job.name, context.stopped)
            if job.lane is not None and own:
                largest[job.name] = max([lane.largest for lane in own])
                self._show_lane(job.lane, own, context.steps)
        self._show_money(reports, largest)
        self._session.workers = workers

    def _show_lane(self, lane: Lane, own: list[LaneReport], steps: int) -> None:
        if any(one.acted for one in own):
            lane.acted()
        lane.notice = _first([one.notice for one in own]) or lane.notice
        failures = Counter[str]()
        for one in own:
            if one.failures:
                failures.update(one.failures)
        lane.elsewhere = SeenElsewhere(
            proven=sum([one.proven for one in own]),
            stats=LaneStats(
                lane=lane.name,
                in_flight=sum([one.in_flight for one in own]),
                window=sum([one.window for one in own]),
                waiting=sum([one.waiting for one in own]),
                waits_for=_first([one.waits_for for one in own]),
                paused_s=max([one.paused_s for one in own]),
                trouble=_first([one.trouble for one in own]),
                ended=_first([one.ended for one in own]),
                requests=steps,
                input_tokens=0,
                output_tokens=0,
                requests_per_min=sum([one.requests_per_min for one in own]),
                input_tokens_per_min=sum([one.input_per_min for one in own]),
                output_tokens_per_min=sum([one.output_per_min for one in own]),
                median_latency_s=max([one.latency_s for one in own]),
                failures=failures,
                servers=together([one.servers for one in own]),
            ),
        )

    def _show_money(self, reports: list[Renew], largest: dict[str, int]) -> None:
        if self._endpoints.budget is None:
            return
        spent = {}
        for name, paid, reserved in self._coordinator.leases.spent():
            kind, _, rest = name.partition(" ")
            spent[RUN_SCOPE if name == RUN else (kind, rest)] = paid - self._spent_before[name], reserved
        self._endpoints.budget.mirror(
            spent,
            charged=self._ended.charged + sum(report.charged for report in reports),
            unmetered=sum((report.unmetered for report in reports), self._ended.unmetered),
            largest=largest,
        )


def _first(words: list[str]) -> str:
    """The first that says something."""
    return next(filter(None, words), "")
