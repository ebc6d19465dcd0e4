"""`--format eee`: Every Eval Ever's schema, version 0.3.0: an aggregate and a file of samples for each agent and suite.

Source: the schema and the validator of the package `every-eval-ever` 0.3.0, which `tests/sdks` runs. Files lie where
its datastore wants them: `data/COLLECTION/DEVELOPER/MODEL/UUID.json`, and `UUID_samples.jsonl` beside it. What nobody
has told evalkit (who published, how the model is deployed) is `unknown`.
"""

import hashlib
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import orjson

from evalkit import __version__
from evalkit.envs.known import is_litmus, known, score_range
from evalkit.errors import UsageError
from evalkit.report.exports.chats import Chat, ChatEntry, Plain, chats, tokens
from evalkit.report.exports.episodes import Chosen, Exported, stream
from evalkit.report.scores import by_instance, interval_and_kind
from evalkit.results.cells import Cell
from evalkit.results.episodes import Environments
from evalkit.stats.bootstrap import mean_of_instances
from evalkit.store.disk import storage_errors
from evalkit.store.folder import new_folder
from evalkit.store.manifest import ManifestAgent

SCHEMA = "0.3.0"
OPEN_FILES = 200
"""Files that are written in one pass over the run."""
UNKNOWN = "unknown"
_NUMBERS = ("temperature", "max_tokens", "top_p")


@dataclass(slots=True)
class _EeePair:
    """The two files of a cell while they are written."""

    cell: Cell
    agent: ManifestAgent
    place: str
    """The aggregate's path without its ending."""
    evaluation: str
    samples: IO[bytes]
    checksum: Any = field(default_factory=hashlib.sha256)
    rows: int = 0
    tools: list[Plain] = field(default_factory=list)
    first_s: float = math.inf
    last_s: float = 0.0


def write_eee(chosen: Chosen, environments: Environments, out: Path) -> int:
    """Write a folder of records, completely or not at all; returns how many episodes this evalkit does not reproduce.

    Cells without an estimate are left out: a record needs a score. Raises UsageError if the folder exists or no cell
    has an estimate, StorageError, CorruptLogError.
    """
    estimated = [cell for cell in chosen.cells if cell.prefix]
    if not estimated:
        raise UsageError("None of the chosen agents and suites has an estimate yet, so there is no record to write.")
    differing = 0
    with new_folder(out) as folder:
        for first in range(0, len(estimated), OPEN_FILES):
            differing += _write(chosen, estimated[first : first + OPEN_FILES], environments, folder)
    return differing


