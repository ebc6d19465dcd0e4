"""The same replies through the engine and through a game: the same facts, and the same score."""

import pytest

import evalkit
from tests.integrations.cases import CASES, Case, case_id, instance_of, played


@pytest.mark.exhaustive(but=5)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_game_scores_as_a_run_does(case: Case) -> None:
    episode = played(case)
    game = evalkit.game(instance_of(*case[:2]))
    for reply in episode.replies:
        assert reply is not None
        game.reply(reply)
    assert tuple(game.facts) == episode.facts
    assert (game.ending, game.score()) == (episode.ending, episode.score)


def test_hostile_replies_meet_refusals_of_many_kinds() -> None:
    for case in CASES:
        if case[2] == "scripted":
            outcomes = {call["outcome"] for facts in played(case).facts for call in facts["calls"]}
            assert len(outcomes - {"ok"}) > 4, (case[0], outcomes)
