"""`python -m bench.integrations [NAME ...]`: what integrations cost in CPU, beside a `Game` alone.

An integration and the game take turns, so that what else the machine does slows both. Where most of a step is the
library's own work, a third takes its turn: the library with the same conversation, and without evalkit. An integration
whose library is not installed is left out; `python -m tests.integrations` measures each where it is. The model's own
time is nobody's here: a model takes seconds where a step takes microseconds.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
from aiohttp import web

import evalkit
from bench.measuring import span
from evalkit.dialogue import Reply
from evalkit.errors import UsageError
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.wire.dialect import Quirks
from evalkit.wire.openai_chat import OPENAI_CHAT

TURNS = 7
"""Times that an integration and the game are measured."""
EPISODES = 5
"""Played each time; of integrations whose library is most of the work, one."""

PERIODS = 20
"""Of an episode where the library is most of the work, which may grow with what was said before."""

SUITES = {"scheduling/basic": "random", "pricing/basic": "learner", "procurement/basic": "random"}
"""With the policy that plays."""

Play = Callable[[int], object]
"""Plays so many episodes."""


def again(play: Callable[[], object]) -> Play:
    """One episode, as many times as are asked for."""

    def times(episodes: int) -> None:
        for _ in range(episodes):
            play()

    return times


def alone(instance: evalkit.Instance, replies: Sequence[Any]) -> object:
    """The replies given to a game."""
    game = evalkit.game(instance)
    for reply in replies:
        game.reply(reply)
    return game.score()


def gym_text(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, None]:
    """Gymnasium, as texts."""
    import gymnasium

    from evalkit.integrations.gym.text import as_action

    suite = instance.suite.partition("?")[0]
    env = gymnasium.make("evalkit.integrations.gym:evalkit/Text-v1", suite=suite, instances=[instance.id])
    actions = [as_action(reply) for reply in replies]

    def play() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    return again(play), None


def gym_numbers(name: str) -> tuple[Play, Play, int]:
    """Gymnasium, as numbers: random actions; the replies that they stood for, to a game; and how many they are."""
    import gymnasium

    env: Any = gymnasium.make(f"evalkit.integrations.gym:evalkit/{name}-v1")
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

    return again(play), again(lambda: alone(inner.instances[0], replies)), len(replies)


def trl(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, None]:
    """TRL's class; a call is a reply."""
    from evalkit.integrations.trl import dataset, environment

    name = instance.suite.partition("?")[0]
    rollout = environment(name, instances=[instance.id])()
    (row,) = dataset(name, instances=[instance.id])
    calls = [(getattr(rollout, call.name), json.loads(call.arguments)) for reply in replies for call in reply.calls]

    def play() -> None:
        rollout.reset(**row)
        for method, arguments in calls:
            method(**arguments)
        rollout.get_reward()

    return again(play), None


def verifiers(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, None]:
    """verifiers' harness with the model's answers at hand: requests are made and replies read, and nothing is sent."""
    from evalkit.integrations import verifiers as integration

    answers = [SERVED_OPENAI_CHAT.encode_reply(reply) for reply in replies]

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
    (task,) = integration.EvalkitTaskset(integration.EvalkitConfig(suite=name, instances=[instance.id]))
    real = aiohttp.ClientSession
    harness = integration.EvalkitHarness(integration.EvalkitHarnessConfig(id="evalkit-verifiers"))

    def play() -> None:
        aiohttp.ClientSession = Answered  # type: ignore[assignment,misc]
        try:
            trace, model = SimpleNamespace(info={}), SimpleNamespace(model="m")
            asyncio.run(harness.launch(model, trace, None, "http://x/v1", "", {}, task.data))
        finally:
            aiohttp.ClientSession = real  # type: ignore[misc]

    return again(play), None


