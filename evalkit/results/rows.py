"""The rows behind the views that are not files of the log: cells, episodes, agents, instances; see `docs/sql.md`.

Tables of Arrow, column by column. What an episode measured is one map a row, so that SQL reads `metrics['gap']`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.results.cells import Cell, planned_cells
from evalkit.results.episodes import EpisodeResult, Outcomes

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _COUNT, _NUMBER, _FLAG, _TEXTS = "string", "int64", "float64", "bool", "texts"
"""Kinds of columns: the last is a list of strings in each row, the others are Arrow's types."""

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

    cells = tuple(cells)
    places = list(_places(cells))
    results = [episode for _, _, episode, _, _ in places]
    columns = {
        **{name: _of_each(cells, read, _TEXT) for name, read in _OF_CELL.items()},
        **{name: _column([getattr(episode, name) for episode in results], kind) for name, kind in _OF_EPISODE.items()},
        "episode": _column([episode.id for episode in results], _TEXT),
        "place": _column([index for _, index, *_ in places], _COUNT),
        "used": _column([used for _, _, _, used, _ in places], _FLAG),
        "finished": _column([episode.finished and reason is None for _, _, episode, _, reason in places], _FLAG),
        "void": _column([reason is not None for *_, reason in places], _FLAG),
        "void_reason": _column([reason for *_, reason in places], _TEXT),
        "tags": _of_each(cells, lambda cell: manifest.agents[cell.agent].tags, _TEXTS),
        "path": _column([episode.path for episode in results], _TEXTS),
        "metrics": _map([episode.metrics for episode in results]),
        "outcomes": _outcomes([episode.outcomes for episode in results]),
    }
    return pa.table({name: columns[name] for name in EPISODE_COLUMNS})


def _of_each(cells: Sequence[Cell], read: Callable[[Cell], Any], kind: str) -> "pa.Array":
    """By episode, in the order of `_places`: what `read` gives of its cell."""
    numbers = chain.from_iterable([i] * (len(cell.episodes) + len(cell.voided)) for i, cell in enumerate(cells))
    return _column([read(cell) for cell in cells], kind).take(_column(list(numbers), _COUNT))


def _places(cells: Iterable[Cell]) -> Iterable[Place]:
    for cell in cells:
        prefix = {episode.id for episode in cell.prefix}
        for index, episode in enumerate(cell.episodes):
            yield cell, index, episode, episode.id in prefix, None
        for index, (episode, reason) in enumerate(cell.voided, len(cell.episodes)):
            yield cell, index, episode, False, reason


def _column(values: Sequence[Any], kind: str) -> "pa.Array":
    """A column of one of the kinds above. pyarrow's own way to make one would import pandas."""
    import pyarrow as pa

    from evalkit.store.files.columns import column_with_gaps

    if kind != _TEXTS:
        return column_with_gaps(values, pa.type_for_alias(kind))
    return pa.ListArray.from_arrays(_offsets(values), _column([text for texts in values for text in texts], _TEXT))


def _map(values: Sequence[Mapping[str, float]]) -> "pa.Array":
    import pyarrow as pa

    names = _column(list(chain.from_iterable(values)), _TEXT)
    numbers = _column(list(chain.from_iterable(mapping.values() for mapping in values)), _NUMBER)
    return pa.MapArray.from_arrays(_offsets(values), names, numbers)


def _outcomes(values: Sequence[Outcomes]) -> "pa.Array":
    import pyarrow as pa

    every = list(chain.from_iterable(values))
    parts = [_column([one[i] for one in every], kind) for i, kind in enumerate((_TEXT, _TEXT, _COUNT))]
    return pa.ListArray.from_arrays(_offsets(values), pa.StructArray.from_arrays(parts, ["tool", "outcome", "calls"]))


def _offsets(values: Sequence[Any]) -> "pa.Array":
    return _column(list(accumulate(map(len, values), initial=0)), "int32")


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
    names = ("name", "lane", "provider", "model", "policy", "pack", "notes", "tags", "marks", "price", "price_source")
    rows = [
        {name: getattr(agent, name) for name in names}
        | {"price": None if agent.price is None else _json(agent.price), "place": place}
        for place, agent in enumerate(manifest.agents.values())
    ]
    kinds = {**dict.fromkeys(names, _TEXT), "notes": _FLAG, "tags": _TEXTS, "marks": _TEXTS, "place": _COUNT}
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


def _table(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> "pa.Table":
    import pyarrow as pa

    return pa.table({name: _column([row[name] for row in rows], kind) for name, kind in kinds.items()})


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
