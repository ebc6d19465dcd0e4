"""Names that an environment gives and that stand for something else already: refused, for a reader would mix them up.

evalkit's own environments are held to this by tests of their tables; others when a run of theirs is read, by
`evalkit tools plugins`, and by `evalkit.testing.check_environment`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evalkit.envs.environment import ActionShare, Environment
from evalkit.envs.known import known
from evalkit.envs.named import named
from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.report.extras.record import NONE, Extras
from evalkit.report.scores import METRICS
from evalkit.results.episodes import OWN_METRICS
from evalkit.results.rows import EPISODE_COLUMNS

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
    said = [f"shares: {name!r} is a column of evalkit's own." for name in env.shares if name in taken]
    for field, keys, own in (
        ("tallies", [quantity.key for quantity in env.described.tallies], TALLIES),
        ("sizes", [quantity.key for quantity in env.described.sizes], SIZES),
    ):
        said += [f"described: {field}: {key!r} is a column of evalkit's own." for key in keys if key in own]
        said += _twice(f"described: {field}", keys)
    return [*said, *_extras_flaws(named(env.name, "report", env.report, Extras) if env.report else NONE)]


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
        for key, share in env.shares.items():
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
