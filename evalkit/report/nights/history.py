"""Nights: what each cell of a sweep came to, night by night, and the alarms that this raises.

A night is a run of its own over the same instances, so nights are paired. One record a night is kept in
`history.jsonl`; it is derived from the night's log and can be made again while that log is there. A cell is one agent
on one suite; nights are compared with each other only while the cell is the same: agent, sampling, prompts and
environment version (`key`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from evalkit.envs.table import is_litmus
from evalkit.errors import CorruptLogError
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestSuite
from evalkit.frozen.void import read_voids
from evalkit.report.behaviour import SERVED_ASK_COLUMNS, SERVED_COLUMNS, versions
from evalkit.report.nights.dearer import Took, dearer
from evalkit.report.run_data import RunData
from evalkit.report.scores import scores_table
from evalkit.results.cells import Cell, cells
from evalkit.results.derived import read_run
from evalkit.results.endings import most_said
from evalkit.spec.identity import episode_key
from evalkit.stats.alarm import WINDOWS, By, Night, watched
from evalkit.stats.sustained_drop import LEAST_PAIRS
from evalkit.store import json_text

FORMAT = 1

Accepted = Mapping[tuple[str, str], Sequence[str]]
"""(agent, suite) -> the nights at which it was accepted as it is: later nights are compared with none before the last
of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When an alarm is raised."""

    alpha: float = 0.05
    """Chance of a false alarm within `alarm.HORIZON` nights, of all cells together: each gets an equal part."""
    tolerance: float = 0.02
    """A fall that does not matter; 1 is from 0 to the optimum."""


class AlarmNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a night said of one cell. `raised`, `p`, `threshold`, `nights`, `before`, `now`, `words`: as of
    `alarm.Alarm`, scores from 0 to 1."""

    raised: bool
    p: float | None
    threshold: float
    nights: int
    before: float | None
    now: float | None
    words: str
    since: str = ""
    """The night in which it was raised first, with none without an alarm between; empty if it is not raised."""
    fell: str = ""
    """The first night of the window that raised it then; empty if it is not raised."""
    was: tuple[str, ...] = ()
    """The nights before it, with which this night and all later ones of the alarm are compared, oldest first."""
    window: tuple[str, ...] = ()
    """The last `nights` nights, oldest first; both are empty if it is not raised."""
    by: By = "windows"
    evidence: float | None = None
    """Both as of `alarm.Alarm`; None where nobody gathered it."""
    visible: float | None = None
    """The fall that could be seen, 0 to 1: `sustained_drop.visible_fall`; None if none could, or if nobody asked."""


class CellNight(msgspec.Struct, frozen=True, kw_only=True):
    """One cell in one night."""

    agent: str
    suite: str
    key: str
    """Digest of agent, sampling, prompts and environment version: other keys are other things."""
    pack: str
    """The prompt pack's name."""
    planned: int
    ended: Mapping[str, int]
    """By instance (digest): how many of its replicates have ended."""
    values: Mapping[str, tuple[float, ...]]
    """By instance (digest): the scores that the estimate is based on, as the environment gives them."""
    score: float | None
    """Mean over instances, times 100; None if nothing was scored."""
    low: float | None
    high: float | None
    """The ends of its 95 % interval; None if there is none."""
    episodes: int
    """Those that the estimate is based on."""
    cost: int
    """Pico-dollars of its replies."""
    tokens_in: int
    tokens_out: int
    steps: int
    latency_s: float
    """Of all its replies together."""
    served: tuple[str, ...]
    """What answered as the agent that night, `model fingerprint`, in order of first reply; empty if nobody says."""
    alarm: AlarmNote | None = None
    kind: str = ""
    """The method of its interval; empty if nobody wrote it down."""
    refused: Mapping[str, int] | msgspec.UnsetType = msgspec.UNSET
    """By instance (digest): how many of its replicates the provider refused; such an instance is not in `values`. Left
    out of the file where there are none."""
    said: str | msgspec.UnsetType = msgspec.UNSET
    """What the provider said of these."""
    took: Took | msgspec.UnsetType = msgspec.UNSET
    """What an episode took. Left out of the file where nothing was paid and no token used."""
    dearer: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What an episode takes more of than it did. Left out of the file where it does not."""
    litmus: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Its environment claims no optimum: a rise is an alarm as much as a fall. Left out of the file elsewhere."""

    @property
    def why(self) -> str:
        """What its alarm says, without the verdict in front."""
        return self.alarm.words.partition(": ")[2] if self.alarm is not None else ""

    @property
    def visible(self) -> float | None:
        """The fall that its alarm could see, 0 to 1; None if there is none."""
        return self.alarm.visible if self.alarm is not None else None

    @property
    def alarm_word(self) -> str:
        """What its alarms are of."""
        return "change" if self.litmus is True else "regression"

    @property
    def remaining(self) -> int:
        """Episodes that did not end."""
        return self.planned - sum(self.ended.values())

    @property
    def gone(self) -> Mapping[str, int]:
        """`refused`, empty if there are none."""
        return {} if self.refused is msgspec.UNSET else self.refused

    @property
    def why_unmeasured(self) -> str:
        """Why there is no score to compare, in words; empty if there is one."""
        if self.values:
            return ""
        said = "" if self.said is msgspec.UNSET else f"; the provider said: {self.said}"
        if self.gone:
            return f"{sum(self.gone.values()):,} of its {self.planned:,} episodes were refused{said}"
        return f"none of its {self.planned:,} episodes was scored"

    @property
    def cell(self) -> tuple[str, str]:
        """(agent, suite)."""
        return self.agent, self.suite


class NightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One night."""

    format: int
    night: str
    """The date (UTC) on which it began, `2026-11-21`."""
    spent: int
    """Pico-dollars, crash charges included."""
    query: str
    """SQL that gives its scores over the views of its run."""
    cells: tuple[CellNight, ...]

    @property
    def planned(self) -> int:
        """Episodes."""
        return sum(cell.planned for cell in self.cells)

    @property
    def remaining(self) -> int:
        """Episodes that did not end."""
        return sum(cell.remaining for cell in self.cells)

    @property
    def measured(self) -> bool:
        """Whether any cell has a score to compare."""
        return any(cell.values for cell in self.cells)

    @property
    def rises(self) -> tuple[tuple[CellNight, str], ...]:
        """What takes more than it did."""
        return tuple((cell, words) for cell in self.cells if cell.dearer is not msgspec.UNSET for words in cell.dearer)

    @property
    def raised(self) -> tuple[CellNight, ...]:
        """The cells with an alarm."""
        return tuple(cell for cell in self.cells if cell.alarm is not None and cell.alarm.raised)


Dated = tuple[str, CellNight]
"""A night and what a cell came to in it."""


def cell_key(agent: ManifestAgent, suite: ManifestSuite) -> str:
    """What makes two nights of an agent on a suite comparable."""
    env = suite.environment
    return episode_key(agent.identity, agent.sampling[env], agent.packs[env], env, suite.environment_version)


def read_night(run: Path, night: str, spent: int) -> NightRecord:
    """A night's record from its log, without alarms. Raises RunError if it is not a run, CorruptLogError."""
    from evalkit.store.reading.reader import scan_asks

    manifest, steps, results = read_run(run, SERVED_COLUMNS)
    logged = {"steps": steps}
    if any(agent.code is not None for agent in manifest.agents.values()):
        logged["asks"] = scan_asks(run, SERVED_ASK_COLUMNS)
    source = RunData(manifest, cells(manifest, results, read_voids(run)), logged)
    served: dict[str, dict[str, None]] = {}
    for version in versions(source):  # two roles may have one model
        served.setdefault(version["agent"], {})[f"{version['served_model']} {version['fingerprint']}".strip()] = None
    table = scores_table(source)
    night_cells = [
        _cell(manifest, cell, row, took, tuple(served.get(cell.agent, ())))
        for cell, row, took in zip(source.cells, table.rows, source.rows(TOOK), strict=True)
    ]
    return NightRecord(format=FORMAT, night=night, spent=spent, query=table.query, cells=tuple(night_cells))


TOOK = """\
select c.suite, c.agent, count(*) filter (where e.finished) as ended,
    coalesce(sum(e.cost) filter (where not e.void), 0)::bigint as cost,
    coalesce(sum(e.tokens_in) filter (where not e.void), 0)::bigint as tokens_in,
    coalesce(sum(e.tokens_out) filter (where not e.void), 0)::bigint as tokens_out,
    coalesce(sum(e.steps) filter (where not e.void), 0)::bigint as steps,
    coalesce(sum(e.latency_s order by e.place) filter (where not e.void), 0) as latency_s
from cells c left join episodes e using (suite, agent) group by c.suite, c.agent order by min(c.place)"""
"""What a night's cells took, of its run."""


