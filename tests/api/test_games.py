"""A game by hand: the same as a run, reply by reply; whatever is said to it."""

import json

import pytest

import evalkit
from evalkit.dialogue import Request
from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.policy.conversation import answer
from evalkit.policy.table import player
from tests.api.specs import policies

SUITES = ("scheduling/basic", "pricing/basic", "procurement/basic", "costbench/basic")


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("suite", SUITES)
def test_replies_of_a_run_lead_a_game_to_the_same_end(suite: str) -> None:
    instance = evalkit.suite(suite)[0]
    played = evalkit.play("noisy", instance, replicate=1)
    game = evalkit.game(instance)
    chats = [list(game.messages)]
    for reply in played.replies:
        assert reply is not None
        assert not game.ending
        turn = game.reply(reply)
        if turn.new_chat:
            chats[-1] += [reply.message(), *turn.messages]
            chats.append(list(game.messages))
        else:
            chats[-1] = list(game.messages)
    assert (game.ending, game.step) == (played.ending, len(played.replies))
    assert game.score() == played.score
    assert tuple(game.facts) == played.facts
    assert tuple(map(tuple, chats)) == played.chats
    assert played.reproduced
    with pytest.raises(ValueError, match="ended"):
        game.reply("more")


@pytest.mark.parametrize("suite", SUITES)
def test_a_game_is_scored_at_any_time(suite: str) -> None:
    game = evalkit.game(evalkit.suite(suite)[0])
    low, high = evalkit.env(game.instance.environment).score_range
    for _ in range(3):
        score = game.score()
        assert low <= score.value <= high
        assert not score.solved
        game.reply("I would rather talk.")
        if game.ending:
            break


def test_texts_calls_and_replies_are_taken() -> None:
    one, two, three = (evalkit.game(evalkit.suite("scheduling/basic")[0]) for _ in range(3))
    call = evalkit.ToolCall(id="1", name="get_worker_ids", arguments="{}")
    assert one.reply([call]) == two.reply((call,)) == three.reply(evalkit.Reply(calls=(call,), finish="tool_calls"))
    assert one.messages == two.messages == three.messages
    assert [message.role for message in one.messages[-3:]] == ["assistant", "tool", "user"]
    assert one.reply("And now?").facts == {"period": 0, "turn": 1, "calls": []}


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (3, TypeError, "a Reply, a list of ToolCalls or a string, got int"),
        (None, TypeError, "got NoneType"),
        (b"bytes", TypeError, "got bytes"),
        ([{"name": "submit"}], TypeError, "expected ToolCalls, got dict"),
        ([evalkit.ToolCall(id="1", name="a", arguments={"x": 1})], TypeError, r"json\.dumps"),  # type: ignore[arg-type]
        (evalkit.Reply(text=3), TypeError, "must be strings"),  # type: ignore[arg-type]
        ("\ud800", ValueError, "not valid text"),
        ([evalkit.ToolCall(id="1", name="\ud800", arguments="{}")], ValueError, "not valid text"),
    ],
)
def test_what_is_no_reply_is_refused_and_changes_nothing(reply: object, kind: type[Exception], words: str) -> None:
    game = evalkit.game(evalkit.suite("scheduling/basic")[0])
    before = game.messages
    with pytest.raises(kind, match=words):
        game.reply(reply)  # type: ignore[arg-type]
    assert (game.step, game.messages, game.facts) == (0, before, [])


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", "{}", '{"a": ' * 500, json.dumps({"x": "y" * 10_000})])
def test_nonsense_is_answered(suite: str, arguments: str) -> None:
    game = evalkit.game(evalkit.suite(suite)[0])
    for tool in game.tools:
        if game.ending:
            break
        turn = game.reply([evalkit.ToolCall(id="1", name=tool.name, arguments=arguments)])
        assert turn.facts["calls"][0]["outcome"]


def test_a_game_without_notes_offers_no_tools_for_them() -> None:
    instance = evalkit.suite("scheduling/basic")[0]
    names = [{tool.name for tool in evalkit.game(instance, notes=notes).tools} for notes in (True, False)]
    assert names[1] < names[0]


def test_a_policy_plays_a_game_as_it_plays_a_run() -> None:
    instance = evalkit.suite("scheduling/basic", instances=["seed-3"])[0]
    game, play = evalkit.game(instance), player("oracle", "scheduling", instance=_loaded(instance))
    while not game.ending:
        env = evalkit.env(instance.environment)
        request = Request(messages=game.messages, tools=game.tools, sampling=env.defaults, seed=game.step)
        game.reply(answer("oracle", play, request))
    assert game.score() == evalkit.play("oracle", instance).score


def _loaded(instance: evalkit.Instance) -> object:
    return evalkit.env(instance.environment).load(instance.line)


def test_suites_give_the_instances_of_a_run() -> None:
    run = evalkit.run(policies())
    rows = run.table("instances").to_pylist()
    found = evalkit.suite("scheduling/basic", instances=["seed-0", "seed-3"], vary={"periods": [4]})
    assert [(one.suite, one.id, one.digest, one.stratum) for one in found] == [
        (row["suite"], row["instance"], row["digest"], row["stratum"]) for row in rows
    ]
    assert [dict(one.line) for one in found] == [json.loads(row["line"]) for row in rows]


def test_every_environment_has_its_name() -> None:
    for name in OWN_ENVIRONMENTS:
        assert evalkit.env(name).name == name
