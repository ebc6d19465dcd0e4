"""A suite by name: `instances/scheduling/basic.jsonl`, one instance a line, checked against `SHA256SUMS`.

A sweep may vary parameters: each combination of the values is a suite of its own, named `scheduling/basic?k=2`.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.environment import Environment
from evalkit.envs.known import known as known_environment
from evalkit.envs.lines import reach
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.files import at_home
from evalkit.shipped import find
from evalkit.spec.brought import brought_suite
from evalkit.spec.bulk import Bulk, bulk_digest, digest_of, scan
from evalkit.spec.byte_marks import without_mark
from evalkit.spec.identity import suite_digest
from evalkit.spec.model import SuiteInstance, SuiteUse

SUMS = "SHA256SUMS"

LOOKED_INTO = 10_000
"""Lines of a suite up to which each is loaded when a run begins."""


def find_suite(name: str) -> Path:
    """The file of a suite: by name, or by path where the name ends in `.jsonl`. Raises UsageError."""
    if name.endswith(".jsonl"):
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
    """The lines of a suite file. Raises UsageError naming file and line."""
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


Expanded = list[SuiteInstance] | Bulk
"""A suite's instances: loaded, or looked at in one pass."""


def digests(use: SuiteUse) -> dict[str, str]:
    """The suites a sweep's entry stands for: by name, a digest of what they are read from, which is the file, and of
    what the entry varies and chooses. Nothing but the file's first line is looked into. Raises UsageError."""
    path = find_suite(use.name)
    env, source = environment_of(_first(path), str(path)).name, digest_of(path)
    return {name: bulk_digest(env, source, axes, use.instances) for name, axes in _combined(use)}


def _first(path: Path) -> Mapping[str, Any]:
    for line in read_lines(path):
        return line
    raise UsageError(f"{path}: the suite is empty.")


def expand(use: SuiteUse) -> Iterator[tuple[str, Mapping[str, Any], Expanded]]:
    """The suites a sweep's entry stands for: (name, axes, instances), one for each combination of varied values.

    Instances are in stratified order: any prefix holds the strata in nearly their proportions. Instances that the
    variation made equal are played once, and so are combinations that come to the same instances: no event three times
    is not an event, so of `block = ["none"], blocks = [1, 2, 3]` the first is left. Of more than `LOOKED_INTO` lines
    the instances are a `Bulk`: what is checked of it then is said there. Raises UsageError for unknown parameters,
    values out of range, unknown ids.
    """
    path = find_suite(use.name)
    lines = _few(use, path)
    if lines is not None and not lines:
        raise UsageError(f"{path}: the suite is empty.")
    combined = list(_combined(use))
    if lines is None:
        yield from _apart((name, axes, _scanned(use, path, name, axes)) for name, axes in combined)
        return
    where = {name: name if axes else str(path) for name, axes in combined}
    yield from _apart((name, axes, _instances(name, axes, lines, where[name])) for name, axes in combined)


def _combined(use: SuiteUse) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, axes) of each combination of varied values."""
    for values in itertools.product(*use.vary.values()):
        axes = dict(zip(use.vary, values, strict=True))
        suffix = "&".join(f"{key}={value}" for key, value in axes.items())
        yield f"{use.name}?{suffix}" if suffix else use.name, axes


def _apart(
    suites: Iterable[tuple[str, Mapping[str, Any], Expanded]],
) -> Iterator[tuple[str, Mapping[str, Any], Expanded]]:
    """Those that come to other instances than the ones before."""
    seen = list[Expanded]()
    for name, axes, instances in suites:
        if not any(_same(instances, earlier) for earlier in seen):
            seen.append(instances)
            yield name, axes, instances


def _scanned(use: SuiteUse, path: Path, name: str, axes: Mapping[str, Any]) -> Bulk:
    return scan(name, path, environment_of(_first(path), str(path)), axes, use.instances)


def _few(use: SuiteUse, path: Path) -> list[Mapping[str, Any]] | None:
    """The lines that a sweep's entry chooses; None: they are too many to be looked into. Raises UsageError."""
    known: set[str] = set()
    count, wanted, lines = 0, frozenset(use.instances), list[Mapping[str, Any]]()
    for line in read_lines(path):
        count += 1
        known.add(line["id"])
        if not wanted or line["id"] in wanted:
            lines.append(line)
        if len(lines) > LOOKED_INTO:
            return None
    if len(known) < count:
        raise UsageError(f"{path}: two lines share an id; ids must be unique.")
    for name in use.instances:
        if name not in known:
            raise UsageError(f"Suite {use.name!r} has no instance {name!r}.{nearest(name, known)}")
    return lines


def _same(first: Expanded, second: Expanded) -> bool:
    """Whether two combinations come to the same instances."""
    if isinstance(first, Bulk) and isinstance(second, Bulk):
        # Those that were loaded are of the same lines. Only where all of them are equal, the others are loaded too.
        pairs = zip(first.samples, second.samples, strict=False)
        return all(a.digest == b.digest for a, b in pairs) and list(_digests(first)) == list(_digests(second))
    if isinstance(first, Bulk) or isinstance(second, Bulk):
        return False
    return _digest(first) == _digest(second)


def _digest(instances: list[SuiteInstance]) -> str:
    return suite_digest((instance.id, instance.digest) for instance in instances)


def _digests(bulk: Bulk) -> Iterator[str]:
    for raw in bulk.chosen():
        line = orjson.loads(raw)
        yield reach(bulk.env, line, bulk.axes, f"{bulk.path}: {line['id']}").digest


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
