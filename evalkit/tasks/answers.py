"""The texts of a run that a model is asked about, and the answers of an errand run: both are read from logs.

Each environment makes its own errands, and its own suites from the answers (`tasks/record.py`).
"""

from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.errand import errand
from evalkit.envs.errand.errand import written
from evalkit.errors import CorruptLogError, RunError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.replies import decode_reply
from evalkit.results.endings import ended_rows
from evalkit.store.reading.reader import replay_rows
from evalkit.tasks.record import ErrandAnswer, coverage_line, errand_digest, tasks_of

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
    owed = len(digests) - len({(row["suite"], row["instance"]) for row in ended})
    if owed:
        raise RunError(f"{run}: {owed:,} of {len(digests):,} errands have no answer yet. Finish it with `evalkit run`.")
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
