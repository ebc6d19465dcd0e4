"""`--format inspect`: Inspect AI's log files (`.eval`, log version 2), one an agent and suite; written without Inspect.

Source: the format as `inspect_ai` 0.3.285 reads it. A file is a zip of `header.json`, `summaries.json` and one file a
sample; an episode is a sample, its replicate an epoch. The chats of all periods follow one another in a sample's
messages, each message marked with its period, for Inspect knows one conversation a sample. A request refers to what it
was sent by places in a pool of messages, so that a log does not grow with the square of a chat.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from evalkit.dialogue import Tool
from evalkit.envs.table import is_litmus
from evalkit.frozen.manifest import ManifestAgent
from evalkit.money import usd_number
from evalkit.report.exports.chats import Chat, ChatEntry, Plain, chats, episode_json, tokens
from evalkit.report.exports.episodes import ExportChoice, ExportedEpisode, stream
from evalkit.report.scores import by_instance
from evalkit.results.cells import Cell
from evalkit.results.episodes import Environments, EpisodeResult
from evalkit.stats.intervals import mean_of_instances
from evalkit.store.folder import new_folder
from evalkit.version import __version__

LOG_VERSION = 2
OPEN_FILES = 200
"""Logs that are written in one pass over the run."""
SETTINGS = ("temperature", "max_tokens", "top_p")
STOPS = {"stop": "stop", "tool_calls": "tool_calls", "length": "max_tokens", "content_filter": "content_filter"}
CHOICES = {"required": "any", "none": "none"}
"""Inspect's words for `tool_choice`, where they are not `auto`."""
SUMMARY = ("id", "epoch", "target", "scores", "model_usage", "started_at", "completed_at", "uuid", "turn_count")
"""What of a sample its summary repeats."""
DEEPEST = 100
"""Brackets in a call's arguments beyond which they stay text: readers bound how deep JSON may nest."""


@dataclass(slots=True)
class _Log:
    """One file while it is written."""

    cell: Cell
    file: ZipFile
    summaries: list[Plain] = field(default_factory=list)
    tokens: "Counter[str]" = field(default_factory=Counter)
    cost: int = 0


def write_inspect(chosen: ExportChoice, environments: Environments, out: Path) -> int:
    """Write a folder of logs, whole or not at all; how many episodes this evalkit does not reproduce.

    Raises UsageError where it exists, StorageError, CorruptLogError.
    """
    played = [cell for cell in chosen.cells if cell.ended]
    with new_folder(out) as folder:
        return sum(
            _write(chosen, played[first : first + OPEN_FILES], environments, folder)
            for first in range(0, len(played), OPEN_FILES)
        )


def _write(chosen: ExportChoice, cells: Sequence[Cell], environments: Environments, folder: Path) -> int:
    differing = 0
    with ExitStack() as stack:
        logs = {}
        for cell in cells:
            file = ZipFile(folder / _file_name(chosen, cell), "x", compression=ZIP_DEFLATED, compresslevel=4)
            logs[cell.agent, cell.suite.name] = _Log(cell=cell, file=stack.enter_context(file))
        for episode in stream(chosen, cells, environments):
            differing += not episode.reproduced
            _add(logs[episode.agent.name, episode.cell.suite.name], episode)
        for log in logs.values():
            log.file.writestr("summaries.json", orjson.dumps(log.summaries))
            log.file.writestr("header.json", orjson.dumps(_header(chosen, log)))
    return differing


def _add(log: _Log, episode: ExportedEpisode) -> None:
    sample = sample_json(episode)
    log.file.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", orjson.dumps(sample))
    more = {"input": "", "completed": True, "message_count": len(sample["messages"])}
    log.summaries.append({name: sample[name] for name in SUMMARY} | more)
    log.tokens.update(tokens(episode.rows))
    log.cost += episode.result.cost


def sample_json(episode: ExportedEpisode) -> Plain:
    """An episode as a sample of Inspect's."""
    result, rows, model = episode.result, episode.rows, model_name(episode.agent)
    messages, events, began_s = list[Plain](), list[Plain](), rows[0]["started_at"]
    for chat in chats(episode):
        base = len(messages)
        for number, entry in enumerate(chat.entries):
            messages.append(message_json(entry, f"{result.id}-{chat.period}-{number}", chat.period))
        span = {"span_id": f"{result.id}-{base}"}
        begin, end = ({"event": f"span_{end}", "id": span["span_id"]} for end in ("begin", "end"))
        events.append({**begin, "name": f"period {chat.period}", **_when(chat.rows[0], began_s), **span})
        events += [{**event, **span} for event in _events(episode, chat, messages, base, began_s)]
        events.append({**end, **_when(chat.rows[-1], began_s, ended=True), **span})
    scores, at = _scores(result), _when(rows[-1], began_s, ended=True)
    events += [{"event": "score", "score": score, "scorer": name, **at} for name, score in scores.items()]
    replies = [event["output"] for event in events if event["event"] == "model" and event["output"]["choices"]]
    return {
        "id": result.instance,
        "epoch": result.replicate + 1,
        "input": list(takewhile(lambda one: one["role"] in ("system", "user"), messages)),
        "target": "",
        "messages": messages,
        "events": [{**event, "uuid": f"{result.id}-e{number}"} for number, event in enumerate(events)],
        "events_data": {"messages": messages, "calls": []},
        "output": replies[-1] if replies else {"model": model, "choices": []},
        "scores": scores,
        "metadata": episode_json(episode),
        "model_usage": {model: usage_of(tokens(rows), result.cost)},
        "started_at": time_of(began_s),
        "completed_at": at["timestamp"],
        "uuid": result.id,
        "turn_count": len(replies),
    }


