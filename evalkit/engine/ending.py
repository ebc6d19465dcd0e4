"""How a session ended: its outcome, in numbers and in sentences."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from evalkit.engine.episode import LEFT_OWED, TOO_LARGE
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.resume import DIVERGED
from evalkit.engine.session import Session
from evalkit.engine.universe import example_of
from evalkit.errors import nearest
from evalkit.money import show_usd
from evalkit.results.endings import parked_words
from evalkit.store.files.record import REFUSED
from evalkit.text import many, seconds, span


def outcome_of(session: Session) -> RunOutcome:
    """What this call has done, and what remains. It writes an event if the money was not sufficient."""
    jobs, stop = session.jobs, session.stop
    left = [ending for job in jobs for ending, count in job.context.ended.items() for _ in range(count)]
    ended = sum(job.done_before for job in jobs) + sum(ending not in LEFT_OWED for ending in left)
    total = sum(job.episodes for job in jobs)
    code_words = list(_code_words(session))
    ended_lanes = [job.context.lane_stop.message for job in jobs if job.context.lane_stop.message]
    stopped = {agent: message for job in jobs for agent, message in job.context.stopped.items()}
    failed = {agent for job in jobs for agent, why in job.context.parked if why == "agent_error"}
    ended_lanes += [message for agent, message in stopped.items() if agent not in failed]
    # A lane may have dismissed all its episodes before one of them noticed that it has ended.
    lane_words = ended_lanes + [
        job.context.unavailable for job in jobs if job.context.unavailable and not job.context.lane_stop.message
    ]
    owed = total - ended
    if not lane_words:  # else it is told already
        lane_words = [f"{job.name}: {job.lane.trouble}." for job in jobs if job.lane is not None and job.lane.trouble]
    unfinished = _unfinished(session)
    if unfinished:
        session.store.event("unfinished", episodes=unfinished, why=stop.reason)
    owed_cost = session.gate.admission.owed() if session.gate is not None and owed else None
    reason = _reason(session, owed, lane_ended=bool(ended_lanes), code_failed=bool(code_words))
    refused_words, too_large_words = list(_refused_words(session)), list(_too_large_words(session))
    told = {"lane": ended_lanes, "agent": code_words, "refused": refused_words}
    why = _why(session, reason, left, {**told, "parked": [*lane_words, *too_large_words]})
    messages = (
        *_in_vain(session),
        *([] if session.question is None else session.question.words()),
        *why.splitlines(),
        *_owed_words(session, owed, owed_cost),
        *_ceiling_words(session),
        *_unfinished_words(session, unfinished),
        *lane_words,
        *code_words,
        *stopped.values(),
        *too_large_words,
        *refused_words,
        session.unmetered.advice(),
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
        owed=owed,
        unfinished=unfinished,
        owed_cost=owed_cost,
        refused=sum(job.context.ended.get(REFUSED, 0) for job in jobs),
        broken=left.count("internal_error") + sum(job.broken_before for job in jobs),
        steps=sum(job.context.steps for job in jobs),
        elapsed_s=asyncio.get_running_loop().time() - session.began,
        spent=session.spent,
        unconfirmed=sum(account.crashed - account.confirmed for account in session.accounts.values()),
        budget=session.resolved.sweep.budget,
        simulated=session.manifest.simulated,
        unmetered=session.unmetered,
        question=None if session.question is None else session.question.asked.to_json(),
        spared=0 if session.question is None else session.question.spared,
        spared_cost=0 if session.question is None else session.question.spared_cost,
        example=example_of(session.resolved.manifest, session.options.choice),
    )


def _unfinished(session: Session) -> int:
    """Episodes that were admitted and that money or time could not finish."""
    if session.stop.reason not in ("budget", "deadline"):
        return 0
    return sum(job.context.ended.get("stopped", 0) for job in session.jobs if job.gate is not None)


def _why(session: Session, reason: str, left: Sequence[str], told: Mapping[str, Sequence[str]]) -> str:
    """Why it stopped although episodes remain, in a sentence that names what decided, or a line for each lane or
    agent that did; empty where none remain or all questions are answered.

    `left`: how episodes were left in this call; `told`: by reason, what is said of each lane or agent.
    """
    elapsed_s, limit = asyncio.get_running_loop().time() - session.began, session.options.limit
    if reason == "interrupt":
        return f"{session.stop.message.removesuffix('.')} after {seconds(elapsed_s)}."
    if session.stop.reason:
        return session.stop.message
    if reason in ("complete", "decided"):
        return ""
    if told.get(reason) and (reason != "parked" or len(told[reason]) == 1):
        return "\n".join(told[reason])
    if reason == "limit" and limit is not None:
        return f"`--limit {limit}` is reached: this call was to end {many(limit, 'episode')} of each model."
    if reason == "budget":
        return next(chain(_budget_words(session), _ceiling_words(session)), "")
    if reason == "deadline" and session.gate is not None:
        return (
            f"No further episode would end before the deadline of {span(session.resolved.sweep.deadline_s or 0)}: "
            f"{span(elapsed_s)} have passed, and the next one may take {span(session.gate.admission.next_s())}."
        )
    counts = {way: left.count(way) for way in LEFT_BECAUSE}
    counts["internal_error"] += sum(job.broken_before for job in session.jobs)
    parts = [f"{count:,} {LEFT_BECAUSE[way]}" for way, count in counts.items() if count]
    return f"Of the episodes that remain, {'; '.join(parts)}." if parts else ""


LEFT_BECAUSE = {
    REFUSED: "were refused by their provider",
    "unavailable": "got no answer from their provider",
    TOO_LARGE: f"need a request that is too large for the budget (`{TOO_LARGE}`)",
    "internal_error": "were stopped by an error in evalkit, whose traceback is in events.jsonl",
}
"""By way of leaving an episode: why it remains."""


def _budget_words(session: Session) -> Iterator[str]:
    """That the run's own budget lets no further episode start; nothing where others hold them back."""
    budget, left = session.resolved.sweep.budget, 0
    if session.gate is not None and budget is not None and _all_wait(session):
        left, needed = max(0, budget - session.spent), round(session.gate.admission.next_cost())
        kept = " with what is kept for others" if needed <= left else ""
        yield (
            f"The budget of {show_usd(budget)} is reached: {show_usd(left)} remain, and the next episode may take up "
            f"to {show_usd(needed)}{kept}."
        )


