"""An episode as a fold over replies: the one way in which play, resume, `verify` and `show` move an environment.

    begin -> Position;  advance(position, reply) -> Turn, and the position has moved on

The environment's state is immutable; the `Position` is the driver's own cursor and the one record that is changed in
place, so that a turn costs the bytes it adds: messages are appended, digests chained.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson

from evalkit.dialogue import Message, Reply, Tool, ToolChoice
from evalkit.digests import chain_open, chain_turn, encoded, step_digest, texts_digest
from evalkit.envs.environment import Environment, Facts, Kit


class _OpenedChat(msgspec.Struct, frozen=True):
    """A chat's opening and what was made of it. Most chats of an episode open alike, so that is made once."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    json: bytes
    request_digest: bytes
    texts_digest: bytes


@dataclass(slots=True)
class Position:
    """Where an episode stands: all that the next request is made of."""

    state: Any
    messages: list[Message]
    """The current chat, appended to in place; another list object once a new chat begins."""
    tools: tuple[Tool, ...]
    """What the next request offers; the same object as long as it is the same."""
    request_digest: bytes
    """Of the next request: everything the agent has been sent in this chat."""
    choice: ToolChoice | None
    """Whether the next reply must hold a call, or none; None: as the agent is asked anyway."""
    step: int
    """Of the next request, from 0."""
    period: int
    turn: int
    """Place of the next request in its chat, from 0."""
    ending: str
    """Why the episode is over; empty while it continues."""
    opened: _OpenedChat
    """The current chat's opening."""
    facts: list[bytes] | None = None
    """The facts of its steps as the log holds them, where its score is wanted when it ends; None: they are not kept."""


# Made for every reply: msgspec's frozen records cost a fifth of what dataclasses do.
class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one reply brought about.

    step, period, turn   the place of the reply: in the episode, in time, in its chat; each from 0
    facts                a mapping: what the environment made of it, as JSON-able values; `facts_bytes` is its JSON
    messages             tuple of `Message`: what the chat appends after the reply; empty if the chat ends
    new_chat             whether the next request starts afresh
    new_tools            whether the next request offers other tools
    acted                whether the reply made a valid action
    ending               why the episode is over; empty while it continues
    request_digest, observation_digest, step_digest
                         16 bytes each, by which `evalkit verify` compares replay with the log

    >>> import evalkit
    >>> turn = evalkit.game(evalkit.suite("pricing/basic")[0]).reply("Let me think.")
    >>> turn.step, turn.acted, turn.new_chat, [message.role for message in turn.messages]
    (0, False, False, ['user'])
    """

    step: int
    """The step, period and turn that the reply answered."""
    period: int
    turn: int
    facts: Facts
    facts_bytes: bytes
    """The facts as JSON with sorted keys, as the log holds them."""
    messages: tuple[Message, ...]
    """The observation: what the chat appends after the reply."""
    observation_digest: bytes
    request_digest: bytes
    """Of the request that the reply answered."""
    step_digest: bytes
    new_chat: bool
    """Whether the next request starts afresh; never true of an episode's last turn."""
    new_tools: bool
    """Whether the next request offers other tools; never true of an episode's last turn."""
    acted: bool
    """Whether the reply made a valid action."""
    ending: str
    """Why the episode is over; empty while it continues."""


def begin(env: Environment[Any, Any], instance: Any, kit: Kit, *, keep_facts: bool = False) -> Position:
    """An episode before its first request; `keep_facts`: whether `Position.facts` is wanted."""
    state = env.start(instance, kit)
    opened = _open(env.opening(state).messages, env.tools(state))
    return Position(
        state=state,
        messages=list(opened.messages),
        tools=opened.tools,
        choice=_choice(env, state),
        request_digest=opened.request_digest,
        step=0,
        period=env.period(state),
        turn=0,
        ending=env.ended(state),
        opened=opened,
        facts=[] if keep_facts else None,
    )


def again(position: Position) -> Position:
    """The same position once more: what moves one of them leaves the other where it is."""
    facts = None if position.facts is None else [*position.facts]
    return replace(position, messages=[*position.messages], facts=facts)


def _open(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> _OpenedChat:
    json = encoded(messages)
    return _OpenedChat(messages, tools, json, chain_open(json, tools), texts_digest(json))


def _choice(env: Environment[Any, Any], state: Any) -> ToolChoice | None:
    return None if env.tool_choice is None else env.tool_choice(state)


def advance(env: Environment[Any, Any], position: Position, reply: Reply, reply_bytes: bytes) -> Turn:
    """Answer the position's request with a reply, and move the position after it.

    `reply_bytes` is the reply as the log holds it (`replies.py`). Raises ValueError if the episode is over.
    """
    if position.ending:
        raise ValueError(f"the episode ended ({position.ending}) before step {position.step}")
    asked, step, period, turn = position.request_digest, position.step, position.period, position.turn
    offered = position.tools
    state, observation = env.step(position.state, reply)
    ending = env.ended(state)
    position.state, position.step, position.ending = state, step + 1, ending
    position.choice = _choice(env, state)
    new_chat = observation.new_chat and not ending
    if new_chat:
        opened = _open_chat(env, position)
        read = (*observation.messages, *opened.messages)
        observation_digest = texts_digest(read) if observation.messages else opened.texts_digest
    else:
        shown = encoded(observation.messages)
        observation_digest = texts_digest(shown)
        _continue_chat(env, position, reply, reply_bytes, observation.messages, shown)
    facts_bytes = orjson.dumps(observation.facts, option=orjson.OPT_SORT_KEYS)
    if position.facts is not None:
        position.facts.append(facts_bytes)
    return Turn(
        step=step,
        period=period,
        turn=turn,
        facts=observation.facts,
        facts_bytes=facts_bytes,
        messages=observation.messages,
        observation_digest=observation_digest,
        request_digest=asked,
        step_digest=step_digest(asked, reply_bytes, facts_bytes, observation_digest),
        new_chat=new_chat,
        new_tools=position.tools is not offered and position.tools != offered,
        acted=observation.acted,
        ending=ending,
    )


def _open_chat(env: Environment[Any, Any], position: Position) -> _OpenedChat:
    messages, tools = env.opening(position.state).messages, env.tools(position.state)
    opened = position.opened
    if tools is not opened.tools or messages != opened.messages:
        opened = position.opened = _open(messages, tools)
    position.messages, position.tools = list(messages), tools
    position.request_digest = opened.request_digest
    position.period, position.turn = env.period(position.state), 0
    return opened


def _continue_chat(
    env: Environment[Any, Any],
    position: Position,
    reply: Reply,
    reply_bytes: bytes,
    observation: tuple[Message, ...],
    shown: bytes,
) -> None:
    """`shown`: the observation, encoded."""
    position.messages.append(reply.message())
    position.messages.extend(observation)
    position.turn += 1
    if position.ending:
        return
    tools = env.tools(position.state)
    # By value, not by identity alone: whether an environment keeps one tuple must not reach a digest.
    same = tools is position.tools or tools == position.tools
    if not same:
        position.tools = tools
    position.request_digest = chain_turn(position.request_digest, reply_bytes, shown, None if same else tools)
    position.period = env.period(position.state)
