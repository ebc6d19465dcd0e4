"""A suite by name: `instances/scheduling/basic.jsonl`, one instance a line, checked against `SHA256SUMS`.

One of more than `MOST_LINES` is a file of rows (`envs/suite_rows.py`), whose lines were loaded when it was made.
A sweep may vary parameters: each combination of the values is a suite of its own, named `scheduling/basic?k=2`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.environment import Environment
from evalkit.envs.lines import canonical, reach
from evalkit.envs.suite_rows import ENDING, MOST_LINES, EncodedRows, SuiteRow, SuiteRows, encode_rows
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS
from evalkit.envs.table import known as known_environment
from evalkit.errors import UsageError, nearest
from evalkit.files import at_home
from evalkit.plugins import Plugin, PluginTable
from evalkit.shipped import find, folders
from evalkit.spec.identity import suite_digest
from evalkit.spec.model import SuiteInstance, SuiteUse
from evalkit.spec.reading import without_mark

SUMS = "SHA256SUMS"

TEXT = ".jsonl"
SAMPLED = 4096
"""Rows of a file from one that is loaded to the next."""


def find_suite(name: str) -> Path:
    """The file of a suite: by name, or by path where the name ends in `.jsonl` or `.parquet`. Raises UsageError."""
    if name.endswith((TEXT, ENDING)):
        path = Path(at_home(name))
        if not path.is_file():
            raise UsageError(f"There is no suite file {name}.")
        return path
    try:
        path = find("instances", f"{name}.jsonl")
    except UsageError as flaw:
        brought = brought_suite(name)
        if brought is None:
            raise UsageError(_made_by_hand(name) or str(flaw)) from None
        _check_sum(brought.parents[name.count("/") - 1], brought)
        return brought
    _check_sum(path.parents[name.count("/")], path)
    return path


def _made_by_hand(name: str) -> str:
    """What to do for a suite that sweeps name and that is not ours to ship; empty if nobody says."""
    env = known_environment(name.partition("/")[0])
    how = env.presentation.made_suites.get(name) if env else None
    return f"The suite {name!r} does not exist yet. {how}" if how else ""


def read_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of a suite file, of either kind. Raises UsageError naming file and line."""
    if path.suffix == ENDING:
        yield from (_line(row, path) for row in _rows_in(path))
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            raw = without_mark(raw, path) if number == 1 else raw  # noqa: PLW2901 - the same line
            if not raw.strip():
                continue
            try:
                line = orjson.loads(raw)
            except orjson.JSONDecodeError as flaw:
                raise UsageError(f"{path}:{number}: not valid JSON: {flaw}") from flaw
            if not isinstance(line, dict) or not isinstance(line.get("id"), str):
                raise UsageError(f"{path}:{number}: expected a JSON object with an `id`.")
            yield line


def environment_of(line: Mapping[str, Any], where: str) -> Environment[Any, Any]:
    """The environment a suite's line names. Raises UsageError."""
    name = line.get("environment")
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise UsageError(f"{where}: environment: there is no environment {name!r}.{nearest(str(name), ENVIRONMENTS)}")
    return ENVIRONMENTS[name]


def _rows_in(path: Path) -> Iterator[SuiteRow]:
    """The rows of a file. Raises UsageError."""
    try:
        yield from chain.from_iterable(SuiteRows(lambda: _opened(path)).groups())
    except ValueError as flaw:
        raise UsageError(f"{path}: {flaw}. {_MAKE.format(name='SUITE', out=path)}") from flaw


def _line(row: SuiteRow, path: Path) -> Mapping[str, Any]:
    """A row's line. Raises UsageError."""
    try:
        line = orjson.loads(row.line)
    except orjson.JSONDecodeError as flaw:
        raise UsageError(f"{path}: {row.id}: the line is not valid JSON: {flaw}") from flaw
    if not isinstance(line, dict) or line.get("id") != row.id:
        raise UsageError(f"{path}: {row.id}: expected a JSON object with this `id`.")
    return line


def _opened(path: Path) -> Any:
    import pyarrow as pa

    return pa.OSFile(str(path))


Expanded = list[SuiteInstance] | EncodedRows
"""A suite's instances: loaded; or, of a file of rows, the rows of a run's own file, in the order of the user's."""


