import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.environment import Kit
from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.scheduling.assignment import distinct
from evalkit.envs.scheduling.instance import DIFFICULTIES
from evalkit.envs.scheduling.market import stable_matching
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.policy.scheduling.policies import read_history
from evalkit.seeds import Stream
from evalkit.spec.packs import read_pack
from tests.support.period_episodes import replying
from tests.support.scheduling_episodes import KIT, PACK, SMALL, Play, matched, submitting


def reference(difficulty: str, seed: int, **more: Any) -> Play:
    n, k = DIFFICULTIES[difficulty.lower()]
    return Play(
        {"id": "r", "environment": "scheduling", "generator": "reference", "seed": seed, "n": n, "k": k, **more}
    )


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (shared / "goldens/econagentbench" / name).read_text().splitlines()]


def test_golden_feedback_streams_are_what_the_environment_says_back(shared: Path) -> None:
    cases = rows(shared, "scheduling_feedback_streams.jsonl")
    assert len(cases) >= 24
    for case in cases:
        play = reference(case["difficulty"], case["seed"], k=case["k"])
        seen: list[dict[str, str]] = []
        for asked in case["steps"]:
            facts = play.submit(asked["matching"])
            assert facts["action"] == {
                "blocking": asked["num_blocking"],
                "shown": asked["feedback"],
                "repeat": asked["matching"] in seen,
            }
            seen.append(asked["matching"])
        probes = [value for key, value in case.items() if key.startswith("rng_probe")]
        assert [RandomStateStream(play.state.world.random_state).double()] == probes


def test_the_golden_walk_on_basic_is_stable_after_the_same_periods(shared: Path) -> None:
    for case in rows(shared, "scheduling_forced_walk_basic.jsonl"):
        play = reference("basic", case["seed"])
        assignment = matched(*range(1, 11))
        shown, counts = [], []
        while not play.state.ended:
            action = play.submit(assignment)["action"]
            counts.append(action["blocking"])
            for worker, task in action["shown"]:
                shown.append([worker, task])
                other = next(one for one, held in assignment.items() if held == task)
                if not play.state.ended:
                    assignment[other], assignment[worker] = assignment[worker], task
        assert (counts, shown, assignment) == (case["blocking_counts"], case["shown"], case["final"])
        assert (play.state.ended, len(play.facts)) == ("stable", case["periods"])
        score = SCHEDULING.score(play.instance, play.facts)
        assert (score.value, score.solved) == (1.0, True)
        assert score.metrics["stable_period"] == case["periods"] - 1


def test_golden_replays_have_the_reference_s_feedback_and_the_notebook_s_final_count(shared: Path) -> None:
    cases = [case for case in rows(shared, "score_replays.jsonl") if case["env"] == "scheduling"]
    assert cases
    for case in cases:
        play = reference(case["difficulty"], case["seed"])
        for assignment, (blocking, shown) in zip(case["actions"], case["per_period"], strict=False):
            action = play.submit(assignment)["action"]
            assert (action["blocking"], action["shown"]) == (blocking, shown)
        numerator, denominator = SCHEDULING.describe(play.instance)["expected"]
        final = case["notebook"]["final_num_blocking_pairs"]
        assert SCHEDULING.score(play.instance, play.facts).value == pytest.approx(1 - final * denominator / numerator)


def test_the_paper_s_example_is_seed_0_of_basic() -> None:
    play = reference("basic", 0)
    assert play.submit(matched(*range(1, 11)))["action"]["shown"] == [["W1", "T5"]]
    assert play.submit(matched(5, 2, 3, 4, 1, 6, 7, 8, 9, 10))["action"]["shown"] == [["W6", "T3"]]
    text = play.history()
    assert text == (
        "Attempt 0:\n"
        "Submitted assignment: {'W1': 'T1', 'W2': 'T2', 'W3': 'T3', 'W4': 'T4', 'W5': 'T5', 'W6': 'T6', 'W7': 'T7', "
        "'W8': 'T8', 'W9': 'T9', 'W10': 'T10'}\n"
        "\t(1) A problem: worker W1 has task T1 while worker W5 has task T5, yet worker W1 would rather do T5, and T5 "
        "is in better hands with W1 than with W5.\n"
        "\n"
        "Attempt 1:\n"
        "Submitted assignment: {'W1': 'T5', 'W2': 'T2', 'W3': 'T3', 'W4': 'T4', 'W5': 'T1', 'W6': 'T6', 'W7': 'T7', "
        "'W8': 'T8', 'W9': 'T9', 'W10': 'T10'}\n"
        "\t(1) A problem: worker W6 has task T6 while worker W3 has task T3, yet worker W6 would rather do T3, and T3 "
        "is in better hands with W6 than with W3.\n"
        "\n"
    )


def test_getters_show_ids_and_the_attempt() -> None:
    play = Play(SMALL)
    assert play.call("get_worker_ids") == "['W1', 'W2', 'W3', 'W4', 'W5']"
    assert play.call("get_task_ids") == "['T1', 'T2', 'T3', 'T4', 'T5']"
    assert play.call("get_attempt_number") == "0"
    play.submit(matched(1, 2, 3, 4, 5))
    assert play.call("get_attempt_number") == "1"


