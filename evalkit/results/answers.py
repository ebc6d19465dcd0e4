"""What a run's log says about what the run is to find out: the one place where its question is answered.

The engine feeds it episode by episode, `verify` and every reader from the log; both come to the same answers, since an
answer is the one of the first look at which there is one, had anyone looked after each turn.

Void episodes count here as they were played: who saw a score may not take it back without telling. Readers say how many
there are.
"""

import hashlib
import math
import statistics
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import VERSION, FrozenQuestion, GivenAnswer
from evalkit.results.episodes import EpisodeResult
from evalkit.results.question import DrawOrder, indices
from evalkit.spec.decide import POINTS
from evalkit.stats.deciding import Asked, Contest, Inquiry
from evalkit.stats.evidence import Bounds, LookResult
from evalkit.text import many

Subject = tuple[str, ...]
"""A pair of agents, or one agent; of a gate a pair of agents and a suite."""

Word = Literal["above", "below", "equal", "not worse", "worse", "known", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """One part of a question, and what is known of it; scores as the environments give them."""

    subject: Subject
    """(first, second): the difference is the second's mean less the first's; or an agent alone, and its own mean."""
    answer: Word
    mean: float
    """Of the draws; nan before the first turn. Biased away from 0 at a stop, which comes when luck adds to
    a difference."""
    low: float
    high: float
    """Where the true mean lies, valid at all looks of all answers together, but for a share `alpha` of runs."""
    draws: int
    """That count."""
    at: int
    """With so many the answer was given; 0 while it is open."""
    is_open: bool
    """Whether more episodes are played for it. In a search for the best one, pairs of agents that are out are not."""
    wanted: float
    """The margin, or the half width."""

    @property
    def words(self) -> str:
        """The answer in a sentence, differences in points."""
        if len(self.subject) == 1:
            (agent,) = self.subject
            known = "known" if self.at else "not known yet"
            return f"{agent}: {known} to ±{points(self.wanted)} points: {points(self.mean)} {self._interval()}."
        if len(self.subject) == 3:
            old, new, suite = self.subject
            if self.answer == "worse":
                fallen = _between(-self.high, -self.low)
                return f"{suite}: {new} is worse than {old} by {points(-self.mean)} points {fallen}."
            word = f"not worse by {points(self.wanted)} points" if self.answer == "not worse" else "undecided"
            return f"{suite}: {word}: {new} less {old} is {points(self.mean)} {self._interval()}."
        first, second = self.subject
        if self.answer == "equal":
            return f"{first} and {second} are equal within {points(self.wanted)} points: {self._difference()}."
        if self.answer == "undecided":
            return f"{first} and {second}: undecided: {self._difference()}."
        better, worse, sign = (second, first, 1) if self.answer == "above" else (first, second, -1)
        low, high = sorted((sign * self.low, sign * self.high))
        return f"{better} is better than {worse} by {points(sign * self.mean)} points {_between(low, high)}."

    def _difference(self) -> str:
        first, second = self.subject
        return f"{second} less {first} is {points(self.mean)} {self._interval()}"

    def _interval(self) -> str:
        return _between(self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values; numbers that are not known are null."""
        return {
            "about": list(self.subject),
            "answer": self.answer,
            "mean": self.mean if math.isfinite(self.mean) else None,
            "low": self.low,
            "high": self.high,
            "draws": self.draws,
            "answered_at": self.at or None,
            "open": self.is_open,
            "words": self.words,
        }


def best_words(best: Sequence[str], margin: float, *, decided: bool) -> str:
    """Who is the best, in a sentence: those that are left."""
    if len(best) == 1:
        return f"The best is {best[0]}."
    return f"The best {f'are equal within {points(margin)} points:' if decided else 'is one of'} {', '.join(best)}."


def points(value: float) -> str:
    """A score in points, of which the scale from 0 to 1 has 100."""
    return "unknown" if math.isnan(value) else f"{POINTS * value:.1f}".replace("-0.0", "0.0")


def _between(low: float, high: float) -> str:
    return f"[{points(low)}, {points(high)}]"


class RunQuestion:
    """A run's question with the scores that are known."""

    def __init__(self, manifest: Manifest, frozen: FrozenQuestion) -> None:
        self.frozen, self._manifest = frozen, manifest
        self._order = DrawOrder(manifest, frozen)
        self._asked = Inquiry(
            agents=frozen.agents,
            asked=msgspec.convert(frozen.asked, Asked),
            pairs=frozen.pairs,
            margin=frozen.margin,
            alpha=frozen.alpha,
            turn=self._order.turn,
            centred=frozen.about == "this suite",
            total=self.total,
            lead=self._order.lead,
            scores=Bounds(least=frozen.scores[0], most=frozen.scores[1]),
            precision=frozen.precision,
        )
        self._contest = Contest(self._asked)
        self._scores: dict[str, list[float | None]] = {agent: [] for agent in frozen.agents}

    @property
    def draws(self) -> int:
        """That there are: instances, or instances times replicates."""
        return self._order.draws

    @property
    def total(self) -> int:
        """The same where each is made once and it is their mean that is sought; else 0."""
        return self._order.draws if self.frozen.about == "this suite once" else 0

    @property
    def turn(self) -> int:
        """Draws between two moments at which something can be said."""
        return self._order.turn

    def spread(self, least: int) -> float | None:
        """Standard deviation of the differences of a pair, as a share of the range of scores, over all pairs with at
        least so many draws; None if there is none."""
        variances = []
        for first, second in self.frozen.pairs:
            share = self._asked.scores.share
            both = zip(self._scores[first], self._scores[second], strict=False)
            found = [share(b) - share(a) for a, b in both if a is not None and b is not None]
            if len(found) >= least:
                variances.append(statistics.variance(found))
        return math.sqrt(statistics.fmean(variances)) if variances else None

    def add(self, agent: str, suite: str, index: int, replicate: int, score: float) -> bool:
        """An episode has ended with a score; whether that is a draw. Its first score counts."""
        place = self._order.place(suite, index, replicate)
        scores = self._scores.get(agent)
        if place is None or scores is None:
            return False
        if place >= len(scores):
            scores.extend([None] * (place + 1 - len(scores)))
        if scores[place] is None:
            scores[place] = score
        return True

    def add_all(self, episodes: Iterable[EpisodeResult]) -> None:
        """The same for what the log holds."""
        ended = [
            episode for episode in episodes if episode.score is not None and episode.suite in self._manifest.suites
        ]
        wanted: dict[str, dict[str, None]] = {}
        for episode in ended:
            wanted.setdefault(episode.suite, {})[episode.instance] = None
        places = indices(self._manifest, {suite: list(names) for suite, names in wanted.items()})
        for episode in ended:
            index = places.get((episode.suite, episode.instance))
            if index is not None and episode.score is not None:
                self.add(episode.agent, episode.suite, index, episode.replicate, episode.score)

    def look(self) -> None:
        """Read the scores that have come since the last look."""
        self._contest.look(self._scores)

    def given(self, answer: QuestionAnswer) -> GivenAnswer:
        """An answer as it is kept."""
        digest = self._digest(answer.subject, answer.at)
        return GivenAnswer(about=answer.subject, answer=answer.answer, draws=answer.at, digest=digest)

    def counts(self, suite: str) -> bool:
        """Whether a suite's episodes are draws."""
        return any(one.name == suite for one in self.frozen.suites)

    def _sides(self, subject: Subject) -> "list[list[float | None]]":
        """The scores that a part of the question is about, by place; of each of its agents."""
        return [self._scores[agent] for agent in subject]

    def _digest(self, subject: Subject, draws: int) -> str:
        digest = hashlib.sha256()
        for scores in self._sides(subject):
            digest.update(array("d", [math.nan if score is None else score for score in scores[:draws]]).tobytes())
        return digest.hexdigest()

    @property
    def playing(self) -> frozenset[str]:
        """The agents that are played for a question that is open."""
        return self._contest.playing

    def is_done(self, agent: str, suite: str) -> bool:  # noqa: ARG002 - one question is about all suites
        """Whether an agent needs no further episode of a suite: every question about it is answered."""
        asked = any(agent in pair for pair in self.frozen.pairs) or agent in self.frozen.precision
        return asked and agent not in self.playing

    @property
    def open(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """(the pairs whose answer is still sought, the agents whose own means are)."""
        return self._contest.open, self._contest.unmeasured

    @property
    def answers(self) -> list[QuestionAnswer]:
        """All parts of the question, in the order in which they were frozen. Before the first look all are open."""
        open_pairs, findings, known = set(self._contest.open), self._contest.findings, self._contest.known
        asked, unknown = self._asked, set(self._contest.unmeasured)
        pairs = [
            _answer(pair, findings.get(pair), pair in open_pairs, asked.margin, asked.width) for pair in asked.pairs
        ]
        agents = [
            _answer((agent,), known.get(agent), agent in unknown, half, asked.width)
            for agent, half in asked.precision.items()
        ]
        return pairs + agents

    @property
    def best(self) -> tuple[str, ...] | None:
        """For the question which agent is the best: those that are left. None for other questions."""
        left = self._contest.left
        return tuple(agent for agent in self.frozen.agents if agent in left) if self.frozen.asked == "best" else None

    @property
    def decided(self) -> bool:
        """Whether every question is answered."""
        return not self.playing

    def words(self) -> list[str]:
        """The answers in sentences: who is the best first, then those that are open."""
        told = [one for one in self.answers if self.promises(one) and (one.is_open or one.answer != "undecided")]
        told.sort(key=lambda one: one.answer == "undecided")
        first = [] if self.best is None else [best_words(self.best, self._asked.margin, decided=self.decided)]
        return [*first, *(f"{answer.words} {self._counted(answer)}" for answer in told)]

    def promises(self, answer: QuestionAnswer) -> bool:
        """Whether an answer is one of those that hold together; in a search for the best one its pairs are not."""
        return self.best is None or len(answer.subject) == 1

    def _counted(self, answer: QuestionAnswer) -> str:
        what = "draws" if len(answer.subject) == 1 else "pairs"
        given = f"answered with {answer.at:,}, " if answer.at else ""
        cut = f" {cut}" if (cut := self.cut_words(answer)) else ""
        return f"Valid at all looks; {given}{answer.draws:,} of {self.draws_of(answer.subject):,} {what} so far.{cut}"

    def draws_of(self, subject: Subject) -> int:  # noqa: ARG002 - here all parts have the same
        """That there are for a part of the question."""
        return self.draws

    def cut_words(self, answer: QuestionAnswer) -> str:
        """How many scores of an answer's draws count as an end of the range, and its mean without that; empty if none
        does."""
        least, most = self.frozen.scores
        scores = [[one or 0.0 for one in side[: answer.draws]] for side in self._sides(answer.subject)]
        beyond = sum(not least <= one <= most for side in scores for one in side)
        if not beyond:
            return ""
        mean = statistics.fmean(scores[-1]) - (statistics.fmean(scores[0]) if len(scores) == 2 else 0.0)
        of = "the mean" if len(scores) == 1 else f"{answer.subject[1]} less {answer.subject[0]}"
        return (
            f"{many(beyond, 'score')} cut to the range from {points(least)} to {points(most)}; uncut, {of} "
            f"is {points(mean)}."
        )

    def to_json(self) -> dict[str, Any]:
        """The question and its answers with a stable schema."""
        return {
            "version": VERSION,
            "about": self.frozen.about,
            "asked": self.frozen.asked,
            "margin": self.frozen.margin,
            "alpha": self.frozen.alpha,
            "draws": self.draws,
            "decided": self.decided,
            "best": None if self.best is None else list(self.best),
            "answers": [answer.to_json() for answer in self.answers],
        }


def _answer(subject: Subject, found: LookResult | None, is_open: bool, wanted: float, width: float) -> QuestionAnswer:
    if found is None:
        low = -width if len(subject) == 2 else math.nan
        found = LookResult(draws=0, mean=math.nan, low=low, high=-low, answer="undecided")
    word: Word = "known" if len(subject) == 1 and found.at else found.answer
    return QuestionAnswer(
        subject=subject,
        answer=word,
        mean=found.mean,
        low=found.low,
        high=found.high,
        draws=found.draws,
        at=found.at,
        is_open=is_open,
        wanted=wanted,
    )
