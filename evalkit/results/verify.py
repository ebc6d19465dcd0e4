"""`evalkit verify`: is the log whole, and does replaying every episode reproduce it?

Rows are read segment by segment in the log's order and each episode is kept only while it continues, so the memory
needed is that of the episodes in flight, whatever the run's length. Of each episode the first flaw is named: what
follows it in the same episode is a consequence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.digests import NOTHING, step_digest
from evalkit.envs.environment import Environment
from evalkit.envs.replay import Position, advance, again, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, RunError, UsageError
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite, load_target
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.question_files import ANSWERS, QUESTION, read_frozen, read_given
from evalkit.frozen.void import FILE as VOIDS
from evalkit.frozen.void import read_voids
from evalkit.replies import decode_reply
from evalkit.results.asked import doubts, read_question
from evalkit.results.derived import read_afresh
from evalkit.results.episodes import Environments, require_environments
from evalkit.results.frozen import frozen_flaws
from evalkit.spec.identity import episode_id, episode_key
from evalkit.store.files.record import STEP
from evalkit.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from evalkit.store.files.segment import Segment
    from evalkit.store.reading.effect import Ints
    from evalkit.store.recovery.check import Flaw


# Replay of a log's rows against what they say: facts, texts, requests, endings, step by step.

COLUMNS = (
    *("episode", "environment", "suite", "instance", "agent", "replicate", "take", "step", "period", "turn"),
    *("reply", "facts", "observation_digest", "request_digest", "step_digest", "finish", "ending"),
)
"""What of the log replay is compared with."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFlaw:
    """The first thing in an episode that is not as it was written."""

    episode: str
    place: str
    """`agent:suite:instance:replicate`."""
    step: int
    problem: str
    gap: bool
    """Whether rows are missing before the one that was looked at; where a file is damaged, that is a consequence."""
    row: int
    """Which of the rows that were given."""


@dataclass(slots=True)
class _Track:
    """How far an episode has been replayed."""

    take: int
    position: Position | None
    """None once its environment ended it."""
    refused: bool = False
    """Whether its last row is an ending that brought no reply; only a later take continues from there."""
    flawed: bool = False


