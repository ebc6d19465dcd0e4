"""What a policy is: how it plays one environment, or any."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evalkit.dialogue import Request
from evalkit.policy.conversation import PolicyFn


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy, as it plays one environment or any. Exactly one of `reply`, `oracle` and `script` is there."""

    help: str
    """One line for people."""
    reply: PolicyFn | None = None
    """Plays from the conversation alone; such a policy can also be served as a model."""
    oracle: Callable[[Any], PolicyFn] | None = None
    """Privileged: made for one instance, whose hidden part it reads."""
    script: Callable[[str], PolicyFn] | None = None
    """Made from the agent's script, a JSON text."""
    recognises: Callable[[Request], bool] | None = None
    """Whether `reply` can act on a request: a model's name says nothing of environments, so by this the player of the
    one that asks is found. None: it can act on any."""
    acts_with: str = ""
    """What `recognises` looks for, in words: a tool's name."""
