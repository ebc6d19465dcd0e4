"""While a run is played: what it is to find out is looked at as episodes end, and agents that no open question needs
are played no more.

An answer is on disk before anything is done because of it. Looks cost at most about a hundredth of the time, so their
number depends on how fast scores come; answers do not depend on it (`results/answers.py`). Nothing here chooses
instances: whole agents leave, and the money that they would have cost is free for others.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.episode import ActiveEpisode, final_score
from evalkit.engine.forecast import Forecast
from evalkit.engine.options import Stop
from evalkit.engine.pace import Pacer
from evalkit.engine.scheduler import LaneJob
from evalkit.engine.universe import PlannedEpisode
from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import FrozenQuestion, GivenAnswers, read_frozen, read_given, write_given
from evalkit.results.answers import RunQuestion
from evalkit.results.asked import question_of as asked_in
from evalkit.results.derived import read_run
from evalkit.results.question import changes, freeze_question
from evalkit.spec.model import Decide
from evalkit.store.writing.writer import Store

BETWEEN_LOOKS = 100.0
"""From one look to the next, at least so many times what it took."""
LEAST_S, MOST_S = 0.02, 5.0
"""Between two looks."""


@dataclass(frozen=True, slots=True)
class SweepQuestion:
    """What a sweep asks of its run, before the run's log is open."""

    frozen: FrozenQuestion

    def settled(self, directory: Path, *, ended: int) -> tuple[FrozenQuestion, bool]:
        """As of `question_of`."""
        return question_of(directory, self.frozen, ended=ended)

    def opened(
        self, manifest: Manifest, asked: FrozenQuestion, directory: Path, store: Store, stop: Stop, *, play_all: bool
    ) -> "OpenQuestion":
        """What a run is asked, as `settled`, once its log is open."""
        given = {tuple(one.about) for given in read_given(directory) for one in given.answers}
        asked_of_run = asked_in(manifest, asked)
        return OpenQuestion(
            asked=asked_of_run, directory=directory, store=store, stop=stop, play_all=play_all, given=given
        )


def asking_of(manifest: Manifest, asked: Decide | FrozenQuestion) -> SweepQuestion:
    """What a sweep asks, or what was frozen for its run. Raises UsageError for what its suites cannot answer."""
    return SweepQuestion(freeze_question(manifest, asked) if isinstance(asked, Decide) else asked)


def question_of(directory: Path, asked: FrozenQuestion, *, ended: int) -> tuple[FrozenQuestion, bool]:
    """(what the run is to find out, whether it must still be written). `asked`: what its sweep asks now; `ended`:
    episodes that the log has. Raises RunError for a question that was chosen after scores were known.
    """
    frozen = read_frozen(directory)
    if frozen is None and ended:
        raise RunError(
            f"{directory} has {ended:,} ended episodes, and it was not asked anything before they were played. A "
            "question that is chosen when scores are known has no guarantee. Ask it in a run of its own (--name), or "
            "leave out [decide]."
        )
    if frozen is None:
        return asked, True
    different = changes(frozen, asked)
    if different and not ended:
        return asked, True
    if different:
        name, (was, now) = next(iter(different.items()))
        words = f" ({_short(was)} before, {_short(now)} now)" if name not in ("instances", "gate") else ""
        raise RunError(
            f"{directory} asks something else: `{name}` has changed{words}. Its question was frozen before its first "
            "episode, and scores are known now, so another one would have no guarantee. Restore the sweep, or ask in a "
            "run of its own (--name)."
        )
    return frozen, False


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """What a session is asked, before anything of it is played."""

    asked: RunQuestion
    directory: Path
    store: Store
    stop: Stop
    play_all: bool
    """Whether agents play on that no open question needs."""
    given: set[tuple[str, ...]]
    """The answers on disk, by what they are about."""
    dismissed: set[tuple[str, str]] = field(default_factory=set)
    """Agents on suites that no question needs any more, or that cannot find out what is open: none of these episodes
    starts."""

    def live(
        self, jobs: Sequence[LaneJob], admitter: AdmissionQueue | None, forecast: Forecast, spent: Callable[[], int]
    ) -> "LiveQuestion":
        """The question while these jobs are played; `spent`: pico-dollars of the run so far."""
        return LiveQuestion(self, jobs, admitter, forecast, spent)


