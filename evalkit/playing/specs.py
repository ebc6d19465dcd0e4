"""Checked arguments of callers: a sweep by name, path or mapping, a part of it, a run by name or directory."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from evalkit.engine.universe import Choice
from evalkit.errors import RunError, UsageError, nearest
from evalkit.frozen.manifest import Manifest
from evalkit.seats import AgentFn
from evalkit.spec.model import Machines, Sweep
from evalkit.spec.sweep import (
    MAX_WIDTH,
    checked_name,
    find_sweep,
    parse_budget,
    parse_deadline,
    parse_workers,
    read_sweep,
    sweep_from,
)
from evalkit.store.bucket import is_bucket, place_of

Spec = str | PathLike[str] | Mapping[str, Any]
"""A sweep's name or path, or what its TOML file would hold, as a mapping."""

KINDS = ("agent", "suite")
"""The kinds of names that choose a part of a sweep."""


def sweep_of(spec: Spec, name: str = "", agents: Mapping[str, AgentFn] = {}) -> Sweep:
    """The sweep; `name`: the run's name, if it differs from the spec's. Raises UsageError."""
    if not isinstance(name, str):
        raise UsageError(f"name: expected a string, got {name!r}.")
    if not isinstance(agents, Mapping):
        raise UsageError(f"agents: expected a mapping from names to functions, got {type(agents).__name__}.")
    if isinstance(spec, Mapping):
        sweep = sweep_from(spec, "spec", name, agents)
    elif isinstance(spec, str):
        sweep = read_sweep(find_sweep(spec), (), agents)
    elif isinstance(spec, PathLike):
        sweep = read_sweep(find_sweep(os.fsdecode(spec)), (), agents)
    else:
        raise UsageError(f"spec: expected a sweep's name, its path or a mapping, got {type(spec).__name__}.")
    return changed(sweep, name=name or None)


def changed(
    sweep: Sweep,
    *,
    name: str | None = None,
    width: int | None = None,
    workers: str | int | None = None,
    on: Machines | None = None,
    budget: str | None = None,
    deadline: str | None = None,
    mark: str = "",
) -> Sweep:
    """The sweep with some values changed; `mark`: prefix of option names in errors. Raises UsageError."""
    changes: dict[str, Any] = {}
    if budget is not None:
        changes["budget"] = parse_budget(budget, f"{mark}budget")
    if deadline is not None:
        changes["deadline_s"] = parse_deadline(deadline, f"{mark}deadline")
    if width is not None:
        if not _is_count(width, 1, MAX_WIDTH):
            raise UsageError(f"{mark}width: must be 1 to {MAX_WIDTH:,}, not {width}.")
        changes["width"] = width
    if workers is not None:
        changes["workers"] = parse_workers(workers, f"{mark}workers")
    if on is not None:
        changes["on"] = on
    if name is not None:
        changes["name"] = checked_name(name, f"{mark}name", "/:=")
    return replace(sweep, **changes)


def checked_limit(limit: int | None, mark: str = "") -> int | None:
    """Check a limit and return it. Raises UsageError."""
    if limit is not None and not _is_count(limit, 1):
        raise UsageError(f"{mark}limit: must be at least 1.")
    return limit


def _is_count(value: object, least: int, most: int | None = None) -> bool:
    """Whether a value is a whole number within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most)


def checked_names(names: Collection[str], where: str) -> frozenset[str]:
    """Several names. Raises UsageError for a single string, whose letters would be used as names."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: expected a list of names, got {names!r}.")
    return frozenset(names)


def chosen(only: Mapping[str, Sequence[str]], manifest: Manifest, where: str = "only") -> Choice:
    """A part of a sweep, by names of agents and suites (full or base names). Raises UsageError with the nearest."""
    if not isinstance(only, Mapping):
        raise UsageError(f"{where}: expected a mapping from {' and '.join(KINDS)} to names, got {only!r}.")
    valid = {
        "agent": set(manifest.agents),
        "suite": set(manifest.suites) | {suite.base for suite in manifest.suites.values()},
    }
    names: dict[str, frozenset[str]] = dict.fromkeys(KINDS, frozenset())
    for kind, wanted in only.items():
        if kind not in valid:
            raise UsageError(f"{where}: cannot choose by {kind!r}.{nearest(str(kind), KINDS)}")
        names[kind] = checked_names(wanted, f"{where}: {kind}")
        for name in wanted:
            if name not in valid[kind]:
                raise UsageError(f"{where}: the sweep has no {kind} {name!r}.{nearest(name, valid[kind])}")
    return Choice(agents=names["agent"], suites=names["suite"])


def newest_run() -> Path:
    """The run in `runs/` in which something has happened last. Raises RunError if there is none."""
    from evalkit.frozen.manifests import manifest_file, runs_in
    from evalkit.store.events import FILE

    def last(run: Path) -> float:
        files = [run / FILE, manifest_file(run) or run]
        return max(file.stat().st_mtime for file in files if file.exists())

    runs = runs_in(Path("runs"))
    if not runs:
        raise RunError("There is no run in runs/ here. Name one: a run directory, or its name below runs/.")
    return max(runs, key=lambda run: (last(run), run.name))


def run_directory(name: str | PathLike[str]) -> Path:
    """A run by its directory, or by its name below `runs/`. Raises RunError."""
    if not isinstance(name, str | PathLike):
        raise UsageError(f"run: expected a run's name or directory, got {type(name).__name__}.")
    if is_bucket(name):
        place = place_of(name)
        if place.is_dir():
            return place
        raise RunError(f"There is no run {name}: nothing has this name in the bucket.")
    for path in (place_of(name), Path("runs") / name):
        if path.is_dir():
            return path
    from evalkit.frozen.manifests import runs_in

    there = [path.name for path in runs_in(Path("runs"))]
    name = os.fspath(name)
    raise RunError(f"There is no run {name!r}: no such directory, here or in runs/.{nearest(name, there)}")
