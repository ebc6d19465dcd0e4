"""What several commands read from the command line: a sweep, a run directory, a part of a sweep."""

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from evalkit.cli.pipes import unread
from evalkit.engine.freezing.brought import require
from evalkit.engine.universe import Choice
from evalkit.errors import UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import is_run, read_manifest
from evalkit.playing.specs import KINDS, changed, chosen, newest_run, run_directory
from evalkit.spec.model import Sweep
from evalkit.spec.sweep import find_sweep, read_sweep
from evalkit.store.bucket import place_of

DISTRIBUTION = "evalkit-econ"
"""The name under which evalkit is installed; a script is called so, too."""


def sweep_of(args: argparse.Namespace) -> Sweep:
    """The sweep, with the values that the command line sets instead of the spec's. Raises UsageError."""
    options = {option: getattr(args, option, None) for option in ("name", "workers", "on", "budget", "deadline")}
    path = find_sweep(args.sweep)
    try:
        sweep = read_sweep(path, args.set)
    except UsageError:
        _require_packages(args, path)
        raise
    return changed(sweep, **options, mark="--")


def _require_packages(args: argparse.Namespace, path: Path) -> None:
    """Raises UsageError if the spec is unreadable because a package that its run uses is not installed."""
    named = getattr(args, "dir", None)
    directory = place_of(named) if named else Path("runs") / (getattr(args, "name", None) or path.stem)
    if is_run(directory):
        require(read_manifest(directory))


def only_of(words: list[str], option: str = "--only", kinds: Sequence[str] = KINDS) -> dict[str, list[str]]:
    """The names by kind in `--only agent=a,suite=s`, or in a similar option. Raises UsageError."""
    names: dict[str, list[str]] = {}
    for part in ",".join(words).split(",") if words else []:
        kind, _, name = part.partition("=")
        if kind not in kinds or not name:
            expected = " or ".join(f"{kind}=NAME" for kind in kinds)
            raise UsageError(f"{option}: {part!r}: expected {expected}, separated by commas.")
        names.setdefault(kind, []).append(name)
    return names


def choice_of(words: list[str], manifest: Manifest, option: str = "--only") -> Choice:
    """The same as a choice within a run. Raises UsageError with the nearest name."""
    return chosen(only_of(words, option), manifest, option)


def again(args: argparse.Namespace) -> str:
    """The sweep and its settings, as the shell reads them."""
    return shlex.join([args.sweep, *(word for setting in args.set for word in ("--set", setting))])


def run_of(name: str | None) -> Path:
    """The run that is named; without a name the newest one, and standard error says which. Raises RunError."""
    if name is not None:
        return run_directory(name)
    newest = newest_run()
    with unread(sys.stderr):
        print(f"evalkit: the newest run: {newest}", file=sys.stderr, flush=True)
    return newest


def program() -> str:
    """The command that calls evalkit: its name, or its path if the shell would not find the name (`make run`); what has
    installed it for this call alone is part of the command."""
    called = Path(sys.argv[0])
    if called.name == DISTRIBUTION:
        way = next((words for part, words in RUNNERS.items() if part in called.parts), "")
        return f"{way}{DISTRIBUTION}"
    if called.name != "evalkit" or shutil.which("evalkit") is not None:
        return "evalkit"
    return shlex.quote(str(called))


RUNNERS = {"uv": "uvx ", "pipx": "pipx run "}
"""By a folder of the environment that it is called from: what makes such environments, and calls what is in them."""


def tell_next(wrote: str, sweep: Path, next_command: Sequence[str], what: str) -> None:
    """Say what was written, and which commands come next: the sweep's plan and run, then `next_command`."""
    print(f"Wrote {wrote}, and the sweep {sweep}. Next:")
    evalkit, path = program(), shlex.quote(str(sweep))
    hints = [
        (f"{evalkit} plan {path}", "what it will cost"),
        (f"{evalkit} run {path}", "ask; resumable, within the budget"),
        (f"{evalkit} {shlex.join(next_command)}", what),
    ]
    room = max(len(command) for command, _ in hints) + 2
    print("\n".join(f"  {command:<{room}}{why}" for command, why in hints))
