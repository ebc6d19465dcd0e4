"""Questions about several agents: who is answered when, who plays on, and what a whole answer risks."""

from collections.abc import Sequence

import numpy as np
import pytest

from bench.calibrations import deciding as bench
from evalkit.stats.deciding import Contest, question
from evalkit.stats.evidence import Bounds

MEANS = {"a": 0.5, "b": 0.53, "c": 0.75, "d": 0.752}
Scores = dict[str, list[float | None]]


def scores(seed: int, n: int, means: dict[str, float] = MEANS) -> Scores:
    draws = np.random.Generator(np.random.Philox(seed))
    easy = draws.uniform(-0.1, 0.1, n)
    return {name: [float(one) for one in mean + easy + draws.uniform(-0.1, 0.1, n)] for name, mean in means.items()}


def until(values: Scores, n: int) -> Scores:
    return {name: column[:n] for name, column in values.items()}


def test_alpha_is_split_over_what_must_hold_together() -> None:
    agents = tuple("abcdefgh")
    assert question(agents, margin=0.02, alpha=0.05).alpha_each == 0.05 / 28
    assert question(agents, pairs="best", margin=0.02, alpha=0.05).alpha_each == 0.05 / 7
    baseline = question(agents, pairs="baseline:c", margin=0.02, alpha=0.05)
    assert baseline.alpha_each == 0.05 / 7
    assert {first for first, _ in baseline.pairs} == {"c"}
    assert question(agents, pairs=[("a", "b"), ("c", "b")], margin=0.02, alpha=0.05).alpha_each == 0.025


