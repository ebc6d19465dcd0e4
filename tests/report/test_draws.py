"""The frozen order of draws: whole turns in the proportion of the strata, and every instance at most once."""

import math
from collections import Counter
from fractions import Fraction

import pytest

from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestOrder, ManifestSuite
from evalkit.frozen.question_files import FrozenQuestion, FrozenSuite
from evalkit.results.question import LEFT_OUT, SHORT, SMALL, DrawOrder, turn_of


@pytest.mark.parametrize(
    ("sizes", "turn"),
    [((300,), (1,)), ((50, 50), (1, 1)), ((50, 51), (1, 1)), ((20, 40, 60), (1, 2, 3)), ((999, 1), (1, 0))],
)
def test_a_turn_is_short(sizes: tuple[int, ...], turn: tuple[int, ...]) -> None:
    assert turn_of(sizes) == turn


@pytest.mark.parametrize("sizes", [(7, 13), (12, 12, 11), (3, 1), (5, 80), (100, 37, 61, 2), (1, 1, 1), (17, 400)])
def test_few_instances_are_left_out_and_no_large_stratum(sizes: tuple[int, ...]) -> None:
    turn = turn_of(sizes)
    rounds = min(size // count for size, count in zip(sizes, turn, strict=True) if count)
    assert rounds * sum(turn) >= (1 - LEFT_OUT) * sum(sizes)
    assert all(count for size, count in zip(sizes, turn, strict=True) if size >= SMALL * sum(sizes))
    assert rounds >= 1
    assert math.gcd(*turn) == 1 or rounds == 1


def manifest(strata: dict[str, str], *, replicates: int = 1, key: int | None = 7) -> Manifest:
    """Suites by name, each a word with a letter for each instance's stratum."""
    suites = {
        name: ManifestSuite(
            name=name,
            base=name,
            axes={},
            environment="scheduling",
            environment_version=1,
            digest=name,
            instances=tuple(
                ManifestInstance(id=f"{name}-{i}", digest=f"{name}{i}", stratum=letter, line={})
                for i, letter in enumerate(letters)
            ),
        )
        for name, letters in strata.items()
    }
    return Manifest(
        evalkit="0",
        name="mine",
        created_at=0.0,
        replicates=replicates,
        agents={},
        suites=suites,
        packs={},
        order=ManifestOrder(key=key),
    )


def asked(run: Manifest, *, about: str = "such instances") -> FrozenQuestion:
    counts = {name: Counter(one.stratum for one in suite.instances) for name, suite in run.suites.items()}
    sizes = [(name, letter, size) for name, letters in counts.items() for letter, size in letters.items()]
    short = 0 if about == "this suite once" else SHORT
    turn = turn_of([size for *_, size in sizes], short) if about != "this suite" else [size for *_, size in sizes]
    strata: dict[str, dict[str, int]] = {name: {} for name in counts}
    for (name, letter, _), count in zip(sizes, turn, strict=True):
        strata[name][letter] = count
    return FrozenQuestion(
        version=1,
        about=about,
        agents=("a", "b"),
        asked="all",
        pairs=(("a", "b"),),
        margin=0.02,
        alpha=0.05,
        alpha_each=0.05,
        precision={},
        scores=(0.0, 1.0),
        ahead=32,
        bets=1,
        key=run.order.key,
        suites=tuple(FrozenSuite(name=name, digest=name, strata=counts) for name, counts in strata.items()),
    )


def test_each_turn_has_each_stratum_in_its_proportion() -> None:
    run = manifest({"one": "aab" * 10, "two": "c" * 30 + "d" * 15})
    order = DrawOrder(run, asked(run))
    assert order.turn == 15
    at: dict[int, str] = {}
    for name, suite in run.suites.items():
        for index, instance in enumerate(suite.instances):
            place = order.place(name, index, 0)
            if place is not None:
                assert place not in at
                at[place] = instance.stratum
    assert sorted(at) == list(range(order.draws))
    shares = {
        letter: Fraction(sum(one.stratum == letter for suite in run.suites.values() for one in suite.instances), 75)
        for letter in "abcd"
    }
    for first in range(0, order.draws, order.turn):
        turn = Counter(at[place] for place in range(first, first + order.turn))
        assert {letter: Fraction(count, order.turn) for letter, count in turn.items()} == shares


@pytest.mark.parametrize("letters", ["aab" * 10 + "b", "a" * 7 + "b" * 13, "a" * 100 + "b"])
def test_a_suite_played_once_leaves_no_instance_out_and_its_turns_are_what_is_left(letters: str) -> None:
    run = manifest({"one": letters, "two": "c" * 40})
    order = DrawOrder(run, asked(run, about="this suite once"))
    at = {
        order.place(name, index, 0): one.stratum
        for name in ("one", "two")
        for index, one in enumerate(run.suites[name].instances)
    }
    assert sorted(place for place in at if place is not None) == list(range(len(letters) + 40))
    assert order.draws == len(letters) + 40
    turn = Counter(at[place] for place in range(order.lead, order.lead + order.turn))
    left = Counter(at[place] for place in range(order.lead, order.draws))
    assert {letter: count * order.turn for letter, count in left.items()} == {
        letter: count * (order.draws - order.lead) for letter, count in turn.items()
    }
    assert order.lead <= LEFT_OUT * order.draws


def test_a_suite_played_once_has_the_shortest_turn_that_leaves_few_for_before_it() -> None:
    assert turn_of((7, 13)) == (7, 13)
    assert turn_of((7, 13), 0) == (1, 2)
    assert [turn_of(sizes, 0) for sizes in ((12,), (3, 3), (10, 20, 30))] == [(1,), (1, 1), (1, 2, 3)]


def test_instances_keep_the_order_of_admission_within_a_stratum() -> None:
    run = manifest({"one": "ab" * 20})
    order = DrawOrder(run, asked(run))
    own = run.suites["one"]
    admitted = [int(instance.id.rpartition("-")[2]) for instance in run.admitted(own)]
    for letter in "ab":
        places = [order.place("one", index, 0) for index in admitted if own.instances[index].stratum == letter]
        assert places == sorted(place for place in places if place is not None)


def test_another_key_is_another_order() -> None:
    runs = [manifest({"one": "a" * 40}, key=key) for key in (1, 2)]
    first, second = ([DrawOrder(run, asked(run)).place("one", index, 0) for index in range(40)] for run in runs)
    assert first != second
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_a_turn_of_this_suite_is_a_replicate_of_all_instances() -> None:
    run = manifest({"one": "aab", "two": "c"}, replicates=3)
    order = DrawOrder(run, asked(run, about="this suite"))
    assert (order.turn, order.draws) == (4, 12)
    places = {
        order.place(name, index, r)
        for name, count in (("one", 3), ("two", 1))
        for index in range(count)
        for r in range(3)
    }
    assert places == set(range(12))
    assert {order.place("one", index, 1) for index in range(3)} | {order.place("two", 0, 1)} == {4, 5, 6, 7}


def test_what_belongs_to_no_question_is_no_draw() -> None:
    run = manifest({"one": "a" * 40 + "b"})
    order = DrawOrder(run, asked(run))
    assert order.place("other", 0, 0) is None
    # Three in a hundred instances: too few for a turn that is short.
    assert order.draws == 40 if order.place("one", 40, 0) is None else 41
