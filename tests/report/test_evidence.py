"""Evidence that may be looked at after every draw: what it is, and that it is seldom wrong."""

import itertools
import math

import numpy as np
import pytest

from bench.calibrations.deciding import ended
from evalkit.stats.evidence import DIFFERENCES, SCORES, Bounds, Evidence, answer, centre
from evalkit.stats.sequential import BETS, capital, sequence


def draws(seed: int, mean: float, n: int) -> list[float]:
    return [float(one) for one in np.random.Generator(np.random.Philox(seed)).normal(mean, 0.13, n).clip(-1, 1)]


def log_wealth(evidence: Evidence, guess: float, *, up: bool) -> float:
    """The most that the bets against "at most `guess`" (`up`), or "at least", had at any look."""
    return float(evidence._best[0 if up else 1, evidence._guesses.tolist().index(guess)])


def log_mixture(values: list[float], mean: float, *, up: bool) -> float:
    """The formula of the docstring, read aloud."""
    sign = 1 if up else -1
    products = []
    for bet in BETS:
        product = 1.0
        for value in values:
            product *= 1 + bet * (sign * value - sign * mean) / (sign * mean + 1)
        products.append(product)
    return math.log(math.fsum(products) / len(products))


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("mean", [-0.02, 0.0, 0.02, 0.5])
def test_the_capital_is_the_mean_of_products(mean: float, up: bool) -> None:
    values = draws(1, 0.04, 90)
    evidence = Evidence(margin=0.02)
    best = -math.inf
    for count in range(1, len(values) + 1):
        evidence.add(values[count - 1 : count])
        best = max(best, log_mixture(values[:count], mean, up=up))
    assert log_wealth(evidence, mean, up=up) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("turn", [1, 3, 7])
