"""What models are asked about an environment's suites and runs, in work that is not a test of theirs.

An environment's record names its `Tasks`, as it names its tables and charts. An errand is identified by what it asks,
not by its id: equal texts and wishes are asked about once, and an answer is found by the digest of the errand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.envs.errand import errand
from evalkit.envs.lines import instance_digest
from evalkit.envs.table import ENVIRONMENTS, known, named
from evalkit.errors import UsageError

ASKED = (errand.CONFLICT, errand.REQUIREMENT)
"""The kinds of questions about a suite's queries."""

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrandAnswer:
    """The answer to one errand."""

    outcome: str
    """`ok`, `unparseable`, `empty`, or how the episode ended if it has no reply."""
    value: int | bool | None = None
    text: str = ""
    """A writer's paragraph."""
    truncated: bool = False


Answers = Mapping[str, ErrandAnswer]
"""By the errand's digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSuite:
    """A suite after its queries were asked about."""

    lines: tuple[Line, ...]
    dropped: tuple[str, ...] = ()
    """Ids of lines whose wishes conflict."""
    unanswered: tuple[str, ...] = ()
    """Ids of lines that are kept out because no verdict or no text could be read."""
    without_alternative: tuple[str, ...] = ()
    """Ids of lines kept that have fewer alternatives than before."""
    truncated: tuple[str, ...] = ()
    """Ids of lines kept whose new text is cut off."""


def errand_line(kind: str, name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """One line of an errand suite."""
    return errand.describe(errand.load({"id": name, "kind": kind, "values": values}))


def errand_digest(line: Line) -> str:
    """The digest that identifies an errand."""
    return instance_digest(errand.NAME, line)


def distinct(lines: Iterable[Line]) -> list[Line]:
    """The lines without those that ask the same as an earlier one."""
    firsts: dict[str, Line] = {}
    for line in lines:
        firsts.setdefault(errand_digest(line), line)
    return list(firsts.values())


def coverage_line(episode: str, text: str, kind: str = errand.COVERAGE) -> dict[str, Any]:
    """The errand that counts the paths in an episode's text. `kind`: one of `errand.JUDGED`."""
    return errand_line(kind, episode, {"text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFiles:
    """What files of queries hold."""

    lines: tuple[Line, ...]
    """Of a suite."""
    truncated: int = 0
    """How many of their texts break off in mid-sentence."""
    conflicts: Mapping[str, bool] = field(default_factory=dict)
    """By a line's id: whether its wishes conflict, where the file says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Texts of people in an environment's suites, which a model can check or write."""

    read: Callable[..., ReadFiles]
    """(files, `length`, `seed`, `alternatives`; None: as the environment has them) -> what they hold. Raises
    UsageError."""
    raw: Callable[[str, int | None, int], Sequence[dict[str, Any]]]
    """(split, how many; None: as many as there are; seed) -> queries without texts. Raises UsageError."""
    errands: Callable[[str, Iterable[Line], str], Iterator[dict[str, Any]]]
    """(kind, lines of a suite, the suite's name) -> errands. Raises UsageError naming the line."""
    apply: Mapping[str, Callable[[Sequence[Line], Answers, str], AppliedSuite]]
    """By kind of errand: (lines of a suite, answers, the suite's name) -> what happens to the suite."""
    asked: Callable[[Line, str], Mapping[str, tuple[Sequence[str], str]]]
    """(a line of a suite, the suite's name) -> what a reader of its text can be asked, as `HandChecked.asked`."""
    sound: Callable[[Sequence[Line], Mapping[str, bool], str], AppliedSuite]
    """(lines of a suite, `ReadFiles.conflicts`, the suite's name) -> the suite without wishes that conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """What models are asked about one environment."""

    queries: Queries | None = None
    judged: Callable[[Line], bool] | None = None
    """Of an instance's line: whether a judge can count the paths that an agent writes out when it is played."""
    judged_are: str = ""
    """The episodes that are judged, in words."""


NOTHING = Tasks()


def tasks_of(environment: str) -> Tasks:
    """What models are asked about an environment; nothing where it says nothing, or is not installed.

    Raises UsageError if its record names something that is not there.
    """
    env = known(environment)
    return named(environment, "tasks", env.presentation.tasks, Tasks) if env and env.presentation.tasks else NOTHING


def queries_of(environment: str, where: str) -> Queries:
    """An environment's queries. Raises UsageError if it has none."""
    queries = tasks_of(environment).queries
    if queries is None:
        others = [name for name in ENVIRONMENTS if tasks_of(name).queries is not None]
        raise UsageError(f"{where}: {environment} has no queries to ask a model about; {', '.join(others)} has.")
    return queries


def with_queries() -> Queries:
    """Those of the first environment that has some. Raises UsageError if none has."""
    for name in ENVIRONMENTS:
        queries = tasks_of(name).queries
        if queries is not None:
            return queries
    raise UsageError("No environment has queries.")