class LiveQuestion:
    """A run's question while one session plays."""

    def __init__(
        self,
        opened: OpenQuestion,
        jobs: Sequence[LaneJob],
        admitter: AdmissionQueue | None,
        forecast: Forecast,
        spent: Callable[[], int],
    ) -> None:
        """As of `OpenQuestion.live`."""
        self.asked, self.dismissed = opened.asked, opened.dismissed
        self.vain: frozenset[str] = frozenset()
        """Of the dismissed, those whose questions are open: those that they are compared with are played no more."""
        self._opened, self._store, self._directory = opened, opened.store, opened.directory
        self._jobs, self._admitter, self._forecast, self._spent = jobs, admitter, forecast, spent
        self._news, self._over, self._unread = asyncio.Event(), asyncio.Event(), False
        self._pace: Pacer | None = None
        if not opened.play_all:
            frozen = opened.asked.frozen
            self._pace = Pacer(jobs, admitter, {suite.name for suite in frozen.suites}, frozen.ahead, self._news.set)

    async def begin(self, *, known: bool) -> None:
        """Read the scores that the log holds, if it holds any (`known`), before the lanes play."""
        if known:
            self.asked.add_all(read_run(self._directory)[2])
        await self.look()

    def judge(self, active: ActiveEpisode) -> None:
        """An episode has ended here."""
        self.ended(active.episode, final_score(active))

    def ended(self, episode: PlannedEpisode, score: float | None) -> None:
        """An episode has ended; `score`: None if it must be read from the log."""
        if score is None:
            self._unread = True
        elif math.isnan(score):
            self._store.event("no_score", episode=episode.id, detail="Its environment gave it no number.")
            return
        else:
            agent, suite = episode.cell.agent.name, episode.suite.name
            self.asked.add(agent, suite, episode.index, episode.replicate, score)
        self._news.set()

    async def watch(self) -> None:
        """Look again and again, until `end` is called: a look that has begun is finished, then comes a last one. What
        the disk refuses stops the run."""
        try:
            await self._watch()
        except (StorageError, CorruptLogError) as flaw:
            self._opened.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._over.is_set():
            await self._news.wait()
            self._news.clear()
            began = loop.time()
            await self.look()
            with suppress(TimeoutError):
                pause = min(MOST_S, max(LEAST_S, BETWEEN_LOOKS * (loop.time() - began)))
                await asyncio.wait_for(self._over.wait(), pause)
        await self.look()

    def end(self) -> None:
        """Nothing is played any more."""
        self._over.set()
        self._news.set()

    async def look(self) -> None:
        """Answer what can be answered; keep new answers, then let go the agents that need no more episodes."""
        if self._unread:
            self._unread = False
            self.asked.add_all((await asyncio.to_thread(read_run, self._directory))[2])
        self.asked.look()
        new = [
            self.asked.given(answer)
            for answer in self.asked.answers
            if answer.at and answer.subject not in self._opened.given
        ]
        if new:
            await self._store.durable()  # the scores that it rests on come first
            given = GivenAnswers(
                at=time.time(),
                spent_pico_usd=self._spent(),
                ended=sum(job.done for job in self._jobs),
                answers=tuple(new),
            )
            await asyncio.to_thread(write_given, self._directory, given)
            self._opened.given.update(answer.about for answer in new)
            for answer in new:
                self._store.event("answered", about=list(answer.about), answer=answer.answer, draws=answer.draws)
        if self._pace is not None:
            self._pace.ask(*self.asked.open)
            self._dismiss(self._pace)

    def _dismiss(self, pace: Pacer) -> None:
        """Let go the agents whose questions are answered, and those whose open ones cannot be answered."""
        places = {place for job in self._jobs for place in job.cells} - self.dismissed
        done, vain = {place for place in places if self.asked.is_done(*place)}, pace.vain()
        gone = done | {place for place in places if place[0] in vain}
        if not gone:
            return
        self.vain |= vain & {agent for agent, _ in gone - done}
        self.dismissed |= gone
        pace.drop(gone)
        for job in self._jobs:
            playing = Counter(
                (active.episode.cell.agent.name, active.episode.suite.name) for active in job.context.flying.values()
            )
            job.dismiss(done, playing + job.dealt)
        if self._admitter is not None:
            self._admitter.dismiss(gone)
        told = {"agents": sorted({agent for agent, _ in gone}), "suites": sorted({suite for _, suite in gone})}
        self._store.event("dismissed", **told, **({"in_vain": sorted(vain)} if vain else {}))

    @property
    def answered(self) -> bool:
        """Whether all that remains to be played belongs to agents that no question needs."""
        rest = sum(
            cell.planned - cell.ended
            for job in self._jobs
            for place, cell in job.cells.items()
            if place not in self.dismissed
        )
        return self.asked.decided and bool(self.dismissed) and not rest

    def words(self) -> list[str]:
        """The answers in sentences, and who was played no further although a question about it is open."""
        still = sorted(self.vain & self.asked.playing)
        names = f"{', '.join(still)}: played no further, since what is open is about agents that are played no more."
        return [*self.asked.words(), *([names] if still else [])]

    @property
    def spared(self) -> int:
        """Episodes of this call that were not played because all questions about their agents are answered."""
        return sum(job.spared.total() for job in self._jobs)

    @property
    def spared_cost(self) -> int:
        """What they were predicted to cost, in pico-dollars."""
        return round(
            sum(
                count * self._forecast.whole(*place).cost
                for job in self._jobs
                if job.lane is not None
                for place, count in job.spared.items()
            )
        )
