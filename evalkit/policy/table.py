"""All policies: those that play any environment stand here, those of one in the table that its record names; others are
found by their packages' entry points.

`find_policy(name, environment)` is the way to a policy; the functions behind it are all that reads the tables.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from evalkit.dialogue import Reply, Request
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS, known, named_table
from evalkit.errors import UsageError, nearest
from evalkit.plugins import AT, Plugin, PluginTable, installed
from evalkit.policy.any_tool import any_tool
from evalkit.policy.conversation import Policy, PolicyFn, calling, turns
from evalkit.seeds import Stream

# A policy that answers from a list: for tests, demonstrations, and replies that a model once gave.
#
# The script is a JSON list. An entry is a text (a reply without calls) or an object with any of `text`, `calls` and
# `finish`; a call is an object with `name` and `arguments`, the latter an object or, to write what is not JSON, a text:
#
#     ["Let me think.",
#      {"calls": [{"name": "get_worker_ids", "arguments": {}}]},
#      {"calls": [{"name": "submit_assignment", "arguments": "{not json"}]}]
#
# The entry is chosen by the number of replies in the chat, so every new chat begins at the first; after the last entry
# it begins again. A policy has no memory, so a script cannot continue from one chat to the next.

_ENTRY_KEYS = ("text", "calls", "finish")
_CALL_KEYS = ("name", "arguments")


def scripted(replies: Sequence[str | Mapping[str, Any]]) -> PolicyFn:
    """A policy that gives these replies in order, chat by chat. Raises UsageError naming the entry that is wrong."""
    if not replies:
        raise UsageError("script: expected at least one reply.")
    entries = [_entry(reply, f"script[{i + 1}]") for i, reply in enumerate(replies)]

    def reply(request: Request, draws: Stream) -> Reply:
        del draws
        text, calls, finish = entries[turns(request) % len(entries)]
        reply = calling(request, calls, text)
        return Reply(text=reply.text, calls=reply.calls, finish=finish or reply.finish)

    return reply


def read_script(text: str) -> PolicyFn:
    """A script's JSON text as a policy. Raises UsageError if it is not a list of replies."""
    try:
        replies = json.loads(text)
    except (ValueError, RecursionError) as flaw:
        raise UsageError(f"script: not valid JSON: {flaw}.") from flaw
    if not isinstance(replies, list):
        raise UsageError(f"script: expected a list of replies, got {type(replies).__name__}.")
    return scripted(replies)


def _entry(reply: object, where: str) -> tuple[str, list[tuple[str, str]], str]:
    if isinstance(reply, str):
        return reply, [], ""
    if not isinstance(reply, Mapping):
        raise UsageError(f"{where}: expected a string or an object, got {type(reply).__name__}.")
    _refuse_unknown(reply, _ENTRY_KEYS, where)
    text, calls, finish = reply.get("text", ""), reply.get("calls", []), reply.get("finish", "")
    if not isinstance(text, str) or not isinstance(finish, str):
        raise UsageError(f"{where}: `text` and `finish` must be strings.")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise UsageError(f"{where}.calls: expected a list of calls.")
    return text, [_call(call, f"{where}.calls[{i + 1}]") for i, call in enumerate(calls)], finish


def _call(call: object, where: str) -> tuple[str, str]:
    if not isinstance(call, Mapping):
        raise UsageError(f"{where}: expected an object with `name` and `arguments`.")
    _refuse_unknown(call, _CALL_KEYS, where)
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str):
        raise UsageError(f"{where}.name: expected the tool's name as a string.")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


