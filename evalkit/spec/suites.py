"""A suite by name: `instances/scheduling/basic.jsonl`, one instance a line, checked against `SHA256SUMS`.

A sweep may vary parameters: each combination of the values is a suite of its own, named `scheduling/basic?k=2`.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from evalkit.env.environment import Environment
from evalkit.env.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.shipped import find
from evalkit.spec.identity import DERIVED, instance_digest, suite_digest
from evalkit.spec.model import SuiteInstance, SuiteUse

SUMS = "SHA256SUMS"

IMPORTED = {
    "costbench/reference": "The suite 'costbench/reference' is not there yet. It is made from a copy of the "
    "reference's query file: evalkit queries import path/to/test/queries.json --out "
    "instances/costbench/reference.jsonl"
}
"""Suites that sweeps name and that are not ours to ship, with how they come about."""


def find_suite(name: str) -> Path:
    """The file of a suite: by name, or by path where the name ends in `.jsonl`. Raises UsageError."""
    if name.endswith(".jsonl"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"There is no suite file {name}.")
        return path
    try:
        path = find("instances", f"{name}.jsonl")
    except UsageError as flaw:
        raise UsageError(IMPORTED.get(name) or str(flaw)) from None
    _check_sum(path.parents[name.count("/")], path)
    return path


def read_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of a suite file. Raises UsageError naming file and line."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                line = orjson.loads(raw)
            except orjson.JSONDecodeError as flaw:
                raise UsageError(f"{path}:{number}: not valid JSON: {flaw}") from flaw
            if not isinstance(line, dict) or not isinstance(line.get("id"), str):
                raise UsageError(f"{path}:{number}: a suite's line is a JSON object with an `id`.")
            yield line


def environment_of(line: Mapping[str, Any], where: str) -> Environment[Any, Any]:
    """The environment a suite's line names. Raises UsageError."""
    name = line.get("environment")
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise UsageError(f"{where}: environment: there is no environment {name!r}.{nearest(str(name), ENVIRONMENTS)}")
    return ENVIRONMENTS[name]


def expand(use: SuiteUse) -> Iterator[tuple[str, Mapping[str, Any], list[SuiteInstance]]]:
    """The suites a sweep's entry stands for: (name, axes, instances), one for each combination of varied values.

    Instances are in stratified order: any prefix holds the strata in nearly their proportions. Instances that the
    variation made equal are played once, and so are combinations that come to the same instances: no event three times
    is no event, so of `block = ["none"], blocks = [1, 2, 3]` the first is left. Raises UsageError for unknown
    parameters, values out of range, unknown ids.
    """
    path = find_suite(use.name)
    lines = list(read_lines(path))
    known = {line["id"] for line in lines}
    if len(known) < len(lines):
        raise UsageError(f"{path}: two lines share an id; ids must be unique.")
    for wanted in use.instances:
        if wanted not in known:
            raise UsageError(f"Suite {use.name!r} has no instance {wanted!r}.{nearest(wanted, known)}")
    if use.instances:
        lines = [line for line in lines if line["id"] in set(use.instances)]
    if not lines:
        raise UsageError(f"{path}: the suite is empty.")
    seen: set[str] = set()
    for values in itertools.product(*use.vary.values()):
        axes = dict(zip(use.vary, values, strict=True))
        suffix = "&".join(f"{key}={value}" for key, value in axes.items())
        name = f"{use.name}?{suffix}" if suffix else use.name
        found = _instances(name, axes, lines, name if axes else str(path))
        digest = suite_digest((one.id, one.digest) for one in found)
        if digest not in seen:
            seen.add(digest)
            yield name, axes, found


def _instances(name: str, axes: Mapping[str, Any], lines: list[Mapping[str, Any]], where: str) -> list[SuiteInstance]:
    found: dict[str, SuiteInstance] = {}
    for line in lines:
        env = environment_of(line, f"{where}: {line['id']}")
        instance = load_varied(env, line, axes, f"{where}: {line['id']}")
        digest = instance_digest(env.name, env.describe(instance))
        if digest not in found:
            found[digest] = SuiteInstance(
                suite=name,
                id=line["id"],
                environment=env.name,
                digest=digest,
                instance=instance,
                stratum=env.stratum(instance),
                axes=axes,
            )
    return interleave(list(found.values()))


def load_varied(env: Environment[Any, Any], line: Mapping[str, Any], axes: Mapping[str, Any], where: str) -> Any:
    """An instance from a line with some parameters set anew. Raises UsageError naming the line."""
    for key in axes:
        if key not in env.parameters:
            raise UsageError(f"vary.{key}: {env.name} has no parameter {key!r}.{nearest(key, env.parameters)}")
    try:
        if not axes:
            return env.load(line)
        kept = {key: value for key, value in line.items() if key == "id" or key not in DERIVED}
        return env.load({**kept, **axes})
    except UsageError as flaw:
        raise UsageError(f"{where}: {flaw}") from flaw


def interleave(instances: list[SuiteInstance]) -> list[SuiteInstance]:
    """The instances with their strata spread evenly: each stratum's members keep their order."""
    size: dict[str, int] = {}
    place: list[int] = []
    for one in instances:
        place.append(size.get(one.stratum, 0))
        size[one.stratum] = place[-1] + 1
    order = sorted(range(len(instances)), key=lambda i: ((place[i] + 0.5) / size[instances[i].stratum], i))
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
                f"{path} is not what {sums} says it is. A frozen suite must not change: restore it, or copy it under "
                "another name and remove nothing from the sums."
            )
