"""One call of `run`: what was asked for in addition to the sweep, and why it is to stop."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.engine.universe import Choice
from evalkit.spec.model import Provider
from evalkit.store.bucket import is_bucket

if TYPE_CHECKING:
    from evalkit.client.outside import OutsideAsker
    from evalkit.frozen.question_files import FrozenQuestion

Launch = Callable[[Provider, Path], AbstractContextManager[str]]


@dataclass(slots=True, kw_only=True, eq=False)
class Stop:
    """A scope whose players can be told to end after their durable step: a run, or one of its lanes. The first reason
    applies. What stops a run stops its lanes."""

    within: "Stop | None" = None
    """The run's, of a lane's."""
    reason: str = ""
    """Its own; empty: it goes on, or the scope around it was stopped."""
    message: str = ""
    _listeners: dict[object, Callable[[], None]] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        """Whether it or the scope around it was told to stop."""
        return bool(self.reason) or (self.within is not None and self.within.stopped)

    def set(self, reason: str, message: str = "") -> None:
        """Ask all players to stop."""
        if not self.reason:
            self.reason, self.message = reason, message
            for told in list(self._listeners.values()):
                told()

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` when this scope or the one around it stops, at once if it has: players that wait must be woken.
        Returns what ends this."""
        key, scopes = object(), [self] if self.within is None else [self, self.within]
        for scope in scopes:
            scope._listeners[key] = told
        if self.stopped:
            told()

        def leave() -> None:
            for scope in scopes:
                scope._listeners.pop(key, None)

        return leave


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The arguments of one call of `run`, in addition to the spec."""

    directory: Path
    """As it was given, for words."""
    here: Path = field(default_factory=Path.cwd)
    """Where a relative `directory` begins. Code that is played may change the working directory."""
    choice: Choice = field(default_factory=Choice)
    limit: int | None = None
    """End at most this many episodes per lane in this call."""
    retry: frozenset[str] = frozenset()
    """Episodes with these endings are played again."""
    asked: "FrozenQuestion | None" = None
    """What the run is to find out in place of the sweep's own question."""
    play_all: bool = False
    """Play on where all questions are answered."""
    repair: bool = False
    """Give up what a damaged log has lost, and continue."""
    launch: Launch | None = None
    """Starts a provider that evalkit runs itself, given the run's directory; gives its base URL."""
    announce: Callable[[Sequence[str]], None] | None = None
    """Receives, as lines, what a repair drops, before anything is changed, and which prompts the run keeps."""
    phase: Callable[[str], None] | None = None
    """Receives, in words, what is being done before the first request."""
    outside: "OutsideAsker | None" = None
    """Gives the replies of agents that are played from outside; None: they cannot be played in this call."""
    stop: Stop | None = None
    """Set by the caller to end the run. None: signals end it, if this is the main thread."""

    @property
    def place(self) -> Path:
        """The directory, wherever the process works by now."""
        return self.directory if is_bucket(self.directory) else self.here / self.directory

    def tell(self, phase: str) -> None:
        """Say what is being done before the first request."""
        if self.phase is not None:
            self.phase(phase)
