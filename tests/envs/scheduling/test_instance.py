import itertools
from fractions import Fraction
from typing import Any

import orjson
import pytest

from evalkit.envs.scheduling import instance as instances
from evalkit.envs.scheduling.instance import FAMILIES, family_of_seed
from evalkit.envs.scheduling.market import expected_blocking, make_market
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.errors import UsageError
from tests.support.scheduling_episodes import KIT, SMALL, Play, matched

EXPLICIT = {
    "id": "e",
    "environment": "scheduling",
    "generator": "explicit",
    "seed": 0,
    "n": 2,
    "k": 1,
    "worker_prefs": {"W1": ["T1", "T2"], "W2": ["T1", "T2"]},
    "task_prefs": {"T1": ["W2", "W1"], "T2": ["W1", "W2"]},
}
REFERENCE = {"id": "r", "environment": "scheduling", "generator": "reference", "seed": 4, "n": 6, "k": 1}
LINES = [
    SMALL,
    EXPLICIT,
    REFERENCE,
    {**SMALL, "family": "correlated_identical", "worker_gap": 2.5, "periods": 7, "queries": 3, "no_action": "restart"},
    {**REFERENCE, "family": "uniform", "task_gap": 0},
    {**SMALL, "n": 1},
]


@pytest.mark.parametrize("line", LINES)
def test_a_described_instance_is_the_same_when_loaded_again(line: dict[str, Any]) -> None:
    full = orjson.loads(orjson.dumps(SCHEDULING.describe(SCHEDULING.load(line))))
    again = SCHEDULING.load(full)
    assert SCHEDULING.describe(again) == full
    assert {key: full[key] for key in line} == line
    market, _ = instances.market_of(again)
    assert full["digest"] == market.digest
    assert Fraction(*full["expected"]) == expected_blocking(market)
    assert Play(full).state.world.market.digest == Play(line).state.world.market.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 0}, "n: 0 is out of range (1 to 2000)"),
        ({"n": 2001}, "n: 2001 is out of range"),
        ({"n": "10"}, "n: expected a whole number, got '10'"),
        ({"n": True}, "n: expected a whole number, got True"),
        ({"n": 2.0}, "n: expected a whole number"),
        ({"k": 0}, "k: 0 is out of range"),
        ({"periods": 0}, "periods: 0 is out of range"),
        ({"queries": -1}, "queries: -1 is out of range"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"generator": "referense"}, "generator: there is no 'referense'. Did you mean 'reference'?"),
        ({"generator": "reference", "seed": 2**32}, "seed: 4294967296 is out of range for the reference's generator"),
        ({"family": "uniformly"}, "family: there is no 'uniformly'. Did you mean 'uniform'?"),
        ({"no_action": "skip"}, "no_action: there is no 'skip'"),
        ({"worker_gap": 0.5}, "worker_gap: 0.5 is out of range (1 to 1000000000, or 0"),
        ({"worker_gap": float("nan")}, "worker_gap: nan is out of range (0.0 to"),
        ({"task_gap": "3"}, "task_gap: expected a number, got '3'"),
        ({"familly": "uniform"}, "familly: a scheduling instance has no such field. Did you mean 'family'?"),
        ({"environment": "pricing"}, "environment: expected 'scheduling', got 'pricing'"),
        ({"id": 7}, "id: expected a string, got 7"),
        ({"digest": 7}, "digest: expected a string, got 7"),
        ({"expected": 2.5}, "expected: expected [numerator, denominator], got 2.5"),
        ({"expected": [1, 0]}, "expected[1]: 0 is out of range (1 to any)"),
        ({"expected": [1]}, "expected: expected [numerator, denominator], got [1]"),
        ({"expected": [1, True]}, "expected[1]: expected a whole number, got True"),
        ({"generator": "explicit"}, "worker_prefs: is missing"),
        ({"worker_prefs": {}}, "worker_prefs: needs generator 'explicit', not 'native'"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        SCHEDULING.load({**SMALL, **change})
    assert words in str(flaw.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 3}, "worker_prefs: expected an object with the keys W1 to W3"),
        ({"worker_prefs": [[0, 1], [1, 0]]}, "worker_prefs: expected an object"),
        ({"task_prefs": {"T1": ["W1", "W2"]}}, "task_prefs: expected an object with the keys T1 to T2"),
        (
            {"task_prefs": {"T1": ["W1", "W2"], "T2": ["W1", "W1"]}},
            "task_prefs.T2: expected a list with each of W1 to W2",
        ),
        ({"task_prefs": {"T1": ["W1", "W2"], "T2": ["T1", "T2"]}}, "task_prefs.T2: expected a list"),
        ({"task_prefs": {"T1": [0, 1], "T2": [1, 0]}}, "task_prefs.T1[0]: expected a string, got 0"),
        ({"task_prefs": {"T1": "W1", "T2": "W2"}}, "task_prefs.T1: expected a list"),
        ({"family": "uniform"}, "family: explicit preferences have no family"),
    ],
)
def test_a_wrong_explicit_table_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        SCHEDULING.load({**EXPLICIT, **change})
    assert words in str(flaw.value)