def digests(use: SuiteUse) -> dict[str, str]:
    """The suites a sweep's entry stands for: by name, a digest of what they are read from, which is the file, and of
    what the entry varies and chooses. Nothing but the file's first line is looked into. Raises UsageError."""
    path = find_suite(use.name)
    with path.open("rb") as file:
        source = hashlib.file_digest(file, "sha256").hexdigest()
    env = environment_of(_first(path), str(path)).name
    return {
        name: hashlib.sha256(canonical([env, source, dict(axes), sorted(use.instances)])).hexdigest()
        for name, axes in _combined(use)
    }


def _first(path: Path) -> Mapping[str, Any]:
    for line in read_lines(path):
        return line
    raise UsageError(f"{path}: the suite is empty.")


def expand(use: SuiteUse) -> Iterator[tuple[str, Mapping[str, Any], Expanded]]:
    """The suites a sweep's entry stands for: (name, axes, instances), one for each combination of varied values.

    Instances are in stratified order: any prefix holds the strata in nearly their proportions. (Those of a file of rows
    are so when they are admitted.) Instances that the variation made equal are played once, and so are combinations
    that come to the same instances: no event three times is not an event, so of `block = ["none"], blocks = [1, 2, 3]`
    the first is left. Raises UsageError for unknown parameters, values out of range, unknown ids.
    """
    path, seen = find_suite(use.name), set[str]()
    lines = [] if path.suffix == ENDING else _chosen(use, path)
    for name, axes in _combined(use):
        where = name if axes else str(path)
        instances: Expanded
        if path.suffix == ENDING:
            instances = encode_rows(_rows(use, path, axes, where))
            digest = instances.digest
        else:
            instances = _instances(name, axes, lines, where)
            digest = suite_digest((instance.id, instance.digest) for instance in instances)
        if digest not in seen:
            seen.add(digest)
            yield name, axes, instances


def _combined(use: SuiteUse) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, axes) of each combination of varied values."""
    for values in product(*use.vary.values()):
        axes = dict(zip(use.vary, values, strict=True))
        suffix = "&".join(f"{key}={value}" for key, value in axes.items())
        yield f"{use.name}?{suffix}" if suffix else use.name, axes


def _chosen(use: SuiteUse, path: Path) -> list[Mapping[str, Any]]:
    """The lines of a text file that a sweep's entry chooses. Raises UsageError."""
    wanted, known, lines = frozenset(use.instances), set[str](), list[Mapping[str, Any]]()
    for line in read_lines(path):
        if line["id"] in known:
            raise UsageError(f"{path}: two lines share the id {line['id']!r}; ids must be unique.")
        known.add(line["id"])
        if len(known) > MOST_LINES:
            out = path.with_suffix(ENDING)
            raise UsageError(
                f"{path} has more than {MOST_LINES:,} lines, which is too much for a text file. "
                f"{_MAKE.format(name=path, out=out)} Then name {out} in the sweep."
            )
        if not wanted or line["id"] in wanted:
            lines.append(line)
    _check_chosen(use, known, path)
    return lines


_MAKE = "Make a Parquet file of it: `evalkit suites generate {name} --out {out}`."


def _check_chosen(use: SuiteUse, known: set[str], path: Path) -> None:
    if not known:
        raise UsageError(f"{path}: the suite is empty.")
    for name in use.instances:
        if name not in known:
            raise UsageError(f"Suite {use.name!r} has no instance {name!r}.{nearest(name, known)}")


class _Distinct:
    """The lines of a file, each with an id of its own; of equal instances the first counts."""

    def __init__(self, where: str) -> None:
        self.ids, self._digests, self._where = set[str](), set[str](), where

    def add(self, name: str) -> None:
        """Another id. Raises UsageError for one that is there already."""
        if name in self.ids:
            raise UsageError(f"{self._where}: two instances share the id {name!r}; ids must be unique.")
        self.ids.add(name)

    def is_new(self, digest: str) -> bool:
        """Whether no earlier instance was equal; asked once for each."""
        known = len(self._digests)
        self._digests.add(digest)
        return len(self._digests) > known


def _rows(use: SuiteUse, path: Path, axes: Mapping[str, Any], where: str) -> Iterator[SuiteRow]:
    """The rows of a user's file that a sweep's entry chooses, as it varies them.

    Who made the file has loaded each line, which takes minutes for a million. So where nothing is varied, only the
    first row of each stratum and every `SAMPLED`th are loaded, and must come to what they say.
    """
    distinct, wanted, strata = _Distinct(where), frozenset(use.instances), set[str]()
    env = environment_of(_first(path), str(path))
    for number, row in enumerate(_rows_in(path)):
        distinct.add(row.id)
        if wanted and row.id not in wanted:
            continue
        made = row
        if axes or row.stratum not in strata or number % SAMPLED == 0:
            strata.add(row.stratum)
            made = _row(env, _line(row, path), axes, where)
            if not axes and made != row:
                how = _MAKE.format(name=path, out="NEW.parquet")
                raise UsageError(f"{where}: {row.id}: the row is not what its line comes to. {how}")
        if distinct.is_new(made.digest):
            yield made
    _check_chosen(use, distinct.ids, path)