class Replayer:
    """Replays the episodes of a log, rows of many mixed as they were written; keeps only those that continue."""

    def __init__(self, manifest: Manifest, environments: Environments) -> None:
        self._manifest = manifest
        # Once: to look a name up among packages costs as much as a digest, and there is one for each row.
        self._environment = lru_cache(maxsize=None)(environments.__getitem__)
        self._tracks: dict[str, _Track] = {}
        self._key = lru_cache(maxsize=None)(self._key_of)
        self._target = lru_cache(maxsize=1024)(self._target_of)
        # By what it begins with, not by agent: all agents and replicates of an instance begin alike.
        self._beginning = lru_cache(maxsize=256)(self._beginning_of)

    def check(self, rows: Iterable[Row]) -> Iterator[ReplayFlaw]:
        """The flaws of the log's next rows (with `COLUMNS`); of each episode and take only the first."""
        for number, row in enumerate(rows):
            flaw = self._check(row)
            if flaw is None:
                continue
            step, problem = flaw
            gap = step < row["step"]
            self._tracks[row["episode"]] = _Track(take=row["take"], position=None, flawed=True)
            address = f"{row['agent']}:{row['suite']}:{row['instance']}:{row['replicate']}"
            yield ReplayFlaw(episode=row["episode"], place=address, step=step, problem=problem, gap=gap, row=number)

    def _check(self, row: Row) -> tuple[int, str] | None:
        """(step, what is wrong), or None; moves the row's episode on."""
        track = self._tracks.get(row["episode"])
        if track is None or (row["take"] > track.take and row["step"] == 0):
            try:
                track = self._tracks[row["episode"]] = self._begin(row)
            except (CorruptLogError, UsageError) as flaw:
                return row["step"], str(flaw)
        if track.flawed:
            return None
        if track.position is None or (track.refused and row["take"] == track.take):
            return row["step"], "follows the end of its episode"
        if row["take"] < track.take:
            return row["step"], f"is of take {row['take']}, but take {track.take} has begun before it"
        track.take = row["take"]
        if row["step"] != track.position.step:
            return _misnumbered(track.position.step, row["step"])
        problem = self._replay(track.position, row)
        track.refused = row["reply"] is None
        if track.position.ending:
            track.position = None
        return (row["step"], problem) if problem else None

    def _begin(self, row: Row) -> _Track:
        """Raises CorruptLogError if the row is not of an episode that the manifest plans."""
        suite, target = self._target(row["suite"], row["instance"]) or (None, None)
        agent = self._manifest.agents.get(row["agent"])
        if suite is None or target is None or agent is None or suite.environment != row["environment"]:
            raise CorruptLogError(f"is of an agent, suite or instance that {self._manifest.file} does not plan")
        if suite.environment not in agent.packs or not 0 <= row["replicate"] < self._manifest.replicates:
            raise CorruptLogError(f"is of an episode that {self._manifest.file} does not plan")
        if episode_id(self._key(agent.name, suite.name), target.digest, row["replicate"]) != row["episode"]:
            raise CorruptLogError("has another id than agent, instance and replicate make: one of them was changed")
        position = self._beginning(suite.name, target.id, agent.packs[suite.environment], agent.notes)
        return _Track(take=row["take"], position=again(position))

    def _key_of(self, agent_name: str, suite_name: str) -> str:
        agent: ManifestAgent = self._manifest.agents[agent_name]
        suite: ManifestSuite = self._manifest.suites[suite_name]
        name = suite.environment
        return episode_key(agent.identity, agent.sampling[name], agent.packs[name], name, suite.environment_version)

    def _target_of(self, suite: str, instance: str) -> tuple[ManifestSuite, ManifestInstance] | None:
        return self._manifest.targets([(suite, instance)]).get((suite, instance))

    def _beginning_of(self, suite_name: str, instance_id: str, pack: str, notes: bool) -> Position:
        planned = self._target(suite_name, instance_id)
        assert planned is not None
        suite, target = planned
        env = self._environment(suite.environment)
        return begin(env, load_target(env, target), self._manifest.kit(suite.environment, pack, notes))

    def _replay(self, position: Position, row: Row) -> str:
        env: Environment[Any, Any] = self._environment(row["environment"])
        place = position.period, position.turn
        replayed: tuple[object, ...] = (position.request_digest, place)
        logged: tuple[object, ...] = (row["request_digest"], (row["period"], row["turn"]))
        facts = row["facts"].encode()
        if row["reply"] is None:
            if not row["ending"]:
                return "has neither a reply nor an ending"
            whole = step_digest(row["request_digest"], None, facts, NOTHING) == row["step_digest"]
            return self._words(_differing(place, replayed, logged), whole=whole)
        data = row["reply"].encode()
        try:
            reply = decode_reply(data)
        except CorruptLogError as flaw:
            return str(flaw)
        done = advance(env, position, reply, data)
        replayed = (*replayed, done.facts_bytes, done.observation_digest, done.ending, reply.finish)
        logged = (*logged, facts, row["observation_digest"], row["ending"], row["finish"])
        if replayed == logged and done.step_digest == row["step_digest"]:
            return ""  # the digest is of what was just compared
        whole = step_digest(row["request_digest"], data, facts, row["observation_digest"]) == row["step_digest"]
        return self._words(_differing(place, replayed, logged), whole=whole)

    def _words(self, differing: list[str], *, whole: bool) -> str:
        """What a row's own digest and the replay say about it; empty if both agree with the log."""
        if whole and not differing:
            return ""
        parts = " and ".join(filter(None, [", ".join(differing[:-1]), *differing[-1:]]))
        if whole:
            return (
                f"replay gives another {parts}; the row is as it was written, so either {self._manifest.file} was "
                "changed, or this evalkit plays the environment differently than the one that wrote it"
            )
        if differing:
            return f"was changed after it was written: replay gives another {parts}"
        return "was changed after it was written: its reply or its digest is not the one that was logged"


