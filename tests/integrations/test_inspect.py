"""The Inspect integration, with Inspect itself and without a network."""

import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.dialogue import Reply
from evalkit.errors import UsageError
from tests.integrations.cases import CASES, PERIODS, Case, case_id, instance_of, played
from tests.support.document_blocks import blocks_of

inspect_ai = pytest.importorskip(
    "inspect_ai", reason="needs inspect-ai: `python -m tests.integrations` installs it and runs this"
)

from inspect_ai.log import EvalLog, read_eval_log  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatCompletionChoice,
    GenerateConfig,
    Model,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.util import CheckpointConfig, TurnInterval, store  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402
from pydantic_core import from_json, to_json  # noqa: E402

from evalkit.integrations.inspect import TASKS, suite_task  # noqa: E402
from evalkit.integrations.inspect.chats import PolicyModel, to_assistant  # noqa: E402

# Of Inspect's own: it closes streams late, and calls what its libraries deprecate.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Streams that Inspect leaves open are collected before the last test ends: behind it, where no mark of this module
    holds any more, pytest would end with an error."""
    yield
    for _ in range(5):
        gc.collect()


LEARNER = next(case for case in CASES if case[2] == "learner")
KNUTH = next(case for case in CASES if case[2] == "knuth")

EACH_TURN = CheckpointConfig(trigger=TurnInterval(every=1))

STOPS = {"length": "max_tokens"}


def output(reply: Reply) -> ModelOutput:
    """With its usage, else the mock would fetch a tokeniser to count it."""
    choice = ChatCompletionChoice(message=to_assistant(reply), stop_reason=STOPS.get(reply.finish, reply.finish))
    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return ModelOutput(model="mockllm", choices=[choice], usage=usage)


def said(case: Case) -> list[Reply]:
    return [reply for reply in played(case).replies if reply is not None]


def scored(case: Case) -> evalkit.Score:
    score = played(case).score
    assert score is not None
    return score


def exact(policy: str, instance: evalkit.Instance) -> float:
    score = evalkit.play(policy, instance).score
    assert score is not None
    return score.value


def saying(replies: Sequence[Reply]) -> Model:
    return get_model("mockllm/model", custom_outputs=[output(reply) for reply in replies], memoize=False)


def evaluated(case: Case, model: Model, folder: Path, **options: Any) -> EvalLog:
    suite, instance, *_ = case
    vary = {key: value[0] for key, value in PERIODS.items()} if "?" in instance_of(suite, instance).suite else {}
    task = TASKS[suite](instances=instance, **vary)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none", **options)
    return log


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_same_replies_give_the_same_facts_and_score(case: Case, tmp_path: Path) -> None:
    episode = played(case)
    log = evaluated(case, saying(said(case)), tmp_path)
    assert log.status == "success", log.error
    (sample,) = log.samples
    assert sample.store["evalkit:facts"] == list(episode.facts)
    assert sample.store["evalkit:ending"] == episode.ending
    score = sample.scores["exact_score"]
    assert score.value == {"score": scored(case).value, "solved": float(scored(case).solved)}
    assert score.metadata["metrics"] == dict(scored(case).metrics)
    assert {metric.name for result in log.results.scores for metric in result.metrics.values()} == {"mean", "stderr"}


def test_each_period_is_a_chat_of_its_own_and_the_sample_keeps_them_all(tmp_path: Path) -> None:
    asked = []

    def say(messages: list[Any], tools: list[Any], choice: Any, config: GenerateConfig) -> ModelOutput:
        asked.append(([message.role for message in messages], [tool.name for tool in tools], choice, config))
        return output(said(KNUTH)[len(asked) - 1])

    log = evaluated(KNUTH, get_model("mockllm/model", custom_outputs=say, memoize=False), tmp_path, max_tokens=1234)
    (sample,) = log.samples
    game = evalkit.game(instance_of(*KNUTH[:2]))
    for reply, (roles, tools, choice, config) in zip(said(KNUTH), asked, strict=True):
        assert roles == [message.role for message in game.messages]
        assert tools == [tool.name for tool in game.tools]
        assert (choice, config.temperature, config.max_tokens, config.seed) == ("any", 1.0, 1234, None)
        game.reply(reply)
    periods = [message.metadata["period"] for message in sample.messages if message.role == "system"]
    assert periods == list(range(len(periods)))
    assert len(periods) > 2


def test_a_policy_plays_through_the_command_line(tmp_path: Path) -> None:
    """`inspect eval evalkit/scheduling_basic --model evalkit/knuth`, found by the entry point."""
    inspect = str(Path(sys.executable).parent / "inspect")
    words = [inspect, "eval", "evalkit/scheduling_basic", "-T", "periods=4", "-T", "instances=seed-0,seed-3"]
    words += ["--model", "evalkit/knuth", "--display", "none", "--log-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("*.eval")
    log = read_eval_log(str(file))
    assert log.status == "success", log.error
    assert {sample.id for sample in log.samples} == {"seed-0", "seed-3"}
    for sample in log.samples:
        (instance,) = evalkit.suite("scheduling/basic", instances=[sample.id], vary={"periods": [4]})
        assert sample.scores["exact_score"].value["score"] == exact("knuth", instance)


def test_a_policy_draws_alike_when_it_plays_again_and_otherwise_in_another_epoch(tmp_path: Path) -> None:
    facts = []
    for turn in ("first", "second"):
        task = suite_task("pricing/basic", instances="seed-0", periods=4)
        (log,) = inspect_ai.eval(task, model="evalkit/random", epochs=2, log_dir=str(tmp_path / turn), display="none")
        facts.append({sample.epoch: sample.store["evalkit:facts"] for sample in log.samples})
    assert facts[0] == facts[1]
    assert facts[0][1] != facts[0][2]


def test_a_limit_ends_a_sample_and_what_was_played_is_scored(tmp_path: Path) -> None:
    episode = played(LEARNER)
    log = evaluated(LEARNER, saying(said(LEARNER)), tmp_path, message_limit=len(said(LEARNER)))
    (sample,) = log.samples
    assert sample.limit.type == "message"
    facts = sample.store["evalkit:facts"]
    assert 0 < len(facts) < len(episode.facts)
    assert facts == list(episode.facts[: len(facts)])
    game = evalkit.game(instance_of(*LEARNER[:2]))
    for reply in said(LEARNER)[: len(facts)]:
        game.reply(reply)
    assert sample.scores["exact_score"].value["score"] == game.score().value


class Kept:
    """A session of checkpoints that writes each to memory, as Inspect writes it to the disk."""

    def __init__(self) -> None:
        self.values, self.callbacks = dict[str, bytes](), dict[str, Callable[[], Any]]()
        self.store = b"{}"

    def track(self, key: str, callback: Callable[[], Any], initial_value: Any, *, value_type: Any) -> Any:
        self.callbacks[key] = callback
        held = self.values.get(key)
        return initial_value if held is None else TypeAdapter(value_type).validate_json(held)

    async def tick(self) -> None:
        self.values = {key: to_json(callback()) for key, callback in self.callbacks.items()}
        self.store = to_json(dict(store().items()))

    def restore(self) -> None:
        """Inspect gives a sample its store back before its solver can track anything."""
        for key, value in from_json(self.store).items():
            store().set(key, value)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each chat that `evalkit/knuth` was asked with; one request, in the middle, has failed."""
    ask, lengths, failed = PolicyModel.generate, list[int](), list[int]()

    async def generate(self: PolicyModel, **request: Any) -> ModelOutput:
        if len(lengths) == len(played(KNUTH).replies) // 2 and not failed:
            failed.append(1)
            raise RuntimeError("the network is gone")
        lengths.append(len(request["input"]))
        return await ask(self, **request)

    monkeypatch.setattr(PolicyModel, "generate", generate)
    return lengths