def gateway(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, Play]:
    """A client of aiohttp's that asks the gateway, whose seat has the replies at hand; and one that asks a server of
    aiohttp's which has the answers."""
    game, bodies, parts = evalkit.game(instance), list[bytes](), list[bytes]()
    head = OPENAI_CHAT.head("main", evalkit.env(instance.environment).defaults, Quirks())
    OPENAI_CHAT.join(parts, game.messages)
    for reply in replies:
        bodies.append(OPENAI_CHAT.body(head, OPENAI_CHAT.encode_tools(game.tools), parts, None))
        turn = game.reply(reply)
        parts = [] if turn.new_chat else parts
        OPENAI_CHAT.join(parts, game.messages if turn.new_chat else (reply.message(), *turn.messages))
    answers = [SERVED_OPENAI_CHAT.encode_reply(reply) for reply in replies]

    class Seat:
        """A seat that has the replies, and gives the next one to any request."""

        parallel = 1
        step = 0

        def fork(self, _: str) -> "Seat":
            return self

        async def ask(self, *_: object, **__: object) -> Reply:
            return replies[self.step]

    async def asked(url: str, seat: Seat) -> None:
        async with aiohttp.ClientSession() as session:
            for seat.step, body in enumerate(bodies):
                async with session.post(url, data=body) as response:
                    assert response.status == 200, await response.text()
                    OPENAI_CHAT.decode(await response.read())

    async def through(episodes: int) -> None:
        for _ in range(episodes):
            seat = Seat()
            async with evalkit.gateway(cast("evalkit.Seat", seat)) as gate:
                await asked(gate.base_url("openai_chat") + OPENAI_CHAT.path, seat)

    async def bare(episodes: int) -> None:
        seat = Seat()

        async def answer(request: web.BaseRequest) -> web.Response:
            await request.read()
            return web.Response(body=answers[seat.step], headers={"Content-Type": "application/json"})

        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        for _ in range(episodes):
            await asked(f"http://127.0.0.1:{runner.addresses[0][1]}/", seat)
        await runner.cleanup()

    return (lambda episodes: asyncio.run(through(episodes))), (lambda episodes: asyncio.run(bare(episodes)))


def mcp(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, Play]:
    """The official client and the server in one process; and a server that answers the same without a game."""
    import mcp_types as types
    from mcp.client.client import Client
    from mcp.server.lowlevel import Server

    from evalkit.integrations.mcp import EpisodeServer
    from evalkit.integrations.play_session import PlaySession

    calls = [(call.name, json.loads(call.arguments)) for reply in replies for call in reply.calls]
    answers, listed = list[Any](), list[Any]()

    async def told(server: Any) -> None:
        async with Client(server) as client:
            listed[:] = (await client.list_tools()).tools
            answers[:] = [await client.call_tool(name, arguments) for name, arguments in calls]

    def bare() -> Any:
        waiting = iter(tuple(answers))

        async def tools(*_: Any) -> Any:
            return types.ListToolsResult(tools=list(listed), ttl_ms=0)

        async def answer(*_: Any) -> Any:
            return next(waiting)

        return Server("bare", on_list_tools=tools, on_call_tool=answer)

    def times(make: Callable[[], Any]) -> Play:
        async def some(episodes: int) -> None:
            for _ in range(episodes):
                await told(make())

        return lambda episodes: asyncio.run(some(episodes))

    integration = times(lambda: EpisodeServer(PlaySession(evalkit.game(instance))).server)
    integration(1)
    return integration, times(bare)


