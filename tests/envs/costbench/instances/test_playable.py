from typing import Any

import pytest

from evalkit.envs.costbench.instances.suite import describe, load
from evalkit.envs.lines import instance_digest
from evalkit.errors import UsageError
from tests.support.costbench_lines import CHANGED, DINING, REFERENCE, alternative


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block": "ban_tool", "blocks": 4}, "blocks: 4 bans may leave no way to the goal; the tools"),
        ({"block": "ban_tool", "blocks": 2, "length": 3}, "blocks: 2 bans may leave no way"),
        ({"schedule": [{"at": i, "kind": "ban_tool"} for i in (1, 2, 3, 4)]}, "schedule: 4 bans may leave no way"),
        (
            {"block": "preference_change", "blocks": 3},
            "alternatives: the preference changes need 3; there are 2. Ask for fewer",
        ),
        ({"alternatives": {}}, "alternatives: expected a list of queries, got {}"),
        ({"schedule": [], "block": "ban_tool"}, ""),
        ({"schedule": "ban"}, "schedule: expected a list of events"),
        ({"schedule": [7]}, "schedule[0]: expected an object, got 7"),
        ({"schedule": [{"at": 0, "kind": "ban_tool"}]}, "schedule[0].at: must be a whole number of at least 1"),
        ({"schedule": [{"at": 1, "kind": "ban"}]}, "schedule[0].kind: there is no kind 'ban'. Valid: ban_tool"),
        ({"schedule": [{"at": i, "kind": "preference_change"} for i in (1, 2, 3)]}, "preference changes need 3 "),
        ({"schedule": [{"at": 1, "kind": "ban_tool"}], "block": "ban_tool"}, "block: a schedule says all that happens"),
        ({"blocks": 2, "block": None}, "blocks: 2 of what? `block` says which kind of event"),
        (
            {"schedule": [{"at": 1, "kind": "remove_tools", "size": 5}]},
            "size: no tool stands for 5 atomic ones; there are some for 2, 3, 4",
        ),
        ({"schedule": [{"at": 2**63, "kind": "ban_tool"}]}, "schedule[0].at: must be at most"),
        ({"costs": {"Select_Final_Dining": "1e999999999999"}}, "costs.Select_Final_Dining: expected a cost from 0.01"),
        ({"source": {"file": "x"}}, "source.sha256: is missing"),
        ({"source": {"file": "x", "sha256": "y", "row": -1}}, "source.row: -1 is out of range (0 to any)"),
        ({"source": "x"}, "source: expected an object"),
    ],
)
def test_events_that_cannot_be_played_are_named(change: dict[str, Any], words: str) -> None:
    line = {key: value for key, value in {**CHANGED, "block": "none", **change}.items() if value is not None}
    if not words:
        assert load(line).blocks == 1
        return
    with pytest.raises(UsageError) as flaw:
        load(line)
    assert words in str(flaw.value)


def test_as_many_bans_as_a_chain_stands_are_played() -> None:
    for length in (3, 5, 8):
        assert load({**DINING, "block": "ban_tool", "length": length, "blocks": length - 2}).blocks == length - 2


def test_mixed_blocks_need_alternatives_only_for_their_preference_changes() -> None:
    needed = set()
    for seed in range(40):
        for count in range(4):
            alternatives = [alternative(i) for i in range(1, count + 1)]
            line = {**DINING, "block": "mixed", "blocks": 3, "seed": seed, "alternatives": alternatives}
            try:
                load(line)
            except UsageError:
                continue
            needed.add(count)
            break
    assert needed in ({0, 1, 2}, {0, 1, 2, 3})


def test_blocks_are_one_where_not_said_and_none_without_a_kind() -> None:
    assert (load(CHANGED).block, load(CHANGED).blocks) == ("preference_change", 1)
    for change in ({"block": "none", "blocks": 3}, {"block": "ban_tool", "blocks": 0}, {"block": "none"}):
        found = load({**CHANGED, **change})
        assert (found.block, found.blocks) == ("none", 0)
        assert instance_digest("costbench", describe(found)) == instance_digest(
            "costbench", describe(load({**CHANGED, "block": "none"}))
        )


def test_the_reference_s_alternatives_belong_to_their_seed() -> None:
    load(REFERENCE)
    for change in ({"seed": 43}, {"seed": 43, "block": "mixed"}, {"alternatives_seed": None}):
        with pytest.raises(
            UsageError, match=r"alternatives_seed: .* Import or generate the suite again with that seed"
        ):
            load({**REFERENCE, **change})
    assert load({**REFERENCE, "seed": 43, "block": "cost_change"}).alternatives_seed == 42
    assert load({**REFERENCE, "seed": 43, "generator": "native"}).seed == 43
