"""`--format dataset`: a folder that `datasets.load_dataset(path)` of Hugging Face loads, or any Parquet reader.

Three configurations: `episodes` (one row an episode), `steps` (one a step), `transcripts` (one a chat). Rows are
written as they come, a few thousand at a time.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from evalkit import __version__
from evalkit.envs.known import is_litmus, scale_words
from evalkit.report.exports.chats import Plain, changes_json, chats, episode_json, message_json, tokens, tools_json
from evalkit.report.exports.episodes import Chosen, Exported, stream
from evalkit.results.cells import Cell
from evalkit.results.episodes import Environments
from evalkit.store.disk import storage_errors
from evalkit.store.folder import new_folder
from evalkit.text import visible

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 2000
"""Rows that are held before they are written."""

CONFIGS = ("episodes", "steps", "transcripts")

_TEXT, _COUNT, _NUMBER, _FLAG = "string", "int64", "float64", "bool"
_PLACE = {
    **dict.fromkeys(("episode", "agent", "environment", "suite", "instance"), _TEXT),
    "replicate": _COUNT,
}
_TOKENS = dict.fromkeys(
    (f"tokens_{name}" for name in ("in", "out", "cached_read", "cached_write", "reasoning")), _COUNT
)
_EPISODE = {
    **_PLACE,
    **dict.fromkeys(("provider", "model", "served_model", "prompts", "base", "axes", "stratum", "ending"), _TEXT),
    **dict.fromkeys(("solved", "used", "reproduced"), _FLAG),
    **dict.fromkeys(("steps", "periods", "cost_pico_usd"), _COUNT),
    **dict.fromkeys(("score", "latency_s"), _NUMBER),
    "metrics": _TEXT,
    **_TOKENS,
}
_STEP = {
    **_PLACE,
    **dict.fromkeys(("take", "step", "period", "turn"), _COUNT),
    **dict.fromkeys(("reply", "facts", "finish", "ending", "attempts", "served_model"), _TEXT),
    **dict.fromkeys(("latency_s", "queue_s", "started_at"), _NUMBER),
    "cost_pico_usd": _COUNT,
    **_TOKENS,
}
_CHAT = {
    **_PLACE,
    **dict.fromkeys(("period", "first_step", "steps", "cost_pico_usd"), _COUNT),
    **dict.fromkeys(("provider", "model", "ending"), _TEXT),
    **dict.fromkeys(("last", "solved", "used", "reproduced"), _FLAG),
    "score": _NUMBER,
    **dict.fromkeys(("tools", "tools_changed"), _TEXT),
    **_TOKENS,
}


def write_dataset(chosen: Chosen, environments: Environments, out: Path) -> int:
    """Write the folder, whole or not at all; how many episodes this evalkit does not reproduce.

    Raises UsageError where it exists, StorageError, CorruptLogError.
    """
    differing = 0
    schemas = _schemas()
    with new_folder(out) as folder, ExitStack() as stack:
        made = {name: stack.enter_context(_DatasetFile(folder / "data" / name, schemas[name])) for name in CONFIGS}
        for episode in stream(chosen, chosen.cells, environments):
            differing += not episode.reproduced
            made["episodes"].add([episode_row(episode)])
            made["steps"].add(step_rows(episode))
            made["transcripts"].add(chat_rows(episode))
        counts = {name: sheet.finish() for name, sheet in made.items()}
        with storage_errors(folder):
            (folder / "README.md").write_text(card(chosen, counts), encoding="utf-8")
    return differing


def _schemas() -> "dict[str, pa.Schema]":
    import pyarrow as pa

    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    fields = [(name, pa.string()) for name in ("role", "content", "reasoning_content", "name", "tool_call_id")]
    message = pa.struct([*fields, ("tool_calls", pa.list_(call))])
    plain = dict(zip(CONFIGS, (_EPISODE, _STEP, _CHAT), strict=True))
    schemas = {
        name: pa.schema([(key, pa.type_for_alias(kind)) for key, kind in kinds.items()])
        for name, kinds in plain.items()
    }
    schemas["transcripts"] = schemas["transcripts"].append(pa.field("messages", pa.list_(message)))
    return schemas


class _DatasetFile:
    """One configuration's Parquet file while it is written."""

    def __init__(self, folder: Path, schema: "pa.Schema") -> None:
        import pyarrow.parquet as pq

        self._folder, self._schema, self._rows, self._count = folder, schema, list[Plain](), 0
        with storage_errors(folder):
            folder.mkdir(parents=True)
            self._file = pq.ParquetWriter(folder / "train-00000-of-00001.parquet", schema, compression="zstd")

    def __enter__(self) -> "_DatasetFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rows: Iterable[Plain]) -> None:
        """Take rows; they are written when there are enough."""
        self._rows += rows
        if len(self._rows) >= BATCH:
            self._write()

    def finish(self) -> int:
        """Write what is held and end the file; how many rows it has."""
        self._write()
        with storage_errors(self._folder):
            self._file.close()
        return self._count

    def _write(self) -> None:
        import pyarrow as pa

        with storage_errors(self._folder):
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._count += len(self._rows)
        self._rows.clear()


