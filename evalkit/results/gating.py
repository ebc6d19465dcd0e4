"""What a gate finds out: whether a new agent is worse than an old one, of each pair of them on each suite.

It is a question like those of `[decide]` (`answers.py`): frozen before the first request, fed episode by episode or
from the log, with answers that do not depend on when anyone looks. Here each suite is asked about by itself, and the
old agent's scores may be those of another run, which are frozen with the question.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from evalkit.errors import UsageError
from evalkit.frozen.instances import laid
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import VERSION, FrozenGate, FrozenQuestion, FrozenSuite
from evalkit.results.answers import QuestionAnswer, RunQuestion, Subject
from evalkit.results.question import DrawOrder, indices, score_bounds, turn_of
from evalkit.spec.decide import ALPHA, POINTS
from evalkit.spec.gate import GateTable
from evalkit.stats.deciding import AHEAD
from evalkit.stats.evidence import BETS_VERSION, Bounds
from evalkit.stats.gating import MarginTest, draws_to_answer

GateVerdict = Literal["pass", "fail", "undecided"]
Stored = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
"""As of `FrozenGate.stored`."""


def freeze_gate(
    manifest: Manifest, policy: GateTable, pairs: Sequence[tuple[str, str]], stored: Stored
) -> FrozenQuestion:
    """A gate about a run as it is planned: `pairs` of old and new agent, old ones in `stored` or in the run. Raises
    UsageError."""
    shared = [
        suite
        for suite in manifest.suites.values()
        if any(_has(manifest, stored, old, suite.name) and _has(manifest, {}, new, suite.name) for old, new in pairs)
    ]
    if not shared:
        raise UsageError("gate: there is no suite that an old and a new agent both have, so nothing can be compared.")
    again = manifest.replicates > 1
    if not again and manifest.order.key is None:
        raise UsageError("gate: the instances of this run come in the order of their list: start one of its own.")
    suites = []
    for suite in shared:
        strata = laid(suite.instances).strata
        turn = list(strata.values()) if again else turn_of(list(strata.values()))
        suites.append(FrozenSuite(name=suite.name, digest=suite.digest, strata=dict(zip(strata, turn, strict=True))))
    bounds = score_bounds(shared)
    width = bounds.most - bounds.least
    margins = {suite.name: policy.margin_of(suite.name, suite.base) for suite in shared}
    for name, margin in margins.items():
        if margin >= width:
            raise UsageError(f"gate: the margin of {name} is below {POINTS * width:g} points, not {POINTS * margin:g}.")
    kinds = 1 + (policy.dearer is not None) + (policy.broken is not None)
    return FrozenQuestion(
        version=VERSION,
        about="this suite" if again else "such instances",
        agents=tuple(dict.fromkeys(name for pair in pairs for name in pair)),
        asked="gate",
        pairs=tuple(pairs),
        margin=policy.margin / POINTS,
        alpha=ALPHA,
        alpha_each=ALPHA / (kinds * len(pairs) * len(suites)),
        precision={},
        scores=(bounds.least, bounds.most),
        ahead=AHEAD,
        bets=BETS_VERSION,
        key=manifest.order.key,
        suites=tuple(suites),
        gate=FrozenGate(
            margins=margins,
            stored={
                old: {
                    suite: {name: tuple(scores) for name, scores in known.items()}
                    for suite, known in by_suite.items()
                    if suite in margins
                }
                for old, by_suite in stored.items()
            },
        ),
    )


def _has(manifest: Manifest, stored: Stored, agent: str, suite: str) -> bool:
    """Whether an agent has scores on a suite, or will have."""
    if agent in stored:
        return suite in stored[agent]
    return agent in manifest.agents and manifest.suites[suite].environment in manifest.agents[agent].packs


class GateQuestion(RunQuestion):
    """A gate with the scores that are known."""

    def __init__(self, manifest: Manifest, frozen: FrozenQuestion) -> None:
        assert frozen.gate is not None
        self.frozen, self._manifest, self.gate = frozen, manifest, frozen.gate
        self._bounds = Bounds(least=frozen.scores[0], most=frozen.scores[1])
        self._orders = {
            suite.name: DrawOrder(manifest, msgspec.structs.replace(frozen, suites=(suite,))) for suite in frozen.suites
        }
        self._known: dict[tuple[str, str], list[float | None]] = {}
        """By agent and suite: its score at each place of the suite's order."""
        self.tests: dict[Subject, MarginTest] = {}
        self.stored = frozen.gate.stored
        width = self._bounds.most - self._bounds.least
        for old, new in frozen.pairs:
            for suite in self._orders:
                if not (_has(manifest, self.stored, old, suite) and _has(manifest, {}, new, suite)):
                    continue
                self._known |= {(old, suite): [], (new, suite): []}
                self.tests[old, new, suite] = MarginTest(
                    margin=self.gate.margins[suite] / width,
                    alpha=frozen.alpha,
                    tests=max(1, round(frozen.alpha / frozen.alpha_each)),
                    turn=self._orders[suite].turn,
                    centred=frozen.about == "this suite",
                )
        for old, by_suite in self.stored.items():
            for suite, known in by_suite.items():
                places = indices(manifest, {suite: list(known)})
                for name, scores in known.items():
                    for replicate, score in enumerate(scores if (suite, name) in places else ()):
                        self.add(old, suite, places[suite, name], replicate, score)
        self._answers = self._answered()

    @property
    def draws(self) -> int:
        """That there are, over all tests."""
        return sum(self._orders[suite].draws for *_, suite in self.tests)

    def add(self, agent: str, suite: str, index: int, replicate: int, score: float) -> bool:
        """An episode has ended with a score, or is stored; whether that is a draw. Its first score counts."""
        scores = self._known.get((agent, suite))
        place = None if scores is None else self._orders[suite].place(suite, index, replicate)
        if scores is None or place is None:
            return False
        scores.extend([None] * (place + 1 - len(scores)))
        if scores[place] is None:
            scores[place] = score
        return True

    def place(self, suite: str, index: int, replicate: int) -> int | None:
        """Of an episode in its suite's order of draws; None if it is no draw."""
        return self._orders[suite].place(suite, index, replicate)

    def means(self, answer: QuestionAnswer) -> list[list[float]]:
        """Of the old and the new agent: the scores that count in an answer, as they are."""
        return [[one for one in side[: answer.draws] if one is not None] for side in self._sides(answer.subject)]

    def look(self) -> None:
        """Read the scores that have come since the last look."""
        for subject, test in self.tests.items():
            test.add(self.differences(subject, test.seen))
        self._answers = self._answered()

    def differences(self, subject: Subject, start: int = 0) -> list[float]:
        """Of an old and a new agent on a suite, from a place on up to the first that is not known; 1 for the range."""
        found = []
        for was, now in zip(*(side[start:] for side in self._sides(subject)), strict=False):
            if was is None or now is None:
                break
            found.append(self._bounds.share(now) - self._bounds.share(was))
        return found

    def _sides(self, subject: Subject) -> list[list[float | None]]:
        old, new, suite = subject
        return [self._known[old, suite], self._known[new, suite]]

    @property
    def verdict(self) -> GateVerdict:
        """`fail` where a new agent is worse somewhere, `pass` where none is anywhere."""
        words = {test.answered[1] for test in self.tests.values()}
        return "fail" if "worse" in words else "undecided" if "undecided" in words else "pass"

    @property
    def answers(self) -> list[QuestionAnswer]:
        """Of all tests, as of the last look."""
        return self._answers

    def _answered(self) -> list[QuestionAnswer]:
        width, over = self._bounds.most - self._bounds.least, self.verdict != "undecided"
        found = []
        for subject, test in self.tests.items():
            (at, word), (low, high) = test.answered, test.interval
            found.append(
                QuestionAnswer(
                    subject=subject,
                    answer=word,
                    mean=width * test.mean,
                    low=width * low,
                    high=width * high,
                    draws=test.draws,
                    at=at,
                    is_open=not (at or over),
                    wanted=self.gate.margins[subject[2]],
                )
            )
        return found

    def takes(self, subject: Subject) -> float:
        """Draws that an answer is expected to take if the next ones are like those so far."""
        width, test = self._bounds.most - self._bounds.least, self.tests[subject]
        margin = self.gate.margins[subject[2]] / width
        return draws_to_answer(self.differences(subject), margin=margin, alpha=test.alpha, tests=test.tests)

    def draws_of(self, subject: Subject) -> int:
        """Of its suite."""
        return self._orders[subject[2]].draws

    @property
    def playing(self) -> frozenset[str]:
        """The agents that are played for a test that is open."""
        return frozenset(agent for answer in self.answers if answer.is_open for agent in answer.subject[:2])

    def is_done(self, agent: str, suite: str) -> bool:
        """Whether no open test is about an agent on a suite."""
        about = (answer.subject for answer in self.answers if answer.is_open)
        return not any(suite == place and agent in pair for *pair, place in about)

    @property
    def open(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """As of `RunQuestion`."""
        pairs = dict.fromkeys((answer.subject[0], answer.subject[1]) for answer in self.answers if answer.is_open)
        return tuple(pairs), ()

    @property
    def best(self) -> tuple[str, ...] | None:
        """A gate seeks none."""
        return None

    def words(self) -> list[str]:
        """The answers in sentences, those that are open last."""
        told = sorted(self.answers, key=lambda one: one.answer == "undecided")
        return [f"{one.words} {self._counted(one)}" for one in told if one.at or one.is_open]

    def to_json(self) -> dict[str, Any]:
        """As of `RunQuestion`, with the verdict."""
        return {**super().to_json(), "verdict": self.verdict}