def _write(chosen: Chosen, cells: Sequence[Cell], environments: Environments, folder: Path) -> int:
    differing = 0
    with ExitStack() as stack, storage_errors(folder):
        pairs = {}
        for cell in cells:
            agent = chosen.manifest.agents[cell.agent]
            place = _place(chosen, cell, agent)
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            samples = stack.enter_context((folder / f"{place}_samples.jsonl").open("xb"))
            pairs[cell.agent, cell.suite.name] = _EeePair(
                cell=cell, agent=agent, place=place, evaluation=_evaluation_id(chosen, cell, agent), samples=samples
            )
        for episode in stream(chosen, cells, environments):
            differing += not episode.reproduced
            _add(pairs[episode.agent.name, episode.cell.suite.name], episode)
        for pair in pairs.values():
            data = orjson.dumps(_aggregate(chosen, pair), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (folder / f"{pair.place}.json").write_bytes(data)
    return differing


def _place(chosen: Chosen, cell: Cell, agent: ManifestAgent) -> str:
    digest = hashlib.sha256(
        orjson.dumps([chosen.manifest.name, chosen.manifest.created_at, cell.agent, cell.suite.name])
    )
    name = uuid.UUID(bytes=digest.digest()[:16], version=4)
    developer, _, model = model_id(agent).partition("/")
    return f"data/{_part(f'evalkit-{cell.suite.environment}')}/{_part(developer)}/{_part(model)}/{name}"


def _part(name: str) -> str:
    """A name as a part of a path on every system."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:LONGEST_PART].strip(".-") or UNKNOWN
    return f"{plain}-" if plain == "data" or RESERVED.fullmatch(plain.partition(".")[0]) else plain


LONGEST_PART = 100
"""File systems hold names of up to 255 bytes, and a whole path of some hundreds; the file's own name tells models apart
whose names begin alike."""
RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)


def model_id(agent: ManifestAgent) -> str:
    """`developer/model`; of a model whose name says no developer, its provider is taken. A policy is evalkit's."""
    if agent.policy:
        return f"evalkit/{agent.policy}"
    return agent.model if "/" in agent.model else f"{agent.provider}/{agent.model}"


def _evaluation_id(chosen: Chosen, cell: Cell, agent: ManifestAgent) -> str:
    """Agents of one model differ in their settings, so the agent is part of it, like the run."""
    manifest = chosen.manifest
    return f"{cell.suite.name}/{model_id(agent)}/{manifest.name}/{cell.agent}/{manifest.created_at:.0f}"


def _add(pair: _EeePair, episode: Exported) -> None:
    episode_chats = list(chats(episode))
    line = orjson.dumps(sample_line(episode, episode_chats, pair.evaluation), option=orjson.OPT_APPEND_NEWLINE)
    pair.samples.write(line)
    pair.checksum.update(line)
    pair.rows += 1
    pair.first_s = min(pair.first_s, *(row["started_at"] for row in episode.rows))
    pair.last_s = max(pair.last_s, *(row["started_at"] + row["latency_s"] for row in episode.rows))
    if not pair.tools and episode_chats:
        pair.tools = [{"name": tool.name, "description": tool.description} for tool in episode_chats[0].tools]


def sample_line(episode: Exported, episode_chats: Sequence[Chat], evaluation: str) -> Plain:
    """An episode as a sample: its whole transcript, its score, its tokens."""
    result, suite = episode.result, episode.cell.suite
    entries = [entry for chat in episode_chats for entry in chat.entries]
    opening = next((entry.message.text for entry in entries if entry.message.role == "user"), "")
    used = tokens(episode.rows)
    return {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "model_id": model_id(episode.agent),
        "evaluation_name": suite.name,
        "evaluation_result_id": f"{evaluation}#score",
        "sample_id": result.instance,
        "sample_hash": hashlib.sha256(opening.encode()).hexdigest(),
        "interaction_type": "agentic",
        "input": {"raw": opening, "reference": []},
        "output": None,
        "messages": [_message(number, entry) for number, entry in enumerate(entries)],
        "answer_attribution": [],
        "evaluation": {
            "score": result.score,
            "is_correct": result.solved,
            "num_turns": max(1, sum(entry.message.role == "assistant" for entry in entries)),
            "tool_calls_count": sum(len(entry.message.calls) for entry in entries),
        },
        "token_usage": {
            "input_tokens": used["in"],
            "output_tokens": used["out"],
            "total_tokens": used["in"] + used["out"],
            "input_tokens_cache_write": used["cached_write"],
            "input_tokens_cache_read": used["cached_read"],
            "reasoning_tokens": used["reasoning"],
        },
        "performance": {"latency_ms": 1000 * result.latency_s},
        "error": None,
        "metadata": _texts(
            {
                "episode": result.id,
                "replicate": result.replicate,
                "stratum": result.stratum,
                "ending": result.ending,
                "used": episode.used,
                "periods": result.periods,
                "metrics": dict(result.metrics),
                "cost_pico_usd": result.cost,
                "reproduced": episode.reproduced,
            }
        ),
    }


def _message(number: int, entry: ChatEntry) -> Plain:
    message = entry.message
    fields: Plain = {"turn_idx": number, "role": message.role, "content": message.text}
    if entry.thoughts is not None and entry.thoughts.text:
        fields["reasoning_trace"] = entry.thoughts.text
    if message.calls:
        fields["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": _arguments(call.arguments)} for call in message.calls
        ]
    if message.role == "tool":
        fields["tool_call_id"] = [message.call_id]
    return fields