def _cell(
    manifest: Manifest, cell: Cell, row: Mapping[str, Any], took: Mapping[str, Any], served: tuple[str, ...]
) -> CellNight:
    """`row`: the cell's of the table `scores`; `took`: of `TOOK`."""
    digests = {name: target.digest for name, target in cell.targets.items()}
    ended: dict[str, int] = {}
    values: dict[str, list[float]] = {}
    for episode in cell.episodes:
        if episode.finished:
            ended[digests[episode.instance]] = ended.get(digests[episode.instance], 0) + 1
    refused = cell.refused_instances
    for episode in cell.prefix:
        if episode.score is not None and episode.instance not in refused:
            values.setdefault(digests[episode.instance], []).append(episode.score)
    took_each: dict[str, list[tuple[int, int]]] = {}
    for episode in cell.prefix:
        # By the standard tier, so that another mixture of tiers is no change.
        spent = episode.cost + episode.saved, episode.tokens_in + episode.tokens_out
        if any(spent):
            took_each.setdefault(digests[episode.instance], []).append(spent)
    low, high = row["interval"] or (None, None)
    return CellNight(
        agent=cell.agent,
        suite=cell.suite.name,
        key=cell_key(manifest.agents[cell.agent], cell.suite),
        pack=cell.pack,
        planned=cell.planned,
        ended=ended,
        values={name: tuple(scores) for name, scores in values.items()},
        score=row["score"],
        low=low,
        high=high,
        kind=row["kind"] or "",
        episodes=len(cell.prefix),
        **{name: took[name] for name in ("cost", "tokens_in", "tokens_out", "steps", "latency_s")},
        served=served,
        took={
            name: (sum(cost for cost, _ in each) / len(each), sum(tokens for _, tokens in each) / len(each))
            for name, each in took_each.items()
        }
        or msgspec.UNSET,
        refused=Counter(digests[episode.instance] for episode in cell.refused) if refused else msgspec.UNSET,
        said=most_said(episode.said for episode in cell.refused) if refused else msgspec.UNSET,
        litmus=True if is_litmus(cell.suite.environment) else msgspec.UNSET,
    )


def judged(history: Sequence[NightRecord], tonight: NightRecord, accepted: Accepted, rule: Rule) -> NightRecord:
    """Tonight with what each cell's alarm says, compared with earlier nights, oldest first."""
    share = rule.alpha / max(1, len(tonight.cells))
    marked = []
    for cell in tonight.cells:
        before = earlier(history, cell, tonight.night, accepted)
        took = [known.took for _, known in before if known.took is not msgspec.UNSET]
        rises = () if cell.took is msgspec.UNSET or not took else dearer(took, cell.took, share)
        alarm = _note(before, cell, tonight.night, share, rule.tolerance)
        marked.append(msgspec.structs.replace(cell, alarm=alarm, dearer=rises or msgspec.UNSET))
    return msgspec.structs.replace(tonight, cells=tuple(marked))


def earlier(history: Sequence[NightRecord], cell: CellNight, night: str, accepted: Accepted) -> list[Dated]:
    """The same cell in the nights that `night` may be compared with, oldest first; alarms before it was accepted are
    gone."""
    first = max((date for date in accepted.get(cell.cell, ()) if date < night), default="")
    return [
        (record.night, msgspec.structs.replace(night_cell, alarm=None) if record.night == first else night_cell)
        for record in history
        if first <= record.night < night
        for night_cell in record.cells
        if night_cell.cell == cell.cell and night_cell.key == cell.key
    ]


def _note(before: Sequence[Dated], cell: CellNight, night: str, alpha: float, tolerance: float) -> AlarmNote:
    """While an alarm stands, what it was before stays what it was when it was raised. Of the nights since the fall only
    the last count, as many as the windows take or as it took to raise it. The nights of an alarm that has ended are
    left out: they are neither what it was before nor what it is now."""
    measured = [dated for dated in before if dated[1].values]
    same = _same_suite(measured, cell)
    replaced, measured = len(same) < len(measured), same
    last = measured[-1][1].alarm if measured else None
    standing = last if last is not None and last.raised else None
    comparable = [dated for dated in _alike(measured, cell) if not _ended(dated[0], before, standing)]
    fallen: list[Dated] = []
    if standing is not None:
        fallen = [dated for dated in comparable if dated[0] >= standing.fell]
        took = sum(dated[0] <= standing.since for dated in fallen)
        fallen = fallen[1 - max(*WINDOWS, took) :]
        comparable = [*(dated for dated in comparable if dated[0] < standing.fell), *fallen]
    nights: list[Night] = [cell_night.values for _, cell_night in comparable]
    alarm = watched(
        nights,
        cell.values,
        alpha,
        tolerance=tolerance,
        both_ways=cell.litmus is True,
        fallen=None if standing is None else len(fallen),
    )
    words = alarm.words
    if replaced and cell.values and not measured:
        words = "no test: most of its instances were in no night before: tonight is a new baseline"
    since = fell = ""
    was, window = tuple[str, ...](), tuple[str, ...]()
    if alarm.raised:
        dates = (*(date for date, _ in comparable), night)
        was, window = dates[: -max(alarm.nights, len(fallen) + 1)], dates[-alarm.nights :]
        since, fell = (night, window[0]) if standing is None else (standing.since, standing.fell)
    return AlarmNote(
        raised=alarm.raised,
        p=alarm.p,
        threshold=alarm.threshold,
        nights=alarm.nights,
        before=alarm.before,
        now=alarm.now,
        words=words,
        since=since,
        fell=fell,
        was=was,
        window=window,
        by=alarm.by,
        evidence=alarm.evidence,
        visible=alarm.visible,
    )


