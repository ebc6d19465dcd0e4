"""Suites whose queries models check or write, runs whose texts they judge: errands from them, suites from answers."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.errand import errand
from evalkit.envs.errand.errand import written
from evalkit.envs.lines import load_varied
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import CorruptLogError, RunError, UsageError
from evalkit.files import new_file, write_new
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.replies import decode_reply
from evalkit.results.endings import ended_rows
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.spec.suites import environment_of, find_suite, read_lines
from evalkit.spec.sweep import checked_name
from evalkit.store.reading.reader import replay_rows
from evalkit.tasks.by_hand import PATHS, HandCheck
from evalkit.tasks.record import (
    ASKED,
    AppliedSuite,
    ErrandAnswer,
    Line,
    ReadFiles,
    coverage_line,
    distinct,
    errand_digest,
    queries_of,
    tasks_of,
    with_queries,
)

FILE_ENDING = ".json"
"""Of a file of queries; a suite's ends in .jsonl."""


def read_suite(names: Sequence[str], seed: int | None = None) -> ReadFiles:
    """What one suite holds, or files of queries (their names end in .json) as one suite; `seed`: of files, None leaves
    the environment's. Raises UsageError.
    """
    if all(name.endswith(FILE_ENDING) for name in names):
        return _read_files(names, seed=seed)
    if len(names) > 1:
        raise UsageError(f"{', '.join(names)}: expected one suite, or files of queries, whose names end in .json.")
    if seed is not None:
        raise UsageError(f"--seed: {names[0]} is a suite, whose lines have a seed each; leave it out.")
    return ReadFiles(lines=tuple(read_lines(find_suite(names[0]))))


def _read_files(names: Sequence[str], **given: int | None) -> ReadFiles:
    return with_queries().read([Path(name).expanduser() for name in names], **given)


def imported_suite(files: Sequence[str], **given: int | None) -> tuple[list[Line], ReadFiles]:
    """(the lines of a suite of these files' queries, checked; what the files say besides). Raises UsageError."""
    held = _read_files(files, **given)
    return [_described(line, line["id"]) for line in held.lines], held


def sound_suite(names: Sequence[str], seed: int | None = None) -> tuple[list[Line], AppliedSuite, int]:
    """(lines without those whose wishes conflict, the outcome of which line, how many lines there were), of one suite
    or of files of queries. Raises UsageError if nothing would be left.
    """
    held, where = read_suite(names, seed=seed), names[0]
    applied = AppliedSuite(lines=())
    if held.lines:
        applied = queries_of(_environment(held.lines, where), where).sound(held.lines, held.conflicts, where)
    return _checked(applied, where), applied, len(held.lines)


def asked_about(suite: str, kind: str) -> list[Line]:
    """The errands of a suite's queries, each once. Raises UsageError."""
    if kind not in ASKED:
        raise UsageError(f"--for: must be {' or '.join(ASKED)}, not {kind!r}.")
    lines = read_suite([suite]).lines
    return distinct(queries_of(_environment(lines, suite), suite).errands(kind, lines, suite)) if lines else []


def answered_suite(run: Path, suite: str, seed: int | None = None) -> tuple[list[Line], AppliedSuite, int]:
    """(lines of the suite that the answers of an errand run make of another one, the outcome of which line, how many
    lines there were).

    Raises UsageError if nothing would be left, or the run judged texts; RunError where it is not a finished errand run.
    """
    kind, answers = read_answers(run)
    if kind in errand.JUDGED:
        raise UsageError(f"{run} judged texts of a run: use it with `evalkit report RUN --judged {run}`.")
    lines, applied = read_suite([suite], seed=seed).lines, AppliedSuite(lines=())
    if lines:
        applied = queries_of(_environment(lines, suite), suite).apply[kind](lines, answers, suite)
    return _checked(applied, suite, f" Is {run} about this suite?"), applied, len(lines)


def checked_by_hand(name: str, run: Path | None, judge: Path | None) -> list[HandCheck]:
    """What people can be asked about a suite, or about the plans in a run: then a judge's counts are the right ones.

    Raises UsageError for a suite without queries, RunError for a run without plans.
    """
    if run is None:
        lines = read_suite([name]).lines
        queries = queries_of(_environment(lines, name), name) if lines else None
        return [
            HandCheck(
                id=str(line["id"]),
                stratum=f"{line.get('task', '')}",
                text=line["query"]["text"],
                asked=queries.asked(line, name) if queries else {},
            )
            for line in lines
        ]
    texts = first_texts(run)
    counts = judged_paths(run, judge)[1] if judge is not None else {}
    suites = {row["episode"]: row["suite"] for row in ended_rows(run, _KEYS)}
    return [
        HandCheck(id=episode, stratum=suites[episode], text=text, asked={PATHS: ((), str(counts.get(episode, "")))})
        for episode, text in texts.items()
    ]


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


def _checked(applied: AppliedSuite, suite: str, doubt: str = "") -> list[Line]:
    if not applied.lines:
        raise UsageError(f"{suite}: no query would remain; nothing was written.{doubt}")
    return [_described(line, f"{suite}: {line['id']}") for line in applied.lines]


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