def _arguments(text: str) -> dict[str, str]:
    """A call's arguments, each as text; what is no JSON object is kept as it is."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    return _texts(value) if isinstance(value, dict) else {"text": text}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(name): value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in values.items()
    }


def _aggregate(chosen: Chosen, pair: _EeePair) -> Plain:
    manifest, cell, agent = chosen.manifest, pair.cell, pair.agent
    return {
        "schema_version": SCHEMA,
        "evaluation_id": pair.evaluation,
        "evaluation_timestamp": datetime.fromtimestamp(pair.first_s, UTC).isoformat(),
        "retrieved_timestamp": f"{pair.last_s:.0f}",
        "source_metadata": {
            "source_name": f"evalkit run {manifest.name}",
            "source_type": "evaluation_run",
            "source_organization_name": UNKNOWN,
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "evalkit",
            "version": manifest.evalkit,
            "additional_details": {"exported_by": f"evalkit {__version__}"},
        },
        "model_info": {
            "name": agent.model or agent.policy,
            "id": model_id(agent),
            "inference_platform": agent.provider or "evalkit",
            "additional_details": {
                "deployment_type": "self_deployed" if agent.policy else UNKNOWN,
                "model_availability": UNKNOWN,
                "agent": agent.name,
                "is_policy": "true" if agent.policy else "false",
                "tags": ", ".join(agent.tags),
                "marks": "; ".join(agent.marks),
            },
        },
        "evaluation_results": [
            _score(pair, cell),
            *([] if is_litmus(cell.suite.environment) else [_solved(pair, cell)]),
        ],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{pair.place}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": pair.checksum.hexdigest(),
            "total_rows": pair.rows,
        },
    }


def _score(pair: _EeePair, cell: Cell) -> Plain:
    least, most = score_range(cell.suite.environment)
    interval, method = interval_and_kind(cell)
    scores = by_instance((episode, episode.score) for episode in cell.prefix)
    uncertainty: Plain = {"num_samples": len(scores)}
    if interval is not None:
        bounds = {"lower": interval.low, "upper": interval.high}
        uncertainty["confidence_interval"] = {**bounds, "confidence_level": 0.95, "method": method}
    metric = {
        "metric_id": f"evalkit.{cell.suite.environment}.score",
        "metric_name": "score",
        "evaluation_description": f"The environment's score; {_meaning(cell)}. Mean over instances.",
        "metric_unit": "position between two ends"
        if is_litmus(cell.suite.environment)
        else "proportion of the optimum",
        "score_type": "continuous",
        "min_score": _bound(least),
        "max_score": _bound(most),
        "lower_is_better": False,
    }
    return _result(pair, "score", scores, metric, uncertainty)


def _meaning(cell: Cell) -> str:
    env = known(cell.suite.environment)
    if env is None or env.presentation.scale == "optimum":
        return "1 is the proven optimum"
    return f"1 is {env.presentation.one_means}, 0 is {env.presentation.zero_means}, neither is better"


def _solved(pair: _EeePair, cell: Cell) -> Plain:
    solved = by_instance((episode, float(episode.solved)) for episode in cell.prefix)
    metric = {
        "metric_id": f"evalkit.{cell.suite.environment}.solved",
        "metric_name": "solved",
        "evaluation_description": "Share of episodes that reached the optimum. Mean over instances.",
        "metric_kind": "pass_rate",
        "metric_unit": "proportion",
        "score_type": "continuous",
        "min_score": 0,
        "max_score": 1,
        "lower_is_better": False,
    }
    return _result(pair, "solved", solved, metric, {"num_samples": len(solved)})


def _bound(value: float) -> float | str:
    """A bound of the score: strict JSON has no infinity."""
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _result(
    pair: _EeePair, name: str, values: Mapping[str, Sequence[float]], metric: Plain, uncertainty: Plain
) -> Plain:
    cell, suite = pair.cell, pair.cell.suite
    return {
        "evaluation_result_id": f"{pair.evaluation}#{name}",
        "evaluation_name": suite.name,
        "source_data": {
            "dataset_name": suite.name,
            "source_type": "other",
            "additional_details": _texts(
                {
                    "environment": suite.environment,
                    "environment_version": suite.environment_version,
                    "digest": suite.digest,
                    "instances": len(suite.instances),
                    "axes": dict(suite.axes),
                }
            ),
        },
        "metric_config": metric,
        "score_details": {
            "score": mean_of_instances(values),
            "details": _texts({"episodes": len(cell.prefix), "planned": cell.planned, "void": len(cell.voided)}),
            "uncertainty": uncertainty,
        },
        "generation_config": _generation(pair),
    }


def _generation(pair: _EeePair) -> Plain:
    cell, agent = pair.cell, pair.agent
    sampling = agent.sampling[cell.suite.environment]
    args: Plain = {name: sampling[name] for name in _NUMBERS if sampling.get(name) is not None}
    args["agentic_eval_config"] = {"available_tools": pair.tools}
    more = {name: value for name, value in sampling.items() if name not in args and value not in (None, "")}
    more |= {"prompts": cell.pack, "prompts_digest": agent.packs[cell.suite.environment], "notes": agent.notes}
    return {"generation_args": args, "additional_details": _texts(more)}
