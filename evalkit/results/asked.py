"""A run's question as its files and its log have it: which kind it is, its answers, and what is wrong with them."""

from collections.abc import Iterable
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.question_files import VERSION, FrozenQuestion, GivenAnswers, read_frozen
from evalkit.frozen.void import Void
from evalkit.results.answers import RunQuestion
from evalkit.results.episodes import EpisodeResult
from evalkit.results.gating import GateQuestion
from evalkit.stats.evidence import BETS_VERSION
from evalkit.text import many


def question_of(manifest: Manifest, frozen: FrozenQuestion) -> RunQuestion:
    """A question, before any score is known."""
    return RunQuestion(manifest, frozen) if frozen.gate is None else GateQuestion(manifest, frozen)


def doubts(asked: RunQuestion, given: Iterable[GivenAnswers], voids: Iterable[Void]) -> list[str]:
    """What is wrong with the answers of a run, in sentences: what the log says now is not what was said then, or scores
    that count were excluded when they were known."""
    now = {answer.subject: answer for answer in asked.answers}
    found = []
    for one in (answer for answers in given for answer in answers.answers):
        answer = now.get(tuple(one.about))
        names = " and ".join(one.about)
        if answer is None:
            found.append(f"There is an answer about {names}, which the question does not ask.")
        elif asked.given(answer) != one:
            at = f" with {many(answer.at, 'draw')}" if answer.at else ""
            found.append(
                f"The answer about {names} ({one.answer}, given with {many(one.draws, 'draw')}) does not follow "
                f"from the log: it says {answer.answer}{at}. Episodes that were "
                "played again after it was given (--retry) have other scores; then it has no guarantee any more."
            )
    struck = sum(void.agent in asked.frozen.agents and asked.counts(void.suite) for void in voids)
    if struck:
        found.append(
            f"{many(struck, 'episode was', 'episodes were')} counted in the answers, and excluded when their scores "
            "were known. They go on counting here: excluding them would void the guarantee."
        )
    return found


def read_question(run: Path, manifest: Manifest, episodes: Iterable[EpisodeResult]) -> RunQuestion | None:
    """The question of a run, answered from its episodes; None if it asks none. Raises CorruptLogError."""
    frozen = read_frozen(run)
    if frozen is None:
        return None
    _check(frozen, manifest)
    asked = question_of(manifest, frozen)
    asked.add_all(episodes)
    asked.look()
    return asked


def _check(frozen: FrozenQuestion, manifest: Manifest) -> None:
    """Raises CorruptLogError for a question of another run, or of an evidence that this evalkit does not make."""
    stored = () if frozen.gate is None else frozen.gate.stored
    gone = {*frozen.agents}.difference(manifest.agents, stored)
    gone |= {suite.name for suite in frozen.suites if suite.name not in manifest.suites}
    gone |= {suite.name for suite in frozen.suites if manifest.suites[suite.name].digest != suite.digest} - gone
    if gone:
        raise CorruptLogError(
            f"The question names {min(gone)!r}, which is not of this run. Restore question/ from a copy."
        )
    if frozen.version != VERSION or frozen.bets != BETS_VERSION:
        raise CorruptLogError(
            f"The question has version {frozen.version} and evidence {frozen.bets}; this evalkit knows {VERSION} and "
            f"{BETS_VERSION}. Use the evalkit that wrote the run."
        )
