"""`--format inspect`: Inspect AI's log files (`.eval`, log version 2), one an agent and suite; written without Inspect.

Source: the format as `inspect_ai` 0.3.285 reads it. A file is a zip of `header.json`, `summaries.json` and one file a
sample; an episode is a sample, its replicate an epoch. The chats of all periods follow one another in a sample's
messages, each message marked with its period, for Inspect knows one conversation a sample. `inspect_events.py` makes
the events.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from evalkit import __version__
from evalkit.envs.known import is_litmus
from evalkit.report.exports.chats import ChatEntry, Plain, chats, episode_json, tokens, tools_json
from evalkit.report.exports.episodes import Chosen, Exported, stream
from evalkit.report.exports.inspect_events import SETTINGS, arguments_of, output_of, time_of, transcript, usage_of
from evalkit.report.scores import by_instance
from evalkit.results.cells import Cell
from evalkit.results.episodes import Environments, EpisodeResult
from evalkit.stats.bootstrap import mean_of_instances
from evalkit.store.folder import new_folder
from evalkit.store.manifest import ManifestAgent

LOG_VERSION = 2
OPEN_FILES = 200
"""Logs that are written in one pass over the run."""


@dataclass(slots=True)
class _Log:
    """One file while it is written."""

    cell: Cell
    file: ZipFile
    summaries: IO[bytes]
    """One line a sample; on the disk, for a log may have a hundred thousand."""
    samples: int = 0
    tokens: "Counter[str]" = field(default_factory=Counter)
    cost: int = 0
    first_s: float = float("inf")
    last_s: float = 0.0


def write_inspect(chosen: Chosen, environments: Environments, out: Path) -> int:
    """Write a folder of logs, whole or not at all; how many episodes this evalkit does not reproduce.

    Raises UsageError where it exists, StorageError, CorruptLogError.
    """
    differing = 0
    played = [cell for cell in chosen.cells if cell.ended]
    with new_folder(out) as folder:
        for first in range(0, len(played), OPEN_FILES):
            differing += _write(chosen, played[first : first + OPEN_FILES], environments, folder)
    return differing


def _write(chosen: Chosen, cells: Sequence[Cell], environments: Environments, folder: Path) -> int:
    differing = 0
    with ExitStack() as stack:
        logs = {}
        for cell in cells:
            path = folder / _file_name(chosen, cell)
            file = stack.enter_context(ZipFile(path, "x", compression=ZIP_DEFLATED, compresslevel=4))
            logs[cell.agent, cell.suite.name] = _Log(
                cell=cell, file=file, summaries=stack.enter_context(TemporaryFile())
            )
        for episode in stream(chosen, cells, environments):
            differing += not episode.reproduced
            _add(logs[episode.agent.name, episode.cell.suite.name], episode)
        for log in logs.values():
            log.summaries.seek(0)
            with log.file.open("summaries.json", "w", force_zip64=True) as member:
                for number, line in enumerate(log.summaries):
                    member.write((b"," if number else b"[") + line)
                member.write(b"]" if log.samples else b"[]")
            log.file.writestr("header.json", orjson.dumps(_header(chosen, log)))
    return differing


def _file_name(chosen: Chosen, cell: Cell) -> str:
    """As Inspect names its logs: time, task, id. The id keeps names apart that differ in other characters alone."""
    time = datetime.fromtimestamp(chosen.manifest.created_at, UTC).strftime("%Y-%m-%dT%H-%M-%S-00-00")
    return f"{time}_{_plain(cell.suite.name)}-{_plain(cell.agent)}_{_id(chosen, cell)}.eval"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60]


def _id(chosen: Chosen, *parts: Cell) -> str:
    name_parts = [chosen.manifest.name, chosen.manifest.created_at, *((cell.agent, cell.suite.name) for cell in parts)]
    return hashlib.sha256(orjson.dumps(name_parts)).hexdigest()[:22]


def _add(log: _Log, episode: Exported) -> None:
    sample = sample_json(episode)
    log.file.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", orjson.dumps(sample))
    kept = ("id", "epoch", "target", "scores", "model_usage", "started_at", "completed_at", "total_time")
    summary = {name: sample[name] for name in (*kept, "working_time", "uuid", "turn_count")}
    summary |= {"input": "", "completed": True, "message_count": len(sample["messages"])}
    log.summaries.write(orjson.dumps(summary, option=orjson.OPT_APPEND_NEWLINE))
    log.samples += 1
    log.tokens.update(tokens(episode.rows))
    log.cost += episode.result.cost
    log.first_s = min(log.first_s, *(row["started_at"] for row in episode.rows))
    log.last_s = max(log.last_s, *(row["started_at"] + row["latency_s"] for row in episode.rows))


def sample_json(episode: Exported) -> Plain:
    """An episode as a sample of Inspect's."""
    result, rows = episode.result, episode.rows
    episode_chats = list(chats(episode))
    messages = [
        message_json(entry, f"{result.id}-{chat.period}-{number}", chat.period)
        for chat in episode_chats
        for number, entry in enumerate(chat.entries)
    ]
    began = min(row["started_at"] for row in rows)
    ended = max(row["started_at"] + row["latency_s"] for row in rows)
    about = episode_json(episode)
    return {
        "id": result.instance,
        "epoch": result.replicate + 1,
        "input": _opening(messages),
        "target": "",
        "messages": messages,
        **transcript(episode, episode_chats, messages, model_name(episode.agent)),
        "output": _output(messages, rows, model_name(episode.agent)),
        "scores": _scores(result),
        "metadata": {**about, "tools": tools_json(episode_chats[0].tools) if episode_chats else []},
        "model_usage": {model_name(episode.agent): usage_of(tokens(rows), result.cost)},
        "started_at": time_of(began),
        "completed_at": time_of(ended),
        "total_time": ended - began,
        "working_time": result.latency_s,
        "uuid": result.id,
        "turn_count": sum(row["reply"] is not None for row in rows),
    }


