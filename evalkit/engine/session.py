"""One call of `run`: what was asked for, and what all its parts share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.client.outside import OutsideAsker
from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.endpoints import Endpoints, Launch
from evalkit.engine.episode import Stop
from evalkit.engine.forecast import Forecast
from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.question import LiveQuestion
from evalkit.engine.resume import Holdings
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.universe import Choice
from evalkit.money import PicoUsd
from evalkit.store.manifest import Manifest
from evalkit.store.reading.accounts import Account, spent
from evalkit.store.reading.unmetered import Unmetered, together
from evalkit.store.writing.writer import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The arguments of one call of `run`, in addition to the spec."""

    directory: Path
    choice: Choice = field(default_factory=Choice)
    limit: int | None = None
    """End at most this many episodes per lane in this call."""
    retry: frozenset[str] = frozenset()
    """Episodes with these endings are played again."""
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
    outside: OutsideAsker | None = None
    """Gives the replies of agents that are played from outside; None: they cannot be played in this call."""
    stop: Stop | None = None
    """Set by the caller to end the run. None: signals end it, if this is the main thread."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One session of a run: everything that its parts share."""

    name: str
    """Host, pid and time: the worker of its rows, the session of its money."""
    resolved: Resolved
    options: RunOptions
    manifest: Manifest
    store: Store
    stop: Stop
    holdings: Holdings
    accounts: dict[str, Account]
    began: float
    """In the loop's time."""
    jobs: list[LaneJob]
    endpoints: Endpoints | None = None
    gate: AdmissionQueue | None = None
    """Where lanes of models wait for money and time; None: there is no budget and no deadline."""
    forecast: Forecast = field(default_factory=Forecast)
    """What its episodes are expected to take; without a budget or a deadline, what ended ones took."""
    workers: str = ""
    """In words, how many processes play it; empty: this one alone."""
    question: LiveQuestion | None = None
    """What the run is to find out; None: it plays all that it plans."""
    cut: str = ""
    """Why no further episode may start although some remain: `budget` or `deadline`."""

    @property
    def spent_before(self) -> PicoUsd:
        """What all earlier sessions have spent: steps and charges, crash charges included."""
        return spent(self.holdings.cost, self.accounts.values())

    @property
    def spent(self) -> PicoUsd:
        """The same with what this one has spent."""
        budget = self.endpoints.budget if self.endpoints is not None else None
        return self.spent_before if budget is None else PicoUsd(budget.stats().spent)

    @property
    def unmetered_before(self) -> Unmetered:
        """Replies without usage of all earlier sessions."""
        return together(self.holdings.unmetered, self.manifest)

    @property
    def unmetered(self) -> Unmetered:
        """The same with this session's."""
        budget = self.endpoints.budget if self.endpoints is not None else None
        return self.unmetered_before + (Unmetered() if budget is None else budget.stats().unmetered)
