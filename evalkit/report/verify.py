"""`evalkit verify`: is the log whole, and does replaying every episode reproduce it?

Rows are read segment by segment in the log's order and each episode is kept only while it goes on, so the memory needed
is that of the episodes in flight, whatever the run's length. Of each episode the first flaw is named: what follows it
in the same episode is a consequence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.errors import CorruptLogError
from evalkit.report.replayer import COLUMNS, Replayer
from evalkit.store.manifest import read_manifest

BATCH = 4096
"""Rows that become Python values at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in a run that is not as it was written."""

    segment: str
    """The file, relative to the run directory."""
    problem: str
    episode: str = ""
    """Empty: the finding is about a file."""
    step: int = -1
    place: str = ""
    """The episode as `agent:suite:instance:replicate`."""

    def __str__(self) -> str:
        where = self.segment
        if self.episode:
            where += f", episode {self.episode} ({self.place}), step {self.step}"
        return f"{where}: {self.problem}"


def verify(run: Path) -> list[Finding]:
    """All findings of a run, files first; none: everything is as it was written.

    Raises RunError if `run` is no run directory, CorruptLogError if its manifest cannot be read.
    """
    from evalkit.env.table import ENVIRONMENTS
    from evalkit.store.check import check_log
    from evalkit.store.segment import lay_out

    manifest = read_manifest(run)
    found = [
        Finding(segment=flaw.segment, problem=flaw.problem, episode=flaw.episode, step=flaw.step)
        for flaw in check_log(run)
    ]
    replayer = Replayer(manifest, ENVIRONMENTS)
    for segment in lay_out(run, "steps").segments:
        for flaw in replayer.check(_rows(segment)):
            found.append(
                Finding(
                    segment=segment.name, problem=flaw.problem, episode=flaw.episode, step=flaw.step, place=flaw.place
                )
            )
    return found


def _rows(segment: Any) -> Iterator[Mapping[str, Any]]:
    from evalkit.store.segment import read_segment

    try:
        table = read_segment(segment, COLUMNS)
    except CorruptLogError:
        return  # `check_log` has named it; what it held is missed as a gap in its episodes
    for batch in table.to_batches(max_chunksize=BATCH):
        yield from batch.to_pylist()
