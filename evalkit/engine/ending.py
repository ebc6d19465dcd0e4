"""How a session ended: its outcome, in numbers and in sentences."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from evalkit.engine.episode import NOT_ENDED, TOO_LARGE
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.resume import DIVERGED
from evalkit.engine.session import Schedule
from evalkit.engine.universe import example_of
from evalkit.errors import nearest
from evalkit.money import show_usd
from evalkit.results.endings import deferred_words
from evalkit.store.files.record import REFUSED
from evalkit.text import many, seconds, span


def outcome_of(schedule: Schedule) -> RunOutcome:
    """What this call has done, and what remains. It writes an event if the money was not sufficient."""
    session, jobs, admitter = schedule.session, schedule.jobs, schedule.admitter
    left = [ending for job in jobs for ending, count in job.context.ended.items() for _ in range(count)]
    ended = sum(job.done_before for job in jobs) + sum(ending not in NOT_ENDED for ending in left)
    total = sum(job.episodes for job in jobs)
    code_words = list(_code_words(schedule))
    ended_lanes = [job.context.lane_stop.message for job in jobs if job.context.lane_stop.message]
    stopped = {agent: message for job in jobs for agent, message in job.context.stopped.items()}
    failed = {agent for job in jobs for agent, why in job.context.deferred if why == "agent_error"}
    ended_lanes += [message for agent, message in stopped.items() if agent not in failed]
    # A lane may have dismissed all its episodes before one of them noticed that it has ended.
    lane_words = ended_lanes + [
        job.context.unavailable for job in jobs if job.context.unavailable and not job.context.lane_stop.message
    ]
    remaining = total - ended
    if not lane_words:  # else it is told already
        lane_words = [f"{job.name}: {job.lane.trouble}." for job in jobs if job.lane is not None and job.lane.trouble]
    unfinished = _unfinished(schedule)
    if unfinished:
        session.store.event("unfinished", episodes=unfinished, why=session.stop.reason)
    remaining_cost = admitter.admission.remaining() if admitter is not None and remaining else None
    reason = _reason(schedule, remaining, lane_ended=bool(ended_lanes), code_failed=bool(code_words))
    refused_words, too_large_words = list(_refused_words(schedule)), list(_too_large_words(schedule))
    told = {"lane": ended_lanes, "agent": code_words, "refused": refused_words}
    why = _why(schedule, reason, left, {**told, "deferred": [*lane_words, *too_large_words]})
    messages = (
        *_in_vain(schedule),
        *([] if schedule.question is None else schedule.question.words()),
        *why.splitlines(),
        *_remaining_words(schedule, remaining, remaining_cost),
        *_ceiling_words(schedule),
        *_unfinished_words(schedule, unfinished),
        *lane_words,
        *code_words,
        *stopped.values(),
        *too_large_words,
        *refused_words,
        schedule.unmetered.advice(),
        *(job.lane.notice for job in jobs if job.lane is not None),
    )
    return RunOutcome(
        directory=session.options.directory,
        place=session.options.place,
        reason=reason,
        why=why,
        messages=tuple(dict.fromkeys(filter(None, messages))),
        episodes=total,
        ended=ended,
        remaining=remaining,
        unfinished=unfinished,
        remaining_cost=remaining_cost,
        refused=sum(job.context.ended.get(REFUSED, 0) for job in jobs),
        broken=left.count("internal_error") + sum(job.broken_before for job in jobs),
        steps=sum(job.context.steps for job in jobs),
        elapsed_s=asyncio.get_running_loop().time() - session.began,
        spent=schedule.spent,
        unconfirmed=sum(account.crashed - account.confirmed for account in session.accounts.values()),
        budget=session.resolved.sweep.budget,
        simulated=session.manifest.simulated,
        unmetered=schedule.unmetered,
        question=None if schedule.question is None else schedule.question.asked.to_json(),
        spared=0 if schedule.question is None else schedule.question.spared,
        spared_cost=0 if schedule.question is None else schedule.question.spared_cost,
        example=example_of(session.resolved.manifest, session.options.choice),
    )


def _unfinished(schedule: Schedule) -> int:
    """Episodes that were admitted and that money or time could not finish."""
    if schedule.session.stop.reason not in ("budget", "deadline"):
        return 0
    return sum(job.context.ended.get("stopped", 0) for job in schedule.jobs if job.admitter is not None)


def _why(schedule: Schedule, reason: str, left: Sequence[str], told: Mapping[str, Sequence[str]]) -> str:
    """Why it stopped although episodes remain, in a sentence that names what decided, or a line for each lane or
    agent that did; empty where none remain or all questions are answered.

    `left`: how episodes were left in this call; `told`: by reason, what is said of each lane or agent.
    """
    elapsed_s, limit = asyncio.get_running_loop().time() - schedule.session.began, schedule.session.options.limit
    if reason == "interrupt":
        return f"{schedule.session.stop.message.removesuffix('.')} after {seconds(elapsed_s)}."
    if schedule.session.stop.reason:
        return schedule.session.stop.message
    if reason in ("complete", "decided"):
        return ""
    if told.get(reason) and (reason != "deferred" or len(told[reason]) == 1):
        return "\n".join(told[reason])
    if reason == "limit" and limit is not None:
        return f"`--limit {limit}` is reached: this call was to end {many(limit, 'episode')} of each model."
    if reason == "budget":
        return next(chain(_budget_words(schedule), _ceiling_words(schedule)), "")
    if reason == "deadline" and schedule.admitter is not None:
        deadline_s = schedule.session.resolved.sweep.deadline_s or 0
        return (
            f"No further episode would end before the deadline of {span(deadline_s)}: "
            f"{span(elapsed_s)} have passed, and the next one may take {span(schedule.admitter.admission.next_s())}."
        )
    counts = {way: left.count(way) for way in LEFT_BECAUSE}
    counts["internal_error"] += sum(job.broken_before for job in schedule.jobs)
    parts = [f"{count:,} {LEFT_BECAUSE[way]}" for way, count in counts.items() if count]
    return f"Of the episodes that remain, {'; '.join(parts)}." if parts else ""


LEFT_BECAUSE = {
    REFUSED: "were refused by their provider",
    "unavailable": "got no answer from their provider",
    TOO_LARGE: f"need a request that is too large for the budget (`{TOO_LARGE}`)",
    "internal_error": "were stopped by an error in evalkit, whose traceback is in events.jsonl",
}
"""By way of leaving an episode: why it remains."""


def _budget_words(schedule: Schedule) -> Iterator[str]:
    """That the run's own budget lets no further episode start; nothing where others hold them back."""
    budget, left = schedule.session.resolved.sweep.budget, 0
    if schedule.admitter is not None and budget is not None and _all_wait(schedule):
        left, needed = max(0, budget - schedule.spent), round(schedule.admitter.admission.next_cost())
        kept = " with what is kept for others" if needed <= left else ""
        yield (
            f"The budget of {show_usd(budget)} is reached: {show_usd(left)} remain, and the next episode may take up "
            f"to {show_usd(needed)}{kept}."
        )


