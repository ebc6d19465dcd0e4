"""What plays the episodes of an agent that is code: its coroutine, and an asker for each model and setting."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import orjson

from evalkit.client.ask import Asker
from evalkit.dialogue import Sampling
from evalkit.errors import AgentError, nearest
from evalkit.seats import AgentCode

MOST_SETTINGS = 64
"""Settings of a role whose askers are kept."""
ADJUSTABLE = tuple(sorted({one.name for one in fields(Sampling)} - {"seed", "extra"}))
"""Settings that a single request may have of its own."""


@dataclass(kw_only=True)
class Cast:
    """One agent in one environment."""

    code: AgentCode
    lanes: Mapping[str, str]
    """By role; the first is the one in which episodes are admitted."""
    params: Mapping[str, Any]
    max_tokens: int
    """The most of a request."""
    make: Callable[[str, Mapping[str, Any]], Asker]
    """Makes the asker of a role with settings of its own."""
    _askers: dict[tuple[str, bytes], Asker] = field(default_factory=dict)

    @cached_property
    def free(self) -> bool:
        """Whether no model costs anything: then the log is not waited for."""
        return all(self.asker(role, b"{}").free for role in self.lanes)

    def is_own(self, role: str) -> bool:
        """Whether a role's lane is the one in which episodes are admitted."""
        return self.lanes[role] == next(iter(self.lanes.values()))

    def asker(self, role: str, settings: bytes) -> Asker:
        """The asker of a role with settings as `settings_of` gives them."""
        key = role, settings
        asker = self._askers.get(key)
        if asker is None:
            if len(self._askers) >= MOST_SETTINGS:
                self._askers.pop(next(iter(self._askers)))
            asker = self._askers[key] = self.make(role, orjson.loads(settings))
        return asker

    def settings_of(self, role: str, sampling: Mapping[str, Any]) -> bytes:
        """The settings of one request as canonical JSON. Raises AgentError for a role or settings that cannot be."""
        if role not in self.lanes:
            raise AgentError(f"ask: there is no role {role!r}.{nearest(str(role), self.lanes)}")
        for name in sampling:
            if name not in ADJUSTABLE:
                raise AgentError(f"ask: sampling: {name!r} cannot be set here.{nearest(str(name), ADJUSTABLE)}")
        most = sampling.get("max_tokens", 1)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= self.max_tokens:
            raise AgentError(f"ask: sampling: max_tokens must be 1 to the agent's {self.max_tokens:,}, not {most!r}.")
        try:
            return orjson.dumps(dict(sampling), option=orjson.OPT_SORT_KEYS)
        except TypeError as flaw:
            raise AgentError(f"ask: sampling: {flaw}.") from flaw