def episode_row(episode: Exported) -> Plain:
    """A row of `episodes`; metrics and axes as JSON, since each environment has its own."""
    about = episode_json(episode)
    return _only(
        _EPISODE,
        about | {"axes": _json(about["axes"]), "metrics": _json(about["metrics"]), **_counted(about["tokens"])},
    )


def step_rows(episode: Exported) -> list[Plain]:
    """The rows of `steps`; without what names the machine that asked."""
    about = episode_json(episode)
    return [_only(_STEP, {**about, **row, "cost_pico_usd": row["cost"]}) for row in episode.rows]


def chat_rows(episode: Exported) -> list[Plain]:
    """The rows of `transcripts`."""
    about = episode_json(episode)
    return [
        {
            **_only(
                _CHAT,
                {
                    **about,
                    "period": chat.period,
                    "first_step": chat.rows[0]["step"],
                    "steps": len(chat.rows),
                    "cost_pico_usd": sum(row["cost"] for row in chat.rows),
                    "last": bool(chat.ending),
                    "reproduced": chat.reproduced,
                    "tools": _json(tools_json(chat.tools)),
                    "tools_changed": _json(changes_json(chat)),
                    **_counted(tokens(chat.rows)),
                },
            ),
            "messages": [message_json(entry) for entry in chat.entries],
        }
        for chat in chats(episode)
    ]


def _only(names: Iterable[str], values: Plain) -> Plain:
    return {name: values[name] for name in names}


def _counted(counts: dict[str, int]) -> Plain:
    return {f"tokens_{name}": count for name, count in counts.items()}


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def card(chosen: Chosen, counts: dict[str, int]) -> str:
    """The data set's card: a header that names the configurations, and what a reader must know."""
    manifest = chosen.manifest
    lines = ["---", "configs:"]
    for name in CONFIGS:
        lines += [f"- config_name: {name}", *(["  default: true"] if name == "episodes" else [])]
        lines += ["  data_files:", "  - split: train", f"    path: data/{name}/*.parquet"]
    lines += ["---", "", f"# {visible(manifest.name)}", ""]
    lines += [f"Exported by evalkit {__version__} from a run that evalkit {visible(manifest.evalkit)} began.", ""]
    lines += ["| configuration | rows | one row |", "|---|---|---|"]
    of = {"episodes": "an episode", "steps": "a step: one reply and what it brought about", "transcripts": "a chat"}
    lines += [f"| `{name}` | {counts[name]:,} | {of[name]} |" for name in CONFIGS]
    lines += ["", "Agents and suites:", ""]
    lines += [
        f"- {visible(cell.agent)} on {visible(cell.suite.name)}: {cell.ended:,} episodes" for cell in chosen.cells
    ]
    lines += ["", f"Not in it: {chosen.owed:,} episodes that are owed, {chosen.voided:,} that are void.", ""]
    lines += [
        f"{_scale(chosen.cells)} Estimates should stand on the rows where `used` is true: episodes that ended",
        "early, behind one that has not, are often the good ones. Money is in 1e-12 USD. Where `reproduced` is false,",
        "the texts may not be those that the agent read.",
        "",
        "The license is for you to choose; put it into the header as `license:` before you publish.",
        "",
    ]
    return "\n".join(lines)


def _scale(cells: Iterable[Cell]) -> str:
    names = [cell.suite.environment for cell in cells]
    if not any(map(is_litmus, names)):
        return "A score of 1 is the optimum."
    return f"Scores, times 100: {visible(scale_words(names))}."
