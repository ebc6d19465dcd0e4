"""Suites whose queries models check or write, runs whose texts they judge: errands from them, suites from answers."""

from collections.abc import Sequence
from pathlib import Path

from evalkit.envs.errand import errand
from evalkit.envs.lines import load_varied
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, UsageError
from evalkit.spec.suites import environment_of, find_suite, read_lines
from evalkit.tasks.answers import first_texts, read_answers
from evalkit.tasks.errands import ASKED, Applied, Line, coverage_line, distinct
from evalkit.tasks.record import queries_of, tasks_of, with_queries


def imported_suite(
    files: Sequence[Path], *, length: int | None, seed: int | None, alternatives: int | None
) -> tuple[list[Line], int]:
    """(the lines of a suite of these files' queries, how many of their texts break off). Raises UsageError."""
    env, queries = with_queries()
    lines, cut = queries.read(files, length=length, seed=seed, alternatives=alternatives)
    return [env.describe(env.load(line)) for line in lines], cut


def asked_about(suite: str, kind: str) -> list[Line]:
    """The errands of a suite's queries, each once. Raises UsageError."""
    if kind not in ASKED:
        raise UsageError(f"--for: must be {' or '.join(ASKED)}, not {kind!r}.")
    lines = _lines(suite)
    return distinct(queries_of(_environment(lines, suite), suite).errands(kind, lines, suite)) if lines else []


def answered_suite(run: Path, suite: str) -> tuple[list[Line], Applied, int]:
    """(lines of the suite that the answers of an errand run make of another one, the outcome of which line, how many
    lines there were).

    Raises UsageError if nothing would be left, or the run judged texts; RunError where it is not a finished errand run.
    """
    kind, answers = read_answers(run)
    if kind in errand.JUDGED:
        raise UsageError(f"{run} judged texts of a run: use it with `evalkit report RUN --judged {run}`.")
    lines, applied = _lines(suite), Applied(lines=())
    if lines:
        applied = queries_of(_environment(lines, suite), suite).apply(kind, lines, answers, suite)
    if not applied.lines:
        raise UsageError(f"{suite}: no query would remain; nothing was written. Is {run} about this suite?")
    described = [_described(line, f"{suite}: {line['id']}") for line in applied.lines]
    return described, applied, len(lines)


def judged_texts(run: Path, *, listed: bool) -> tuple[str, list[Line], int]:
    """(kind, errands, how many texts) of a run whose plans a judge will count.

    `listed`: whatever a plan lists as a path counts. Raises RunError if there is nothing to judge.
    """
    texts = first_texts(run)
    if not texts:
        known = dict.fromkeys(tasks_of(name).judged_are for name in ENVIRONMENTS)
        raise RunError(
            f"{run} has nothing to judge: no {' and no '.join(filter(None, known))} has ended with a text of the agent."
        )
    kind = errand.ENUMERATION if listed else errand.COVERAGE
    return kind, distinct(coverage_line(episode, text, kind) for episode, text in texts.items()), len(texts)


def _lines(suite: str) -> list[Line]:
    return list(read_lines(find_suite(suite)))


def _environment(lines: Sequence[Line], suite: str) -> str:
    return environment_of(lines[0], suite).name


def _described(line: Line, where: str) -> Line:
    return environment_of(line, where).describe(load_varied(environment_of(line, where), line, {}, where))
