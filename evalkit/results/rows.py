"""The rows behind the views that are not files of the log: cells, episodes, agents, instances; see `docs/sql.md`.

Tables of Arrow, column by column. What an episode measured is one map a row, so that SQL reads `metrics['gap']`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.results.cells import Cell, planned_cells
from evalkit.results.episodes import EpisodeResult
from evalkit.store.manifest import Manifest, ManifestSuite

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _COUNT, _NUMBER, _FLAG = "string", "int64", "float64", "bool"

Place = tuple[Cell, int, EpisodeResult, bool, str | None]
"""(cell, place in its admission order among those known, episode, whether estimates are based on it, why it is
void)."""

_OF_CELL: Mapping[str, Callable[[Cell], str]] = {
    "environment": lambda cell: cell.suite.environment,
    "suite": lambda cell: cell.suite.name,
    "agent": lambda cell: cell.agent,
    "base": lambda cell: cell.suite.base,
    "axes": lambda cell: _json(cell.suite.axes),
    "prompts": lambda cell: cell.pack,
}
_OF_EPISODE: Mapping[str, str] = {
    **dict.fromkeys(("instance", "stratum", "ending"), _TEXT),
    **dict.fromkeys(("replicate", "steps", "periods", "no_action", "without_call"), _COUNT),
    **dict.fromkeys(("cost", "tokens_in", "tokens_out", "tokens_cached_read"), _COUNT),
    "solved": _FLAG,
    **dict.fromkeys(("score", "latency_s"), _NUMBER),
}
EPISODE_COLUMNS = (
    *("episode", "environment", "suite", "base", "axes", "instance", "stratum", "agent", "prompts", "tags"),
    *(
        "replicate",
        "place",
        "ending",
        "finished",
        "used",
        "void",
        "void_reason",
        "score",
        "solved",
        "metrics",
        "path",
        "outcomes",
    ),
    *("steps", "periods", "no_action", "without_call"),
    *("cost", "tokens_in", "tokens_out", "tokens_cached_read", "latency_s"),
)
"""Of the view `episodes`, in order."""


def episode_table(cells: Iterable[Cell], manifest: Manifest) -> "pa.Table":
    """The view `episodes`: every episode that the log knows."""
    import pyarrow as pa

    places = list(_places(cells))
    results = [episode for _, _, episode, _, _ in places]
    columns = {
        **{name: pa.array([read(cell) for cell, *_ in places], pa.string()) for name, read in _OF_CELL.items()},
        **{
            name: pa.array([getattr(episode, name) for episode in results], pa.type_for_alias(kind))
            for name, kind in _OF_EPISODE.items()
        },
        "episode": pa.array([episode.id for episode in results], pa.string()),
        "place": pa.array([index for _, index, *_ in places], pa.int64()),
        "used": pa.array([used for _, _, _, used, _ in places], pa.bool_()),
        "finished": pa.array([episode.finished and reason is None for _, _, episode, _, reason in places], pa.bool_()),
        "void": pa.array([reason is not None for *_, reason in places], pa.bool_()),
        "void_reason": pa.array([reason for *_, reason in places], pa.string()),
        "tags": _lists([manifest.agents[cell.agent].tags for cell, *_ in places]),
        "path": _lists([episode.path for episode in results]),
        "metrics": _map([episode.metrics for episode in results]),
        "outcomes": _outcomes([episode.outcomes for episode in results]),
    }
    return pa.table({name: columns[name] for name in EPISODE_COLUMNS})


def _places(cells: Iterable[Cell]) -> Iterable[Place]:
    for cell in cells:
        prefix = {episode.id for episode in cell.prefix}
        for index, episode in enumerate(cell.episodes):
            yield cell, index, episode, episode.id in prefix, None
        for index, (episode, reason) in enumerate(cell.voided, len(cell.episodes)):
            yield cell, index, episode, False, reason


def _lists(values: Sequence[Sequence[str]]) -> "pa.Array":
    import pyarrow as pa

    flat = pa.array([text for texts in values for text in texts], pa.string())
    return pa.ListArray.from_arrays(_offsets(values), flat)


def _map(values: Sequence[Mapping[str, float]]) -> "pa.Array":
    import pyarrow as pa

    names = pa.array([name for mapping in values for name in mapping], pa.string())
    numbers = pa.array([number for mapping in values for number in mapping.values()], pa.float64())
    return pa.MapArray.from_arrays(_offsets(values), names, numbers)


def _outcomes(values: Sequence[Mapping[tuple[str, str], int]]) -> "pa.Array":
    import pyarrow as pa

    parts = [
        pa.array([key[0] for mapping in values for key in mapping], pa.string()),
        pa.array([key[1] for mapping in values for key in mapping], pa.string()),
        pa.array([count for mapping in values for count in mapping.values()], pa.int64()),
    ]
    return pa.ListArray.from_arrays(_offsets(values), pa.StructArray.from_arrays(parts, ["tool", "outcome", "calls"]))


def _offsets(values: Sequence[Any]) -> "pa.Array":
    import pyarrow as pa

    return pa.array(accumulate(map(len, values), initial=0), pa.int32())


def cell_table(manifest: Manifest) -> "pa.Table":
    """The view `cells`: every agent on every suite that it plays."""
    return _cells_table(
        (suite, agent, manifest.packs[manifest.agents[agent].packs[suite.environment]].name, _planned(manifest, suite))
        for suite, agent in planned_cells(manifest)
    )


def _planned(manifest: Manifest, suite: ManifestSuite) -> int:
    return manifest.replicates * len(suite.instances)


def cells_view(cells: Iterable[Cell]) -> "pa.Table":
    """The same of cells that were made."""
    return _cells_table((cell.suite, cell.agent, cell.pack, cell.planned + len(cell.voided)) for cell in cells)


def _cells_table(cells: Iterable[tuple[ManifestSuite, str, str, int]]) -> "pa.Table":
    """Of (suite, agent, prompt pack, planned episodes), in the spec's order."""
    rows = [
        {
            "agent": agent,
            "environment": suite.environment,
            "suite": suite.name,
            "base": suite.base,
            "axes": _json(suite.axes),
            "prompts": pack,
            "instances": len(suite.instances),
            "planned": planned,
            "place": place,
        }
        for place, (suite, agent, pack, planned) in enumerate(cells)
    ]
    kinds = {
        **dict.fromkeys(("agent", "environment", "suite", "base", "axes", "prompts"), _TEXT),
        **dict.fromkeys(("instances", "planned", "place"), _COUNT),
    }
    return _table(rows, kinds)


