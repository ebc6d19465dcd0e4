"""All policies by name. A plain table: adding a policy is adding a line here and a function beside it.

A policy recognises its environment by the action tool that the request offers; which function plays which environment
is said here too, one line an environment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.errors import UsageError, nearest
from evalkit.policy import scheduling
from evalkit.policy.conversation import PolicyFn, offered
from evalkit.policy.noisy import noisy
from evalkit.policy.scripted import read_script
from evalkit.seeds import Stream

ANY_ENVIRONMENT: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy. Exactly one of `reply`, `oracle` and `script` is there."""

    name: str
    help: str
    """One line for people."""
    environments: frozenset[str]
    """The environments it can play; empty: all."""
    reply: PolicyFn | None = None
    """Plays from the conversation alone; such a policy can also be served as a model."""
    oracle: Callable[[Any], PolicyFn] | None = None
    """Privileged: made for one instance, whose hidden part it reads."""
    script: Callable[[str], PolicyFn] | None = None
    """Made from the agent's script, a JSON text."""

    def plays(self, environment: str) -> bool:
        """Whether it can play that environment."""
        return not self.environments or environment in self.environments


def _by_action(players: Mapping[str, PolicyFn]) -> PolicyFn:
    """The player whose action tool the request offers; without one, a reply that says so and calls nothing."""

    def reply(request: Request, draws: Stream) -> Reply:
        for action, play in players.items():
            if offered(request, action):
                return play(request, draws)
        return Reply(text=f"None of the tools offered is one that I act with: {', '.join(players)}.")

    return reply


def _oracle(instance: Any) -> PolicyFn:
    # Imported late: reading an instance needs its environment with its tables, playing from a conversation does not.
    from evalkit.policy.oracle import oracle

    return oracle(instance)


_RANDOM = _by_action({scheduling.ACTION: scheduling.random})
_KNUTH = _by_action({scheduling.ACTION: scheduling.knuth})

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            name="random",
            help="a uniformly random valid action in every period",
            environments=frozenset({"scheduling"}),
            reply=_RANDOM,
        ),
        Policy(
            name="knuth",
            help="repairs one random reported blocking pair a period (the paper's heuristic)",
            environments=frozenset({"scheduling"}),
            reply=_KNUTH,
        ),
        Policy(
            name="noisy",
            help="a knuth that makes every kind of mistake a model makes",
            environments=frozenset({"scheduling"}),
            reply=noisy(_KNUTH),
        ),
        Policy(
            name="scripted",
            help="answers from the agent's list of replies, from its first in every chat",
            environments=ANY_ENVIRONMENT,
            script=read_script,
        ),
        Policy(
            name="oracle",
            help="reads the instance and submits an optimum in the first period",
            environments=frozenset({"scheduling"}),
            oracle=_oracle,
        ),
    )
}


def player(name: str, *, instance: Any = None, script: str = "") -> PolicyFn:
    """The policy of that name, ready to play one episode.

    `instance` is what the oracle reads, `script` what the scripted policy answers; the others look at neither.
    Raises UsageError where there is no such policy, or the script is none.
    """
    policy = find_policy(name)
    if policy.oracle is not None:
        return policy.oracle(instance)
    if policy.script is not None:
        return policy.script(script)
    assert policy.reply is not None
    return policy.reply


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises UsageError with the nearest name."""
    if name not in POLICIES:
        raise UsageError(f"There is no policy {name!r}.{nearest(name, POLICIES)}")
    return POLICIES[name]