def test_policies_read_every_problem_in_both_styles_and_both_variants() -> None:
    for pack in (PACK, read_pack("standard", "scheduling", "reasoning")):
        for style in ("plain", "repr"):
            kit = Kit(pack=replace(pack, texts={**pack.texts, "results.style": style}))
            play = Play({**SMALL, "k": 9}, kit)
            for tasks in ((1, 2, 3, 4, 5), (5, 4, 3, 2, 1)):
                action = play.submit(matched(*tasks))["action"]
                assignment, problems = read_history(play.history())
                assert assignment == matched(*tasks)
                assert [list(pair) for pair in problems] == action["shown"]
                assert problems


def test_the_same_assignment_gets_the_same_pairs_in_whatever_order_it_is_written() -> None:
    for generator in ("native", "reference"):
        play = Play({**SMALL, "generator": generator, "n": 8, "periods": 50})
        first = play.submit(matched(1, 2, 3, 4, 5, 6, 7, 8))["action"]
        for tasks in ((8, 7, 6, 5, 4, 3, 2, 1), (2, 1, 4, 3, 6, 5, 8, 7)):
            play.submit(matched(*tasks))
        again = play.submit(dict(reversed(matched(1, 2, 3, 4, 5, 6, 7, 8).items())))["action"]
        assert (first["repeat"], again["repeat"]) == (False, True)
        assert first["shown"] == again["shown"]


def test_native_feedback_is_keyed_by_the_assignment_and_reference_feedback_by_what_went_before() -> None:
    wanted, others = (
        matched(1, 2, 3, 4, 5, 6, 7, 8),
        [matched(*tasks) for tasks in list(permutations(range(1, 9)))[7:60]],
    )
    shown = {}
    for generator in ("native", "reference"):
        line = {**SMALL, "generator": generator, "n": 8}
        direct = Play(line).submit(wanted)["action"]["shown"]
        later = []
        for count in (1, 5, 20, 50):
            play = Play(line)
            for other in others[:count]:
                play.submit(other)
            later.append(play.submit(wanted)["action"]["shown"])
        shown[generator] = [direct, *later]
    assert all(pairs == shown["native"][0] for pairs in shown["native"])
    assert any(pairs != shown["reference"][0] for pairs in shown["reference"])


def test_shown_pairs_are_distinct_and_blocking_and_all_of_them_where_they_are_few() -> None:
    everything = Play({**SMALL, "k": 25}).submit(matched(1, 2, 3, 4, 5))["action"]
    assert len(everything["shown"]) == everything["blocking"] > 2
    assert everything["shown"] == sorted(everything["shown"], key=lambda pair: [int(one[1:]) for one in pair])
    some = Play(SMALL).submit(matched(1, 2, 3, 4, 5))["action"]
    assert len(some["shown"]) == 2
    assert all(pair in everything["shown"] for pair in some["shown"])
    assert some["shown"][0] != some["shown"][1]


def test_every_choice_of_pairs_is_equally_likely() -> None:
    drawn = Counter(tuple(distinct(Stream(seed, "pairs"), 4, 2)) for seed in range(2400))
    assert drawn.keys() == set(permutations(range(4), 2))
    # 200 expected of each of the 12; sd 13.5
    assert all(abs(count - 200) < 60 for count in drawn.values())
    assert sorted(distinct(Stream(0, "all"), 5, 5)) == [0, 1, 2, 3, 4]


def test_pairs_can_be_shown_in_order_instead_of_at_random() -> None:
    for generator in ("native", "reference"):
        wanted = matched(*range(1, 9))
        every = Play({**SMALL, "n": 8, "generator": generator, "k": 50}).submit(wanted)["action"]["shown"]
        assert len(every) > 2
        first = Play({**SMALL, "n": 8, "generator": generator, "shown": "first"}).submit(wanted)["action"]["shown"]
        assert first == every[:2]


def test_a_stable_assignment_ends_the_episode() -> None:
    play = Play(SMALL)
    best = stable_matching(play.state.world.market)
    facts = play.submit(matched(*(t + 1 for t in best)))
    assert facts["action"] == {"blocking": 0, "shown": [], "repeat": False}
    assert facts["ended"] == "stable"


def test_a_market_of_one_is_stable_at_once() -> None:
    play = Play({**SMALL, "n": 1})
    assert play.submit({"W1": "T1"})["ended"] == "stable"
    assert SCHEDULING.score(play.instance, play.facts).value == 1.0


