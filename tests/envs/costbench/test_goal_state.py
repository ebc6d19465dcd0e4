"""`require_goal_state`: a call is required until the goal is held, then one reply without, as in the reference."""

from typing import Any

import pytest

from evalkit.client.ask import Question
from evalkit.client.request import RequestTemplate
from evalkit.dialogue import Reply, Sampling
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.score import score
from evalkit.envs.replay import advance, begin
from evalkit.money import FREE
from evalkit.replies import encode_reply
from evalkit.spec.model import Limits, Model, Provider
from evalkit.wire.table import DIALECTS
from tests.support.costbench_episodes import Episode, make_instance, standard_kit
from tests.support.costbench_lines import DINING
from tests.support.period_episodes import replying

BOTH, FINISH = "Dining_Preference_and_Search", "Dining_Finish_from_Step1_3Steps"


def required(**said: Any) -> Episode:
    return Episode(make_instance(require_goal_state=True, **said))


def choice(episode: Episode) -> str | None:
    assert COSTBENCH.tool_choice is not None
    return COSTBENCH.tool_choice(episode.state)


def ended(episode: Episode) -> str:
    return COSTBENCH.ended(episode.state)


def test_a_call_is_required_until_the_goal_is_held_and_then_none() -> None:
    episode = required()
    assert choice(episode) == "required"
    episode.call(BOTH)
    assert (choice(episode), ended(episode)) == ("required", "")
    seen = episode.call(FINISH)
    # The result is still told: one more reply is asked for.
    assert (choice(episode), ended(episode), len(seen.messages)) == ("none", "", 1)
    episode.answer()
    assert ended(episode) == "answered"
    assert episode.facts[-1]["closing"] is True
    assert score(episode.instance, episode.facts).metrics["intent"] == 1
    assert choice(Episode(make_instance())) is None


def test_the_last_reply_ends_the_episode_whatever_it_holds() -> None:
    for reply in (Reply(text=""), Reply(text="no"), replying((BOTH, {}))):
        episode = required()
        episode.call(BOTH)
        episode.call(FINISH)
        episode.say(reply)
        assert ended(episode) == "no_call"
        assert all(call["outcome"] == "not_executed" for call in episode.facts[-1]["calls"])
        assert score(episode.instance, episode.facts).metrics["goal"] == 1


def test_a_reply_without_a_call_is_asked_again_up_to_the_limit() -> None:
    episode = required(steps=3)
    for _ in range(2):
        assert episode.say(Reply(text="let me think")).messages == ()
        assert ended(episode) == ""
    episode.say(Reply(text="still thinking"))
    assert ended(episode) == "step_limit"
    for text, why in (
        ("<answer> soon </answer>", "no_call"),
        ("<answer> <DiningCandidate00001> </answer>", "answered"),
    ):
        episode = required()
        episode.say(Reply(text=text))
        assert ended(episode) == why


def test_the_last_reply_is_asked_for_behind_the_limit_too() -> None:
    episode = required(steps=2)
    episode.call(BOTH)
    episode.call(FINISH)
    assert (choice(episode), ended(episode)) == ("none", "")
    other = required(steps=1)
    other.call(BOTH)
    assert ended(other) == "step_limit"


def test_another_wish_takes_the_goal_away_again() -> None:
    episode = required(schedule=({"at": 2, "kind": "preference_change"},))
    episode.call(BOTH)
    episode.call(FINISH)
    assert (choice(episode), ended(episode)) == ("required", "")
    blocked = required(schedule=({"at": 1, "kind": "cost_change"},))
    blocked.call(BOTH)
    blocked.call(FINISH)
    blocked.answer()
    # The reference does not count the last reply: the change at turn 1 is behind turn 2 of 2.
    assert score(blocked.instance, blocked.facts).metrics["blocks_met"] == 0


def test_what_is_asked_reaches_the_request_and_no_digest() -> None:
    told, plain = ({**DINING, "require_goal_state": wanted} for wanted in (True, False))
    positions = [begin(COSTBENCH, COSTBENCH.load(line), standard_kit()) for line in (told, plain)]
    assert [position.choice for position in positions] == ["required", None]
    assert positions[0].request_digest == positions[1].request_digest
    instance = COSTBENCH.load(told)
    episode = Episode(instance)
    reply = replying(("Dining_Full_Planning_to_Step2", episode.arguments("Dining_Full_Planning_to_Step2")))
    advance(COSTBENCH, positions[0], reply, encode_reply(reply))
    episode.say(reply)
    reply = replying(("Select_Final_Dining", episode.arguments("Select_Final_Dining")))
    advance(COSTBENCH, positions[0], reply, encode_reply(reply))
    assert (positions[0].choice, positions[0].ending) == ("none", "")
    assert COSTBENCH.describe(instance)["require_goal_state"] is True
    assert "require_goal_state" not in COSTBENCH.describe(COSTBENCH.load(plain))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_says_it_where_the_question_does(name: str) -> None:
    template = RequestTemplate(
        agent="a",
        provider=Provider(name="p", dialect=name),
        model=Model(name="m", price=None, limits=Limits()),
        dialect=DIALECTS[name],
        sampling=COSTBENCH.defaults,
        price=FREE,
    )
    heads = {asked: template.head(asked) for asked in (None, "auto", "required", "none")}
    assert heads[None] == heads["auto"]
    assert len(set(heads.values())) == 3
    question = Question(episode="e", step=0, seed=0, tools=(), messages=(), choice="none")
    assert question.asked(Sampling()) == Sampling(tool_choice="none")
