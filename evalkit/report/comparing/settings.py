"""In what two sides of a comparison differ beside what was to be compared: prompts, sampling, versions, instances."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from evalkit.report.scores import packs_of
from evalkit.report.tables import Column, Table
from evalkit.results.cells import Cell
from evalkit.store.manifest import Manifest, ManifestAgent

_SHOWN = 12
"""Digits of a digest for people."""


def settings_table(first: Manifest, second: Manifest, cell_pairs: Sequence[tuple[Cell, Cell]]) -> Table:
    """What differs between the runs and agents behind some pairs of cells; without rows where nothing does."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for cell, other in cell_pairs:
        who = " → ".join(dict.fromkeys((cell.agent, other.agent)))
        for of, what, was, now in _pairs(first, second, cell, other, who):
            if was != now:
                rows[of, what] = {"of": of, "setting": what, "first": _text(was), "second": _text(now)}
    names = list(dict.fromkeys(what for _, what in rows))
    return Table(
        name="compare_settings",
        title="Settings that differ",
        columns=(
            Column(key="of", title="Of", group=True),
            Column(key="setting", title="Setting"),
            Column(key="first", title="A"),
            Column(key="second", title="B"),
        ),
        rows=tuple(rows.values()),
        packs=packs_of(cell for pair in cell_pairs for cell in pair),
        notes=(f"A and B also differ in: {', '.join(names)}",) if names else (),
    )


def _pairs(
    first: Manifest, second: Manifest, cell: Cell, other: Cell, who: str
) -> Iterator[tuple[str, str, object, object]]:
    """(whose it is, setting, the first side's, the second's)."""
    yield "run", "evalkit", first.evalkit, second.evalkit
    yield "run", "replicates", first.replicates, second.replicates
    suite, environment = cell.suite.name, cell.suite.environment
    yield suite, "environment version", cell.suite.environment_version, other.suite.environment_version
    yield suite, "instances", _digest(cell), _digest(other)
    a, b = first.agents[cell.agent], second.agents[other.agent]
    yield who, "model", _model(a), _model(b)
    for what in ("policy", "script", "overrides", "notes"):
        yield who, what, getattr(a, what), getattr(b, what)
    subject = f"{who}, {environment}"
    yield subject, "prompts", _prompts(first, cell), _prompts(second, other)
    was, now = a.sampling.get(environment, {}), b.sampling.get(environment, {})
    for what in sorted(was.keys() | now.keys()):
        yield subject, f"sampling: {what}", was.get(what), now.get(what)


def _digest(cell: Cell) -> str:
    return f"{len(cell.suite.instances):,}, digest {cell.suite.digest[:_SHOWN]}"


def _model(agent: ManifestAgent) -> str:
    return f"{agent.provider}/{agent.model}" if agent.model else ""


def _prompts(manifest: Manifest, cell: Cell) -> str:
    """The pack by name, and by digest: texts can change under a name."""
    digest = manifest.agents[cell.agent].packs[cell.suite.environment]
    return f"{cell.pack}, digest {digest[:_SHOWN]}"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()
    return "none" if value is None or value == "" else str(value)
