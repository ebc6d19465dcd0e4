"""The numbers of a run as files: the report, its tables, every episode and score, and the optima.

They are computed from the run alone: the same run gives the same bytes on the same machine.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.environment import Environment
from evalkit.errors import UsageError
from evalkit.report.describe import Line, solved_again, whole_line
from evalkit.report.exports.episodes import Chosen, choose
from evalkit.report.exports.sheets import sheets
from evalkit.report.report import report
from evalkit.results.episodes import Environments
from evalkit.store.instances import ManifestInstance
from evalkit.store.manifest import ManifestSuite

REPORT = "report.json"
OPTIMA = "optima.csv"
TABLES = "tables"


def number_files(run: Path, environments: Environments) -> dict[str, bytes]:
    """The files by name. Raises RunError if an environment is not installed, CorruptLogError."""
    chosen = choose(run)
    tables = report(run)
    files = {REPORT: orjson.dumps(tables.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)}
    files |= {f"{TABLES}/{name}.csv": data for name, data in sheets(chosen, tables).items()}
    return files | {OPTIMA: _optima(chosen, environments)}


def _optima(chosen: Chosen, environments: Environments) -> bytes:
    """What the scores are measured against, of every instance with an episode that has ended.

    `value` is what the instance says; `solved` was found anew from what defines the instance. They differ where a
    suite came with an optimum that nobody has proven.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["suite", "instance", "stratum", "digest", "quantity", "unit", "value", "solved"])
    ended: dict[str, tuple[ManifestSuite, set[str]]] = {}
    for cell in chosen.cells:
        names = ended.setdefault(cell.suite.name, (cell.suite, set()))[1]
        names |= {episode.instance for episode in cell.episodes if episode.finished}
    for suite, names in ended.values():
        env = environments[suite.environment]
        for target in suite.instances if names and env.presentation.described.quantities else ():
            if target.id in names:
                place = [suite.name, target.id, target.stratum, target.digest]
                writer.writerows([*place, *row] for row in _quantities(env, target))
    return out.getvalue().encode()


def _quantities(env: Environment[Any, Any], target: ManifestInstance) -> Iterator[list[str]]:
    """(quantity, unit, value, solved) of an instance."""
    line = whole_line(env, target.line)
    try:
        again: Line | None = solved_again(env, target.line)
    except UsageError:  # of an environment whose instances are nothing without what it found
        again = None
    for quantity in env.presentation.described.quantities:
        solved = "" if again is None else repr(quantity.of(again))
        yield [quantity.title, quantity.unit, repr(quantity.of(line)), solved]