def message_json(entry: ChatEntry, name: str, period: int) -> Plain:
    """A message as Inspect has it; `name` is its id."""
    message, row = entry.message, entry.row
    fields: Plain = {"id": name, "role": message.role, "content": message.text, "metadata": {"period": period}}
    if entry.thoughts is not None and (entry.thoughts.text or entry.thoughts.hidden):
        thought = {"type": "reasoning", "reasoning": entry.thoughts.text, "redacted": not entry.thoughts.text}
        fields["content"] = [thought, *([{"type": "text", "text": message.text}] if message.text else [])]
    if row is not None:
        fields |= {"source": "generate", "model": row["served_model"] or None}
        fields["metadata"] |= {"step": row["step"], "finish": row["finish"], "cost_pico_usd": row["cost"]}
    if message.calls:
        fields["tool_calls"] = [
            {"id": call.id, "function": call.name, "type": "function", **arguments_of(call.arguments)}
            for call in message.calls
        ]
    if message.role == "tool":
        fields |= {"tool_call_id": message.call_id, "function": entry.tool}
    return fields


def arguments_of(text: str) -> Plain:
    """A call's arguments as Inspect wants them, an object; what is none is kept as text, with the reason."""
    shallow = text.count("[") + text.count("{") <= DEEPEST
    try:
        value = orjson.loads(text) if shallow else None
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return {"arguments": value}
    return {"arguments": {"text": text}, "parse_error": "The arguments are not a JSON object, or nest too deeply."}


def _events(
    episode: ExportedEpisode, chat: Chat, messages: Sequence[Plain], base: int, began_s: float
) -> Iterator[Plain]:
    """What was asked and answered in a chat, whose messages stand from `base` on."""
    offers, tools, at = dict(chat.changes), _tools(chat.tools), _when(chat.rows[0], began_s)
    for place, entry in enumerate(chat.entries):
        tools = _tools(offers[place]) if place in offers else tools
        message = messages[base + place]
        if entry.row is not None:
            sent = {"input_refs": [(base, base + place)], "tools": tools}
            yield {**_request(episode, entry.row, message), **sent, **_when(entry.row, began_s)}
            at = _when(entry.row, began_s, ended=True)
            facts = orjson.loads(entry.row["facts"]) if entry.row["facts"] else {}
            yield {"event": "info", "source": "evalkit", "data": facts, **at}
        elif entry.message.role == "tool":
            call = next((call for call in entry.calls if call.id == entry.message.call_id), None)
            arguments = {} if call is None else arguments_of(call.arguments)["arguments"]
            about = {"id": entry.message.call_id, "function": entry.tool, "arguments": arguments}
            yield {"event": "tool", **about, "result": entry.message.text, "message_id": message["id"], **at}
    for row in chat.rows:
        if row["reply"] is None:
            sent = {"input_refs": [(base, base + len(chat.entries))], "tools": tools}
            yield {**_request(episode, row, None), **sent, **_when(row, began_s)}


def _request(episode: ExportedEpisode, row: Mapping[str, Any], reply: Plain | None) -> Plain:
    """A request and what came back; without a `reply`, the provider refused it."""
    model, refused = model_name(episode.agent), {} if reply is not None else {"error": row["ending"] or "refused"}
    output: Plain = {"model": row["served_model"] or model, "choices": [], "time": row["latency_s"], **refused}
    if reply is not None:
        output["choices"] = [{"message": reply, "stop_reason": STOPS.get(row["finish"], "unknown")}]
        output["usage"] = usage_of(tokens([row]), row["cost"])
    choice = str(episode.agent.sampling[episode.result.environment].get("tool_choice", ""))
    return {
        "event": "model",
        "model": model,
        "input": [],
        "tool_choice": CHOICES.get(choice, "auto"),
        "config": {},
        "output": output,
        "retries": row["attempts"].count(","),
        "working_time": row["latency_s"],
        "metadata": {"step": row["step"], "period": row["period"], "queue_s": row["queue_s"]},
        **refused,
    }


