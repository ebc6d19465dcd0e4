"""Damage as recipes, applied to a copy of a fixture's run: what was done to it can be read here."""

from collections.abc import Callable, Mapping
from pathlib import Path


def _only(run: Path, folder: str) -> Path:
    """The newest file of a folder that holds at least one."""
    return sorted((run / folder).glob("*.parquet"))[-1]


def _flip(path: Path, at: float, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 1 << bit
    path.write_bytes(bytes(data))


def _write(name: str, text: str) -> Callable[[Path], None]:
    def recipe(run: Path) -> None:
        (run / name).write_text(text)

    return recipe


def torn_segment(run: Path) -> None:
    """The second half of a segment is gone."""
    path = _only(run, "steps")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty_segment(run: Path) -> None:
    """A segment's name is there, its content is not."""
    _only(run, "steps").write_bytes(b"")


def zeroed_segment(run: Path) -> None:
    """As many bytes, all of them zero."""
    path = _only(run, "steps")
    path.write_bytes(bytes(path.stat().st_size))


def missing_segment(run: Path) -> None:
    """A segment is gone."""
    _only(run, "steps").unlink()


def flipped_page(run: Path) -> None:
    """A bit of the data."""
    _flip(_only(run, "steps"), 0.3, 2)


def flipped_footer(run: Path) -> None:
    """A bit of the schema behind the data, which no checksum covers."""
    _flip(_only(run, "steps"), 0.97, 1)


def flipped_manifest(run: Path) -> None:
    """A bit of a prompt's text in the manifest."""
    path = run / "run.json"
    data = path.read_bytes()
    at = data.index(b"workers")
    path.write_bytes(data[:at] + b"x" + data[at + 1 :])


def torn_manifest(run: Path) -> None:
    """The manifest's second half is gone."""
    path = run / "run.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def missing_manifest(run: Path) -> None:
    """The manifest is gone."""
    (run / "run.json").unlink()


def missing_mark(run: Path) -> None:
    """`log.json` is gone."""
    (run / "log.json").unlink()


def foreign_file(run: Path) -> None:
    """Something that is no segment lies among the segments."""
    (run / "steps" / "notes.parquet").write_text("not a table")


def torn_tail(run: Path) -> None:
    """The newest tail's second half is gone."""
    path = _only(run, "tail")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped_tail(run: Path) -> None:
    """A bit of a tail in the middle of the log."""
    tails = sorted((run / "tail").glob("*.parquet"))
    _flip(tails[len(tails) // 2], 0.3, 2)


def missing_middle_tail(run: Path) -> None:
    """A tail in the middle of the log is gone."""
    tails = sorted((run / "tail").glob("*.parquet"))
    tails[len(tails) // 2].unlink()


def missing_last_tail(run: Path) -> None:
    """The newest tail is gone: nothing says that it was ever there."""
    _only(run, "tail").unlink()


def missing_lease(run: Path) -> None:
    """The newest movement of money is gone."""
    _only(run, "ledger").unlink()


def torn_ledger(run: Path) -> None:
    """The second half of the first movement of money is gone."""
    path = sorted((run / "ledger").glob("*.parquet"))[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def missing_lock(run: Path) -> None:
    """The lock's file is gone."""
    (run / "lock").unlink()


AFTER_A_KILL: Mapping[str, Callable[[Path], None]] = {
    "killed-torn-tail": torn_tail,
    "killed-flipped-tail": flipped_tail,
    "killed-missing-middle-tail": missing_middle_tail,
    "killed-missing-last-tail": missing_last_tail,
    "killed-missing-lease": missing_lease,
    "killed-torn-ledger": torn_ledger,
    "killed-missing-lock": missing_lock,
    "killed-flipped-segment": flipped_page,
}
"""By name; on the fixture `killed-late`."""

RECIPES: Mapping[str, Callable[[Path], None]] = {
    "torn-segment": torn_segment,
    "empty-segment": empty_segment,
    "zeroed-segment": zeroed_segment,
    "missing-segment": missing_segment,
    "flipped-page": flipped_page,
    "flipped-footer": flipped_footer,
    "flipped-manifest": flipped_manifest,
    "torn-manifest": torn_manifest,
    "missing-manifest": missing_manifest,
    "missing-mark": missing_mark,
    "null-mark": _write("log.json", "null"),
    "torn-mark": _write("log.json", '{"ste'),
    "null-forecast": _write("forecast.json", "null"),
    "odd-forecast": _write("forecast.json", '{"cells": [1, null]}'),
    "odd-voids": _write("voids.jsonl", "[1]\n"),
    "torn-voids": _write("voids.jsonl", '{"episode":'),
    "odd-events": _write("events.jsonl", "[1]\n"),
    "torn-events": _write("events.jsonl", '{"time": 1, "ki'),
    "foreign-file": foreign_file,
}
"""By name; all on the fixture `policies`, which can be repaired without a provider."""