@pytest.mark.parametrize(
    ("agents", "pairs", "margin", "alpha", "says"),
    [
        ("a", "all", 0.02, 0.05, "two agents or more"),
        ("aa", "all", 0.02, 0.05, "each named once"),
        ("ab", "every", 0.02, 0.05, 'pairs is "all", "best", "baseline:NAME" with one of a, b'),
        ("ab", "baseline:c", 0.02, 0.05, "with one of a, b"),
        ("ab", [], 0.02, 0.05, "at least one"),
        ("ab", [("a", "b"), ("b", "a")], 0.02, 0.05, "each once"),
        ("ab", [("a", "a")], 0.02, 0.05, "not a and a"),
        ("ab", "all", 0.0, 0.05, "the margin is above 0 and below 1"),
        ("ab", "all", 0.02, 1.0, "alpha is above 0 and below 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    agents: str, pairs: str | Sequence[tuple[str, str]], margin: float, alpha: float, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        question(tuple(agents), pairs=pairs, margin=margin, alpha=alpha)


def test_only_the_joint_ended_prefix_counts() -> None:
    contest = Contest(question("ab", margin=0.02, alpha=0.05))
    values = scores(1, 80, {"a": 0.3, "b": 0.7})
    values["a"][7] = None
    assert contest.look(values) == []
    assert contest.findings["a", "b"].draws == 7
    # What lies behind an episode that has not ended does not count, however good it is.
    values["a"][7] = 0.3
    assert contest.look(until(values, 45)) == [("a", "b")]
    assert contest.findings["a", "b"].answer == "above"
    assert contest.playing == frozenset()


@pytest.mark.exhaustive
def test_how_often_anyone_looks_changes_no_evidence() -> None:
    values, asked = scores(2, 600), question("abcd", margin=0.02, alpha=0.05)
    once, often = Contest(asked), Contest(asked)
    answered = {}
    for n in range(1, 601):
        for pair in often.look(until(values, n)):
            answered[pair] = n
    once.look(values)
    differences = {
        pair: np.array(values[pair[1]], float)[None] - np.array(values[pair[0]], float) for pair in asked.pairs
    }
    for pair, one in differences.items():
        found = bench.ended(one, alpha=asked.alpha_each)
        # The command that simulates and what a run does say the same, at the same draw.
        assert answered.get(pair, np.inf) == found.draws[0]
        assert often.findings[pair].answer == found.answer[0]
    assert {pair: found.answer for pair, found in once.findings.items() if found.draws == 600}.keys() == set(
        asked.pairs
    )
    assert len(answered) >= 5


def test_who_has_no_open_question_plays_no_more() -> None:
    contest = Contest(question("abcd", margin=0.02, alpha=0.05))
    values = scores(3, 2000)
    left = []
    for n in range(20, 2001, 20):
        contest.look(until(values, n))
        left.append(contest.playing)
        assert contest.playing == {agent for pair in contest.open for agent in pair}
        if not contest.open:
            break
    assert left[0] == frozenset("abcd")
    assert frozenset("cd") in left or frozenset("ab") in left
    assert left[-1] == frozenset()
    said = {pair: found.answer for pair, found in contest.findings.items()}
    assert said == {
        ("a", "b"): "above",
        ("a", "c"): "above",
        ("a", "d"): "above",
        ("b", "c"): "above",
        ("b", "d"): "above",
        ("c", "d"): "equal",
    }


def test_the_best_is_found_without_ranking_the_others() -> None:
    contest = Contest(question("abcd", pairs="best", margin=0.02, alpha=0.05))
    values, ended = scores(4, 2000), dict.fromkeys("abcd", 0)
    for n in range(10, 2001, 10):
        ended |= dict.fromkeys(contest.playing, n)
        contest.look({name: column[: ended[name]] for name, column in values.items()})
        if not contest.open:
            break
    assert contest.left == frozenset("cd")
    assert contest.findings["c", "d"].answer == "equal"
    # a and b went out long before anybody knew which of them is better.
    assert contest.findings["a", "b"].answer == "undecided"
    assert contest.findings["a", "b"].draws < contest.findings["c", "d"].draws


@pytest.mark.exhaustive
def test_the_best_is_seldom_out() -> None:
    studies, wrong = 40, 0
    asked = question("abc", pairs="best", margin=0.02, alpha=0.2)
    draws = np.random.Generator(np.random.Philox(5))
    for _ in range(studies):
        contest = Contest(asked)
        contest.look({name: [float(one) for one in draws.random(120) < 0.5] for name in "abc"})
        # Each of them is the best, so `a` must not go out.
        wrong += "a" not in contest.left
    # Three standard errors of 40 studies are 19 points.
    assert wrong / studies <= 0.2 + 0.19


def test_a_frozen_range_scales_what_is_found() -> None:
    wide = Bounds(least=-1.0, most=1.0)
    contest = Contest(question("ab", margin=0.04, alpha=0.05, scores=wide))
    values = scores(6, 200, {"a": 0.2, "b": 0.4})
    values["a"][3] = -50.0
    contest.look(values)
    found = contest.findings["a", "b"]
    assert (found.answer, found.draws) == ("above", 200)
    # -50 counts as -1: one of 200 pairs.
    assert found.mean == pytest.approx(0.2 + (0.2 + 1) / 200, abs=0.02)
    assert 0 < found.low < found.mean < found.high < 0.5


def test_a_suite_is_looked_at_after_whole_replicates() -> None:
    contest = Contest(question("ab", margin=0.02, alpha=0.05, turn=12))
    values = scores(7, 100, {"a": 0.3, "b": 0.32})
    contest.look(until(values, 35))
    assert contest.findings["a", "b"].draws == 24
    contest.look(values)
    assert contest.findings["a", "b"].draws == 96


def test_an_answer_stays_and_says_with_how_many_draws() -> None:
    values = scores(8, 900, {"a": 0.5, "b": 0.502})
    stepwise, at_once = (Contest(question("ab", margin=0.02, alpha=0.05)) for _ in range(2))
    for n in range(30, 901, 30):
        stepwise.look(until(values, n))
    at_once.look(values)
    found = stepwise.findings["a", "b"]
    assert found == at_once.findings["a", "b"]
    # The interval goes on narrowing with the draws that come after the answer.
    early = Contest(question("ab", margin=0.02, alpha=0.05))
    early.look(until(values, found.at))
    assert early.findings["a", "b"].answer == found.answer == "equal"
    assert 0 < found.at < found.draws == 900
    assert found.high - found.low < early.findings["a", "b"].high - early.findings["a", "b"].low
    early = Contest(question("ab", margin=0.02, alpha=0.05))
    early.look(until(values, found.at - 1))
    assert early.findings["a", "b"].answer == "undecided"


def test_an_agent_plays_until_its_own_mean_is_known() -> None:
    asked = question("ab", pairs=[], margin=0.02, alpha=0.1, precision={"a": 0.05, "b": 0.03})
    assert asked.alpha_each == 0.05
    values = scores(9, 900, {"a": 0.5, "b": 0.6})
    contest, at_once = Contest(asked), Contest(asked)
    for n in range(7, 900, 7):
        contest.look(until(values, n))
        assert contest.playing == {agent for agent in "ab" if not contest.known[agent].at}
        if not contest.playing:
            break
    at_once.look(values)
    for agent, half in asked.precision.items():
        found = contest.known[agent]
        assert found.at == at_once.known[agent].at > 0
        assert found.at % 10 == 0
        assert found.high - found.low <= 2 * half
        assert found.low <= found.mean <= found.high
    assert contest.known["a"].at < contest.known["b"].at


@pytest.mark.parametrize("precision", [{"c": 0.1}, {"a": 0.0}, {"a": 1.0}])
def test_a_precision_that_cannot_be_reached_is_refused(precision: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a precision is of one of a, b, above 0 and below 1"):
        question("ab", margin=0.02, alpha=0.05, precision=precision)
