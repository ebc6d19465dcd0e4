"""`question/000000.json`: what a run is to find out, frozen before its first request. `answers/000000.json`, ...: the
answers as they were given, each before anything was done because of it.

All of it can be derived from the sweep, the manifest and the log; that it is on disk says that nothing was chosen
afterwards. `verify` derives it again and compares.
"""

from pathlib import Path

import msgspec

from evalkit.store import disk
from evalkit.store.folder import next_numbered, numbered
from evalkit.store.json_text import decode

QUESTION, ANSWERS = "question", "answers"
"""Folders of a run."""
VERSION = 1
REMEDY = "Restore it from a copy; the log beside it is intact."
ABOUT = {
    "such instances": 'instances like these, as if they were drawn from many: `scope` is "such instances", the default '
    "of one replicate",
    "this suite once": 'this suite alone, each instance played once: `scope` is "this suite", which assumes only '
    "the random order of instances, and says nothing of others, nor of another replicate",
    "this suite": 'this suite alone, played again and again: `scope` is "this suite", the default of several '
    "replicates, and nothing is said of other instances",
}
"""What a question is about, and what that rests on."""


class FrozenSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite of which a question takes draws."""

    name: str
    digest: str
    strata: dict[str, int]
    """Draws of each stratum in a turn."""


class FrozenGate(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate asks beside: about each pair of old and new agent and each suite that both have."""

    margins: dict[str, float]
    """By suite, on the scale of scores."""
    stored: dict[str, dict[str, dict[str, tuple[float, ...]]]]
    """Scores of old agents that are not played: by their name in the pairs, suite, and instance, a score a
    replicate."""


class FrozenQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is to find out."""

    version: int
    about: str
    """`such instances`, `this suite once` or `this suite`: as a sweep's `scope`, of one replicate or of several."""
    agents: tuple[str, ...]
    asked: str
    """`all`, `best`, `baseline`, `listed` or `gate`."""
    pairs: tuple[tuple[str, str], ...]
    margin: float
    """On the scale of scores, like the precisions."""
    alpha: float
    alpha_each: float
    """Of each pair and each precision, by `evalkit.stats.deciding`."""
    precision: dict[str, float]
    """By agent: the half width to which its own mean is wanted."""
    scores: tuple[float, float]
    """Scores beyond are cut at its ends."""
    ahead: int
    """Draws by which an agent may have begun more than those that it is compared with."""
    bets: int
    """The version of the evidence: `evalkit.stats.evidence.BETS_VERSION`."""
    key: int | None
    """Of the order within strata, as in the manifest."""
    suites: tuple[FrozenSuite, ...]
    gate: FrozenGate | None = None


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    about: tuple[str, ...]
    """A pair of agents, or one agent whose own mean is known."""
    answer: str
    """`above`, `below`, `equal`; `known` of one agent."""
    draws: int
    """With so many it was given."""
    digest: str
    """SHA-256 of these draws."""


class GivenAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one look."""

    at: float
    """Wall time, seconds since 1970."""
    spent_pico_usd: int
    """By the run until then."""
    ended: int
    """Episodes of the run until then."""
    answers: tuple[GivenAnswer, ...]


def read_frozen(run: Path) -> FrozenQuestion | None:
    """A run's question; None if it asks none. Raises CorruptLogError, StorageError."""
    files = numbered(run / QUESTION)
    data = disk.read_whole(files[-1]) if files else None
    return None if data is None else decode(data, FrozenQuestion, str(files[-1]), REMEDY)


def write_frozen(run: Path, question: FrozenQuestion) -> None:
    """Freeze a question; after the return it survives a power loss. Raises StorageError."""
    _create(run / QUESTION, question)


def read_given(run: Path) -> list[GivenAnswers]:
    """The answers that were given, oldest first. Raises CorruptLogError, StorageError."""
    return [
        decode(data, GivenAnswers, str(path), REMEDY)
        for path in numbered(run / ANSWERS)
        if (data := disk.read_whole(path)) is not None
    ]


def write_given(run: Path, given: GivenAnswers) -> None:
    """Keep answers; after the return they survive a power loss. Raises StorageError."""
    _create(run / ANSWERS, given)


def _create(folder: Path, content: msgspec.Struct) -> None:
    disk.make_directories(folder)
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    disk.create_durably(next_numbered(folder), data)