def _differing(place: tuple[int, int], replayed: Iterable[object], logged: Iterable[object]) -> list[str]:
    """The names of what replay and log do not agree on; `place` is where replay stood."""
    period, turn = place
    names = "request", f"place (period {period}, turn {turn})", "facts", "observation", "ending", "finish reason"
    return [name for name, one, other in zip(names, replayed, logged, strict=False) if one != other]


def _misnumbered(due: int, step: int) -> tuple[int, str]:
    if step < due:
        return step, f"comes again after step {due - 1}"
    missing = f"step {due} is" if step == due + 1 else f"steps {due} to {step - 1} are"
    return due, f"{missing} missing: the next row is of step {step}"


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
    manifest = read_manifest(run)
    try:
        flaws, replayed = _replayed(run, manifest)
        findings = [
            Finding(segment=flaw.segment, problem=flaw.problem, episode=flaw.episode, step=flaw.step) for flaw in flaws
        ]
        told = {(finding.episode, finding.step) for finding in findings}
        # Where files are damaged or missing, missing steps are a consequence.
        findings += [
            finding for finding, gap in replayed if not (gap and told) and (finding.episode, finding.step) not in told
        ]
        findings += _void_findings(run, manifest)
        if not findings:  # else the scores are not known
            findings += _answer_findings(run, manifest)
    except FileNotFoundError as moved:
        raise RunError(
            f"{run} is being written: {moved} was moved meanwhile. Verify it once that has ended."
        ) from moved
    return findings


def check_rows(run: Path) -> "tuple[Sequence[Flaw], Sequence[Flaw]]":
    """(what is changed or missing in a run's log; of each episode that replay does not reproduce, the first such step).

    A step is told by the evalkit that began the run alone, by a manifest that is as it was frozen: else it may be what
    differs. Raises as `verify` does.
    """
    from evalkit.store.recovery.check import Flaw

    manifest = read_manifest(run)
    flaws, replayed = _replayed(run, manifest)
    if manifest.evalkit != __version__ or any(frozen_flaws(manifest, ENVIRONMENTS)):
        return flaws, ()
    changed = [
        Flaw(segment=one.segment, problem=f"its row {one.problem}", episode=one.episode, step=one.step)
        for one, gap in replayed
        if not gap
    ]
    return flaws, changed


def _replayed(run: Path, manifest: Manifest) -> "tuple[list[Flaw], list[tuple[Finding, bool]]]":
    """(what the log's own check says, what replay says of the rows that can be read; `_Replay.findings`)."""
    from evalkit.store.reading.reader import cuts
    from evalkit.store.recovery.check import check_log

    require_environments(manifest, (suite.environment for suite in manifest.suites.values()), ENVIRONMENTS)
    try:
        replay = _Replay(manifest, ENVIRONMENTS, cuts(run))
    except CorruptLogError:  # the check says what is damaged
        replay = _Replay(manifest, ENVIRONMENTS)
    return check_log(run, replay.see), replay.findings


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

    def __init__(self, manifest: Manifest, environments: Environments, cuts: "pa.Table | None" = None) -> None:
        self._replayer, self._cuts = Replayer(manifest, environments), cuts
        self.findings: list[tuple[Finding, bool]] = []
        """Each with whether steps are missing before it."""

    def see(self, segment: "Segment", table: "pa.Table") -> None:
        """Replay the next file's rows: its steps, but for those that a repair has cut."""
        from evalkit.store.reading.arrays import rows_of_kind, together, without_void

        table = rows_of_kind(table, STEP)
        if self._cuts is not None:
            table = without_void(table, self._cuts)
        # Where episodes alternate, as they were played, replay takes a fifth more CPU.
        places = together(table, "environment", "episode")
        for flaw in sorted(self._replayer.check(_rows(table, places)), key=lambda flaw: places[flaw.row]):
            finding = Finding(
                segment=segment.name, problem=flaw.problem, episode=flaw.episode, step=flaw.step, place=flaw.place
            )
            self.findings.append((finding, flaw.gap))


def _rows(table: "pa.Table", places: "Ints") -> Iterator[Mapping[str, Any]]:
    from evalkit.store.reading.arrays import take_rows

    table = table.select(COLUMNS)
    for first in range(0, len(places), BATCH):
        yield from take_rows(table, places[first : first + BATCH]).to_pylist()
