"""Shows in a session's own lanes, jobs and budget what its workers report, so that displays and limits of the whole run
see one run."""

from collections import Counter
from dataclasses import dataclass, field

from evalkit.client.budget import RUN as RUN_SCOPE
from evalkit.client.lanes.stats import LaneStats, SeenElsewhere, together
from evalkit.engine.endpoints import Endpoints
from evalkit.engine.machines.coordinator import Coordinator
from evalkit.engine.machines.messages import RUN, Renew
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
            context.steps = self._ended.steps[job.name] + sum(lane.steps for lane in own)
            context.playing = sum(lane.playing for lane in own)
            context.unavailable = next((lane.unavailable for lane in own if lane.unavailable), context.unavailable)
            context.invalid = next((lane.invalid for lane in own if lane.invalid), context.invalid)
            context.stopped = self._coordinator.agents_stopped.get(job.name, context.stopped)
            if job.lane is None or not own:
                continue
            if any(lane.acted for lane in own):
                job.lane.acted()
            job.lane.notice = next((lane.notice for lane in own if lane.notice), job.lane.notice)
            largest[job.name] = max(lane.largest for lane in own)
            failures = sum((Counter(lane.failures) for lane in own), Counter[str]())
            job.lane.elsewhere = SeenElsewhere(
                proven=sum(lane.proven for lane in own),
                stats=LaneStats(
                    lane=job.name,
                    in_flight=sum(lane.in_flight for lane in own),
                    window=sum(lane.window for lane in own),
                    waiting=sum(lane.waiting for lane in own),
                    waits_for=next((lane.waits_for for lane in own if lane.waits_for), ""),
                    paused_s=max(lane.paused_s for lane in own),
                    trouble=next((lane.trouble for lane in own if lane.trouble), ""),
                    ended=next((lane.ended for lane in own if lane.ended), ""),
                    requests=context.steps,
                    input_tokens=0,
                    output_tokens=0,
                    requests_per_min=sum(lane.requests_per_min for lane in own),
                    input_tokens_per_min=sum(lane.input_per_min for lane in own),
                    output_tokens_per_min=sum(lane.output_per_min for lane in own),
                    median_latency_s=max(lane.latency_s for lane in own),
                    failures=failures,
                    servers=together([lane.servers for lane in own]),
                ),
            )
        self._show_money(reports, largest)
        self._session.workers = workers

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
