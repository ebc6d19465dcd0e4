"""One episode as Inspect plays it: the model is asked through Inspect, the environment is evalkit's."""

from collections.abc import Mapping
from typing import Any

from inspect_ai.log import transcript
from inspect_ai.model import ChatMessage, GenerateConfig, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import checkpointer

from evalkit.api.environments import Instance
from evalkit.api.games import Game
from evalkit.dialogue import Reply
from evalkit.doors.inspect.chats import from_output, to_choice, to_messages, to_tools
from evalkit.doors.inspect.policies import PolicyModel
from evalkit.replies import decode_reply, encode_reply
from evalkit.seeds import derive

FACTS, ENDING = "evalkit:facts", "evalkit:ending"
"""Where a sample's store has the facts of the episode, and why it ended."""


def metadata_of(instance: Instance) -> dict[str, Any]:
    """A sample's metadata: all of the instance, so that a log alone can be scored."""
    return {
        "environment": instance.environment,
        "instance": instance.id,
        "suite": instance.suite,
        "digest": instance.digest,
        "stratum": instance.stratum,
        "line": dict(instance.line),
    }


def instance_of(metadata: Mapping[str, Any]) -> Instance:
    """The instance that a sample's metadata has."""
    return Instance(id=metadata["instance"], **{key: metadata[key] for key in _SAME})


_SAME = ("environment", "suite", "digest", "stratum", "line")


@solver
def play_episode(prompts: str = "standard", notes: bool = True) -> Solver:
    """Play a sample's episode to its end. Each period starts a new chat; the sample's messages keep all of them.

    The facts are in the store after each reply, so that a sample that a limit ends is scored too. With checkpoints, a
    sample that is retried continues behind its last one: the replies are replayed, and the model is not asked again.
    """

    async def solve(state: TaskState, _: Generate) -> TaskState:
        game = Game(instance_of(state.metadata), prompts=prompts, notes=notes)
        facts = list[Mapping[str, Any]]()
        async with checkpointer() as held:
            replies = list[str]()
            state.messages = to_messages(game.messages, game.period)
            before = held.track("evalkit:replies", lambda: replies, replies, value_type=list[str])
            state.messages = held.track(
                "evalkit:messages", lambda: state.messages, state.messages, value_type=list[ChatMessage]
            )
            # Only here: a sample that is retried has got its store back from the checkpoint, with a list of its own.
            state.store.set(FACTS, facts)
            for encoded in before:
                facts.append(game.reply(decode_reply(encoded.encode())).facts)
                replies.append(encoded)
            while not game.ending and await _turn(state, game, replies, facts):
                await held.tick()
        state.store.set(ENDING, game.ending or "context_length")
        state.completed = True
        return state

    return solve


async def _turn(state: TaskState, game: Game, replies: list[str], facts: list[Mapping[str, Any]]) -> bool:
    """Ask the model once and tell the environment; False if the chat has become longer than the model's context."""
    model, step = get_model(), game.step
    # A policy's draws are those of the episode, so that epochs differ and a sample played again does not.
    own = isinstance(model.api, PolicyModel) and model.config.seed is None
    seed = derive(game.instance.digest, state.epoch, step) if own else None
    state.output = await model.generate(
        state.messages[-len(game.messages) :],
        tools=to_tools(game.tools),
        tool_choice=to_choice(game.tool_choice),
        config=GenerateConfig(seed=seed),
    )
    if state.output.stop_reason == "model_length":
        return False
    reply: Reply = from_output(state.output)
    turn = game.reply(reply)
    state.messages.append(state.output.message)
    state.messages.extend(to_messages(turn.messages, turn.period))
    if turn.new_chat:
        state.messages.extend(to_messages(game.messages, game.period))
    replies.append(encode_reply(reply).decode())
    facts.append(turn.facts)
    transcript().info(dict(turn.facts), source="evalkit")
    return True
