"""What models are asked about an environment's suites and runs, in work that is not a test of theirs.

An environment's record names its `Tasks`, as it names its tables and charts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS, known, named
from evalkit.errors import UsageError
from evalkit.tasks.errands import Answers, Applied, Line


class ReadQueries(Protocol):
    """Reads files of queries."""

    def __call__(
        self, files: Sequence[Path], *, length: int | None, seed: int | None, alternatives: int | None
    ) -> tuple[list[dict[str, Any]], int]:
        """(lines of a suite, how many of their texts break off in mid-sentence); None: as the environment has it.

        Raises UsageError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Texts of people in an environment's suites, which a model can check or write."""

    read: ReadQueries
    raw: Callable[[str, int | None], Sequence[dict[str, Any]]]
    """(split, how many; None: as many as there are) -> queries without texts. Raises UsageError."""
    errands: Callable[[str, Iterable[Line], str], Iterator[dict[str, Any]]]
    """(kind, lines of a suite, the suite's name) -> errands. Raises UsageError naming the line."""
    apply: Callable[[str, Sequence[Line], Answers, str], Applied]
    """(kind, lines of a suite, answers, the suite's name) -> what happens to the suite."""


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


def with_queries() -> tuple[Environment[Any, Any], Queries]:
    """The first environment that has queries. Raises UsageError if none has."""
    for name, env in ENVIRONMENTS.items():
        queries = tasks_of(name).queries
        if queries is not None:
            return env, queries
    raise UsageError("No environment has queries.")