def _remaining_words(schedule: Schedule, remaining: int, remaining_cost: int | None) -> Iterator[str]:
    """What remains when money or time is over, what it will cost, and what to do."""
    over = schedule.session.stop.reason or ("" if schedule.admitter is None else schedule.admitter.cut)
    if remaining and over in ("budget", "deadline"):
        cost = f", with a predicted cost of about {show_usd(remaining_cost)}" if remaining_cost else ""
        remedy = "Run again to continue."
        if over == "budget":  # what an agent's own would take is said already, as is what has stopped the run
            raised = _all_wait(schedule) and not schedule.session.stop.reason
            remedy = "To continue, raise `--budget`, or `budget_usd` in the sweep and run it again." if raised else ""
        yield f"{_episodes(remaining)}{cost}. {remedy}".rstrip()


def _all_wait(schedule: Schedule) -> bool:
    """Whether it is the run's own budget that holds episodes back, not an agent's or a lane's alone."""
    admitter = schedule.admitter
    return admitter is not None and (
        admitter.admission.given_up or any(backlog.why == "budget" for backlog in admitter.admission.backlogs.values())
    )


def _ceiling_words(schedule: Schedule) -> Iterator[str]:
    """Which agents and lanes have used up their part of the budget."""
    if schedule.admitter is not None:
        for name, budget in schedule.admitter.admission.ceilings():
            yield (
                f"The budget of agent {name} ({show_usd(budget)}) is reached: too little remains to finish "
                f"another episode. To continue, raise it in the sweep (`budget_usd`) and run it again."
            )


