"""What a page needs of one run: its report, figures, money and how it stopped, as its log stood at one moment."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from evalkit.engine.status import Status, read_status
from evalkit.envs.table import is_litmus
from evalkit.errors import EvalkitError
from evalkit.frozen.manifests import FOLDER as MANIFESTS
from evalkit.frozen.void import FILE as VOIDS
from evalkit.report.figures.build import run_figures
from evalkit.report.quotes import Quote, run_quotes
from evalkit.report.report import Report, report
from evalkit.report.vega import Figure
from evalkit.store.events import budget_of, last_session
from evalkit.store.lock import holder
from evalkit.view.leaderboard import standings, suites_of

FOLDERS = ("log/*", "steps", "ledger")
"""What a report depends on, and on what is void: files of the folders are never touched again, so their names say it
all."""

BEST = 4
"""Agents whose scores a glance names."""

LogState = tuple[tuple[str, ...], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A run at one moment."""

    directory: Path
    report: Report
    figures: tuple[Figure, ...]
    quotes: tuple[Quote, ...]
    """One trajectory quoted for each kind of error."""
    whole: bool
    """Whether figures and quotes are there: they take longer than the rest."""
    flaw: str
    """Why there are no quotes though the run has ended episodes; empty otherwise."""
    status: Status
    budget: int | None
    """In pico-dollars, of the last session; None: it had none."""
    stopped: str
    """Why the last session ended, in one word; empty: it has not, or its process was killed."""
    messages: tuple[str, ...]
    """What that session said of it."""
    state: LogState
    at: float
    """When it was read, seconds since 1970."""
    took_s: float

    @property
    def word(self) -> str:
        """The run's state in one word, as of a glance."""
        return self.glance.word

    @property
    def glance(self) -> "Glance":
        """What the list of runs shows of it, without what that is made of."""
        return Glance(
            directory=self.directory,
            ended=self.report.ended,
            planned=self.report.planned,
            spent=self.status.spent,
            budget=self.budget,
            scores=_scores(self.report),
            litmus=all(is_litmus(cell.suite.environment) for cell in self.report.cells),
            state=self.state,
            at=self.at,
            took_s=self.took_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """A few numbers of a run at one moment; `budget`, `state`, `at`, `took_s`: as of a reading."""

    directory: Path
    ended: int
    """Episodes."""
    planned: int
    spent: int
    """Pico-dollars."""
    budget: int | None
    scores: str
    """Of the best agents, in words."""
    litmus: bool
    """Whether all of its suites are of litmus tests: none of their scores is better than another."""
    state: LogState
    at: float
    took_s: float

    @property
    def word(self) -> str:
        """The run's state in one word: `running`, `complete` or `partial`."""
        if holder(self.directory) is not None:
            return "running"
        return "complete" if self.planned == self.ended else "partial"


def read_run(directory: Path) -> Reading:
    """All but figures and quotes. Raises RunError if there is no run, CorruptLogError if its log is damaged."""
    began, state = time.time(), log_state(directory)
    run_report = report(directory)
    started, ended = last_session(directory)
    return Reading(
        directory=directory,
        report=run_report,
        figures=(),
        quotes=(),
        whole=False,
        flaw="",
        status=read_status(directory),
        budget=budget_of(started),
        stopped=str(ended.get("reason", "")),
        messages=tuple(map(str, messages)) if isinstance(messages := ended.get("messages"), list) else (),
        state=state,
        at=began,
        took_s=time.time() - began,
    )


def completed(reading: Reading) -> Reading:
    """The same with figures and quotes. Raises CorruptLogError if the log is damaged."""
    began, directory, run_report = time.time(), reading.directory, reading.report
    flaw, quotes = "", tuple[Quote, ...]()
    try:
        quotes = run_quotes(directory, run_report.manifest, run_report.cells)
    except EvalkitError as error:
        # A run of another evalkit may be one that this one cannot replay; its numbers stand all the same.
        flaw = f"Trajectories are not quoted, since the replay fails: {error}"
    drawn = run_figures(directory, run_report)
    took_s = reading.took_s + time.time() - began
    return replace(reading, figures=drawn, quotes=quotes, whole=True, flaw=flaw, took_s=took_s)


def _scores(run_report: Report) -> str:
    standing, suites = standings(run_report), suites_of(run_report)
    words = [
        f"{agent} {sum(scores) / len(scores):.1f}" + (f" on {len(scores)} of {suites}" if len(scores) < suites else "")
        for agent, scores in standing[:BEST]
    ]
    return ", ".join(words) + (f" and {len(standing) - BEST} more" if len(standing) > BEST else "")


def log_state(directory: Path) -> LogState:
    """Changes whenever a report of the run may."""
    paths = (path for folder in FOLDERS for path in directory.glob(f"{folder}/*.parquet"))
    names = [path.relative_to(directory).as_posix() for path in paths]
    names += [f"{MANIFESTS}/{path.name}" for path in (directory / MANIFESTS).glob("*.json")]
    return tuple(sorted(names)), _stamp(directory / VOIDS)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