def message_json(entry: ChatEntry, name: str, period: int) -> Plain:
    """A message as Inspect has it; `name` is its id."""
    message, row = entry.message, entry.row
    fields: Plain = {"id": name, "role": message.role, "content": message.text, "metadata": {"period": period}}
    if entry.thoughts is not None and (entry.thoughts.text or entry.thoughts.hidden):
        thought = {"type": "reasoning", "reasoning": entry.thoughts.text, "redacted": not entry.thoughts.text}
        fields["content"] = [thought, *([{"type": "text", "text": message.text}] if message.text else [])]
    if row is not None:
        fields["source"] = "generate"
        fields["model"] = row["served_model"] or None
        fields["metadata"] |= {"step": row["step"], "finish": row["finish"], "cost_pico_usd": row["cost"]}
    if message.calls:
        fields["tool_calls"] = [
            {"id": call.id, "function": call.name, "type": "function", **arguments_of(call.arguments)}
            for call in message.calls
        ]
    if message.role == "tool":
        fields |= {"tool_call_id": message.call_id, "function": entry.tool}
    elif row is None:
        fields["source"] = "input"
    return fields


def _opening(messages: Sequence[Plain]) -> list[Plain]:
    """What the first chat began with."""
    opening = []
    for message in messages:
        if message["role"] in ("assistant", "tool"):
            break
        opening.append(message)
    return opening


def _output(messages: Sequence[Plain], rows: Sequence[Mapping[str, Any]], model: str) -> Plain:
    """The last reply, which Inspect calls the sample's output."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    if last is None:
        return {"model": model, "choices": []}
    row = next(row for row in reversed(rows) if row["reply"] is not None)
    return output_of(last, row, model)


def _scores(result: EpisodeResult) -> Plain:
    score = {"value": result.score, "explanation": f"ended: {result.ending}", "metadata": dict(result.metrics)}
    return {"score": score} if is_litmus(result.environment) else {"score": score, "solved": {"value": result.solved}}


def _header(chosen: Chosen, log: _Log) -> Plain:
    cell = log.cell
    span = {"started_at": time_of(log.first_s), "completed_at": time_of(log.last_s)} if log.samples else {}
    return {
        "version": LOG_VERSION,
        "status": "success" if not cell.owed else "cancelled",
        "eval": _spec(chosen, cell),
        "plan": {"name": "evalkit", "steps": [{"solver": "evalkit", "params": {"prompts": cell.pack}}]},
        "results": _results(cell),
        "stats": {
            **span,
            "model_usage": {model_name(chosen.manifest.agents[cell.agent]): usage_of(log.tokens, log.cost)}
            if log.summaries
            else {},
        },
    }


def model_name(agent: ManifestAgent) -> str:
    """`provider/model`, as Inspect names models; a policy is a model of evalkit's."""
    return f"evalkit/{agent.policy}" if agent.policy else f"{agent.provider}/{agent.model}"


def _spec(chosen: Chosen, cell: Cell) -> Plain:
    manifest, suite = chosen.manifest, cell.suite
    agent = manifest.agents[cell.agent]
    sampling = agent.sampling[suite.environment]
    names = [instance.id for instance in suite.instances]
    return {
        "eval_id": _id(chosen, cell),
        "run_id": _id(chosen),
        "created": time_of(manifest.created_at),
        "task": suite.name,
        "task_id": _id(chosen, cell),
        "task_version": suite.environment_version,
        "task_args": dict(suite.axes),
        "task_args_passed": dict(suite.axes),
        "dataset": {
            "name": suite.name,
            "samples": len(names),
            "sample_ids": names,
            "shuffled": manifest.order.key is not None,
        },
        "model": model_name(agent),
        "model_generate_config": {name: sampling[name] for name in SETTINGS if sampling.get(name) is not None},
        "config": {"epochs": manifest.replicates},
        "packages": {"evalkit": manifest.evalkit},
        "tags": list(agent.tags),
        "metadata": {
            "run": manifest.name,
            "agent": agent.name,
            "prompts": cell.pack,
            "environment": suite.environment,
            "marks": list(agent.marks),
            "owed": cell.owed,
            "void": len(cell.voided),
            "exported_by": f"evalkit {__version__}",
        },
    }


def _results(cell: Cell) -> Plain:
    """The means that the report gives: over the instances, of the episodes that it stands on."""
    scores: list[tuple[EpisodeResult, float | None]] = [(episode, episode.score) for episode in cell.prefix]
    solved: list[tuple[EpisodeResult, float | None]] = [(episode, float(episode.solved)) for episode in cell.prefix]
    means = [] if is_litmus(cell.suite.environment) else [_mean("solved", cell, solved)]
    return {
        "total_samples": cell.planned,
        "completed_samples": cell.ended,
        "scores": [_mean("score", cell, scores), *means] if cell.prefix else [],
    }


def _mean(name: str, cell: Cell, values: Sequence[tuple[EpisodeResult, float | None]]) -> Plain:
    value = mean_of_instances(by_instance(values))
    return {
        "name": name,
        "scorer": name,
        "scored_samples": len(cell.prefix),
        "unscored_samples": cell.outside,
        "metrics": {"mean": {"name": "mean", "value": value}},
    }