def _unfinished_words(schedule: Schedule, unfinished: int) -> Iterator[str]:
    """That episodes had started: what of them took too long, and what had no provider that answers."""
    waited = sum(
        job.context.ended.get("stopped", 0)
        for job in schedule.jobs
        if unfinished and job.admitter is not None and job.lane is not None and job.lane.trouble
    )
    what = "money" if schedule.session.stop.reason == "budget" else "time"
    for count, why in (
        (unfinished - waited, f"more {what} was needed than predicted"),
        (waited, "their provider does not answer"),
    ):
        if count:
            yield (
                f"{count:,} of them had started and did not end, since {why}. "
                "What has started resumes first when the run is started again."
            )


def _code_words(schedule: Schedule) -> Iterator[str]:
    """Of which agents the own code has failed, in how many episodes, and how."""
    for job in schedule.jobs:
        for (agent, why), deferred in job.context.deferred.items():
            yield from filter(None, [deferred_words(agent, why, deferred)])


def _too_large_words(schedule: Schedule) -> Iterator[str]:
    """Which lanes have set episodes aside that could not be paid for."""
    for job in schedule.jobs:
        if job.context.too_large:
            count = job.context.ended.get(TOO_LARGE, 0)
            yield f"{job.name}: {count:,} set aside (`{TOO_LARGE}`): {job.context.too_large}"


def _refused_words(schedule: Schedule) -> Iterator[str]:
    """Which lanes' provider refused requests for a reason that the model did not cause."""
    for job in schedule.jobs:
        count = job.context.ended.get(REFUSED, 0)
        if count and job.context.refused not in job.context.lane_stop.message:
            refused = many(count, "episode was refused and is", "episodes were refused and are")
            yield (
                f"{job.name}: {refused} not scored. The provider's last words: {job.context.refused} "
                "The same command plays what was refused again."
            )


def _episodes(count: int) -> str:
    return many(count, "episode remains", "episodes remain")


def _reason(schedule: Schedule, remaining: int, *, lane_ended: bool, code_failed: bool) -> str:
    if schedule.session.stop.reason:
        return schedule.session.stop.reason
    if not remaining:
        return "complete"
    if schedule.question is not None and schedule.question.answered:
        return "decided"
    if schedule.admitter is not None and schedule.admitter.cut:
        return schedule.admitter.cut
    if lane_ended:
        return "lane"
    if any(job.context.ended.get(REFUSED) for job in schedule.jobs):
        return "refused"
    if any(job.limit is not None and job.taken >= job.limit for job in schedule.jobs):
        return "limit"
    return "agent" if code_failed else "deferred"


def _in_vain(schedule: Schedule) -> Iterator[str]:
    """Requests without effect: endings to be retried that no episode has."""
    holdings = schedule.session.holdings
    endings = {word for cell in holdings.cells.values() for word, count in cell.endings.items() if count}
    endings |= {"internal_error"} if holdings.broken else set()
    endings |= {DIVERGED} if holdings.diverged else set()
    for word in sorted(schedule.session.options.retry - endings):
        yield f"--retry {word}: no episode of this run has that ending.{nearest(word, endings)}"
