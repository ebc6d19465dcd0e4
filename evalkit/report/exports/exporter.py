"""What an exporter is, and all by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalkit.envs.table import ENVIRONMENTS
from evalkit.report.exports.episodes import Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A way to write a run for others' tools."""

    name: str
    """What `--format` calls it."""
    help: str
    """What it makes, in a line."""
    write: Callable[[Chosen, Path], int]
    """(what is chosen of a run, `--out`) -> how many episodes this evalkit does not reproduce. What it writes must
    not exist yet, and is there whole or not at all (`store/folder.py`). Raises UsageError, StorageError,
    CorruptLogError."""
    whole: bool = False
    """Whether it holds all of a run, also what is not ended or void; then no part of it can be chosen."""


def _jsonl(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.transcripts import write_transcripts

    return write_transcripts(chosen, ENVIRONMENTS, out)


def _inspect(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.inspect_log import write_inspect

    return write_inspect(chosen, ENVIRONMENTS, out)


def _csv(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.sheets import write_sheets

    write_sheets(chosen, out)
    return 0


def _archive(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.archive import write_archive

    return write_archive(chosen, out)


EXPORTERS: Mapping[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter(name="jsonl", help="chats, one a line", write=_jsonl),
        Exporter(name="inspect", help="Inspect AI's logs", write=_inspect),
        Exporter(name="csv", help="sheets", write=_csv),
        Exporter(name="archive", help="a run and its numbers in a zip, for `verify`", write=_archive, whole=True),
    )
}
"""What others' tools read: chat transcripts, data sets, sheets, Inspect's logs; see `docs/exports.md`."""
