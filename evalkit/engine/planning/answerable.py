"""What a sweep that asks a question can find out, and at what price: said before the first request.

For differences that are supposed, `evalkit.stats.deciding` forecasts with how many draws an answer comes. Draws cost
what an episode of each agent is planned to cost. How far the differences of a pair vary is what the run's scores say,
if it has some; else `SUPPOSED` is, and the plan says so.
"""

import math
from collections.abc import Mapping, Sequence

from evalkit.engine.planning.planned import Answerable, CellPlan, QuestionPlan
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import FrozenQuestion
from evalkit.results.answers import RunQuestion
from evalkit.results.question import freeze_question
from evalkit.spec.decide import POINTS
from evalkit.spec.model import Decide
from evalkit.stats.deciding import graded, least_draws, reach

DIFFERENCES = (1.0, 2.0, 5.0, 10.0)
"""Points."""
SUPPOSED = 0.33
"""Standard deviation of a pair's differences, as a share of the range of scores: that of graded scores which vary much,
or of answers of yes and no where a ninth of the pairs differs."""
LEAST_SEEN = 10
"""Draws of a pair from which its own spread is taken."""


def question_plan(
    manifest: Manifest, decide: Decide, cells: Sequence[CellPlan], spread: float | None, money: int | None
) -> QuestionPlan:
    """What the planned sweep can find out. Raises UsageError for a question that cannot be answered.

    spread  of a pair's differences, as a share of the range of scores, where scores are known
    money   pico-dollars that are left; None: there is no budget
    """
    frozen = freeze_question(manifest, decide)
    asked = RunQuestion(manifest, frozen)
    width = frozen.scores[1] - frozen.scores[0]
    named = {agent for pair in frozen.pairs for agent in pair} | frozen.precision.keys()
    each = sum(_of_a_draw(frozen, {cell.suite: cell.one for cell in cells if cell.agent == agent}) for agent in named)
    varies = SUPPOSED if spread is None else spread
    return QuestionPlan(
        about=frozen.about,
        parts=len(frozen.pairs) + len(frozen.precision),
        agents=len(named),
        margin=POINTS * frozen.margin,
        alpha_each=frozen.alpha_each,
        draws=asked.draws,
        turn=asked.turn,
        least=round(_turns(least_draws(frozen.alpha_each), asked)),
        ahead=frozen.ahead,
        spread=POINTS * varies * width,
        seen=spread is not None,
        affordable=None if money is None or not each else money / each,
        answers=tuple(
            _answerable(difference, varies, asked, each)
            for difference in (DIFFERENCES if frozen.pairs else ())
            if difference / POINTS / width + max(varies, _LEAST_SPREAD) < 1
        ),
    )


_LEAST_SPREAD = 1e-3


def _of_a_draw(frozen: FrozenQuestion, one: Mapping[str, float]) -> float:
    """Pico-dollars of an agent's episode on average over a turn; `one`: of one episode, by suite."""
    counts = {suite.name: sum(suite.strata.values()) for suite in frozen.suites}
    return sum(count * one.get(name, 0.0) for name, count in counts.items()) / sum(counts.values())


def _answerable(difference: float, spread: float, asked: RunQuestion, each: float) -> Answerable:
    width = asked.frozen.scores[1] - asked.frozen.scores[0]
    found = reach(
        graded(difference / POINTS / width, max(spread, _LEAST_SPREAD)),
        margin=asked.frozen.margin / width,
        alpha=asked.frozen.alpha_each,
        total=asked.total,
    )
    half, most = _turns(found.half, asked), _turns(found.nine_tenths, asked)
    return Answerable(points=difference, half=half, nine_tenths=most, usd_half=half * each, usd_nine_tenths=most * each)


def _turns(draws: float, asked: RunQuestion) -> float:
    """Rounded up to whole turns, and no more than `total` where there is one."""
    return draws if math.isinf(draws) else min(math.ceil(draws / asked.turn) * asked.turn, asked.total or math.inf)