def test_how_draws_come_together_changes_nothing(turn: int, centred: bool) -> None:
    values, sizes = draws(2, 0.03, 300), np.random.Generator(np.random.Philox(3))
    at_once = Evidence(margin=0.02, turn=turn, centred=centred)
    at_once.add(values)
    piecemeal, place = Evidence(margin=0.02, turn=turn, centred=centred), 0
    while place < len(values):
        size = int(sizes.integers(1, 150))
        piecemeal.add(values[place : place + size])
        place += size
    for mean in (-0.02, 0.0, 0.02):
        assert log_wealth(piecemeal, mean, up=True) == log_wealth(at_once, mean, up=True)
        assert log_wealth(piecemeal, mean, up=False) == log_wealth(at_once, mean, up=False)
    assert piecemeal.finding(0.05, 0.02) == at_once.finding(0.05, 0.02)
    assert (at_once.seen, at_once.draws) == (300, 300 // turn * turn)
    assert at_once.mean == pytest.approx(math.fsum(values[: at_once.draws]) / at_once.draws)


def centred_steps(values: list[float], turn: int, guess: float) -> list[tuple[float, float]]:
    """(a draw without what earlier turns say of its instance, what a bet of 1 stakes against "at most `guess`")."""
    steps = []
    for first in range(0, len(values), turn):
        before = np.array(values[:first]).reshape(-1, turn)
        off = centre(before.sum(axis=0), (before**2).sum(axis=0), len(before))
        steps += [
            (value - one, guess + 1 + float(np.abs(off).max()))
            for value, one in zip(values[first : first + turn], off, strict=True)
        ]
    return steps


def test_what_is_known_of_instances_is_taken_out_and_no_bet_loses_more_than_it_has() -> None:
    """Two instances 80 points apart, greedy: from the third turn on both are their mean."""
    values = [0.45, -0.35] * 20
    steps = centred_steps(values, 2, 0.0)
    assert [value for value, _ in steps[:4]] == values[:4]
    assert [value for value, _ in steps[4:]] == pytest.approx([0.05] * 36)
    evidence, plain = (Evidence(margin=0.02, turn=2, centred=centred) for centred in (True, False))
    best, products = 0.0, [0.0] * len(BETS)
    for place, (value, stake) in enumerate(steps, 1):
        products = [one + math.log1p(bet * value / stake) for one, bet in zip(products, BETS, strict=True)]
        if place % 2 == 0:
            best = max(best, math.log(math.fsum(map(math.exp, products)) / len(BETS)))
    evidence.add(values)
    plain.add(values)
    assert log_wealth(evidence, 0.0, up=True) == pytest.approx(best, abs=1e-9)
    assert log_wealth(evidence, 0.0, up=True) > log_wealth(plain, 0.0, up=True) + 0.3
    assert evidence.mean == plain.mean == pytest.approx(0.05)


@pytest.mark.parametrize("means", [(0.0, 0.0), (0.5, -0.5), (0.9, -0.9), (-0.2, 0.2)])
def test_centred_draws_gain_nothing_on_average_whatever_has_been_seen(means: tuple[float, float]) -> None:
    """All courses of four turns of two instances that answer -1 or 1, with a mean of 0: by their chances."""
    expected = [0.0] * len(BETS)
    for course in itertools.product((-1.0, 1.0), repeat=8):
        chance = math.prod((1 + value * means[place % 2]) / 2 for place, value in enumerate(course))
        steps = centred_steps(list(course), 2, 0.0)
        factors = [[1 + bet * value / stake for value, stake in steps] for bet in BETS]
        assert min(map(min, factors)) >= 0.0
        expected = [sum_ + chance * math.prod(each) for sum_, each in zip(expected, factors, strict=True)]
    assert max(expected) <= 1 + 1e-12


def drawn_once(values: list[float], turn: int, guess: float, *, up: bool) -> list[list[float]]:
    """By bet, what has been made where turns end, as the docstring says; inf where `guess` cannot be true any more."""
    found: list[list[float]] = []
    for bet in BETS:
        capital_, told = 1.0, []
        for first in range(0, len(values), turn):
            rest = (len(values) * guess - sum(values[:first])) / (len(values) - first)
            stake = max(0.02, rest + 1 if up else 1 - rest)
            for value in values[first : first + turn]:
                capital_ *= 1 + bet * (1 if up else -1) * (value - rest) / stake
            told.append(capital_)
        found.append(told)
    return found


@pytest.mark.parametrize(
    ("turn", "strata"), [(1, [[0.9, 0.1, -0.5, -0.8, 0.3, 0.0]]), (3, [[1.0, -1.0], [0.6, 0.2, -1.0, 0.2]])]
)
@pytest.mark.parametrize("up", [True, False])
def test_of_a_suite_drawn_once_no_order_gains_on_average(turn: int, strata: list[list[float]], up: bool) -> None:
    """All orders within strata of six instances with a mean of 0; a turn has one of the first, two of the second."""
    orders, ends = [], 6 // turn
    for parts in itertools.product(*(set(itertools.permutations(range(len(part)))) for part in strata)):
        queues = [[part[i] for i in own] for part, own in zip(strata, parts, strict=True)]
        share = [len(queue) * turn // 6 for queue in queues]
        orders.append(
            [
                queue.pop(0)
                for _ in range(ends)
                for queue, count in zip(queues, share, strict=True)
                for _ in range(count)
            ]
        )
    made = np.array([drawn_once(order, turn, 0.0, up=up) for order in orders])
    assert made.min() >= 0
    # The last look has nothing to bet on any more.
    assert made[..., :-1].mean(axis=0).max() <= 1 + 1e-12
    evidence = Evidence(margin=0.02, turn=turn, total=6)
    evidence.add(orders[0][: 6 - turn])
    assert log_wealth(evidence, 0.0, up=up) == pytest.approx(max(np.log(made[0].mean(axis=0)[:-1])), abs=1e-9)


@pytest.mark.parametrize(("turn", "lead"), [(1, 0), (3, 0), (7, 5), (2, 1)])
def test_draws_of_a_suite_come_together_as_they_like(turn: int, lead: int) -> None:
    size = lead + turn * 20
    values, sizes = draws(2, 0.03, size), np.random.Generator(np.random.Philox(3))
    at_once = Evidence(margin=0.02, turn=turn, total=size, lead=lead, alpha=0.05)
    at_once.add(values)
    piecemeal, place = Evidence(margin=0.02, turn=turn, total=size, lead=lead, alpha=0.05), 0
    while place < size:
        step = int(sizes.integers(1, 12))
        piecemeal.add(values[place : place + step])
        place += step
    assert piecemeal.finding(0.05, 0.02) == at_once.finding(0.05, 0.02)
    assert 0 < at_once.answered[0] <= size
    assert at_once.interval(0.05) == (at_once.mean, at_once.mean) == pytest.approx((math.fsum(values) / size,) * 2)
    if not lead:
        found = ended(np.array([values]), turn=turn, once=True)
        assert at_once.answered == (found.draws[0], found.answer[0])


def test_what_is_left_of_a_suite_cannot_undo_is_certain() -> None:
    evidence = Evidence(margin=0.02, total=12, alpha=1e-9)
    evidence.add([1.0] * 6)
    assert evidence.answered == (0, "undecided")
    evidence.add([1.0])
    assert evidence.answered == (7, "above")
    low, high = evidence.interval(1e-9)
    assert 1 / 6 - 0.005 <= low <= 1 / 6
    assert high == 1.0
    none = Evidence(margin=0.02, total=12, alpha=0.05)
    none.add([0.0] * 11 + [0.3])
    assert none.answered == (12, "above")


def test_a_suite_of_few_is_answered_where_such_instances_are_not() -> None:
    values = np.random.Generator(np.random.Philox(11)).normal(0.2, 0.25, (200, 36)).clip(-1, 1)
    such, once = ended(values), ended(values, once=True)
    assert (such.answer != "undecided").mean() < 0.6
    assert (once.answer == "above").mean() > 0.99
    assert (once.draws < 36).mean() > 0.95


@pytest.mark.parametrize("turn", [1, 4])
def test_arrays_of_studies_are_judged_alike(turn: int) -> None:
    values = draws(4, 0.04, 400)
    evidence = Evidence(margin=0.02, turn=turn)
    evidence.add(values)
    for mean, up in ((0.0, True), (0.0, False), (-0.02, True), (0.02, False)):
        assert log_wealth(evidence, mean, up=up) == pytest.approx(
            float(capital((np.array(values) + 1) / 2, (mean + 1) / 2, up=up, turn=turn)[-1]), abs=1e-9
        )


def test_the_interval_of_scores_is_that_of_a_sequence() -> None:
    values = np.random.Generator(np.random.Philox(5)).beta(5, 2, 200)
    evidence = Evidence(bounds=SCORES)
    evidence.add(list(values))
    # Grids of 401 and of 501 means, rounded outwards.
    assert evidence.interval(0.05) == pytest.approx(sequence(values, values), abs=0.0025)


def test_an_interval_narrows_and_holds_what_nothing_refuted() -> None:
    evidence, before = Evidence(margin=0.02), (-1.0, 1.0)
    assert evidence.interval(0.05) == before
    assert evidence.finding(0.05, 0.02).answer == "undecided"
    for value in draws(6, 0.1, 120):
        evidence.add([value])
        now = evidence.interval(0.05)
        assert before[0] <= now[0] <= now[1] <= before[1]
        before = now
    assert 0 < before[0] < 0.1 < before[1] < 0.2
    assert evidence.finding(0.05, 0.02).answer == "above"
    # Surer answers take more.
    assert evidence.interval(0.0005)[0] < before[0]


def test_nothing_is_said_within_a_turn() -> None:
    evidence = Evidence(margin=0.02, turn=40)
    evidence.add([1.0] * 39)
    assert (evidence.draws, evidence.interval(0.05)) == (0, (-1.0, 1.0))
    assert math.isnan(evidence.finding(0.05, 0.02).mean)
    evidence.add([1.0])
    assert (evidence.draws, evidence.mean, evidence.finding(0.05, 0.02).answer) == (40, 1.0, "above")


def test_of_yes_and_no_only_discordant_pairs_count() -> None:
    alone, among_ties = Evidence(margin=0.02), Evidence(margin=0.02)
    pairs = [1.0, 1.0, -1.0, 1.0, 1.0, 1.0]
    alone.add(pairs)
    among_ties.add([one for pair in pairs for one in (0.0, 0.0, pair, 0.0)])
    assert log_wealth(among_ties, 0.0, up=True) == pytest.approx(log_wealth(alone, 0.0, up=True), abs=1e-12)
    # What is closer than the margin is another matter: ties speak for it.
    assert log_wealth(among_ties, 0.02, up=False) != log_wealth(alone, 0.02, up=False)


def turns_that_vary(generator: np.random.Generator, k: int) -> np.ndarray:
    """Draws of strata far apart whose means are 0 together: yes and no, each with its own probability."""
    means = np.linspace(-0.8, 0.8, k)
    return np.where(generator.random((3000, 20, k)) < (1 + means) / 2, 1.0, -1.0).reshape(3000, -1)


def test_a_turn_of_strata_gains_nothing_on_average() -> None:
    # The expected value of the capital is at most 1 where turns end, and above 1 within them: which is why it is not
    # looked at there.
    values = (turns_that_vary(np.random.Generator(np.random.Philox(7)), 4) + 1) / 2
    ends = np.exp(capital(values[:, :4], 0.5, up=True, turn=4)[:, -1])
    assert ends.mean() <= 1 + 3 * ends.std() / math.sqrt(len(ends))
    within = np.exp(capital(values[:, 2:4], 0.5, up=True)[:, -1])
    assert within.mean() > 1 + 3 * within.std() / math.sqrt(len(within))


def test_looking_after_every_draw_is_seldom_wrong() -> None:
    generator = np.random.Generator(np.random.Philox(8))
    for values, turn in (
        (generator.normal(0, 0.13, (400, 600)).clip(-1, 1), 1),
        (generator.choice([-1.0, 0.0, 1.0], p=[0.2, 0.6, 0.2], size=(400, 600)), 1),
        (turns_that_vary(generator, 6)[:400], 6),
    ):
        # Three standard errors of 400 studies are 3.3 points.
        assert ended(values, turn=turn).wrong(0.0, 0.02).mean() <= 0.05 + 0.033
    # Strata that take turns, looked at as if they were all alike: what turns are for.
    in_order = np.sort(turns_that_vary(generator, 6)[:400].reshape(400, -1, 20, 6), axis=2)[:, 0].transpose(0, 2, 1)
    assert ended(in_order.reshape(400, -1)[:, ::-1]).wrong(0.0, 0.02).mean() > 0.2


def test_an_equal_answer_is_seldom_wrong_at_the_margin() -> None:
    values = np.random.Generator(np.random.Philox(9)).normal(0.02, 0.13, (400, 1000)).clip(-1, 1)
    found = ended(values)
    assert found.wrong(0.02, 0.02).mean() <= 0.05 + 0.033
    assert (found.answer == "above").mean() > 0.8


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 0.3, "above"),
        (-0.3, 0.0, "below"),
        (-0.02, 0.02, "equal"),
        (0.005, 0.015, "equal"),
        (-0.01, 0.03, "undecided"),
        (0.01, 0.03, "above"),
    ],
)
def test_what_an_interval_says(low: float, high: float, said: str) -> None:
    assert answer(low, high, 0.02) == said


def test_what_has_no_bounds_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="no two bounds, so nothing holds at every look"):
        Bounds(least=-math.inf, most=1.0)
    with pytest.raises(ValueError, match=r"a draw is from -1\.0 to 1\.0"):
        Evidence().add([0.5, 1.5])
    with pytest.raises(ValueError, match="these are from nan"):
        Evidence().add([math.nan])
    with pytest.raises(ValueError, match="a margin is above 0"):
        Evidence(margin=0.0)
    with pytest.raises(ValueError, match="a turn has at least one draw"):
        Evidence(turn=0)


def test_scores_beyond_a_frozen_range_are_cut_at_its_ends() -> None:
    cut = Bounds(least=-0.5, most=1.0)
    assert [cut.share(score) for score in (-7.0, -0.5, 0.25, 1.0, 1.2)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    with pytest.raises(ValueError, match="no number"):
        cut.share(math.nan)
    assert DIFFERENCES.share(0.0) == 0.5