def check_continued(again: list[EvalLog], asked: list[int]) -> None:
    (log,) = again
    assert log.status == "success", log.error
    game = evalkit.game(instance_of(*KNUTH[:2]))
    for reply, length in zip(said(KNUTH), asked, strict=True):
        assert length == len(game.messages)
        game.reply(reply)
    (sample,) = log.samples
    assert sample.store["evalkit:facts"] == game.facts
    assert sample.scores["exact_score"].value["score"] == game.score().value
    assert len([message for message in sample.messages if message.role == "assistant"]) == game.step


def test_a_sample_that_failed_goes_on_behind_its_checkpoint(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the episode's replies each is asked for once, before the failure or after it."""
    kept = Kept()

    @asynccontextmanager
    async def checkpointer() -> AsyncIterator[Kept]:
        kept.restore()
        yield kept

    monkeypatch.setattr("evalkit.integrations.inspect.solver.checkpointer", checkpointer)
    log = evaluated(KNUTH, get_model("evalkit/knuth"), tmp_path)
    assert (log.status, len(asked)) == ("error", len(played(KNUTH).replies) // 2)
    check_continued(inspect_ai.eval_retry(log, log_dir=str(tmp_path), display="none"), asked)


def test_inspects_own_checkpoints_are_gone_on_behind(asked: list[int], tmp_path: Path) -> None:
    log = evaluated(KNUTH, get_model("evalkit/knuth"), tmp_path, checkpoint=EACH_TURN)
    if not asked and "restic" in str(log.error):
        pytest.skip("needs restic, which Inspect could not download")
    check_continued(inspect_ai.eval_retry(log, log_dir=str(tmp_path), display="none", checkpoint=EACH_TURN), asked)


def test_a_chat_beyond_the_context_ends_the_episode(tmp_path: Path) -> None:
    episode = played(LEARNER)
    outputs = [output(reply) for reply in said(LEARNER)[:2]]
    too_long = output(Reply(text="prompt is too long"))
    too_long.choices[0].stop_reason = "model_length"
    log = evaluated(LEARNER, get_model("mockllm/model", custom_outputs=[*outputs, too_long], memoize=False), tmp_path)
    (sample,) = log.samples
    assert sample.store["evalkit:ending"] == "context_length"
    assert sample.store["evalkit:facts"] == list(episode.facts[:2])


def test_values_of_a_parameter_are_samples_of_their_own() -> None:
    task = suite_task("scheduling/basic", instances=["seed-0"], k=[1, 2])
    assert [sample.id for sample in task.dataset] == ["seed-0?k=1", "seed-0?k=2"]
    assert {sample.metadata["line"]["k"] for sample in task.dataset} == {1, 2}


def test_wrong_names_are_told_before_anything_is_played() -> None:
    with pytest.raises(UsageError, match="knuth"):
        get_model("evalkit/knut")
    with pytest.raises(UsageError, match="sees more"):
        get_model("evalkit/oracle")
    with pytest.raises(UsageError, match="seed-0"):
        suite_task("scheduling/basic", instances="seed-00")


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    for block in blocks_of("docs/inspect.md"):
        if "inspect" in block.words:
            path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
            words = ["bash", "-ec", block.text]
            done = subprocess.run(words, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
    logs = [read_eval_log(str(file)) for file in (tmp_path / "logs").glob("*.eval")]
    assert sorted(len(log.samples) for log in logs) == [2, 2]
    assert {log.status for log in logs} == {"success"}
