"""Patience: what is asked, which answers count, and which rate they speak for."""

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from evalkit_litmus import PATIENCE_SUITES
from evalkit_litmus.patience.environment import AMOUNTS, ORDERS, PATIENCE, letter_in, load
from evalkit_litmus.patience.policies import POLICIES, answer
from evalkit_litmus.patience.rates import GRID, HORIZONS, TOGETHER, Counts, estimate, reliability_of, together
from evalkit_litmus.patience.report import ALL, rates
from litmus_support import played_by

from evalkit import Reply, UsageError
from evalkit.testing import check_environment, standard_kit


def questions(horizon: str) -> list[dict[str, Any]]:
    return [dict(line) for line in PATIENCE.generate({"horizon": horizon}, 2 * len(AMOUNTS[horizon]), 0)]


def test_it_withstands_whatever_a_model_does() -> None:
    check_environment(PATIENCE, lines=[questions("six_months")[1]], instances=1, episodes=4)


def test_the_suites_are_all_questions_there_are() -> None:
    shipped = {
        horizon: [json.loads(line) for line in (PATIENCE_SUITES / f"{horizon}.jsonl").read_text().splitlines()]
        for horizon in HORIZONS
    }
    assert {horizon: len(lines) for horizon, lines in shipped.items()} == {
        "one_month": 100,
        "six_months": 60,
        "one_year": 40,
        "five_years": 280,
    }
    assert all(shipped[horizon] == questions(horizon) for horizon in HORIZONS)
    assert Counter(line["order"] for lines in shipped.values() for line in lines) == dict.fromkeys(ORDERS, 240)
    with pytest.raises(UsageError, match="one_year has 20 questions of this kind, not 21"):
        list(PATIENCE.generate({"horizon": "one_year", "order": "now_first"}, 21, 0))


@pytest.mark.parametrize(
    ("horizon", "amount", "words"),
    [
        ("one_month", 105.0, "$105.0 in one month"),
        ("six_months", 100.5, "$100.5 in six months"),
        ("one_year", 120.0, "$120 in one year"),
        ("five_years", 111.0, "$111 in five years"),
    ],
)
def test_the_two_options_are_put_in_either_order(horizon: str, amount: float, words: str) -> None:
    for order, lines in zip(ORDERS, (("A: $100 now", f"B: {words}"), (f"A: {words}", "B: $100 now")), strict=True):
        line = {"id": "x", "horizon": horizon, "amount": amount, "order": order}
        state = PATIENCE.start(load(line), standard_kit(PATIENCE))
        (asked,) = PATIENCE.opening(state).messages
        assert asked.role == "user"
        assert "\n".join(lines) in asked.text
        seen = PATIENCE.step(state, answer("A"))[1]
        assert seen.facts["outcome"] == ("now" if order == "now_first" else "later")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<answer>A</answer>", "A"),
        ("x <answer>B</answer> or <answer>A</answer>", "B"),
        ("<answer> A</answer>", ""),
        ("<answer>a</answer>", ""),
        ("<answer>AB</answer>", ""),
        ("<answer></answer>", ""),
        ("<answer>C</answer><answer>A</answer>", ""),
        ("</answer><answer>A", ""),
        ("</answer> or <answer>A</answer>", ""),
        ("<answer>A</answer> and, once more, </answer>", "A"),
        # As the reference's slices have it where a tag is missing.
        ("<answer>A", ""),
        ("<answer>B.", "B"),
        ("answer: A</answer>", ""),
        ("answer A</answer>", "A"),
        ("A", ""),
    ],
)
def test_only_the_exact_letter_between_the_first_tags_counts(text: str, letter: str) -> None:
    assert letter_in(text) == letter
    state = PATIENCE.start(load(questions("one_year")[0]), standard_kit(PATIENCE))
    after, seen = PATIENCE.step(state, Reply(text=text))
    assert (seen.facts["outcome"] == "unreadable") == (not letter)
    assert seen.acted == bool(letter)
    score = PATIENCE.score(after.instance, [seen.facts])
    assert (score.value, score.metrics["unreadable"]) == (float(letter == "A"), float(not letter))


@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_policies_mark_the_ends_and_a_rate_between(horizon: str) -> None:
    for name, low, high in (("patient", 0.0, 0.012), ("discounting", 0.045, 0.056), ("impatient", 1.0, 1.4)):
        counts: dict[float, tuple[int, int]] = {}
        for line in questions(horizon):
            now, answers = counts.get(line["amount"], (0, 0))
            counts[line["amount"]] = (now + int(played_by(PATIENCE, POLICIES[name], line).value), answers + 1)
        found = estimate(reliability_of(counts, HORIZONS[horizon]), GRID)
        assert found is not None
        assert low <= found[0] <= high
        assert found[1] == 1


def test_reliability_is_by_definition() -> None:
    counts: Counts = {105.0: (3, 4), 110.0: (1, 4), 121.0: (1, 2)}
    reliability = reliability_of(counts, 1.0)
    # At 1.05 the amount 105 explains nothing; above wait 3 of 4 and 1 of 2.
    assert reliability(1.05) == Fraction(5, 8)
    assert reliability(1.2) == (Fraction(3, 4) + Fraction(1, 4) + Fraction(1, 2)) / 3
    assert reliability(2.0) == (Fraction(3, 4) + Fraction(1, 4) + Fraction(1, 2)) / 3
    assert reliability_of({105.0: (1, 1)}, 1.0)(1.05) is None
    assert estimate(reliability_of({100.0: (1, 1)}, 1.0), [1.0]) is None
    both = together([reliability, reliability_of({150.0: (0, 1)}, 1.0)])
    assert both(1.05) == (Fraction(5, 8) + 1) / 2
    assert together([reliability, reliability_of({100.0: (0, 1)}, 1.0)])(1.0) is None


def test_equally_good_rates_give_their_median() -> None:
    found = estimate(reliability_of({110.0: (1, 1), 120.0: (0, 1)}, 1.0), TOGETHER)
    assert found == (pytest.approx(0.15, abs=1e-9), 1.0)


def test_the_rate_of_all_needs_all_horizons() -> None:
    counted = [
        {"agent": "a", "horizon": horizon, "amount": amount, "now": int(amount < 100 * 1.05**years), "answers": 1}
        for horizon, years in HORIZONS.items()
        for amount in AMOUNTS[horizon]
    ]
    found = rates(counted)
    assert found["a", ALL]["rate"] == pytest.approx(5, abs=0.3)
    assert found["a", ALL]["reliability"] == 1
    assert rates(counted[:-140])["a", ALL] == {"rate": None, "reliability": None}
