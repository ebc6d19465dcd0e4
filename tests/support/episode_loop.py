"""One episode in a loop: an environment, an agent, and nothing between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evalkit.dialogue import Message, Reply, Request, Sampling
from evalkit.envs.environment import Environment, Facts, Kit, Score
from evalkit.policy.conversation import answer
from evalkit.policy.table import player, served
from evalkit.seeds import derive
from evalkit.spec.packs import read_pack

Agent = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What was played."""

    score: Score
    ending: str
    """Empty where the steps ran out first."""
    facts: list[Facts]
    """Of every step."""
    replies: list[Reply]
    chats: list[list[Message]] = field(default_factory=list)
    """Every chat as it stood at its end, with the last reply."""

    def outcomes(self) -> set[tuple[str, str]]:
        """All (tool, outcome) pairs that happened."""
        return {(call["tool"], call["outcome"]) for facts in self.facts for call in facts.get("calls", ())}


@lru_cache
def kit(environment: str, *, pack: str = "standard", notes: bool = True) -> Kit:
    """An agent's kit with one of evalkit's packs."""
    return Kit(pack=read_pack(pack, environment), notes=notes)


def play(
    env: Environment[Any, Any],
    line: Mapping[str, Any],
    agent: Agent,
    *,
    brings: Kit | None = None,
    seed: int = 0,
    most_steps: int = 10_000,
) -> Episode:
    """Play the instance of a suite's line to its end, or for so many steps. Requests have seeds made from `seed`."""
    instance = env.load(line)
    state = env.start(instance, brings or kit(env.name))
    messages = list(env.opening(state).messages)
    facts: list[Facts] = []
    replies: list[Reply] = []
    chats: list[list[Message]] = []
    while not env.ended(state) and len(facts) < most_steps:
        request = Request(
            messages=tuple(messages),
            tools=env.tools(state),
            sampling=Sampling(max_tokens=env.defaults.max_tokens),
            seed=derive(seed, line.get("id", ""), len(facts)),
        )
        reply = agent(request)
        state, observation = env.step(state, reply)
        messages += (reply.message(), *observation.messages)
        facts.append(observation.facts)
        replies.append(reply)
        if observation.new_chat:
            chats.append(messages)
            messages = list(env.opening(state).messages)
    chats.append(messages)
    return Episode(score=env.score(instance, facts), ending=env.ended(state), facts=facts, replies=replies, chats=chats)


def policy(name: str, environment: str = "", *, instance: Any = None, script: str = "") -> Agent:
    """A policy as an agent of an environment; without one, as a model of that name, or as a script."""
    playing = player(name, environment, instance=instance, script=script) if environment or script else served(name)
    return lambda request: answer(name, playing, request)
