"""Whatever a model may answer in an environment of the period loop, and what must hold of any such answer."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.calls import RESTARTING
from evalkit.envs.environment import Kit, Observation
from evalkit.envs.rules import STYLES, PeriodsState
from tests.support.episode_loop import kit as standard_kit
from tests.support.period_episodes import Game

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
NO_ACTION = st.sampled_from(["keep", "restart"])
STYLE = st.sampled_from(STYLES)


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nested values of JSON over these leaves, nulls and texts."""
    return st.recursive(
        st.none() | ANY_TEXT | leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
        max_leaves=6,
    )


def arguments(play: Game, any_value: st.SearchStrategy[Any], deep: str) -> st.SearchStrategy[str]:
    """A call's arguments, few of them sound; `deep` begins a literal that brackets then nest."""
    name = play.argument
    return (
        ANY_TEXT
        | any_value.map(json.dumps)
        | any_value.map(lambda value: json.dumps({name: value, "notes": value, "attempt_number": value}))
        | st.integers(90, 20_000).map(lambda depth: json.dumps({name: deep + "[" * depth}))
    )


def replies(play: Game, said: st.SearchStrategy[str], *, often: bool = True) -> st.SearchStrategy[Reply]:
    """Replies of up to five calls of tools, most of which exist; often: of the action more than of the others."""
    names = st.sampled_from([*play.tools(), "nope", "", "x" * 400]) | ANY_TEXT
    call = st.builds(ToolCall, id=ANY_TEXT, name=names | st.just(play.action) if often else names, arguments=said)
    return st.builds(Reply, text=ANY_TEXT, calls=st.lists(call, max_size=5).map(tuple))


def outcomes(game: type[Game]) -> set[str]:
    """All outcomes that a call can have."""
    texts = game.environment.texts.all
    return {key.removeprefix("results.") for key in texts} | {"ok", "after_action", "after_restart"}


def texts_of_outcomes(refusals: Iterable[str]) -> set[str]:
    """Keys of the texts that calls without effect are answered with."""
    return {f"results.{outcome}" for outcome in (*RESTARTING, *refusals)}


def styled(game: type[Game], style: str) -> Kit:
    """evalkit's own wording with results in this style."""
    pack = standard_kit(game.environment.name).pack
    return Kit(pack=replace(pack, texts={**pack.texts, "results.style": style}))


def withstood(play: Game, said: Sequence[Reply]) -> Iterator[tuple[PeriodsState[Any], Observation, dict[str, Any]]]:
    """Say these replies. Of each: the state before, what was seen, and its facts as a log keeps them.

    Asserts of each that every call has a known outcome, that the episode moves, and that texts are of bounded length.
    """
    known = outcomes(type(play))
    for reply in said:
        if play.state.ended:
            break
        before = play.state
        seen = play.say(reply)
        facts = orjson.loads(orjson.dumps(seen.facts))
        assert facts == seen.facts
        assert [call["outcome"] in known for call in facts["calls"]] == [True] * len(reply.calls)
        assert all(len(call["tool"]) <= 64 for call in facts["calls"])
        assert (facts["period"], facts["turn"]) == (before.period, before.turn)
        moved = (play.state.period, play.state.tries, play.state.turn)
        assert moved > (before.period, before.tries, before.turn) or play.state.ended
        goes_on = not seen.new_chat and not play.state.ended
        assert [message.call_id for message in seen.messages] == [*(call.id for call in reply.calls), ""] * goes_on
        own = len(before.history) + sum(len(call.arguments) for call in reply.calls)
        assert all(len(message.text) < 4000 + 2 * own for message in seen.messages)
        for message in seen.messages:
            message.text.encode()
        yield before, seen, facts


def assert_same(one: Game, other: Game, said: Sequence[Reply]) -> None:
    """The same replies to two episodes of an instance give the same states, texts and facts."""
    for reply in said:
        if not one.state.ended:
            assert one.say(reply) == other.say(reply)
    assert one.facts == other.facts
    assert one.state.history == other.state.history


def never_act(play: Game) -> float:
    """The score of an episode without any action, and that it ends as it should."""
    while not play.state.ended:
        play.say(Reply(text="Let me think."))
    assert play.state.ended == "unresponsive"
    assert len(play.facts) == {"keep": 5 * 40, "restart": 10 * 40}[play.line["no_action"]]
    score = play.environment.score(play.instance, play.facts)
    assert not score.solved
    return score.value