def _same_suite(measured: Sequence[Dated], cell: CellNight) -> list[Dated]:
    """The nights since the suite was last replaced: since the last one of whose instances less than half had been in a
    night before. Scores of other instances say nothing of the agent."""
    seen: set[str] = set()
    first = 0
    for place, (_, known) in enumerate([*measured, ("", cell)]):
        if seen and len(known.values.keys() & seen) < len(known.values) / 2:
            first, seen = place, set()
        seen |= known.values.keys()
    return list(measured[first:])


def _alike(before: Sequence[Dated], cell: CellNight) -> list[Dated]:
    """The nights with what is compared with the cell: instances that the provider refused tonight leave both sides.
    Nights that were refused others stay only where each instance is compared with itself, since scores of other
    instances would look like a change."""
    paired = len(cell.values) >= LEAST_PAIRS
    kept = []
    for night, known in before:
        values = {name: scores for name, scores in known.values.items() if name not in cell.gone}
        if values and (paired or known.gone.keys() <= cell.gone.keys()):
            kept.append((night, msgspec.structs.replace(known, values=values)))
    return kept


def _ended(night: str, before: Sequence[Dated], standing: AlarmNote | None) -> bool:
    """Whether a night belongs to an alarm that has ended."""
    return any(
        cell.alarm.fell <= night <= date and (standing is None or cell.alarm.fell != standing.fell)
        for date, cell in before
        if cell.alarm is not None and cell.alarm.raised
    )


def taken(record: NightRecord, accepted: Accepted) -> NightRecord:
    """The night without the alarms that the user has accepted since."""
    kept = (_quiet(cell) if record.night in accepted.get(cell.cell, ()) else cell for cell in record.cells)
    return msgspec.structs.replace(record, cells=tuple(kept))


def _quiet(cell: CellNight) -> CellNight:
    alarm = cell.alarm
    if alarm is not None and alarm.raised:
        alarm = msgspec.structs.replace(alarm, raised=False, words=f"accepted; it was: {alarm.words}")
    return msgspec.structs.replace(cell, alarm=alarm, dearer=msgspec.UNSET)


def with_alarms(
    records: Sequence[NightRecord], accepted: Accepted, rule: Rule, only: Collection[str]
) -> list[NightRecord]:
    """The records in order of nights, those named in `only` judged again, each by those before it."""
    done: list[NightRecord] = []
    for record in sorted(records, key=lambda record: record.night):
        done.append(judged(done, record, accepted, rule) if record.night in only else record)
    return done


def encode(records: Sequence[NightRecord]) -> bytes:
    """The history as JSON lines, oldest night first."""
    ordered = sorted(records, key=lambda record: record.night)
    return b"".join(msgspec.json.encode(record, order="deterministic") + b"\n" for record in ordered)


def decode(data: bytes, source: str) -> list[NightRecord]:
    """The nights of a history. Raises CorruptLogError naming the line."""
    records = []
    for number, line in enumerate(data.splitlines(), 1):
        record = json_text.decode(line, NightRecord, f"{source}:{number}", _REMEDY)
        if record.format != FORMAT:
            raise CorruptLogError(
                f"{source}:{number} has format {record.format}, this evalkit reads {FORMAT}. {_REMEDY}"
            )
        for cell in record.cells:
            lone = cell.low is None or cell.high is None or cell.score is None
            if (lone and (cell.low, cell.high) != (None, None)) or not all(cell.values.values()):
                raise CorruptLogError(
                    f"{source}:{number} is damaged: {cell.agent}:{cell.suite} lacks a score or an end. {_REMEDY}"
                )
        records.append(record)
    return records


_REMEDY = "Make it anew from the nights' logs with `evalkit nightly SPEC --rebuild`."
