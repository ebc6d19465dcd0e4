"""The policies on the real environment, over whole episodes."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.dialogue import Message
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.policy.scheduling.policies import MISTAKES
from tests.support.episode_loop import Episode, kit, play, policy

SIZES = {"basic": (10, 1), "medium": (20, 2), "hard": (50, 5)}


def line(difficulty: str, seed: int, **fields: Any) -> dict[str, Any]:
    """One of the reference's instances."""
    n, k = SIZES[difficulty]
    return {"id": f"seed-{seed}", "generator": "reference", "seed": seed, "n": n, "k": k, **fields}


def knuth(difficulty: str, seed: int, replicate: int = 0, **fields: Any) -> Episode:
    return play(SCHEDULING, line(difficulty, seed, **fields), policy("knuth"), seed=replicate)


def actions(episode: Episode) -> list[dict[str, Any]]:
    return [facts["action"] for facts in episode.facts if "action" in facts]


def test_knuth_on_basic_walks_exactly_as_the_reference_does(shared: Path) -> None:
    golden = (shared / "goldens" / "econagentbench" / "scheduling_forced_walk_basic.jsonl").read_text().splitlines()
    assert golden
    for row in map(json.loads, golden):
        walked = actions(knuth("basic", row["seed"]))
        assert [one["blocking"] for one in walked] == row["blocking_counts"]
        assert [pair for one in walked for pair in one["shown"]] == row["shown"]


def test_knuth_on_basic_is_stable_after_the_known_periods_in_two_turns_each() -> None:
    periods = []
    for seed in range(12):
        episode = knuth("basic", seed)
        assert (episode.ending, episode.score.value, episode.score.solved) == ("stable", 1.0, True)
        assert len(episode.facts) == 2 * len(actions(episode))
        assert all(outcome == "ok" for _, outcome in episode.outcomes())
        periods.append(len(actions(episode)))
    assert periods == [8, 20, 18, 13, 15, 37, 19, 22, 19, 27, 36, 22]


def mean_score(difficulty: str, replicates: int) -> float:
    """100 times the mean score of the 12 reference instances."""
    scores = [knuth(difficulty, seed, r).score.value for seed in range(12) for r in range(replicates)]
    return 100 * sum(scores) / len(scores)


@pytest.mark.exhaustive
def test_knuth_reproduces_the_papers_heuristic_on_medium() -> None:
    # Independent reruns of 12 instances: mean 97.5, standard deviation 1.15; six replicates, four standard errors.
    assert abs(mean_score("medium", 6) - 97.5) < 4 * 1.15 / 6**0.5


@pytest.mark.exhaustive
def test_knuth_reproduces_the_papers_heuristic_on_hard() -> None:
    # Independent reruns of 12 instances: mean 75.45, standard deviation 1.6; four replicates, four standard errors.
    assert abs(mean_score("hard", 4) - 75.45) < 4 * 1.6 / 4**0.5


@pytest.mark.parametrize("name", ["knuth", "noisy", "random"])
def test_an_episode_repeats_exactly_and_another_seed_makes_another(name: str) -> None:
    one, same, other = (play(SCHEDULING, line("medium", 4, periods=12), policy(name), seed=seed) for seed in (1, 1, 2))
    assert one.replies == same.replies
    assert one.facts == same.facts
    assert one.replies != other.replies


def test_every_call_of_a_chat_has_an_id_of_its_own() -> None:
    episode = play(SCHEDULING, line("medium", 3, periods=30), policy("noisy"), seed=5)
    for chat in episode.chats:
        ids = [call.id for message in chat for call in message.calls]
        assert ids == [f"call_{i}" for i in range(len(ids))]
        assert [message.call_id for message in chat if message.role == "tool"] == ids[: sum(map(is_result, chat))]


def is_result(message: Message) -> bool:
    return message.role == "tool"


def test_random_is_as_good_as_random_and_takes_two_turns_a_period() -> None:
    scores = []
    for seed in range(12):
        episode = play(SCHEDULING, line("medium", seed, periods=20), policy("random"))
        assert len(episode.facts) == 2 * len(actions(episode)) == 40
        expected = episode.score.metrics["first_score"]
        scores.append((episode.score.value + expected) / 2)
    # The expected score is 0 by definition; a medium matching's score has a standard deviation of 0.17.
    assert abs(sum(scores) / 12) < 4 * 0.17 / 24**0.5


@pytest.mark.parametrize("difficulty", SIZES)
def test_the_oracle_is_stable_in_its_first_turn(difficulty: str) -> None:
    target = line(difficulty, 7)
    episode = play(SCHEDULING, target, policy("oracle", "scheduling", instance=SCHEDULING.load(target)))
    assert (episode.ending, episode.score.value, len(episode.facts)) == ("stable", 1.0, 1)


@pytest.mark.exhaustive
def test_noisy_makes_every_kind_of_mistake_and_still_gets_better() -> None:
    found: Counter[str] = Counter()
    gained = []
    for seed in range(12):
        episode = play(SCHEDULING, line("hard", seed), policy("noisy"), seed=1)
        found += Counter(outcome for _, outcome in episode.outcomes())
        assert episode.ending == "complete"
        gained.append(episode.score.value - episode.score.metrics["first_score"])
    assert {
        "ok",
        "after_action",
        "future_notes",
        "missing_tasks",
        "missing_workers",
        "not_json",
        "not_mapping",
        "not_object",
        "repeat_access",
        "too_deep",
        "unknown_tool",
        "unknown_workers",
        "unhashable",
        "unparseable",
        "wrong_type",
    } <= set(found)
    assert min(gained) > 0.5
    assert len(MISTAKES) >= 15


def test_an_agent_that_never_acts_is_unresponsive() -> None:
    target = line("basic", 0, queries=3)
    episode = play(SCHEDULING, target, policy("scripted", script='["I would rather talk about the weather."]'))
    assert (episode.ending, len(episode.facts), episode.score.value) == ("unresponsive", 15, 0.0)


def test_policies_play_with_any_style_of_results_and_without_notes() -> None:
    plain = kit("scheduling", notes=False)
    wrapped = replace(plain, pack=replace(plain.pack, texts={**plain.pack.texts, "results.style": "repr"}))
    for name in ("knuth", "random"):
        one, other = (
            play(SCHEDULING, line("medium", 2, periods=10), policy(name), brings=brings) for brings in (plain, wrapped)
        )
        assert one.replies == other.replies
        assert one.facts == other.facts
