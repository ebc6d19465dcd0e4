"""Suites whose queries models check or write, runs whose texts they judge: errands from them, suites from answers."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from evalkit.envs.errand import errand
from evalkit.envs.lines import load_varied
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, UsageError
from evalkit.files import new_file, write_new
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.spec.suites import environment_of, find_suite, read_lines
from evalkit.spec.sweep import checked_name
from evalkit.tasks.answers import first_texts, read_answers
from evalkit.tasks.record import ASKED, Applied, Line, coverage_line, distinct, queries_of, tasks_of, with_queries


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


# Suites of errands, and the sweeps that play them.

WRITERS_TEMPERATURE = 0.6
"""As in the reference; the others are asked at the environment's 0."""


def write_errands(
    kind: str, lines: Sequence[Line], *, name: str, suite: str, model: str, about: str
) -> tuple[Path, Path]:
    """Write a suite of errands and its sweep, and return their paths. Either both are written or none.

    Raises UsageError for wrong names, models and amounts, if there is nothing to ask, and if the files exist.
    """
    checked_name(name, "--name", "/:=")
    if not lines:
        raise UsageError("There is nothing to ask about; nothing was written.")
    suite_path = new_file(suite, ".jsonl", "a suite's file")
    sweep_path = new_file(f"runs/{name}.toml", ".toml", "a sweep's file")
    text = sweep_text(name, kind, model, suite_path, about)
    write_new(suite_path, suite_text(lines))
    write_new(sweep_path, text)
    return suite_path, sweep_path


def suite_text(lines: Iterable[Line]) -> str:
    """Lines as the text of a suite's file."""
    return "".join(f"{orjson.dumps(dict(line)).decode()}\n" for line in lines)


def sweep_text(name: str, kind: str, model: str, suite: Path, about: str) -> str:
    """The sweep that plays a suite of errands. `model`: provider and model with a slash between.

    Raises UsageError if the provider is not known, or lists no such model.
    """
    provider_name, _, model_name = model.partition("/")
    if not model_name:
        raise UsageError(f"--model: {model!r}: expected PROVIDER/MODEL, as in `openai/gpt-5`.")
    listed_model = find_model(read_provider(provider_name), model_name)
    rows = [f"# {about}", f"name = {json.dumps(name)}"]
    role = {errand.CONFLICT: "validator", errand.REQUIREMENT: "writer"}.get(kind, "judge")
    rows += ["", "[[agents]]", f'name = "{role}"', f"provider = {json.dumps(provider_name)}"]
    rows.append(f"model = {json.dumps(model_name)}")
    if kind == errand.REQUIREMENT and "temperature" not in listed_model.quirks.refuses:
        rows.append(f"temperature = {WRITERS_TEMPERATURE}")
    return "\n".join([*rows, "", "[[suites]]", f"name = {json.dumps(suite.as_posix())}", ""])
