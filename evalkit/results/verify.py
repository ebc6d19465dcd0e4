"""`evalkit verify`: is the log whole, and does replaying every episode reproduce it?

Rows are read segment by segment in the log's order and each episode is kept only while it continues, so the memory
needed is that of the episodes in flight, whatever the run's length. Of each episode the first flaw is named: what
follows it in the same episode is a consequence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, RunError
from evalkit.results.answers import doubts, read_question
from evalkit.results.derived import read_afresh
from evalkit.results.episodes import Environments
from evalkit.results.installed import require_environments
from evalkit.results.replayer import COLUMNS, Replayer
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest
from evalkit.store.question_files import ANSWERS, QUESTION, read_frozen, read_given
from evalkit.store.void import FILE as VOIDS
from evalkit.store.void import read_voids

if TYPE_CHECKING:
    import pyarrow as pa

    from evalkit.store.files.segment import Segment
    from evalkit.store.reading.effect import Ints

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
    """The episode as `agent:suite:instance:replicate`, where that is known."""

    def __str__(self) -> str:
        if not self.episode:
            return f"{self.segment}: {self.problem}"
        address = f" ({self.place})" if self.place else ""
        return f"{self.segment}: episode {self.episode}{address}, step {self.step}: {self.problem}"


def verify(run: Path) -> list[Finding]:
    """All findings of a run, those about files first; none: everything is as it was written.

    Raises RunError if `run` is not a run directory, is being written, or has an environment that is not installed;
    CorruptLogError if its manifest cannot be read.
    """
    from evalkit.store.recovery.check import check_log

    manifest = read_manifest(run)
    require_environments(manifest, (suite.environment for suite in manifest.suites.values()), ENVIRONMENTS)
    try:
        replay = _Replay(manifest, ENVIRONMENTS)
        findings = [
            Finding(segment=flaw.segment, problem=flaw.problem, episode=flaw.episode, step=flaw.step)
            for flaw in check_log(run, replay.see)
        ]
        told = {(finding.episode, finding.step) for finding in findings}
        # Where files are damaged or missing, missing steps are a consequence.
        findings += [
            finding
            for finding, gap in replay.findings
            if not (gap and told) and (finding.episode, finding.step) not in told
        ]
        findings += _void_findings(run, manifest)
        if not findings:  # else the scores are not known
            findings += _answer_findings(run, manifest)
    except FileNotFoundError as moved:
        raise RunError(
            f"{run} is being written: {moved} was moved meanwhile. Verify it once that has ended."
        ) from moved
    return findings


def _void_findings(run: Path, manifest: Manifest) -> Iterator[Finding]:
    """What is wrong with the list of void episodes: it cannot be read, or is of agents and suites of another run."""
    try:
        voids = read_voids(run)
    except CorruptLogError as flaw:
        yield Finding(segment=VOIDS, problem=str(flaw))
        return
    for void in voids.values():
        if void.agent not in manifest.agents or void.suite not in manifest.suites:
            yield Finding(
                segment=VOIDS, problem=f"episode {void.episode} is of {void.agent}:{void.suite}, not of this run"
            )


def _answer_findings(run: Path, manifest: Manifest) -> Iterator[Finding]:
    """What is wrong with a run's question and the answers that were given: they are made again from the log."""
    try:
        frozen = read_frozen(run)
        given = read_given(run)
        if frozen is None:
            if given:
                yield Finding(segment=ANSWERS, problem="there are answers, and no question")
            return
        asked = read_question(run, manifest, read_afresh(run))
    except CorruptLogError as flaw:
        yield Finding(segment=QUESTION, problem=str(flaw))
        return
    assert asked is not None
    for problem in doubts(asked, given, ()):
        yield Finding(segment=ANSWERS, problem=problem)


class _Replay:
    """Replays the log's readable files of steps in the log's order."""

    def __init__(self, manifest: Manifest, environments: Environments) -> None:
        self._replayer = Replayer(manifest, environments)
        self.findings: list[tuple[Finding, bool]] = []
        """Each with whether steps are missing before it."""

    def see(self, segment: "Segment", table: "pa.Table") -> bool:
        """The next file's rows; whether replay gives every one of them, its digest included."""
        from evalkit.store.reading.arrays import steps_of, together

        steps = steps_of(table)
        if steps is not table:  # replay says nothing of asks: their digests are looked at
            self.see(segment, steps)
            return False
        # Where episodes alternate, as they were played, replay takes a fifth more CPU.
        places = together(table, "environment", "episode")
        passed_over = self._replayer.passed_over
        flaws = list(self._replayer.check(_rows(table, places)))
        for flaw in sorted(flaws, key=lambda flaw: places[flaw.row]):
            finding = Finding(
                segment=segment.name, problem=flaw.problem, episode=flaw.episode, step=flaw.step, place=flaw.place
            )
            self.findings.append((finding, flaw.gap))
        return not flaws and self._replayer.passed_over == passed_over


def _rows(table: "pa.Table", places: "Ints") -> Iterator[Mapping[str, Any]]:
    from evalkit.store.reading.arrays import take_rows

    table = table.select(COLUMNS)
    for begin in range(0, len(places), BATCH):
        yield from take_rows(table, places[begin : begin + BATCH]).to_pylist()
