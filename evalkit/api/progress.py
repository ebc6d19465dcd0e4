"""What a running run reports to the program that waits for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from evalkit.engine.view import View
from evalkit.money import usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run: `run(on_progress=...)` is called with it about four times per second and at the end.

    name          the planned episodes of this call, including those that earlier calls have ended
    ended         of them, those that have ended
    playing       episodes in flight
    steps         replies in this call
    steps_per_s   over the last seconds
    spent_usd     Decimal: the total over all calls of this run
    reserved_usd  Decimal: the worst case of the requests in flight
    budget_usd    Decimal, or None: no budget
    elapsed_s     seconds since this call started to play
    eta_s         seconds to the end at the current rate, or None: not known yet
    stopping      why the run drains (`budget`, `deadline`, `interrupt`, ...); empty while it continues
    lanes         by `provider/model` (or `policy`): the fields of a progress line of `evalkit run --json`

    >>> from evalkit import Progress
    >>> def show(now: Progress) -> None:
    ...     print(f"{now.ended}/{now.planned}, {now.spent_usd} USD")
    """

    name: str
    planned: int
    ended: int
    playing: int
    steps: int
    steps_per_s: float
    spent_usd: Decimal
    reserved_usd: Decimal
    budget_usd: Decimal | None
    elapsed_s: float
    eta_s: float | None
    stopping: str
    lanes: Mapping[str, Mapping[str, Any]] = field(repr=False)


def progress_of(view: View) -> Progress:
    """A view of the run as the public record."""
    lanes = view.lanes
    return Progress(
        name=view.name,
        planned=sum(lane.episodes for lane in lanes),
        ended=sum(lane.done for lane in lanes),
        playing=sum(lane.playing for lane in lanes),
        steps=sum(lane.steps for lane in lanes),
        steps_per_s=sum(lane.rate for lane in lanes),
        spent_usd=usd(view.spent),
        reserved_usd=usd(view.reserved),
        budget_usd=None if view.budget is None else usd(view.budget),
        elapsed_s=view.elapsed_s,
        eta_s=view.eta_s,
        stopping=view.stopping,
        lanes={lane.name: lane.to_json() for lane in lanes},
    )
