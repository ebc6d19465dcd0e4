"""All policies: those that play any environment stand here, those of one in the table that its record names.

`find_policy(name, environment)` is the way to a policy; the functions behind it are all that reads the tables.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.envs.known import known
from evalkit.envs.named import named_table
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.record import Policy
from evalkit.policy.scripted import read_script
from evalkit.seeds import Stream

GENERAL: Mapping[str, Policy] = {
    "random": Policy(help="any tool, with arguments drawn from its schema", reply=any_tool),
    "scripted": Policy(
        help="answers from the agent's list of replies, from its first in every chat", script=read_script
    ),
}
"""Policies that play any environment, by name; where an environment has one of the same name, that one plays it."""


def find_policy(name: str, environment: str) -> Policy | None:
    """The policy of that name as it plays that environment; None where it does not."""
    return policies_of(environment).get(name) or GENERAL.get(name)


def policies_of(environment: str) -> Mapping[str, Policy]:
    """The policies that an environment has of its own; none of one that is not installed.

    Raises UsageError where its record names a table that cannot be read.
    """
    env = known(environment)
    return named_table(environment, "policies", env.policies, Policy) if env and env.policies else {}


def is_policy(name: str) -> bool:
    """Whether there is a policy of that name, for whatever environment. Loads environments until one has it."""
    return name in GENERAL or any(name in policies_of(environment) for environment in ENVIRONMENTS)


def policy_names() -> tuple[str, ...]:
    """The names of all policies. Loads every environment."""
    own = (name for environment in ENVIRONMENTS for name in policies_of(environment))
    return tuple(dict.fromkeys((*GENERAL, *own)))


def check_policy(name: str) -> None:
    """Raises UsageError, with the nearest name, where there is no such policy."""
    if not is_policy(name):
        raise UsageError(f"There is no policy {name!r}.{nearest(name, policy_names())}")


def player(name: str, environment: str, *, instance: Any = None, script: str = "") -> PolicyFn:
    """The policy of that name, ready to play one episode of that environment.

    `instance` is what the oracle reads, `script` what the scripted policy answers; the others look at neither.
    Raises UsageError where there is no such policy, it does not play the environment, or the script is none.
    """
    policy = find_policy(name, environment)
    if policy is None:
        check_policy(name)
        raise UsageError(f"The policy {name!r} does not play {environment}.")
    if policy.oracle is not None:
        return policy.oracle(instance)
    if policy.script is not None:
        return policy.script(script)
    return lambda request, draws: _replying(name, iter((policy,)), request, draws)


def served_names() -> tuple[str, ...]:
    """The policies that can be models: those that decide from the conversation alone. Loads every environment."""
    return tuple(name for name in policy_names() if is_served(name))


def is_served(name: str) -> bool:
    """Whether the policy of that name can be a model."""
    return any(policy.reply is not None for policy in _everywhere(name))


def served(name: str) -> PolicyFn:
    """The policy of that name as a model, which is told of no environment: who can act on a request plays."""
    return lambda request, draws: _replying(name, _everywhere(name), request, draws)


def _everywhere(name: str) -> Iterator[Policy]:
    """The policies of that name: each environment's, then the general one. Environments are loaded one by one."""
    for environment in ENVIRONMENTS:
        policy = policies_of(environment).get(name)
        if policy is not None:
            yield policy
    if name in GENERAL:
        yield GENERAL[name]


def _replying(name: str, policies: Iterator[Policy], request: Request, draws: Stream) -> Reply:
    """The reply of the first policy that recognises the request; else of one that plays whatever is asked; else a reply
    that says so and calls nothing."""
    known_by, otherwise = list[str](), GENERAL[name].reply if name in GENERAL else None
    for policy in policies:
        if policy.reply is None:
            continue
        if policy.recognises is None:
            otherwise = otherwise or policy.reply
        elif policy.recognises(request):
            return policy.reply(request, draws)
        else:
            known_by.append(policy.acts_with)
    if otherwise is not None:
        return otherwise(request, draws)
    return Reply(text=f"None of the tools offered is one that I act with: {', or '.join(known_by)}.")