def inspect(instance: evalkit.Instance, replies: Sequence[Reply]) -> tuple[Play, Play]:
    """Inspect's `eval` with its mock of a model; and a solver that asks the same and knows no game."""
    import inspect_ai
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatCompletionChoice, GenerateConfig, ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import Generate, TaskState, solver

    from evalkit.integrations.inspect import suite_task
    from evalkit.integrations.inspect.chats import to_assistant, to_choice, to_messages, to_tools

    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    outputs = [
        ModelOutput(model="mockllm", choices=[ChatCompletionChoice(message=to_assistant(reply))], usage=usage)
        for reply in replies
    ]
    asked, game = list[tuple[Any, Any, Any]](), evalkit.game(instance)
    for reply in replies:
        asked.append((to_messages(game.messages, game.period), to_tools(game.tools), to_choice(game.tool_choice)))
        game.reply(reply)

    def asks() -> Any:
        async def solve(state: TaskState, _: Generate) -> TaskState:
            for chat, tools, choice in asked:
                state.output = await get_model().generate(
                    chat, tools=tools, tool_choice=choice, config=GenerateConfig()
                )
                state.messages.append(state.output.message)
            return state

        return solve

    name = instance.suite.partition("?")[0]
    integration = suite_task(name, instances=instance.id, periods=PERIODS)
    bare = inspect_ai.Task(dataset=MemoryDataset([Sample(input="x")]), solver=solver(asks)())
    logs = tempfile.mkdtemp()

    def times(task: Any) -> Play:
        def play(episodes: int) -> None:
            model = get_model("mockllm/model", custom_outputs=outputs * episodes, memoize=False)
            (log,) = inspect_ai.eval(
                task, model=model, epochs=episodes, max_samples=1, display="none", log_level="error", log_dir=logs
            )
            assert log.status == "success", log.error

        return play

    return times(integration), times(bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An integration that is measured with each suite."""

    title: str
    make: Callable[[evalkit.Instance, Sequence[Reply]], tuple[Play, Play | None]]
    """What plays through it, and what does the same with the library alone, if that is most of the work."""
    most: float
    """The promise: CPU of a step, times the game's; or times the library's, if that plays too."""
    single: bool = False
    """Whether each call is a reply of its own."""
    short: bool = False
    """Whether episodes of `PERIODS` are played, instead of the suite's."""


INTEGRATIONS: Mapping[str, Measured] = {
    "gateway": Measured(title="the gateway", make=gateway, most=3),
    "gym": Measured(title="Gymnasium as text", make=gym_text, most=4),
    "verifiers": Measured(title="verifiers", make=verifiers, most=3),
    "trl": Measured(title="TRL", make=trl, most=2, single=True),
    "mcp": Measured(title="MCP", make=mcp, most=3, single=True, short=True),
    "inspect": Measured(title="Inspect", make=inspect, most=3, short=True),
}
NUMBERS = 4.0
"""The promise for Gymnasium's environments of numbers."""


def measure(name: str, plays: tuple[Play, Play, Play | None], steps: int, most: float) -> bool:
    """Print an integration's steps a second, its CPU for one, and how that compares with the game alone and with the
    library alone (`plays`: the game, the integration, the library); whether the promise is kept."""
    present = [play for play in plays if play is not None]
    episodes = EPISODES if plays[2] is None else 1
    found: list[list[float]] = []
    for _ in range(TURNS):
        taken = []
        for play in present:
            began = time.process_time_ns()
            play(episodes)
            taken.append((time.process_time_ns() - began) * 1e-9 / (episodes * steps))
        found.append(taken)
    game, integration, *library = (median(column) for column in zip(*found, strict=True))
    ratios = sorted(taken[1] / taken[-1 if library else 0] for taken in found)
    times = median(ratios)
    print(f"{name:34}{1 / integration:12,.0f}{span(integration):>12}{span(game):>12}{integration / game:8.1f}", end="")
    print(f"{span(library[0]) if library else '':>14}{times:8.2f}   {ratios[0]:.2f} to {ratios[-1]:.2f}", end="")
    print(f"{f'<= {most:g}':>10}", flush=True)
    return times <= most


def main(wanted: Sequence[str] = ()) -> bool:
    """Measure the integrations named, or all that are installed; whether every promise is kept."""
    print(f"{'':34}{'steps/s':>12}{'CPU a step':>12}{'game alone':>12}{'times':>8}{'library alone':>14}", end="")
    print(f"{'ratio':>8}   {'':12}{'promise':>10}")
    integrations = {
        name: integration
        for name, integration in INTEGRATIONS.items()
        if (not wanted or name in wanted) and _installed(name)
    }
    kept = []
    for suite, policy in SUITES.items():
        for integration in integrations.values():
            instance = evalkit.suite(suite, vary={"periods": [PERIODS]} if integration.short else {})[0]
            said = [reply for reply in evalkit.play(policy, instance).replies if reply is not None]
            if integration.single:
                said = [Reply(calls=(call,), finish=reply.finish) for reply in said for call in reply.calls]
            through, library = integration.make(instance, said)
            game = again(partial(alone, instance, said))
            kept.append(measure(f"{integration.title}, {suite}", (game, through, library), len(said), integration.most))
    for name in ("Scheduling", "Pricing", "Procurement", "CostBench") if "gym" in integrations else ():
        through, game, steps = gym_numbers(name)
        kept.append(measure(f"Gymnasium, {name}", (game, through, None), steps, NUMBERS))
    return all(kept)


def _installed(name: str) -> bool:
    """Whether an integration can be opened here; if not, say how to install it."""
    try:
        import_module(f"evalkit.integrations.{name}")
    except UsageError as flaw:
        print(
            f"{INTEGRATIONS[name].title}: {flaw} Or measure it with: python -m tests.integrations INTEGRATIONS={name}"
        )
        return False
    return True


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