def test_explicit_preferences_are_played() -> None:
    play = Play(EXPLICIT)
    assert play.state.world.market.digest == make_market([[0, 1], [0, 1]], [[1, 0], [0, 1]]).digest
    assert play.submit(matched(1, 2))["action"] == {"blocking": 1, "shown": [["W2", "T1"]], "repeat": False}
    assert play.submit(matched(2, 1))["ended"] == "stable"


def test_a_line_whose_preferences_have_changed_is_refused_when_an_episode_starts() -> None:
    full = SCHEDULING.describe(SCHEDULING.load(SMALL))
    for change, words in (({"digest": "0" * 32}, "small: digest"), ({"expected": [1, 20]}, "small: expected")):
        changed = SCHEDULING.load({**full, **change})
        with pytest.raises(UsageError, match=words):
            SCHEDULING.start(changed, KIT)


def test_loading_makes_no_preferences(monkeypatch: pytest.MonkeyPatch) -> None:
    full = SCHEDULING.describe(SCHEDULING.load({**SMALL, "n": 30, "seed": 77}))

    def refuse(*_: object) -> None:
        raise AssertionError("preferences were made")

    monkeypatch.setattr(instances, "native_market", refuse)
    loaded = SCHEDULING.load({**full, "seed": 78})
    assert SCHEDULING.describe(loaded)["digest"] == full["digest"]
    assert SCHEDULING.score(loaded, []).value == 0.0
    with pytest.raises(AssertionError, match="were made"):
        SCHEDULING.start(loaded, KIT)


def test_episodes_on_one_instance_share_its_market() -> None:
    assert Play(SMALL).state.world.market is Play({**SMALL, "k": 3, "id": "other"}).state.world.market


def test_a_reference_line_follows_its_seed_s_family_and_a_varied_seed_too() -> None:
    for seed in range(12):
        full = SCHEDULING.describe(SCHEDULING.load({**REFERENCE, "seed": seed}))
        assert "family" not in full
        loaded = SCHEDULING.load({**REFERENCE, "seed": seed, "family": family_of_seed(seed)})
        assert SCHEDULING.describe(loaded) == full
        assert SCHEDULING.stratum(loaded) == family_of_seed(seed)
    other = SCHEDULING.load({**REFERENCE, "seed": 0, "family": "correlated"})
    assert SCHEDULING.describe(other)["family"] == "correlated"
    assert SCHEDULING.stratum(SCHEDULING.load(EXPLICIT)) == "explicit"


def test_gaps_can_be_set() -> None:
    same = SCHEDULING.load({**SMALL, "family": "uniform", "worker_gap": 3, "task_gap": 3})
    paper = SCHEDULING.load({**SMALL, "family": "correlated"})
    assert instances.market_of(same)[0].digest == instances.market_of(paper)[0].digest


def test_generated_lines_are_lazy_fresh_balanced_and_repeat() -> None:
    lines = list(itertools.islice(SCHEDULING.generate({"n": 4, "k": 2}, 10**9, 5), 8))
    assert [line["family"] for line in lines] == [*FAMILIES, *FAMILIES]
    assert len({line["id"] for line in lines}) == len({line["seed"] for line in lines}) == 8
    assert lines == list(SCHEDULING.generate({"n": 4, "k": 2}, 8, 5))
    assert not {line["seed"] for line in lines} & {line["seed"] for line in SCHEDULING.generate({"n": 4}, 8, 6)}
    for line in lines:
        assert SCHEDULING.describe(SCHEDULING.load(line)) == line
        assert (line["n"], line["k"], line["generator"]) == (4, 2, "native")
    one = list(SCHEDULING.generate({"n": 4, "family": "correlated"}, 3, 5))
    assert [line["family"] for line in one] == ["correlated"] * 3


def test_the_reference_s_instances_can_be_generated_by_seed() -> None:
    lines = list(SCHEDULING.generate({"n": 10, "k": 1, "generator": "reference"}, 12, 0))
    assert [(line["id"], line["seed"]) for line in lines] == [(f"seed-{seed}", seed) for seed in range(12)]
    assert lines[0]["expected"] == [2128, 90]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"m": 3}, "m: scheduling has no such parameter"), ({"generator": "explicit"}, "written, not generated")],
)
def test_parameters_that_generate_nothing_are_refused_at_once(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        SCHEDULING.generate(parameters, 1, 0)


def test_every_parameter_has_a_default_that_it_accepts() -> None:
    line = {name: parameter.default for name, parameter in SCHEDULING.parameters.items()}
    loaded = SCHEDULING.load({"id": "d", "environment": "scheduling", **line})
    assert (loaded.n, loaded.k, loaded.periods, loaded.queries) == (10, 1, 100, 40)
