"""evalkit's suites for verifiers and prime-rl: a taskset that lists instances, and a harness that plays them.

    vf-eval evalkit-verifiers -m MODEL --env.taskset.suite scheduling/basic

The harness plays a game in its own process. Every request goes to verifiers, which sends it to the model and records
it, so that training sees every token. A new chat begins with each period: it becomes a branch of the trace. The score
is computed from the facts, as in a run.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from evalkit.api.games import Game, Instance, env, game, suite
from evalkit.errors import UsageError
from evalkit.integrations import missing
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.wire.dialect import MalformedReplyError
from evalkit.wire.openai_chat import OPENAI_CHAT

try:
    import verifiers.v1 as vf
    from pydantic import Field
    from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE
except ModuleNotFoundError as flaw:
    raise missing("verifiers", "verifiers") from flaw

INFO = "evalkit"
"""Where a trace's `info` holds what was played: `facts`, `ending`, `score`, `solved` and `metrics`."""

_DETAIL = 2000
"""Characters of a response that an error shows."""


class EvalkitConfig(vf.TasksetConfig):
    """Which instances are played, and how: as a sweep's table of a suite and an agent has it."""

    suite: str = ""
    """Its name or file: it must be given."""
    instances: list[str] = Field(default_factory=list)
    """Ids of the suite's instances (default: all)."""
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    """Parameters to change, each with a list of values."""
    prompts: str = "standard"
    """A prompt pack, by name or path."""
    notes: bool = True
    """Whether the agent has the tools to write and read notes, if the environment has them."""


class EvalkitData(vf.TaskData):
    """One instance, whole, and how it is played."""

    suite: str
    environment: str
    digest: str
    stratum: str
    line: dict[str, Any]
    prompts: str
    notes: bool

    def game(self) -> Game:
        """The game of this instance, before the first reply."""
        names = ("id", "suite", "environment", "digest", "stratum", "line")
        instance = Instance(**{name: getattr(self, name) for name in names})
        return game(instance, prompts=self.prompts, notes=self.notes)


class EvalkitTask(vf.Task[EvalkitData, vf.State, vf.TaskConfig]):
    """One instance of a suite."""

    @property
    def key(self) -> str:
        """`scheduling/basic:seed-0`"""
        return f"{self.data.suite}:{self.data.id}"

    # A reward named `score` would hide the method of that name.
    @vf.reward
    async def exact_score(self, trace: vf.Trace) -> float:
        """The episode's score; 1 is the optimum."""
        return float(trace.info[INFO]["score"])

    @vf.metric
    async def figures(self, trace: vf.Trace) -> Mapping[str, float]:
        """Whether it is solved, and the environment's metrics."""
        return {"solved": float(trace.info[INFO]["solved"]), **trace.info[INFO]["metrics"]}


class EvalkitTaskset(vf.Taskset[EvalkitTask, EvalkitConfig]):
    """The instances of a suite. Raises UsageError for an unknown suite, instance or parameter."""

    def load(self) -> Iterator[EvalkitTask]:
        """A task for each instance, in the suite's order."""
        config = self.config
        if not config.suite:
            raise UsageError("Name a suite: --env.taskset.suite NAME")
        for one in suite(config.suite, instances=config.instances, vary=config.vary):
            data = EvalkitData(
                id=one.id,
                name=f"{one.suite}:{one.id}",
                prompt=f"An episode of {one.environment}: its harness opens each chat.",
                suite=one.suite,
                environment=one.environment,
                digest=one.digest,
                stratum=one.stratum,
                line=dict(one.line),
                prompts=config.prompts,
                notes=config.notes,
            )
            yield EvalkitTask(data, config.task)


class EvalkitHarnessConfig(vf.HarnessConfig):
    """The harness has no settings of its own."""


class EvalkitHarness(vf.Harness[EvalkitHarnessConfig]):
    """Plays a game in this process: the model reads the chats of the environment, and answers with calls or text."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Play the episode to its end, or until verifiers ends it. `trace.info` has what was played so far."""
        del runtime, mcp_urls
        if not isinstance(data, EvalkitData):
            raise UsageError("EvalkitHarness plays tasks of EvalkitTaskset alone: name the same id for both.")
        playing = data.game()
        try:
            flaw = await _play(playing, ctx.model, endpoint, secret)
            code = 1 if flaw else 0
        except aiohttp.ClientError as broken:
            code, flaw = MODEL_TRANSPORT_ERROR_EXIT_CODE, f"{type(broken).__name__}: {broken}"
        finally:
            trace.info[INFO] = _played(playing)
        return vf.ProgramResult(exit_code=code, stdout="", stderr=flaw)


def _played(playing: Game) -> dict[str, Any]:
    score = playing.score()
    metrics = {name: float(value) for name, value in score.metrics.items()}
    result = {"score": score.value, "solved": score.solved, "metrics": metrics}
    return {"ending": playing.ending, "facts": [dict(facts) for facts in playing.facts], **result}


async def _play(playing: Game, model: str, endpoint: str, secret: str) -> str:
    """Why the episode did not come to its end; empty: it did.

    The settings are the environment's, as in a run; verifiers puts its user's in their place. What goes back of a chat
    has the form that vLLM takes of this model: most are served so, and others take it too.
    """
    quirks = find_model(read_provider("vllm"), model).quirks
    head = OPENAI_CHAT.head(model, env(playing.instance.environment).defaults, quirks)
    headers = {"Content-Type": "application/json", **OPENAI_CHAT.headers(secret)}
    url = endpoint.rstrip("/") + OPENAI_CHAT.path
    parts: list[bytes] = []
    OPENAI_CHAT.join(parts, playing.messages, quirks)
    # How long a model may take is for verifiers to say.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), headers=headers) as session:
        while not playing.ending:
            body = OPENAI_CHAT.body(head, OPENAI_CHAT.encode_tools(playing.tools), parts, None)
            async with session.post(url, data=body) as response:
                said = await response.read()
            if response.status != 200:
                return f"status {response.status}: {said[:_DETAIL].decode(errors='replace')}"
            try:
                reply = OPENAI_CHAT.decode(said)
            except MalformedReplyError as flaw:
                return f"not a reply: {flaw}"
            turn = playing.reply(reply)
            if turn.new_chat:
                parts = []
            said_since = playing.messages if turn.new_chat else (reply.message(), *turn.messages)
            OPENAI_CHAT.join(parts, said_since, quirks)
    return ""