def _row(env: Environment[Any, Any], line: Mapping[str, Any], axes: Mapping[str, Any], where: str) -> SuiteRow:
    found = reach(env, line, axes, f"{where}: {line['id']}")
    return SuiteRow(line["id"], found.digest, found.stratum, orjson.dumps(found.line).decode())


def rows_of(lines: Iterable[Mapping[str, Any]], where: str) -> Iterator[SuiteRow]:
    """Lines as the rows of a file that a sweep can name. Raises UsageError."""
    distinct, first = _Distinct(where), ""
    for line in lines:
        distinct.add(line["id"])
        env = environment_of(line, f"{where}: {line['id']}")
        first = first or env.name
        if env.name != first:
            raise UsageError(f"{where}: {line['id']}: all instances of a suite must be of one environment.")
        row = _row(env, line, {}, where)
        if distinct.is_new(row.digest):
            yield row


def _instances(name: str, axes: Mapping[str, Any], lines: list[Mapping[str, Any]], where: str) -> list[SuiteInstance]:
    by_digest: dict[str, SuiteInstance] = {}
    for line in lines:
        env = environment_of(line, f"{where}: {line['id']}")
        reached = reach(env, line, axes, f"{where}: {line['id']}")
        if reached.digest not in by_digest:
            by_digest[reached.digest] = SuiteInstance(
                suite=name,
                id=line["id"],
                environment=env.name,
                digest=reached.digest,
                instance=reached.instance,
                stratum=reached.stratum,
                axes=axes,
            )
    return interleave(list(by_digest.values()))


def interleave(instances: list[SuiteInstance]) -> list[SuiteInstance]:
    """The instances with their strata spread evenly: each stratum's members keep their order."""
    size: dict[str, int] = {}
    positions: list[int] = []
    for instance in instances:
        positions.append(size.get(instance.stratum, 0))
        size[instance.stratum] = positions[-1] + 1
    order = sorted(range(len(instances)), key=lambda i: ((positions[i] + 0.5) / size[instances[i].stratum], i))
    return [instances[i] for i in order]


def _check_sum(folder: Path, path: Path) -> None:
    sums = folder / SUMS
    if not sums.is_file():
        return
    relative = path.relative_to(folder).as_posix()
    for row in sums.read_text().splitlines():
        wanted, _, name = row.partition("  ")
        if name == relative and hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            raise UsageError(
                f"{path} does not have the digest in {sums}. A frozen suite must not change: restore the "
                "file, or copy it under another name and leave the digests as they are."
            )


# Suites that packages bring: an entry `offers` of the group `suites` is the folder of the suites `offers/...`.


def suite_folders() -> PluginTable[Path]:
    """The folders, by the first part of their suites' names. Nobody adds to those of evalkit's own suites."""
    return PluginTable("suites", {name: Path(name) for name in OWN_ENVIRONMENTS}, Path)


def suite_plugin(name: str) -> Plugin | None:
    """Whose folder a suite of this name would lie in; None if no package has it. Raises UsageError if several
    have."""
    return suite_folders().plugin(name.partition("/")[0])


def brought_suite(name: str) -> Path | None:
    """The file of a suite that a package brings; None if none brings that folder.

    Raises UsageError if the folder has no such suite, or its package is at fault.
    """
    if suite_plugin(name) is None:
        return None
    first, _, rest = name.partition("/")
    folder = suite_folders()[first]
    path = folder / f"{rest}{TEXT}"
    if not rest or not path.is_file():
        valid = [f"{first}/{suite}" for suite in suites_in(folder)]
        raise UsageError(f"There is no suite {name!r} in {folder}.{nearest(name, valid)}")
    return path


def source_of(name: str) -> Plugin | None:
    """Whose suite it is that a sweep gets by this name; None of a user's own, or of evalkit's."""
    own = [folder / f"{name}{TEXT}" for folder in folders("instances")]
    if name.endswith(TEXT) or any(path.is_file() for path in own):
        return None
    return suite_plugin(name)


def suites_in(folder: Path) -> list[str]:
    """The names of the suites in a folder, seen from it."""
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob(f"*{TEXT}"))