def _refuse_unknown(value: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in value:
        if key not in known:
            raise UsageError(f"{where}: unknown key {key!r}.{nearest(str(key), known)}")


GENERAL: Mapping[str, Policy] = {
    "random": Policy(help="any tool, with arguments drawn from its schema", reply=any_tool),
    "scripted": Policy(
        help="answers from the agent's list of replies, from its first in every chat", script=read_script
    ),
    "human": Policy(help="a person, whom `evalkit play` asks for each reply", outside="evalkit play"),
    "outside": Policy(help="a program, which `evalkit mcp --run` gives the tools", outside="evalkit mcp --run"),
}
"""Policies that play any environment, by name; where an environment has one of the same name, that one plays it."""


BROUGHT = PluginTable("policies", {}, Policy)
"""What packages bring: `NAME` plays any environment, `NAME@ENVIRONMENT` that one."""


def find_policy(name: str, environment: str) -> Policy | None:
    """The policy of that name as it plays that environment; None if it does not.

    The environment's own goes first, then what a package brings for it, then what plays any. How a policy of evalkit's
    plays an environment of evalkit's is not a package's to say. Raises UsageError if a package is at fault.
    """
    own = policies_of(environment).get(name)
    if own is not None:
        return own
    if name in GENERAL and environment in OWN_ENVIRONMENTS:
        return GENERAL[name]
    mine = is_own(name)
    if mine and environment in OWN_ENVIRONMENTS:
        return None
    entry = BROUGHT.get(entry_of(name, environment))
    return entry or GENERAL.get(name) or (None if mine else BROUGHT.get(name))


def policy_plugin(name: str, environment: str) -> Plugin | None:
    """The entry of the policy that `find_policy` finds; None of one that no entry brings."""
    if not name or policies_of(environment).get(name) or (is_own(name) and environment in OWN_ENVIRONMENTS):
        return None
    return BROUGHT.plugin(entry_of(name, environment)) or (None if is_own(name) else BROUGHT.plugin(name))


def entry_of(name: str, environment: str) -> str:
    """The entry by which a package brings a policy for one environment."""
    return f"{name}{AT}{environment.rpartition(':')[2]}"


def policies_of(environment: str) -> Mapping[str, Policy]:
    """The policies that an environment has of its own; none of one that is not installed.

    Raises UsageError if its record names a table that cannot be read.
    """
    env = known(environment)
    return named_table(environment, "policies", env.policies, Policy) if env and env.policies else {}


def is_own(name: str) -> bool:
    """Whether evalkit has a policy of that name, for whatever environment. Loads its environments until one has it."""
    return name in GENERAL or any(name in policies_of(environment) for environment in OWN_ENVIRONMENTS)


def is_policy(name: str) -> bool:
    """Whether there is a policy of that name, for whatever environment."""
    return is_own(name) or name in _entries() or any(name in table for table in _installed())


def policy_names() -> tuple[str, ...]:
    """The names of all policies. Loads every environment."""
    own = (name for environment in OWN_ENVIRONMENTS for name in policies_of(environment))
    return tuple(dict.fromkeys((*GENERAL, *own, *_entries(), *(name for table in _installed() for name in table))))


def _entries() -> list[str]:
    """The names of the policies that entries bring, as they may be asked for; nothing is imported."""
    names = [(plugin.package, plugin.name.partition(AT)[0]) for plugin in installed("policies")]
    return [way for package, name in names for way in (name, f"{package}:{name}")]


def _installed() -> Iterator[Mapping[str, Policy]]:
    """What the records of installed environments name. One that cannot be read has none: whoever plays it is told."""
    for environment in ENVIRONMENTS:
        if environment not in OWN_ENVIRONMENTS:
            with suppress(UsageError):
                yield policies_of(environment)


def check_policy(name: str) -> None:
    """Raises UsageError, with the nearest name, where there is no such policy."""
    if not is_policy(name):
        raise UsageError(f"There is no policy {name!r}.{nearest(name, policy_names())}")


def player(name: str, environment: str, *, instance: Any = None, script: str = "") -> PolicyFn:
    """The policy of that name, ready to play one episode of that environment.

    `instance` is what the oracle reads, `script` what the scripted policy answers; the others look at neither.
    Raises UsageError if there is no such policy, it does not play the environment, or the script is none.
    """
    policy = find_policy(name, environment)
    if policy is None:
        check_policy(name)
        raise UsageError(f"The policy {name!r} does not play {environment}.")
    if policy.outside is not None:
        raise UsageError(f"The policy {name!r} is played from outside: use `{policy.outside}`.")
    if policy.oracle is not None:
        return policy.oracle(instance)
    if policy.script is not None:
        return policy.script(script)
    if policy.reply is not None and policy.recognises is None:
        return policy.reply
    return lambda request, draws: _replying(name, iter((policy,)), request, draws)


def served_names() -> tuple[str, ...]:
    """evalkit's policies that can be models: those that decide from the conversation alone. Loads its environments."""
    own = (name for environment in OWN_ENVIRONMENTS for name in policies_of(environment))
    return tuple(
        name for name in dict.fromkeys((*GENERAL, *own)) if any(policy.reply is not None for policy in _ours(name))
    )


def is_served(name: str) -> bool:
    """Whether the policy of that name can be a model."""
    return any(policy.reply is not None for policy in (_ours(name) if is_own(name) else _everywhere(name)))


def served(name: str) -> PolicyFn:
    """The policy of that name as a model, which is told of no environment: who can act on a request plays."""
    return lambda request, draws: _replying(name, _everywhere(name), request, draws)


def _ours(name: str) -> Iterator[Policy]:
    """evalkit's policies of that name: each environment's, then the one that plays any."""
    own_policies = (policies_of(environment).get(name) for environment in OWN_ENVIRONMENTS)
    yield from (policy for policy in chain(own_policies, (GENERAL.get(name),)) if policy is not None)


def _everywhere(name: str) -> Iterator[Policy]:
    """The policies of that name: ours for each environment, those of packages, then what plays any. They are loaded one
    by one."""
    for policy in _ours(name):
        if policy is not GENERAL.get(name):
            yield policy
    mine, (package, _, bare) = is_own(name), name.rpartition(":")
    for plugin in installed("policies"):
        policy_name, _, environment = plugin.name.partition(AT)
        if policy_name == bare and environment and not (mine and environment in OWN_ENVIRONMENTS):
            yield BROUGHT[f"{package}:{plugin.name}" if package else plugin.name]
    for table in _installed():
        if name in table:
            yield table[name]
    general = GENERAL.get(name) or (None if mine else BROUGHT.get(name))
    if general is not None:
        yield general


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
