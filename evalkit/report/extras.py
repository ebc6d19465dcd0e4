"""The record of what an environment adds to reports and pages, the way to it, and names that it may not give.

An environment lies below the reports and imports none of them. So its own record names this one as `module:name`, and
it is imported when a report or a page first needs it; evalkit's own environments are found in no other way than others.

Names that stand for something else already are refused, for a reader would mix them up. evalkit's own environments are
held to this by tests of their tables; others when a run of theirs is read, by `evalkit tools plugins`, and by
`evalkit.testing.check_environment`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalkit.envs.environment import ActionShare, Environment
from evalkit.envs.table import OWN_ENVIRONMENTS, known, named
from evalkit.errors import UsageError
from evalkit.report.scores import METRICS
from evalkit.results.episodes import OWN_METRICS
from evalkit.results.rows import EPISODE_COLUMNS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from evalkit.report.run_data import RunData
    from evalkit.report.tables import Table
    from evalkit.report.vega import Figure
    from evalkit.results.cells import Cell
    from evalkit.results.moves import Move

Tables = Callable[["RunData"], tuple["Table", ...]]
"""The run -> tables; none where there is nothing to say. A table's rows are what its query gives (`RunData.rows`)."""
TableFigures = Callable[[Sequence[str], "Table"], tuple["Figure", ...]]
"""(agents in order, a table of the report) -> its figures."""
CellFigures = Callable[[Sequence[str], "RunData"], tuple["Figure", ...]]
"""(agents in order, the run) -> figures. A figure's rows are what its query gives, as a table's are."""
Actions = Sequence[tuple[int, Mapping[str, Any]]]
"""(period, what the log says of the action), in order."""
HIGHER, LOWER = "higher", "lower"

QuotedPlace = tuple[int, int | None]
"""(place among the moves, place among the reply's calls; None: the whole reply)."""
Find = Callable[[Any, Sequence["Move"]], QuotedPlace | None]
"""(instance, moves) -> the first place of such an error."""
Series = Callable[[Any, Actions, int], "npt.NDArray[np.float64]"]
"""(instance, actions in order, periods) -> a value by period; NaN where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared."""

    key: str
    title: str
    sql: str
    """Of a row of the view `episodes`, 1 for 100 %; null where it is not defined."""
    width: float = 1.0
    """The greatest difference there can be."""
    better: str = ""
    """Which direction is better: `HIGHER`, `LOWER`; empty: neither."""
    unmet: float | None = None
    """The greatest difference that a pair unlike all that were met is taken to have, where `width` is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """A kind of error."""

    name: str
    environment: str
    unit: str
    sql: str
    """How often it occurs, of a row of the view `episodes`; null or 0 where it does not."""
    find: Find


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One figure of curves: an environment's."""

    name: str
    environment: str
    title: str
    axis: str
    """The value's title with its unit."""
    about: str
    """What its values are, as its query says it: a function, and of what; of evalkit's environments below
    `evalkit.report`."""
    ends: tuple[float, float]
    series: Series
    most: tuple[float, float]
    """Ends of the axis at most: one episode's absurd price must not flatten all others."""
    line: float = 100
    """Where a dashed line lies."""
    line_means: str = "the optimum"
    """What it stands for."""


Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """An episode as one line, which lies beside those of other episodes on its instance."""

    played: Points
    """(how far the episode was, what stood then), in order."""
    optimum: Points
    """The same of the optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlots:
    """How an environment's episodes are drawn as one line each."""

    across: str
    """Title of the axis of how far an episode is."""
    up: str
    """Title of the axis of what stands."""
    line: Callable[[Any, Sequence[Mapping[str, Any]], int], EpisodeLine]
    """(instance, the facts of its steps in order, periods to draw) -> its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """What draws an environment's episodes."""

    figures: "Callable[[Any, str, Sequence[Move]], tuple[Figure, ...]]"
    """(instance, the episode's id, its moves) -> figures in reading order; none where there is nothing to draw."""
    lines: "Callable[[Any, Sequence[Move]], dict[int, str]]"
    """(instance, moves) -> by period: what came of it, in a line."""
    beside: LinePlots | None = None
    """None: what stands at the end of each period, where the extras say that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodStanding:
    """What each period of an episode came to; 1 is the optimum."""

    values: "Callable[[Any, Actions, int], npt.NDArray[np.float64]]"
    """(instance, actions, periods) -> each period's value, by itself; NaN where there is none."""
    hold: "Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]"
    """Those values -> what stands at each period's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What reports and pages have of one environment beside what they have of every one."""

    place: int = 100
    """Where its tables and figures stand among other environments': lower ones first."""
    tables: Tables | None = None
    """Environments that share tables name the same function, which is then called once."""
    table_figures: tuple[tuple[str, TableFigures], ...] = ()
    """A table's name, and what draws it where the report has it."""
    cell_figures: CellFigures | None = None
    standing: PeriodStanding | None = None
    """None: episodes are one period."""
    curves: tuple[Curve, ...] = ()
    """Figures over periods."""
    errors: tuple[ErrorKind, ...] = ()
    """Kinds of error that no outcome of a call tells."""
    measures: tuple[Measure, ...] | None = None
    """What `evalkit compare` compares beside scores; None: the shares that reports show."""
    charts: Charts | None = None
    """What draws an episode."""


