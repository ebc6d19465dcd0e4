"""The record of a policy: how it plays one environment, or any."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Request
from evalkit.policy.conversation import PolicyFn


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one policy plays one environment, or any. Exactly one of `reply`, `oracle`, `script` and `outside` is
    set."""

    help: str
    """One line for people."""
    reply: PolicyFn | None = None
    """Plays from the conversation alone; such a policy can also be served as a model."""
    oracle: Callable[[Any], PolicyFn] | None = None
    """Privileged: it is made for one instance and sees its hidden data."""
    script: Callable[[str], PolicyFn] | None = None
    """Made from the agent's script, a JSON text."""
    outside: str | None = None
    """Somebody outside evalkit plays; the command that lets them."""
    recognises: Callable[[Request], bool] | None = None
    """Whether `reply` can answer a request. A policy that is served as a model is not told the environment, so this
    finds the one that can play. None: it can answer any request."""
    acts_with: str = ""
    """What `recognises` looks for, in words: a tool's name."""
