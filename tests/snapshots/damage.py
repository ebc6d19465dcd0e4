"""Damage as recipes, applied to a copy of a run: what was done to it can be read here."""

from collections.abc import Callable, Mapping
from pathlib import Path


def halve(path: Path) -> None:
    """The second half of a file is gone."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def torn_segment(run: Path) -> None:
    """The second half of the newest segment is gone."""
    halve(sorted((run / "steps").glob("*.parquet"))[-1])


def flipped_manifest(run: Path) -> None:
    """A letter of a prompt's text in the manifest is another."""
    path = sorted((run / "manifest").iterdir())[-1]
    data = path.read_bytes()
    at = data.index(b"workers")
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])


def torn_voids(run: Path) -> None:
    """What says which episodes are void ends in the middle."""
    (run / "voids.jsonl").write_text('{"episode":')


def missing_manifest(run: Path) -> None:
    """The manifest is gone."""
    sorted((run / "manifest").iterdir())[-1].unlink()


def commits(run: Path) -> list[Path]:
    """The files of the newest writer that committed several, in order; those of older ones may be compacted."""
    writers = sorted((run / "log").iterdir(), key=lambda one: float(one.name.rpartition("-")[2]), reverse=True)
    return next(found for one in writers if len(found := sorted(one.iterdir())) > 2)


def torn_last_commit(run: Path) -> None:
    """The second half of the newest commit is gone."""
    halve(commits(run)[-1])


def missing_commit(run: Path) -> None:
    """A commit between others is gone."""
    found = commits(run)
    found[len(found) // 2].unlink()


RECIPES: Mapping[str, Callable[[Path], None]] = {
    "torn-segment": torn_segment,
    "flipped-manifest": flipped_manifest,
    "missing-manifest": missing_manifest,
    "torn-voids": torn_voids,
}
"""By name; on the run `policies`, which can be repaired without a provider."""

AFTER_A_KILL: Mapping[str, Callable[[Path], None]] = {
    "torn-last-commit": torn_last_commit,
    "missing-commit": missing_commit,
    "torn-segment": torn_segment,
}
"""By name; on the run `killed`."""