GOOD = matched(1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("mapping", "outcome", "ids"),
    [
        ({}, "missing_workers", "'W1', 'W2', 'W3', 'W4', 'W5'"),
        ({worker: task for worker, task in GOOD.items() if worker != "W2"}, "missing_workers", "'W2'"),
        ({**GOOD, "W2": "T1"}, "missing_tasks", "'T2'"),
        ({**GOOD, "W2": "T9"}, "missing_tasks", "'T2'"),
        ({**GOOD, "W2": ["T2"]}, "missing_tasks", "'T2'"),
        ({**GOOD, "W2": None, "W3": 3}, "missing_tasks", "'T2', 'T3'"),
        ({**GOOD, "W6": "T6"}, "unknown_workers", "'W6'"),
        (GOOD | {6: "T1", (1,): "T1"}, "unknown_workers", "int, tuple"),
        ({"w1": "T1", **{f"W{i}": f"T{i}" for i in range(2, 6)}}, "missing_workers", "'W1'"),
        (
            {**GOOD, **{f"X{i}": "T1" for i in range(99)}},
            "unknown_workers",
            ", ".join(f"'X{i}'" for i in range(20)) + ", ...",
        ),
        ({**GOOD, "x" * 900: "T1"}, "unknown_workers", repr("x" * 64)),
    ],
)
def test_what_is_no_assignment_is_refused_with_the_first_reason(
    mapping: dict[Any, Any], outcome: str, ids: str
) -> None:
    for restarts in ("keep", "restart"):
        play = Play({**SMALL, "no_action": restarts})
        seen = play.say(submitting(mapping))
        assert play.outcome == outcome
        assert seen.messages[0].text.endswith(f": {ids}.")
        assert "action" not in seen.facts
        assert play.state.turn == 1


def test_history_shows_the_assignment_as_it_was_written_and_periods_without_one() -> None:
    play = Play({**SMALL, "queries": 2})
    written = dict(reversed(GOOD.items()))
    play.submit(written)
    play.say(replying())
    play.say(replying())
    lines = play.history().splitlines()
    assert f"Submitted assignment: {written}" in lines
    assert lines[-3:] == ["Attempt 1:", "No assignment was submitted.", ""]


def test_replay_from_any_state_gives_the_same_feedback() -> None:
    play = reference("basic", 1)
    for tasks in ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (10, 9, 8, 7, 6, 5, 4, 3, 2, 1)):
        play.submit(matched(*tasks))
    before = play.state
    one = play.submit(matched(2, 1, 3, 4, 5, 6, 7, 8, 9, 10))
    play.state = before
    assert play.submit(matched(2, 1, 3, 4, 5, 6, 7, 8, 9, 10)) == one


def test_an_agent_without_notes_reads_nothing_of_them() -> None:
    play = Play(SMALL, Kit(pack=PACK, notes=False))
    assert play.tools() == [name for name in Play(SMALL).tools() if not name.endswith("_notes")]
    tools = SCHEDULING.tools(play.state)
    shown = [message.text for message in play.opening()] + [tool.description for tool in tools]
    assert not [text for text in shown if "note" in text.lower()]
    assert [text for text in (message.text for message in Play(SMALL).opening()) if "read_notes" in text]


def test_the_agent_is_told_of_neither_the_number_of_periods_nor_the_score() -> None:
    told = [message.text for message in Play(SMALL).opening()] + [
        str(tool) for tool in SCHEDULING.tools(Play(SMALL).state)
    ]
    assert not [text for text in told if "100" in text or "score" in text.lower() or "blocking" in text]


def nodes(value: object, known: set[int], found: list[object]) -> None:
    """All parts of a value that are not in `known`, texts aside."""
    if id(value) in known or isinstance(value, str | int | bool | None | bytes):
        return
    known.add(id(value))
    found.append(value)
    for part in parts(value):
        nodes(part, known, found)


def parts(value: object) -> Iterator[object]:
    if is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name) for field in fields(value))
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, tuple | list | frozenset):
        yield from value


def cells(fresh: list[object]) -> int:
    return len(fresh) + sum(len(one) for one in fresh if isinstance(one, tuple | list | frozenset | dict))


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("generator", ["native", "reference"])
def test_what_a_step_adds_to_the_state_does_not_grow_with_the_episode(generator: str) -> None:
    play = Play({**SMALL, "n": 7, "k": 2, "periods": 3000, "generator": generator})
    states, known, added = [play.state], set[int](), []
    nodes(play.state, known, [])
    for tasks in list(permutations(range(1, 8)))[1:1200]:
        for reply in (replying(("write_notes", {"notes": "n"}), ("get_worker_ids", "{}")), submitting(matched(*tasks))):
            if not play.state.ended:
                play.say(reply)
                states.append(play.state)  # kept, so that no id is used again
                fresh: list[object] = []
                nodes(play.state, known, fresh)
                added.append(cells(fresh))
    assert len(added) > 200
    # A radix tree of 16 ways: a level more (about 17 cells) each time the episode is 16 times as long.
    assert max(added[len(added) // 2 :]) <= max(added[:100]) + 3 * 17


def test_states_are_values() -> None:
    state = SCHEDULING.start(SCHEDULING.load(SMALL), KIT)
    with pytest.raises(AttributeError):
        state.period = 3  # type: ignore[misc]
    assert not hasattr(state, "__dict__")
    assert not hasattr(state.world, "__dict__")
