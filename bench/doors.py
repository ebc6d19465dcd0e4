"""`python -m bench.doors`: what doors cost, in CPU of this process beside the same replies given to a `Game` alone.

A door and the game take turns, so that what else the machine does slows both. A door whose library is not installed is
left out. The model's own time is nobody's here: a model takes seconds where a step takes microseconds.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import aiohttp

import evalkit
from bench.measuring import span
from evalkit.dialogue import Reply
from evalkit.errors import UsageError

TURNS = 7
"""Times that a door and the game are measured."""
EPISODES = 5
"""Played each time."""

SUITES = {"scheduling/basic": "random", "pricing/basic": "learner", "procurement/basic": "random"}
"""With the policy that plays."""

Play = Callable[[], object]


def alone(instance: evalkit.Instance, replies: Sequence[Any]) -> object:
    """The replies given to a game."""
    game = evalkit.game(instance)
    for reply in replies:
        game.reply(reply)
    return game.score()


def gym_text(instance: evalkit.Instance, replies: Sequence[Reply]) -> Play:
    """Gymnasium, as texts."""
    import gymnasium

    from evalkit.doors.gym.text import as_action

    suite = instance.suite.partition("?")[0]
    env = gymnasium.make("evalkit.doors.gym:evalkit/Text-v1", suite=suite, instances=[instance.id])
    actions = [as_action(reply) for reply in replies]

    def play() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    return play


def gym_numbers(name: str) -> tuple[Play, Play, int]:
    """Gymnasium, as numbers: random actions; the replies that they stood for, to a game; and how many they are."""
    import gymnasium

    env: Any = gymnasium.make(f"evalkit.doors.gym:evalkit/{name}-v1")
    env.action_space.seed(1)
    replies: list[Any] = []
    real, inner = env.unwrapped.answer, env.unwrapped

    def kept(action: Any) -> Any:
        replies.append(real(action))
        return replies[-1]

    observation, _ = env.reset(options={"instance": 0})
    inner.answer, ended, actions = kept, False, []
    while not ended:
        actions.append(env.action_space.sample(observation.get("mask")))
        observation, _, ended, _, _ = env.step(actions[-1])
    inner.answer = real

    def play() -> None:
        env.reset(options={"instance": 0})
        for action in actions:
            env.step(action)

    return play, lambda: alone(inner.instances[0], replies), len(replies)


def trl(instance: evalkit.Instance, replies: Sequence[Reply]) -> Play:
    """TRL's class; a call is a reply."""
    from evalkit.doors.trl import dataset, environment

    name = instance.suite.partition("?")[0]
    rollout = environment(name, instances=[instance.id])()
    (row,) = dataset(name, instances=[instance.id])
    calls = [(getattr(rollout, call.name), json.loads(call.arguments)) for reply in replies for call in reply.calls]

    def play() -> None:
        rollout.reset(**row)
        for method, arguments in calls:
            method(**arguments)
        rollout.get_reward()

    return play


def verifiers(instance: evalkit.Instance, replies: Sequence[Reply]) -> Play:
    """verifiers' harness with the model's answers at hand: requests are made and replies read, and nothing is sent."""
    from evalkit.doors import verifiers as door
    from evalkit.serve.dialects.table import SERVED_DIALECTS

    answers = [SERVED_DIALECTS["openai_chat"].encode_reply(reply) for reply in replies]

    class Answered:
        """A session that has the answers."""

        def __init__(self, **_: object) -> None:
            self._waiting = iter(answers)

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        def post(self, url: str, *, data: bytes) -> Any:
            del url, data
            return Answer(next(self._waiting))

    class Answer:
        """A response that has come."""

        status = 200

        def __init__(self, body: bytes) -> None:
            self._body = body

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def read(self) -> bytes:
            return self._body

    name = instance.suite.partition("?")[0]
    (task,) = door.EvalkitTaskset(door.EvalkitConfig(suite=name, instances=[instance.id]))
    real = aiohttp.ClientSession
    harness = door.EvalkitHarness(door.EvalkitHarnessConfig(id="evalkit-verifiers"))

    def play() -> None:
        aiohttp.ClientSession = Answered  # type: ignore[assignment,misc]
        try:
            trace, model = SimpleNamespace(info={}), SimpleNamespace(model="m")
            asyncio.run(harness.launch(model, trace, None, "http://x/v1", "", {}, task.data))
        finally:
            aiohttp.ClientSession = real  # type: ignore[misc]

    return play


DOORS: Mapping[str, Callable[[evalkit.Instance, Sequence[Reply]], Play]] = {
    "Gymnasium as text": gym_text,
    "verifiers": verifiers,
    "TRL": trl,
}


def measure(name: str, door: Play, game: Play, steps: int) -> None:
    """Print a door's steps a second, its CPU for one, and how that compares with the game alone."""
    found: list[tuple[float, float]] = []
    for _ in range(TURNS):
        taken = []
        for play in (game, door):
            began = time.process_time_ns()
            for _ in range(EPISODES):
                play()
            taken.append((time.process_time_ns() - began) * 1e-9 / (EPISODES * steps))
        found.append((taken[0], taken[1]))
    ratios = sorted(through / plain for plain, through in found)
    plain, through = (median(column) for column in zip(*found, strict=True))
    print(f"{name:34}{1 / through:12,.0f}{span(through):>12}{span(plain):>12}{median(ratios):10.2f}", end="")
    print(f"   {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


def main() -> int:
    """Measure the doors that are installed."""
    print(f"{'':34}{'steps/s':>12}{'CPU a step':>12}{'game alone':>12}{'times':>10}")
    for suite, policy in SUITES.items():
        instance = evalkit.suite(suite)[0]
        replies = [reply for reply in evalkit.play(policy, instance).replies if reply is not None]
        single = [Reply(calls=(call,)) for reply in replies for call in reply.calls]
        for title, make in DOORS.items():
            said = single if make is trl else replies
            try:
                door = make(instance, said)
            except UsageError as flaw:
                print(f"{title}: {flaw}")
                continue
            measure(f"{title}, {suite}", door, partial(alone, instance, said), len(said))
    for name in ("Scheduling", "Pricing", "Procurement", "CostBench"):
        measure(f"Gymnasium, {name}", *gym_numbers(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
