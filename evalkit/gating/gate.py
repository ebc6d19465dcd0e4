"""A gate: plays what is needed of a sweep to know whether its agents are worse than old ones, and stops as soon as that
is known.

It is a run with a question (`results/gating.py`): its log, budget, retries and resumes are those of any run, and a
second call of the same command goes on or repeats the verdict. A failure of a provider ends no episode, so it can only
leave a gate undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import COMPLETE, FAILED, INCOMPLETE, INTERRUPTED, REFUSED, RunOutcome
from evalkit.engine.universe import Choice
from evalkit.engine.view import View
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import read_frozen
from evalkit.gating.baseline import STORED, Baseline, in_turns, narrowed_to
from evalkit.money import show_usd, usd_number
from evalkit.playing.sweeps import run_sweep
from evalkit.results.answers import QuestionAnswer, points
from evalkit.results.derived import read_run
from evalkit.results.episodes import EpisodeResult
from evalkit.results.gating import GateQuestion, GateVerdict, freeze_gate
from evalkit.results.question import indices
from evalkit.spec.gate import GateTable
from evalkit.stats.gating import exceeded
from evalkit.text import many

WORSE = 4
"""The exit code of a gate that fails, as of a night with an alarm."""
MOST_IN_FLIGHT = 16
"""Episodes of a lane, at most: those that are in flight when the answer comes are paid in vain."""
RAN_OUT = {"budget": "the money ran out", "deadline": "the time ran out", "interrupt": "it was interrupted"}
"""By the reason of an outcome: why there is no answer. Any other reason is a provider's or a machine's failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """A new agent beside an old one on a suite; scores and differences from 0 to 1, over the pairs that count."""

    old: str
    new: str
    suite: str
    """Names in the question."""
    answer: QuestionAnswer
    of: int
    """Draws that there are."""
    was: float
    now: float
    """Means of the draws that count; nan before the first turn."""
    cost: float
    """Pico-dollars of a new episode, and of an old one where it is played too."""
    dearer: float | None
    """Per cent that the new agent's episodes cost more than the old one's; None: the old ones cost nothing."""
    broken: float
    """Per cent of its calls that were refused or missing, averaged over episodes."""
    too_dear: bool
    too_broken: bool
    """Whether each is shown to be beyond what the policy lets pass."""
    needs: float
    """Draws that an answer is expected to take; inf: more than can be told."""

    @property
    def verdict(self) -> GateVerdict:
        """Of this check alone."""
        if self.answer.answer == "worse" or self.too_dear or self.too_broken:
            return "fail"
        return "pass" if self.answer.answer == "not worse" else "undecided"

    @property
    def more(self) -> float:
        """Pico-dollars that an answer is expected to cost beyond what was played."""
        return max(0.0, self.needs - self.answer.draws) * self.cost

    @property
    def words(self) -> str:
        """What it found, in a sentence."""
        found = [] if self.answer.answer != "worse" and self.verdict == "fail" else [self.answer.words]
        shown = "which is shown to be more than the policy lets pass"
        if self.too_dear:
            found.append(f"{self.suite}: an episode of {self.new} costs {self.dearer or 0:+.0f} %, {shown}.")
        if self.too_broken:
            found.append(f"{self.suite}: {self.broken:.0f} % of {self.new}'s calls are refused or missing, {shown}.")
        return " ".join(found)

    @property
    def takes(self) -> str:
        """What an answer would take, in words."""
        if math.isinf(self.needs):
            return f"{self.suite}: more pairs than can be told from {many(self.answer.draws, 'pair')}"
        there = f", and the suite has {self.of:,}: add instances or replicates" if self.needs > self.of else ""
        money = f", about {show_usd(round(self.more))} more" if self.more else ""
        return f"{self.suite}: about {math.ceil(self.needs):,} pairs ({self.answer.draws:,} so far{money}){there}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """How a gate ended."""

    outcome: RunOutcome
    baseline: Baseline
    policy: GateTable
    checks: tuple[GateCheck, ...] = ()
    alike: tuple[str, ...] = ()
    """New agents that are their old ones, in words."""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> GateVerdict:
        """`fail` where a check fails, `pass` where all pass, or where there is nothing to check."""
        found = {check.verdict for check in self.checks} or ({"pass"} if self.alike else set())
        return "fail" if "fail" in found else "pass" if found == {"pass"} else "undecided"

    @property
    def exit_code(self) -> int:
        """0 pass, 4 fail, 3 undecided or what the policy counts that as; 1 if only errors of evalkit's own remain, 2 if
        the log was changed, 130 interrupted."""
        if self.outcome.exit_code in (INTERRUPTED, REFUSED):
            return self.outcome.exit_code
        counts = self.policy.undecided if self.verdict == "undecided" else self.verdict
        rest = FAILED if self.outcome.exit_code == FAILED else INCOMPLETE
        return {"pass": COMPLETE, "fail": WORSE}.get(counts, rest)

    @property
    def sentence(self) -> str:
        """The verdict, and what it rests on."""
        if self.verdict == "fail":
            return f"fail: {' '.join(check.words for check in self.checks if check.verdict == 'fail')}"
        if self.verdict == "pass" and not self.checks:
            return f"pass: {'; '.join(self.alike)}."
        if self.verdict == "pass":
            margins = sorted({points(check.answer.wanted) for check in self.checks}, key=float)
            pairs = " and ".join(dict.fromkeys(f"{check.new} beside {check.old}" for check in self.checks))
            within = " or ".join(margins)
            suites = many(len({check.suite for check in self.checks}), "suite")
            return f"pass: {pairs}: not worse by {within} points, on {suites}."
        return f"undecided: {self.why}."

    @property
    def why(self) -> str:
        """Why there is no answer, and what it would take."""
        still = [check for check in self.checks if check.verdict == "undecided"]
        said = self.outcome.why.removesuffix(".").replace("\n", "; ")
        why = RAN_OUT.get(self.outcome.reason) or f"episodes could not be ended ({self.outcome.reason})"
        why += f" ({said})" if said else ""
        if still and all(check.answer.draws >= check.of for check in still):
            why = "the instances ran out"
        return f"{why}. An answer takes, for {'; '.join(check.takes for check in still)}" if still else why

    def to_json(self) -> dict[str, Any]:
        """With a stable schema: points and per cent from 0 to 100, money in USD, null for what is not known."""
        return {
            "schema": "evalkit.gate",
            "version": 1,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "run": str(self.outcome.directory),
            "reason": self.outcome.reason,
            "against": self.baseline.label,
            "stored": self.baseline.manifest is not None,
            "spent_usd": usd_number(self.outcome.spent),
            "spared_usd": usd_number(self.outcome.spared_cost),
            "simulated_money": bool(self.outcome.simulated),
            "policy": msgspec.to_builtins(self.policy),
            "checks": [_plain(check) for check in self.checks],
            "notes": list(self.notes),
        }


def _plain(check: GateCheck) -> dict[str, Any]:
    answer = check.answer
    numbers = {
        "old": 100 * check.was,
        "new": 100 * check.now,
        "difference": 100 * answer.mean,
        "low": 100 * answer.low,
        "high": 100 * answer.high,
        "margin": 100 * answer.wanted,
        "dearer": check.dearer,
        "broken": check.broken,
        "needs": check.needs,
    }
    return {
        "suite": check.suite,
        "agents": [check.old, check.new],
        "verdict": check.verdict,
        "answer": answer.answer,
        "pairs": answer.draws,
        "pairs_at_most": check.of,
        "answered_with": answer.at or None,
        "too_dear": check.too_dear,
        "too_broken": check.too_broken,
        **{name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()},
        "words": check.words,
    }


async def play_gate(
    resolved: ResolvedSweep,
    baseline: Baseline,
    pairs: Sequence[tuple[str, str]],
    policy: GateTable,
    options: RunOptions,
    show: Callable[[View], None],
    *,
    again: bool = False,
) -> GateOutcome:
    """Play until the gate knows, or until it cannot. `pairs`: of old and new agent; `again`: play the old ones of a run
    in turns with the new ones.

    Raises UsageError where nothing can be compared, and what `run_sweep` raises.
    """
    alike: tuple[str, ...] = ()
    if again and baseline.manifest is not None:
        resolved, pairs, alike = in_turns(baseline, resolved, pairs)
        baseline = replace(baseline, manifest=None)
        if not pairs:
            unplayed = RunOutcome(
                directory=options.directory,
                place=options.place,
                reason="complete",
                episodes=0,
                ended=0,
                spent=0,
                budget=resolved.sweep.budget,
                simulated=resolved.manifest.simulated,
            )
            return GateOutcome(outcome=unplayed, baseline=baseline, policy=policy, alike=alike)
    narrow, stored = narrowed_to(baseline, resolved, pairs)
    names = {name for suite in resolved.manifest.suites.values() for name in (suite.name, suite.base)}
    policy.check(names, resolved.sweep.source)
    asked = [(f"{STORED}{old}" if stored else old, new) for old, new in pairs]
    frozen = freeze_gate(narrow.manifest, policy, asked, stored)
    played = frozenset(name for pair in asked for name in pair if name in narrow.manifest.agents)
    outcome = await run_sweep(
        replace(narrow, sweep=replace(narrow.sweep, decide=None, width=min(narrow.sweep.width, MOST_IN_FLIGHT))),
        replace(options, asked=frozen, choice=Choice(agents=played)),
        show,
    )
    return judged(outcome, baseline, policy, alike)


def judged(outcome: RunOutcome, baseline: Baseline, policy: GateTable, alike: tuple[str, ...] = ()) -> GateOutcome:
    """What a gate's run says. Raises CorruptLogError, StorageError."""
    manifest, _, results = read_run(outcome.place)
    frozen = read_frozen(outcome.place)
    if frozen is None or frozen.gate is None:  # interrupted before anything was written
        return GateOutcome(outcome=outcome, baseline=baseline, policy=policy)
    question = GateQuestion(manifest, frozen)
    question.add_all(results)
    question.look()
    episodes = _by_place(question, manifest, results, baseline)
    checks = tuple(_check(question, answer, episodes, policy) for answer in question.answers)
    notes = (*alike, *_notes(question, baseline))
    return GateOutcome(outcome=outcome, baseline=baseline, policy=policy, checks=checks, alike=alike, notes=notes)


