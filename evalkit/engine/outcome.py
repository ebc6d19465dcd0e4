"""How one call of `run` ended: the report of the command line, and its exit code."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalkit.money import usd_number
from evalkit.store.reading.unmetered import UnmeteredReplies

COMPLETE, FAILED, REFUSED, INCOMPLETE, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What a call of `run` has done, and what remains."""

    directory: Path
    """As it was given, for words."""
    place: Path
    """The same, absolute."""
    reason: str
    """Why it stopped: `complete`, `decided`, `limit`, `budget`, `deadline`, `interrupt`, `storage`, `corrupt`,
    `errors`, `lane`, `agent`, `refused`, `deferred`, `workers`, `cluster`."""
    why: str = ""
    """The same in a sentence that names what decided; empty where nothing remains to be played."""
    episodes: int
    """All that the spec asks for."""
    ended: int
    spent: int
    """Pico-dollars, all calls together: steps and charges."""
    budget: int | None
    simulated: str
    """Whether its money is real, as of the manifest."""
    messages: tuple[str, ...] = ()
    """What went wrong, in sentences with remedies."""
    remaining: int = 0
    unfinished: int = 0
    """The remaining ones that had started in this call and that money or time could not finish."""
    remaining_cost: int | None = None
    """Predicted pico-dollars of the remaining ones; None: not predicted."""
    refused: int = 0
    """The remaining ones whose last request in this call the provider refused, not because of the model."""
    broken: int = 0
    """The remaining ones that an internal error stopped."""
    steps: int = 0
    """In this call."""
    elapsed_s: float = 0.0
    unconfirmed: int = 0
    """Of it, the open leases of crashed sessions."""
    unmetered: UnmeteredReplies = field(default_factory=UnmeteredReplies)
    """Replies whose provider did not say what they used, all calls together."""
    example: str = ""
    """An episode to look at."""
    question: dict[str, Any] | None = None
    """What the run was to find out, with its answers, as plain values; None: it was not asked anything."""
    spared: int = 0
    """Episodes of this call that were not played, because all questions about their agents are answered."""
    spared_cost: int = 0
    """What they were predicted to cost, in pico-dollars."""

    @property
    def exit_code(self) -> int:
        """0 complete, or all questions answered; 1 complete with failed episodes; 2 the log was changed; 3 incomplete;
        130 interrupted.

        An episode is compared with the log when it is resumed, so other episodes may have continued before a 2.
        """
        if self.reason == "interrupt":
            return INTERRUPTED
        if self.reason == "corrupt":
            return REFUSED
        if not self.remaining or self.reason == "decided":
            return COMPLETE
        return FAILED if self.remaining == self.broken else INCOMPLETE

    def to_json(self) -> dict[str, Any]:
        """The outcome with a stable schema; money in USD."""
        return {
            "version": 1,
            "run": str(self.directory),
            "exit_code": self.exit_code,
            "reason": self.reason,
            "why": self.why,
            "messages": list(self.messages),
            "episodes": self.episodes,
            "ended": self.ended,
            "remaining": self.remaining,
            "unfinished": self.unfinished,
            "owed_usd": None if self.remaining_cost is None else usd_number(self.remaining_cost),
            "refused": self.refused,
            "broken": self.broken,
            "steps": self.steps,
            "elapsed_s": round(self.elapsed_s, 3),
            "simulated_money": bool(self.simulated),
            "spent_usd": usd_number(self.spent),
            "unconfirmed_usd": usd_number(self.unconfirmed),
            "budget_usd": None if self.budget is None else usd_number(self.budget),
            **self.unmetered.to_json(),
            **self._decided(),
        }

    def _decided(self) -> dict[str, Any]:
        if self.question is None:
            return {}
        return {"question": self.question, "spared": self.spared, "spared_usd": usd_number(self.spared_cost)}
