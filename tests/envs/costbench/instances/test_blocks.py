"""What is drawn for blocks, against Python's own `random` where the reference uses that."""

import hashlib
import random
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.envs.costbench.events import world_of
from evalkit.envs.costbench.instances.blocks import (
    SENTENCES,
    ban_sentence,
    change_sentence,
    draws,
    failing_turns,
    kinds_of,
    planned_blocks,
    removed_ranges,
    table_seed,
)
from evalkit.envs.costbench.instances.line import read_schedule
from evalkit.envs.costbench.instances.parameters import KINDS
from evalkit.errors import UsageError
from tests.support.costbench_lines import bare_instance, bare_query

SEEDS = st.integers(0, 2**31 - 2)


instance = partial(bare_instance, generator="reference")


def hashed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % (2**31 - 1)


BASE = hashed("42:<Query00001>")


@given(SEEDS, st.integers(0, 5), st.integers(1, 500))
def test_the_references_draws_are_pythons(base: int, index: int, pool: int) -> None:
    assert table_seed("reference", base, index) == random.Random(base + 100 * index).choice(range(1, 10000))
    assert draws("reference", base, "preference_change", index).below(pool) == random.Random(base + 100 * index).choice(
        range(pool)
    )


@given(SEEDS, st.integers(1, 6))
def test_mixed_kinds_come_from_one_stream(base: int, count: int) -> None:
    stream = random.Random(base)
    assert kinds_of("reference", base, "mixed", count) == tuple(KINDS[stream.randint(0, 3)] for _ in range(count))
    assert len(kinds_of("native", base, "mixed", count)) == count


def test_kinds_of_one_kind() -> None:
    assert kinds_of("native", 1, "none", 3) == ()
    assert kinds_of("native", 1, "cost_change", 2) == ("cost_change", "cost_change")
    many = kinds_of("native", 1, "mixed", 400)
    assert all(60 < many.count(kind) < 140 for kind in KINDS)