def _owed_words(session: Session, owed: int, owed_cost: int | None) -> Iterator[str]:
    """What remains when money or time is over, what it will cost, and what to do."""
    over = session.stop.reason or session.cut
    if owed and over in ("budget", "deadline"):
        cost = f", with a predicted cost of about {show_usd(owed_cost)}" if owed_cost else ""
        raised = "To continue, raise `--budget`, or `budget_usd` in the sweep and run it again."
        remedy = (
            "" if over == session.stop.reason == "budget" else raised if over == "budget" else "Run again to continue."
        )
        yield f"{_episodes(owed)}{cost}. {remedy}".rstrip()


def _all_wait(session: Session) -> bool:
    """Whether it is the run's own budget that holds episodes back, not an agent's or a lane's alone."""
    gate = session.gate
    return gate is not None and (
        gate.admission.given_up or any(backlog.why == "budget" for backlog in gate.admission.backlogs.values())
    )


def _ceiling_words(session: Session) -> Iterator[str]:
    """Which agents and lanes have used up their part of the budget."""
    if session.gate is not None:
        for scope, name, budget in session.gate.admission.ceilings.words():
            yield (
                f"The budget of {scope} {name} ({show_usd(budget)}) is reached: too little remains to finish "
                f"another episode. To continue, raise it in the sweep (`budget_usd`) and run it again."
            )


def _unfinished_words(session: Session, unfinished: int) -> Iterator[str]:
    """That episodes had started: what of them took too long, and what had no provider that answers."""
    waited = sum(
        job.context.ended.get("stopped", 0)
        for job in session.jobs
        if unfinished and job.gate is not None and job.lane is not None and job.lane.trouble
    )
    what = "money" if session.stop.reason == "budget" else "time"
    for count, why in (
        (unfinished - waited, f"more {what} was needed than predicted"),
        (waited, "their provider does not answer"),
    ):
        if count:
            yield (
                f"{count:,} of them had started and did not end, since {why}. "
                "What has started resumes first when the run is started again."
            )


def _code_words(session: Session) -> Iterator[str]:
    """Of which agents the own code has failed, in how many episodes, and how."""
    for job in session.jobs:
        for (agent, why), parked in job.context.parked.items():
            yield from filter(None, [parked_words(agent, why, parked)])


def _too_large_words(session: Session) -> Iterator[str]:
    """Which lanes have set episodes aside that could not be paid for."""
    for job in session.jobs:
        if job.context.too_large:
            count = job.context.ended.get(TOO_LARGE, 0)
            yield f"{job.name}: {count:,} set aside (`{TOO_LARGE}`): {job.context.too_large}"


def _refused_words(session: Session) -> Iterator[str]:
    """Which lanes' provider refused requests for a reason that the model did not cause."""
    for job in session.jobs:
        count = job.context.ended.get(REFUSED, 0)
        if count and job.context.refused not in job.context.lane_stop.message:
            refused = many(count, "episode was refused and is", "episodes were refused and are")
            yield (
                f"{job.name}: {refused} not scored. The provider's last words: {job.context.refused} "
                "The same command plays what was refused again."
            )


def _episodes(count: int) -> str:
    return many(count, "episode remains", "episodes remain")


def _reason(session: Session, owed: int, *, lane_ended: bool, code_failed: bool) -> str:
    if session.stop.reason:
        return session.stop.reason
    if not owed:
        return "complete"
    if session.question is not None and session.question.answered:
        return "decided"
    if session.cut:
        return session.cut
    if lane_ended:
        return "lane"
    if any(job.context.ended.get(REFUSED) for job in session.jobs):
        return "refused"
    if any(job.limit is not None and job.taken >= job.limit for job in session.jobs):
        return "limit"
    return "agent" if code_failed else "parked"


def _in_vain(session: Session) -> Iterator[str]:
    """Requests without effect: endings to be retried that no episode has."""
    holdings = session.holdings
    endings = {word for cell in holdings.cells.values() for word, count in cell.endings.items() if count}
    endings |= {"internal_error"} if holdings.broken else set()
    endings |= {DIVERGED} if holdings.diverged else set()
    for word in sorted(session.options.retry - endings):
        yield f"--retry {word}: no episode of this run has that ending.{nearest(word, endings)}"