def _when(row: Mapping[str, Any], began_s: float, *, ended: bool = False) -> Plain:
    """When a request was sent or had `ended`, by the clock and in seconds since its episode began."""
    at_s = row["started_at"] + (row["latency_s"] if ended else 0.0)
    return {"timestamp": time_of(at_s), "working_start": max(0.0, at_s - began_s)}


def time_of(seconds: float) -> str:
    """A time as Inspect writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def usage_of(used: Mapping[str, int], cost: int) -> Plain:
    """Inspect counts input that was read from or written to a cache apart."""
    return {
        "input_tokens": used["in"] - used["cached_read"] - used["cached_write"],
        "output_tokens": used["out"],
        "total_tokens": used["in"] + used["out"],
        "input_tokens_cache_read": used["cached_read"],
        "input_tokens_cache_write": used["cached_write"],
        "reasoning_tokens": used["reasoning"],
        "total_cost": usd_number(cost),
    }


def _tools(tools: Sequence[Tool]) -> list[Plain]:
    """Tools as Inspect has them."""
    empty: Plain = {"properties": {}, "required": []}
    return [
        {"name": tool.name, "description": tool.description, "parameters": {**empty, **tool.parameters}}
        for tool in tools
    ]


def _scores(result: EpisodeResult) -> Plain:
    score = {"value": result.score, "explanation": f"ended: {result.ending}", "metadata": dict(result.metrics)}
    return {"score": score} if is_litmus(result.environment) else {"score": score, "solved": {"value": result.solved}}


def model_name(agent: ManifestAgent) -> str:
    """`provider/model`, as Inspect names models; a policy is a model of evalkit's."""
    return f"evalkit/{agent.policy}" if agent.policy else f"{agent.provider}/{agent.model}"


def _file_name(chosen: ExportChoice, cell: Cell) -> str:
    """As Inspect names its logs: time, task, id. The id keeps names apart that differ in other characters alone."""
    time = datetime.fromtimestamp(chosen.manifest.created_at, UTC).strftime("%Y-%m-%dT%H-%M-%S-00-00")
    suite, agent = (re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60] for name in (cell.suite.name, cell.agent))
    return f"{time}_{suite}-{agent}_{_id(chosen, cell)}.eval"


def _id(chosen: ExportChoice, *parts: Cell) -> str:
    name_parts = [chosen.manifest.name, chosen.manifest.created_at, *((cell.agent, cell.suite.name) for cell in parts)]
    return hashlib.sha256(orjson.dumps(name_parts)).hexdigest()[:22]


def _header(chosen: ExportChoice, log: _Log) -> Plain:
    manifest, cell, suite = chosen.manifest, log.cell, log.cell.suite
    agent = manifest.agents[cell.agent]
    sampling = agent.sampling[suite.environment]
    names = [instance.id for instance in suite.instances]
    return {
        "version": LOG_VERSION,
        "status": "success" if not cell.remaining else "cancelled",
        "eval": {
            "eval_id": _id(chosen, cell),
            "run_id": _id(chosen),
            "created": time_of(manifest.created_at),
            "task": suite.name,
            "task_version": suite.environment_version,
            "task_args": dict(suite.axes),
            "dataset": {"name": suite.name, "samples": len(names), "sample_ids": names},
            "model": model_name(agent),
            "model_generate_config": {name: sampling[name] for name in SETTINGS if sampling.get(name) is not None},
            "config": {"epochs": manifest.replicates},
            "metadata": {
                "run": manifest.name,
                "agent": agent.name,
                "prompts": cell.pack,
                "environment": suite.environment,
                "marks": list(agent.marks),
                "remaining": cell.remaining,
                "void": len(cell.voided),
                "exported_by": f"evalkit {__version__}",
            },
        },
        "results": _results(cell),
        "stats": {
            "started_at": min((one["started_at"] for one in log.summaries), default=""),
            "completed_at": max((one["completed_at"] for one in log.summaries), default=""),
            "model_usage": {model_name(agent): usage_of(log.tokens, log.cost)},
        },
    }


def _results(cell: Cell) -> Plain:
    """The means that the report gives: over the instances, of the episodes that it stands on."""
    values: dict[str, list[tuple[EpisodeResult, float | None]]] = {
        "score": [(episode, episode.score) for episode in cell.prefix],
        "solved": [(episode, float(episode.solved)) for episode in cell.prefix],
    }
    if is_litmus(cell.suite.environment):
        del values["solved"]
    scored = {"scored_samples": len(cell.prefix), "unscored_samples": cell.outside}
    return {
        "total_samples": cell.planned,
        "completed_samples": cell.ended,
        "scores": [
            {"name": name, "scorer": name, **scored, "metrics": {"mean": {"name": "mean", "value": _mean(given)}}}
            for name, given in values.items()
            if given
        ],
    }


def _mean(values: Sequence[tuple[EpisodeResult, float | None]]) -> float:
    return mean_of_instances(by_instance(values))
