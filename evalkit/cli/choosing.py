"""What several commands read from the command line in the same way: a sweep, a run directory, a part of a sweep."""

import argparse
import shlex
import shutil
import sys
from pathlib import Path

import msgspec

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.universe import Choice
from evalkit.errors import RunError, UsageError, nearest
from evalkit.spec.model import Sweep
from evalkit.spec.sweep import MAX_WIDTH, checked_name, find_sweep, parse_budget, parse_deadline, read_sweep
from evalkit.store.manifest import Manifest


def sweep_of(args: argparse.Namespace) -> Sweep:
    """The sweep that is meant, with what the command line sets instead of the spec. Raises UsageError."""
    from dataclasses import replace

    sweep = read_sweep(find_sweep(args.sweep))
    changes: dict[str, object] = {}
    if getattr(args, "budget", None) is not None:
        changes["budget"] = parse_budget(args.budget, "--budget")
    if getattr(args, "deadline", None) is not None:
        changes["deadline_s"] = parse_deadline(args.deadline, "--deadline")
    if getattr(args, "width", None) is not None:
        if not 1 <= args.width <= MAX_WIDTH:
            raise UsageError(f"--width: must be 1 to {MAX_WIDTH:,}, not {args.width}.")
        changes["width"] = args.width
    if getattr(args, "name", None) is not None:
        changes["name"] = checked_name(args.name, "--name", "/:")
    return replace(sweep, **changes)  # type: ignore[arg-type]


def choice_of(words: list[str], resolved: Resolved, option: str = "--only") -> Choice:
    """`--only agent=a,suite=s`, or another option like it, as a choice. Raises UsageError with the nearest name."""
    return choice_in(words, resolved.manifest, option)


def choice_in(words: list[str], manifest: Manifest, option: str = "--only") -> Choice:
    """The same of what a run holds."""
    chosen: dict[str, set[str]] = {"agent": set(), "suite": set()}
    valid = {
        "agent": set(manifest.agents),
        "suite": set(manifest.suites) | {suite.base for suite in manifest.suites.values()},
    }
    for part in ",".join(words).split(",") if words else []:
        kind, _, name = part.partition("=")
        if kind not in chosen or not name:
            raise UsageError(f"{option}: {part!r}: write agent=NAME or suite=NAME, with commas between.")
        if name not in valid[kind]:
            raise UsageError(f"{option}: the sweep has no {kind} {name!r}.{nearest(name, valid[kind])}")
        chosen[kind].add(name)
    return Choice(agents=frozenset(chosen["agent"]), suites=frozenset(chosen["suite"]))


def narrowed(resolved: Resolved, choice: Choice) -> Resolved:
    """The sweep with only the chosen agents."""
    from dataclasses import replace

    agents = {name: one for name, one in resolved.manifest.agents.items() if not choice.agents or name in choice.agents}
    return replace(resolved, manifest=msgspec.structs.replace(resolved.manifest, agents=agents))


def run_directory(name: str) -> Path:
    """A run by its directory, or by its name below `runs/`. Raises RunError."""
    for path in (Path(name), Path("runs") / name):
        if path.is_dir():
            return path
    from evalkit.store.manifests import runs_in

    there = [path.name for path in runs_in(Path("runs"))]
    raise RunError(f"There is no run {name!r}: no such directory, here or in runs/.{nearest(name, there)}")


def program() -> str:
    """How the user calls evalkit: by its name, or by its path where the shell would not find it (`make run`)."""
    called = sys.argv[0]
    if Path(called).name != "evalkit" or shutil.which("evalkit") is not None:
        return "evalkit"
    return shlex.quote(called)