@given(st.sampled_from(["reference", "native"]), SEEDS, st.integers(0, 6), st.integers(2, 12))
def test_ranges_lie_in_the_chain_and_are_wide(generator: str, base: int, count: int, length: int) -> None:
    found = removed_ranges(generator, base, count, length)
    assert len(found) == count
    width = min(length // 2, length - 2)
    assert all(2 <= left <= right - width and right <= length for left, right in found)


@given(SEEDS, st.integers(1, 3), st.integers(3, 8))
def test_ranges_are_the_references_tries_and_all(base: int, count: int, length: int) -> None:
    stream, width = random.Random(base), length // 2
    used: set[int] = set()
    found: list[tuple[int, int]] = []
    for _ in range(count):
        for attempt in range(101):
            left = stream.randint(2, length - width)
            right = stream.randint(left + width, length)
            taken = used & set(range(left, right + 1))
            if length - 1 < 2 * count or attempt == 100 or not taken:
                break
        used |= set(range(left, right + 1))
        found.append((left, right))
    assert removed_ranges("reference", base, count, length) == found


@given(SEEDS, st.integers(3, 20))
def test_two_ranges_always_overlap(base: int, length: int) -> None:
    # The paper calls them non-overlapping; at the width it asks for, two never fit between 2 and N.
    one, other = removed_ranges("reference", base, 2, length)
    assert one[0] <= other[1]
    assert other[0] <= one[1]


def test_native_draws_depend_on_the_place_alone() -> None:
    one = planned_blocks(instance(generator="native", block="cost_change", blocks=2), world_of(instance()))
    more = planned_blocks(instance(generator="native", block="cost_change", blocks=5), world_of(instance()))
    assert [block.seed for block in one] == [block.seed for block in more[:2]]
    assert len({block.seed for block in more}) == 5
    assert all(block.seed is not None and 1 <= block.seed <= 9999 for block in more)


def test_mixed_blocks_take_alternatives_and_ranges_in_order() -> None:
    for seed in range(30):
        one = instance(block="mixed", blocks=6, seed=seed, generator="native")
        blocks = planned_blocks(one, world_of(one))
        changes = [block.alternative for block in blocks if block.kind == "preference_change"]
        assert changes == list(range(len(changes)))
        assert all((block.alternative >= 0) == (block.kind == "preference_change") for block in blocks)
        assert all((block.size >= 2) == (block.kind == "remove_tools") for block in blocks)
        assert all((block.seed is not None) == (block.kind == "cost_change") for block in blocks)


def test_too_few_alternatives_are_refused() -> None:
    short = instance(block="preference_change", blocks=3, alternatives=(bare_query(900),))
    with pytest.raises(UsageError, match="alternatives: the preference changes need 3; there are 1"):
        planned_blocks(short, world_of(short))


def test_a_schedule_says_what_is_not_drawn() -> None:
    world = world_of(instance())
    schedule = (
        {"at": 4, "kind": "cost_change", "costs": {"Decide_Dining_Preference": 5}},
        {"at": 1, "kind": "cost_change"},
        {"at": 2, "kind": "cost_change", "seed": 77},
        {"at": 3, "kind": "remove_tools", "size": 4},
        {"at": 6, "kind": "remove_tools"},
        {"at": 5, "kind": "tool_failure"},
    )
    blocks = planned_blocks(instance(schedule=schedule, block="ban_tool", blocks=3), world)
    assert [block.at for block in blocks] == [1, 2, 3, 4, 5, 6]
    assert [block.seed for block in blocks] == [table_seed("reference", BASE, 0), 77, None, None, None, None]
    assert blocks[2].size == 4
    assert blocks[5].size >= 2
    assert blocks[3].costs == {"Decide_Dining_Preference": 5}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"at": 1, "kind": "ban_tools"}, r"schedule\[1\].kind: there is no kind 'ban_tools'. Did you mean 'ban_tool'"),
        ({"at": 1}, r"schedule\[1\].kind: there is no kind None"),
        ({"kind": "ban_tool"}, r"schedule\[1\].at: must be a whole number of at least 1, not None"),
        ({"at": 0, "kind": "ban_tool"}, "at least 1, not 0"),
        ({"at": True, "kind": "ban_tool"}, "not True"),
        ({"at": 2, "kind": "ban_tool"}, "turn 2 has an event already"),
        ({"at": 1, "kind": "ban_tool", "size": 3}, "a ban_tool has no field 'size'"),
        ({"at": 1, "kind": "remove_tools", "size": 1}, r"schedule\[1\].size: must be a whole number of at least 2"),
        ({"at": 1, "kind": "cost_change", "seed": -1}, r"schedule\[1\].seed"),
        ({"at": 1, "kind": "cost_change", "costs": [1]}, r"schedule\[1\].costs: expected an object"),
        (
            {"at": 1, "kind": "cost_change", "costs": {"Decide_Dining": 4}},
            "Decide_Dining: there is no such tool. Did you mean 'Decide_Dining_Preference'",
        ),
        ({"at": 1, "kind": "cost_change", "costs": {"Select_Final_Dining": 0}}, "Select_Final_Dining: expected a cost"),
        ({"at": 1, "kind": "preference_change"}, "preference changes need 1 .* there are 0"),
    ],
)
def test_flaws_of_a_schedule_are_named(entry: Mapping[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_schedule([{"at": 2, "kind": "tool_failure"}, entry], world_of(instance()), 0)


def test_a_sound_schedule_passes() -> None:
    entries = [{"at": 1, "kind": "preference_change"}, {"at": 3, "kind": "cost_change", "seed": 0, "costs": {}}]
    assert read_schedule(entries, world_of(instance()), 1) == tuple(entries)


@pytest.mark.parametrize("step", [1, 2, 19])
def test_sentences_are_the_references(step: int) -> None:
    one = instance()
    first = random.Random(hashed(f"{BASE}:{step}:ban_tool_message")).choice(range(10))
    assert ban_sentence(one, step, first=True) == first
    assert ban_sentence(one, step, first=False) == random.Random(BASE).choice(range(10))
    change = random.Random(hashed(f"{BASE}:{step}:preference_change_message")).choice(range(10))
    assert change_sentence(one, step) == change


def test_native_sentences_vary_by_turn_and_repeat_for_a_banned_tool() -> None:
    one = instance(generator="native")
    assert {ban_sentence(one, step, first=True) for step in range(1, 80)} == set(range(SENTENCES))
    assert {change_sentence(one, step) for step in range(1, 80)} == set(range(SENTENCES))
    assert len({ban_sentence(one, step, first=False) for step in range(1, 20)}) == 1


def test_failing_turns_are_drawn_turn_by_turn() -> None:
    one = instance(failures=0.3, steps=200)
    turns = failing_turns(one)
    assert failing_turns(instance()) == ()
    assert failing_turns(replace(one, failures=1.0)) == tuple(range(1, 201))
    assert 40 < len(turns) < 80
    # A turn that fails at a lower probability fails at a higher one, and a longer episode only adds turns.
    assert set(turns) <= set(failing_turns(replace(one, failures=0.5)))
    assert failing_turns(replace(one, steps=20)) == tuple(turn for turn in turns if turn <= 20)