_Episodes = Mapping[tuple[str, str], Mapping[int, EpisodeResult]]
"""By agent and suite: the scored episodes by their place in the order of draws."""


def _by_place(
    question: GateQuestion, manifest: Manifest, results: Sequence[EpisodeResult], baseline: Baseline
) -> _Episodes:
    found: dict[tuple[str, str], dict[int, EpisodeResult]] = {}
    old = [(f"{STORED}{one.agent}", one) for known in baseline.episodes.values() for one in known]
    scored = [*((one.agent, one) for one in results if one.score is not None), *old]
    wanted: dict[str, dict[str, None]] = {}
    for _, one in scored:
        if one.suite in manifest.suites:
            wanted.setdefault(one.suite, {})[one.instance] = None
    places = indices(manifest, {suite: list(names) for suite, names in wanted.items()})
    for agent, one in scored:
        at = places.get((one.suite, one.instance))
        place = None if at is None or not question.counts(one.suite) else question.place(one.suite, at, one.replicate)
        if place is not None:
            found.setdefault((agent, one.suite), {})[place] = one
    return {key: dict(sorted(known.items())) for key, known in found.items()}


def _check(question: GateQuestion, answer: QuestionAnswer, episodes: _Episodes, policy: GateTable) -> GateCheck:
    old, new, suite = answer.subject
    test = question.tests[answer.subject]
    # Those beyond have ended before others, and short ones do.
    was, now = (
        {at: one for at, one in episodes.get((agent, suite), {}).items() if at < answer.draws} for agent in (old, new)
    )
    both = [(was[at].cost, one.cost) for at, one in now.items() if at in was]
    before, after = sum(cost for cost, _ in both), sum(cost for _, cost in both)
    shares = [_broken(one) for one in now.values()]
    shown = partial(exceeded, alpha=test.alpha, tests=test.tests, turn=test.turn)
    allowed = 1 + (policy.dearer or 0.0) / 100
    # Between 0 and 1, and 1/2 where an episode costs just what is allowed.
    parts = [cost / total if (total := cost + allowed * past) else 0.5 for past, cost in both]
    mean = [math.fsum(side) / len(side) if side else math.nan for side in question.means(answer)]
    each = [math.fsum(one.cost for one in side.values()) / len(side) if side else 0.0 for side in (now, was)]
    return GateCheck(
        old=old,
        new=new,
        suite=suite,
        answer=answer,
        of=question.draws_of(answer.subject),
        was=mean[0],
        now=mean[1],
        cost=each[0] if old in question.stored else sum(each),
        dearer=100 * (after / before - 1) if before else None,
        broken=100 * math.fsum(shares) / len(shares) if shares else 0.0,
        too_dear=policy.dearer is not None and shown(parts, 0.5),
        too_broken=policy.broken is not None and shown(shares, policy.broken / 100),
        needs=question.takes(answer.subject),
    )


def _broken(episode: EpisodeResult) -> float:
    """The share of an episode's calls that were refused or missing."""
    calls = sum(count for *_, count in episode.outcomes)
    good = sum(count for _, outcome, count in episode.outcomes if outcome == "ok")
    total = calls + episode.without_call
    return 1 - good / total if total else 0.0


def _notes(question: GateQuestion, baseline: Baseline) -> list[str]:
    frozen = question.frozen
    about = "another replicate of this suite" if frozen.about == "this suite" else "instances like these"
    notes = [
        f"about {about}",
        f"at most {100 * frozen.alpha:g} % of gates fail though no agent is worse, and at most as many pass though one "
        "is worse by the margin, however often it looks",
    ]
    notes += (f"{answer.subject[2]}: {cut}" for answer in question.answers if (cut := question.cut_words(answer)))
    if baseline.manifest is None:
        return [*notes, "both sides were played in turns, so what an hour changes in both is not in the difference"]
    age = baseline.age(datetime.now(UTC))
    old = f", the last of them {age} old" if age else ""
    return [
        *notes,
        f"scores of {baseline.label} are stored{old}: what has changed at a provider since is in the difference, and "
        "alpha does not cover it; `--again` plays both sides in turns",
    ]