def agent_table(manifest: Manifest) -> "pa.Table":
    """The view `agents`."""
    import pyarrow as pa

    names = ("name", "lane", "provider", "model", "policy", "pack", "notes", "tags", "marks", "price", "price_source")
    rows = [
        {name: getattr(agent, name) for name in names}
        | {"price": None if agent.price is None else _json(agent.price), "place": place}
        for place, agent in enumerate(manifest.agents.values())
    ]
    texts = pa.list_(pa.string())
    kinds = {**dict.fromkeys(names, _TEXT), "notes": _FLAG, "tags": texts, "marks": texts, "place": _COUNT}
    return _table(rows, kinds)


def instance_table(suites: Iterable[ManifestSuite]) -> "pa.Table":
    """The view `instances`, of the instances of some suites."""
    rows = [
        {
            "suite": suite.name,
            "base": suite.base,
            "axes": _json(suite.axes),
            "environment": suite.environment,
            "instance": instance.id,
            "stratum": instance.stratum,
            "digest": instance.digest,
            "line": _json(instance.line),
        }
        for suite in suites
        for instance in suite.instances
    ]
    names = ("suite", "base", "axes", "environment", "instance", "stratum", "digest", "line")
    return _table(rows, dict.fromkeys(names, _TEXT))


def _table(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, Any]) -> "pa.Table":
    import pyarrow as pa

    types = {name: pa.type_for_alias(kind) if isinstance(kind, str) else kind for name, kind in kinds.items()}
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items())))


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