NONE = Extras()


def extras_of(environment: str) -> Extras:
    """What reports have of an environment; nothing of one that says nothing, or is not installed.

    Raises UsageError where its record names something that is not there.
    """
    env = known(environment)
    return named(environment, "report", env.presentation.report, Extras) if env and env.presentation.report else NONE


def all_extras(cells: "Iterable[Cell]") -> tuple[Extras, ...]:
    """The different ones of the environments that these cells are of, in their order."""
    names = {cell.suite.environment for cell in cells}
    ordered = sorted(((extras_of(name), name) for name in names), key=lambda pair: (pair[0].place, pair[1]))
    return tuple(extras for extras, _ in ordered)


BEHAVIOUR = frozenset(
    {"turns_per_period", "unresponsive", "episodes", "silent", "acted", "all_steps", "all_periods", *METRICS}
)
"""Columns of the table `behaviour` and of its query."""
OWN_TABLES = frozenset({"sizes", "quotes", "compare"})
"""Tables of evalkit's that a report has on request; those that it has anyway are there to be seen."""
OWN_BEGINNINGS = ("beside_", "figure_", "compare_", "suite_")
TALLIES, SIZES = frozenset({"stratum", "instances", "share"}), frozenset({"stratum", "instances", "tools"})
"""Columns of the tables of `evalkit suites describe`."""


def metric_flaws(names: Iterable[str]) -> list[str]:
    """What is wrong with the names of an episode's metrics, in sentences."""
    return [f"A metric has the name {name!r}, which is evalkit's own." for name in names if name in OWN_METRICS]


def record_flaws(env: Environment[Any, Any]) -> list[str]:
    """What is wrong with the names that a record gives to columns and measures. Raises UsageError if its report
    cannot be read."""
    taken = OWN_METRICS | BEHAVIOUR | set(EPISODE_COLUMNS)
    said = [f"shares: {name!r} is a column of evalkit's own." for name in env.presentation.shares if name in taken]
    for field, keys, own in (
        ("tallies", [quantity.key for quantity in env.presentation.described.tallies], TALLIES),
        ("sizes", [quantity.key for quantity in env.presentation.described.sizes], SIZES),
    ):
        said += [f"described: {field}: {key!r} is a column of evalkit's own." for key in keys if key in own]
        said += _twice(f"described: {field}", keys)
    return [
        *said,
        *_extras_flaws(named(env.name, "report", env.presentation.report, Extras) if env.presentation.report else NONE),
    ]


def _extras_flaws(extras: Extras) -> Iterator[str]:
    measures = [measure.key for measure in extras.measures or ()]
    yield from (f"measures: {key!r} is evalkit's own." for key in measures if key in OWN_METRICS)
    yield from _twice("measures", measures)
    yield from _twice("curves", [curve.name for curve in extras.curves])
    yield from _twice("errors", [error.name for error in extras.errors])


def _twice(place: str, keys: Sequence[str]) -> list[str]:
    return [f"{place}: {key!r} is there twice." for key in dict.fromkeys(keys) if keys.count(key) > 1]


def refuse_clashes(environments: Iterable[str]) -> None:
    """Raises UsageError if environments that are not evalkit's give names that stand for something else."""
    shares: dict[str, tuple[str, ActionShare]] = {}
    for name in dict.fromkeys(environments):
        env = known(name)
        if env is None:
            continue
        for flaw in [] if name in OWN_ENVIRONMENTS else record_flaws(env):
            raise UsageError(f"The environment {name!r}: {flaw} Its package must choose another name.")
        for key, share in env.presentation.shares.items():
            other, theirs = shares.setdefault(key, (name, share))
            if share != theirs:
                raise UsageError(f"The environments {other!r} and {name!r} both have a share {key!r}, of other things.")


def refuse_tables(taken: Iterable[str], names: Iterable[str], environments: Iterable[str]) -> None:
    """Raises UsageError if a table that environments bring has the name of another one, or of any of evalkit's."""
    seen = {*taken, *OWN_TABLES}
    for name in names:
        if name in seen or name.startswith(OWN_BEGINNINGS):
            whose = ", ".join(name for name in dict.fromkeys(environments) if name not in OWN_ENVIRONMENTS)
            raise UsageError(
                f"There is a table {name!r} already, and an environment that is not evalkit's ({whose}) brings "
                "another. Its package must choose another name: the environment's, or one that begins with it."
            )
        seen.add(name)
