"""The Gymnasium environments: gymnasium's own checks, rewards that add up to the score, what is refused."""

import json
import math
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import evalkit
import evalkit.integrations.gym
from evalkit.dialogue import Reply, ToolCall
from evalkit.errors import UsageError
from evalkit.integrations.gym.episode import difference
from evalkit.integrations.gym.text import LONGEST, as_action, read_action
from evalkit.policy.market_reading import hint, read_menu
from tests.integrations.cases import CASES, PERIODS, Case, case_id, played
from tests.support.patience import PATIENCE_S

SUITES = ("scheduling/basic", "pricing/basic", "procurement/basic", "costbench/basic")
TEXTS = [("evalkit/Text-v1", {"suite": suite}) for suite in SUITES]
NUMBERS: list[tuple[str, dict[str, Any]]] = [
    (name, {}) for name in evalkit.integrations.gym.ENTRY_POINTS if name != "evalkit/Text-v1"
]


def made(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(name, **arguments)


def drawn(env: gymnasium.Env[Any, Any], observation: Any) -> Any:
    """An action; of those that a mask allows, where there is one."""
    masked = isinstance(observation, dict) and "mask" in observation
    return env.action_space.sample(observation["mask"] if masked else None)


def test_every_environment_has_an_id() -> None:
    assert {name for name in gymnasium.registry if name.startswith("evalkit/")} == set(
        evalkit.integrations.gym.ENTRY_POINTS
    )


# pytest makes an error of every warning.
@pytest.mark.parametrize(("name", "arguments"), [*NUMBERS, *TEXTS])
def test_gymnasium_finds_no_fault(name: str, arguments: dict[str, Any]) -> None:
    check_env(made(name, render_mode="ansi", **arguments).unwrapped)


@pytest.mark.parametrize(("name", "arguments"), NUMBERS)
@pytest.mark.parametrize("reward", ["score", "terminal"])
def test_rewards_add_up_to_the_score(name: str, arguments: dict[str, Any], reward: str) -> None:
    env = made(name, reward=reward, **arguments)
    env.action_space.seed(5)
    for place in range(3):
        observation, info = env.reset(options={"instance": place})
        rewards, done = [0.0], False
        while not done:
            observation, change, done, truncated, info = env.step(drawn(env, observation))
            rewards.append(float(change))
            assert not truncated
        sums = [math.fsum(rewards[:end]) for end in range(1, len(rewards) + 1)]
        # To the last bit, unless a sum on the way is larger than the score: there, doubles are further apart.
        assert abs(sum(rewards) - info["score"]) <= (math.ulp(max(map(abs, sums))) if reward == "score" else 0.0)
        game = env.unwrapped.game  # type: ignore[attr-defined]
        assert (info["score"], info["solved"], info["ending"]) == (game.score().value, game.score().solved, game.ending)


def test_a_reward_leads_to_the_score_wherever_doubles_do() -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        so_far = 0.0
        for target in sorted(rng.uniform(0, 1, 20)):
            so_far += difference(target, so_far)
            assert so_far == target


@pytest.mark.exhaustive(but=5)
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_text_environment_scores_as_a_run_does(case: Case) -> None:
    episode = played(case)
    parameters = PERIODS if "periods" in evalkit.env(episode.environment).parameters else {}
    env = made("evalkit/Text-v1", suite=case[0], **parameters)
    _, info = env.reset(options={"instance": case[1]})
    paid = 0.0
    for reply in episode.replies:
        assert reply is not None
        observation, reward, done, _, info = env.step(as_action(reply))
        paid += float(reward)
        assert observation in env.observation_space
    game = env.unwrapped.game  # type: ignore[attr-defined]
    assert done
    assert tuple(game.facts) == episode.facts
    assert episode.score is not None
    result = episode.score.value, episode.score.metrics, episode.ending
    assert (info["score"], info["metrics"], info["ending"]) == result
    assert paid == pytest.approx(episode.score.value, abs=1e-12)


@pytest.mark.parametrize(
    ("action", "text", "calls"),
    [
        ("Let me think.", "Let me think.", []),
        ("", "", []),
        ('{"name": "a", "arguments": {"x": 1}}', "", [("call_0", "a", '{"x":1}')]),
        ('[{"name": "a", "arguments": "{"}, {"name": "b"}]', "", [("call_0", "a", "{"), ("call_1", "b", "{}")]),
        ('{"text": "so", "calls": [{"id": "7", "name": "a"}]}', "so", [("7", "a", "{}")]),
        ('{"text": "{}"}', "{}", []),
        ("[]", "", []),
        ('{"assignment": 1}', '{"assignment": 1}', []),
        ('[{"name": 3}]', '[{"name": 3}]', []),
        ('{"name": "\\ud800"}', '{"name": "\\ud800"}', []),
        ("\ud800", "?", []),
        ("[" * 5000, "[" * 5000, []),
        ("NaN", "NaN", []),
    ],
)
def test_every_text_is_a_reply(action: str, text: str, calls: list[tuple[str, str, str]]) -> None:
    reply = read_action(action)
    assert (reply.text, [(call.id, call.name, call.arguments) for call in reply.calls]) == (text, calls)
    assert read_action(as_action(reply)) == reply
    evalkit.game(evalkit.suite("costbench/basic")[0]).reply(reply)


def test_a_text_environment_shows_what_an_agent_reads() -> None:
    env = made("evalkit/Text-v1", suite="scheduling/basic", periods=2)
    observation, info = env.reset(options={"instance": "seed-3"})
    game = env.unwrapped.game  # type: ignore[attr-defined]
    assert all(message.text in observation for message in game.messages)
    assert [tool["function"]["name"] for tool in info["tools"]] == [tool.name for tool in game.tools]
    observation, _, _, _, info = env.step(
        as_action(Reply(calls=(ToolCall(id="1", name="get_task_ids", arguments=""),)))
    )
    assert [message["role"] for message in info["messages"]] == ["tool", "user"]
    assert not info["new_chat"]
    assert len(observation) < LONGEST
    plan = repr({f"W{i}": f"T{i}" for i in range(1, 11)})
    observation, _, _, _, info = env.step(as_action(Reply(calls=game_call("submit_assignment", assignment=plan))))
    assert info["new_chat"]
    assert observation.startswith("[system]")


def game_call(name: str, **arguments: Any) -> tuple[ToolCall, ...]:
    return (ToolCall(id="1", name=name, arguments=json.dumps(arguments)),)


def test_scheduling_shows_the_last_assignment_and_what_blocks_it() -> None:
    env = made("evalkit/Scheduling-v1", k=3)
    observation, _ = env.reset(options={"instance": "seed-3"})
    assert not observation["assignment"].any()
    observation, _, _, _, info = env.step(np.eye(10, dtype=np.float32)[::-1].copy())
    assert observation["assignment"].tolist() == list(range(10, 0, -1))
    action = env.unwrapped.game.facts[-1]["action"]  # type: ignore[attr-defined]
    assert [[f"W{w}", f"T{t}"] for w, t in observation["blocking"].tolist() if w] == action["shown"]
    assert (info["outcomes"], int(observation["period"]), len(action["shown"])) == (["ok"], 1, 3)
    assert env.step(np.full((10, 10), np.nan, np.float32))[4]["outcomes"] == ["ok"]


def test_pricing_shows_what_the_agent_is_told() -> None:
    env = made("evalkit/Pricing-v1")
    observation, info = env.reset(options={"instance": "seed-3"})
    game = env.unwrapped.game  # type: ignore[attr-defined]
    assert hint(game.messages[-1].text) == observation["hint"][0] == info["scale"]
    observation, *_ = env.step(np.full(env.action_space.shape, -0.5, np.float32))
    assert hint(game.messages[-1].text) == observation["hint"][0]
    game.reply(game_call("get_previous_pricing_data"))
    for price, quantity, profit, cost in zip(
        *(observation[name] for name in ("prices", "quantities", "profits", "costs")), strict=True
    ):
        shown = game.messages[-2].text
        assert all(f"{value:.2f}" in shown for value in (price, quantity, profit, cost)), shown


def test_dense_rewards_are_shares_of_the_best_profit() -> None:
    env = made("evalkit/Pricing-v1", reward="dense", periods=6)
    env.reset(options={"instance": "seed-3"})
    rewards = [float(env.step(np.full(env.action_space.shape, -0.5, np.float32))[1]) for _ in range(6)]
    game = env.unwrapped.game  # type: ignore[attr-defined]
    profits = sum(sum(facts["action"]["profits"]) for facts in game.facts)
    assert sum(rewards) == pytest.approx(profits / (6 * game.instance.line["optimum"]["profit"]))


def test_procurement_shows_the_menu_and_what_a_plan_brought() -> None:
    env = made("evalkit/Procurement-v1", most=3)
    observation, _ = env.reset(options={"instance": "seed-3"})
    game = env.unwrapped.game  # type: ignore[attr-defined]
    game.reply(game_call("get_equipment_information"))
    deals = read_menu(game.messages[-2].text)
    assert [deal.price / 100 for deal in deals] == observation["price"].tolist()
    assert [deal.fixed / 100 for deal in deals] == observation["fixed"].tolist()
    assert [max(1, least) for least in observation["least"]] == [deal.least for deal in deals]
    assert [sum(units for _, units in deal.contents) for deal in deals] == observation["contents"].sum(1).tolist()
    observation, *_ = env.step(np.zeros(len(deals), np.int64))
    assert (int(observation["feasible"]), observation["cost"][0], observation["workers"][0]) == (1, 0.0, 0.0)
    observation, *_ = env.step(np.full(len(deals), 3))
    assert (int(observation["feasible"]), observation["workers"][0]) == (0, 0.0)
    assert observation["cost"][0] > observation["budget"][0]


def test_costbench_is_solved_by_the_cheapest_calls() -> None:
    env = made("evalkit/CostBench-v1")
    observation, _ = env.reset(options={"instance": "location-0000"})
    best = evalkit.play("oracle", env.unwrapped.game.instance).score  # type: ignore[attr-defined]
    assert best is not None
    for name in best.path:
        action = 1 + [tool.name for tool in env.unwrapped.game.tools].index(name)  # type: ignore[attr-defined]
        assert observation["mask"][action]
        assert not observation["mask"][0]
        observation, _, _, _, info = env.step(action)
        assert info["outcomes"] == ["ok"]
        assert info["action_mask"].tolist() == observation["mask"].tolist()
    assert np.flatnonzero(observation["mask"]).tolist() == [0]
    _, _, done, _, info = env.step(0)
    assert (done, info["score"], info["solved"], info["metrics"]["answered"]) == (True, 1.0, True, 1.0)


VECTORS = """
import gymnasium

from evalkit.integrations.gym import ENTRY_POINTS

if __name__ == "__main__":
    for name in ENTRY_POINTS:
        text = name == "evalkit/Text-v1"
        arguments = {"suite": "pricing/basic", "periods": 3} if text else {}
        for mode, how in (("sync", {}), ("async", {"shared_memory": False} if text else {})):
            envs = gymnasium.make_vec("evalkit.integrations.gym:" + name, 2, mode, vector_kwargs=how, **arguments)
            observations, _ = envs.reset(seed=1)
            envs.action_space.seed(1)
            rewards = []
            for _ in range(3):
                actions = ("Let me think.", '{"name": "get_product_ids"}') if text else envs.action_space.sample()
                observations, reward, _, _, infos = envs.step(actions)
                assert len(infos["outcomes"]) == 2
                rewards.append(reward.tolist())
            seen = observations if text else {key: value.tolist() for key, value in observations.items()}
            print(repr((name, rewards, seen)))
            envs.close()
"""


@pytest.mark.exhaustive
def test_vectors_of_all_environments_play_alike_in_one_process_and_in_several() -> None:
    # A process of its own, because asynchronous ones are forked.
    done = subprocess.run(
        [sys.executable, "-c", VECTORS], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(evalkit.integrations.gym.ENTRY_POINTS)
    assert lines[::2] == lines[1::2]


def test_texts_in_shared_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("evalkit/Text-v1", 2, "async", suite="pricing/basic")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("Pricing-v1", {"suite": "scheduling/basic"}, "expected a suite of pricing, got scheduling/basic"),
        ("Pricing-v1", {"reward": "profit"}, "expected score or terminal or dense, got 'profit'"),
        ("Scheduling-v1", {"reward": "dense"}, "expected score or terminal, got 'dense'"),
        ("Scheduling-v1", {"n": [5, 6]}, "its instances differ in n, k or periods"),
        ("Scheduling-v1", {"suite": "scheduling/bosic"}, "basic"),
        ("Scheduling-v1", {"nn": 3}, "nn"),
        ("Text-v1", {"suite": "scheduling/basic", "instances": ["seed-99"]}, "seed-99"),
    ],
)
def test_what_cannot_be_played_is_refused(name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(f"evalkit/{name}", **arguments)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("seed-99", "none of that id"), (12, "0 to 11"), (-1, "0 to 11"), ([], "0 to 11"), ("seed-1", "several variants")],
)
def test_an_instance_that_is_not_there_is_refused(wanted: object, words: str) -> None:
    periods = [2, 3] if words == "several variants" else [2]
    env = made("evalkit/Text-v1", suite="scheduling/basic", periods=periods)
    with pytest.raises(UsageError, match=words):
        env.reset(options={"instance": wanted})