# The texts of a run that a model is asked about, and the answers of an errand run: both are read from logs.

_KEYS = ("episode", "suite", "instance", "agent", "replicate", "ending")


def first_texts(run: Path) -> dict[str, str]:
    """By episode: the first text that the agent wrote in it, of every episode that can be judged and has ended.

    Episodes without any text, or of a single reply, are left out: no coverage is told of them. Raises RunError for what
    is not a run, CorruptLogError for a damaged log.
    """
    manifest = read_manifest(run)
    static = {
        (suite.name, instance.id)
        for suite in manifest.suites.values()
        for instance in suite.instances
        if (judged := tasks_of(suite.environment).judged) is not None and judged(instance.line)
    }
    ended = [row["episode"] for row in ended_rows(run, _KEYS) if (row["suite"], row["instance"]) in static]
    rows = replay_rows(run, ended)
    by_episode: dict[str, str] = {}
    for episode in ended:
        episode_rows = rows[episode]
        texts = (decode_reply(row.reply).text for row in episode_rows if row.reply is not None)
        text = next((text for text in texts if text.strip()), "")
        if text and len(episode_rows) > 1:
            by_episode[episode] = text
    return by_episode


def read_answers(run: Path) -> tuple[str, dict[str, ErrandAnswer]]:
    """(kind of errand, answers by the errand's digest) of a finished errand run.

    Raises RunError if the run holds no errands, or several kinds, or several answers to one, or is not finished.
    """
    manifest = read_manifest(run)
    kind, digests = _kind(run, manifest), _digests(manifest)
    ended = [row for row in ended_rows(run, _KEYS) if (row["suite"], row["instance"]) in digests]
    remaining = len(digests) - len({(row["suite"], row["instance"]) for row in ended})
    if remaining:
        raise RunError(
            f"{run}: {remaining:,} of {len(digests):,} errands have no answer yet. Finish it with `evalkit run`."
        )
    rows = replay_rows(run, [row["episode"] for row in ended])
    answers_by_digest: dict[str, ErrandAnswer] = {}
    for row in ended:
        last = rows[row["episode"]][-1]
        if last.reply is None:
            answer = ErrandAnswer(outcome=row["ending"])
        else:
            facts = _facts(last.facts, row["episode"])
            text = written(decode_reply(last.reply).text) if kind == errand.REQUIREMENT else ""
            answer = ErrandAnswer(
                outcome=facts["outcome"], value=facts.get("value"), text=text, truncated=bool(facts.get("truncated"))
            )
        answers_by_digest[digests[row["suite"], row["instance"]]] = answer
    return kind, answers_by_digest


def _kind(run: Path, manifest: Manifest) -> str:
    suites = [suite for suite in manifest.suites.values() if suite.environment == errand.NAME]
    kinds = {instance.line.get("kind") for suite in suites for instance in suite.instances}
    if not kinds:
        raise RunError(
            f"{run} is not an errand run: start one with `evalkit tools judge RUN` or `evalkit tools queries ask "
            "SUITE`, then play it."
        )
    players = [agent.name for agent in manifest.agents.values() if errand.NAME in agent.packs]
    if len(kinds) > 1 or len(players) > 1 or manifest.replicates > 1:
        raise RunError(
            f"{run}: each errand needs one answer: expected one kind, one agent and one replicate, got "
            f"{len(kinds)} kinds, {len(players)} agents and {manifest.replicates} replicates."
        )
    return str(kinds.pop())


def _digests(manifest: Manifest) -> dict[tuple[str, str], str]:
    """By suite and instance: the digest of the errand."""
    return {
        (suite.name, instance.id): instance.digest
        for suite in manifest.suites.values()
        if suite.environment == errand.NAME
        for instance in suite.instances
    }


def _facts(raw: bytes, episode: str) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = orjson.loads(raw)
    except orjson.JSONDecodeError as flaw:
        raise CorruptLogError(f"episode {episode}: logged facts are not JSON ({flaw}).") from flaw
    return facts


def judged_paths(run: Path, judge_run: Path) -> tuple[str, dict[str, int], int]:
    """(what was counted, one of `errand.JUDGED`; paths by episode of `run`; how many of its texts have no readable
    count), from a finished judge run.

    Raises RunError if `judge_run` is no such run, or counted nothing of this run.
    """
    kind, answers = read_answers(judge_run)
    if kind not in errand.JUDGED:
        raise RunError(
            f"{judge_run} is a run of {kind} errands; --judged needs a judge's run: `evalkit tools judge {run}`."
        )
    texts = first_texts(run)
    paths: dict[str, int] = {}
    for episode, text in texts.items():
        answer = answers.get(errand_digest(coverage_line(episode, text, kind)))
        if answer is not None and answer.outcome == "ok" and answer.value is not None:
            paths[episode] = int(answer.value)
    if texts and not paths:
        raise RunError(f"{judge_run} has no count for a text of {run}: it judged another run.")
    return kind, paths, len(texts) - len(paths)
