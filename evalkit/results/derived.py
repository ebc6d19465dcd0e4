"""What was folded once is kept: `derived/` in the run directory, so that the next report does not fold it again.

Kept is what the facts of each finished episode come to (`episodes.Fold`), in one Parquet file. An episode's entry holds
while all its step digests, its instance's line, and the code that scores are the same; where its environment is not
installed, nobody knows that code, and the entry holds. Everything else of a result is read from the log each time. The
file is put in place in one step, and ignored where it is stale or damaged; where the directory cannot be written, the
next report takes longer. Deleting it loses nothing but what only an absent environment could fold. `verify` does not
read it.
"""

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

import evalkit.envs
from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.void import read_voids
from evalkit.results.cells import Cell, cells
from evalkit.results.endings import refused_episodes
from evalkit.results.episodes import NUMBERS, Environments, EpisodeResult, Fold, Referee, Spot, result, spots
from evalkit.store.disk import put
from evalkit.store.files.record import REFUSED
from evalkit.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER, FILE = "derived", "episodes.parquet"
FORMAT = 1

COLUMNS = (*NUMBERS, "take", "step_digest")
"""What of the log's rows is read; facts come apart, of the episodes that need them."""

WORTH_WRITING = 0.02
"""New entries for one that is kept already, from which the file is written again."""

_MARK = b"evalkit.derived"
_NONE = (b"", None)


def read_run(run: Path, more: Sequence[str] = ()) -> "tuple[Manifest, pa.Table, list[EpisodeResult]]":
    """(manifest, rows in effect with `COLUMNS` and `more`, results as of `read_results`) of a run directory.

    Works while another process writes the run. Raises RunError if it is none, CorruptLogError if its log is damaged.
    """
    from evalkit.store.reading.reader import scan

    manifest = read_manifest(run)
    steps = scan(run, (*COLUMNS, *more))
    return manifest, steps, read_results(run, steps, manifest, ENVIRONMENTS)


def read_afresh(run: Path) -> list[EpisodeResult]:
    """The same results, from the log alone. Raises as `read_run`."""
    from evalkit.store.reading.reader import scan

    manifest = read_manifest(run)
    steps = scan(run, COLUMNS)
    all_spots = spots(steps, manifest)
    folds = _folded(run, steps, [spot for spot in all_spots if spot.finished], ENVIRONMENTS)
    return _results(run, all_spots, folds)


def read_results(run: Path, steps: "pa.Table", manifest: Manifest, environments: Environments) -> list[EpisodeResult]:
    """The episodes of a run, in the order of their ids; only those that `derived/` does not hold are folded.

    `steps`: the rows in effect by episode and step, with `COLUMNS`, as `scan` gives them. Works while another process
    writes the run. Raises CorruptLogError.
    """
    all_spots = spots(steps, manifest)
    finished = [spot for spot in all_spots if spot.finished]
    keys = dict(zip((spot.id for spot in all_spots), _keys(steps, all_spots), strict=True))
    names = dict.fromkeys(suite.environment for suite in manifest.suites.values())
    marks = {name: _mark(environments[name]) for name in names if name in environments}
    old_marks, saved = _load(run)
    marks = {name: marks.get(name) or old_marks.get(name, "") for name in names}
    fresh = {name for name in names if marks[name] == old_marks.get(name)}
    folds = {
        spot.id: saved[spot.id][1]
        for spot in finished
        if spot.suite.environment in fresh and saved.get(spot.id, _NONE)[0] == keys[spot.id]
    }
    missing = [spot for spot in finished if spot.id not in folds]
    for name in dict.fromkeys(spot.suite.environment for spot in missing):
        if name not in environments:
            raise RunError(
                f"{run}: the environment {name!r} is not installed, which its manifest names, and some episodes have "
                "no score yet. "
                f"{manifest.install(name)}"
            )
    folds |= _folded(run, steps, missing, environments)
    if len(missing) > WORTH_WRITING * (len(folds) - len(missing)):
        _save(run, marks, {name: (keys[name], fold) for name, fold in folds.items()})
    return _results(run, all_spots, folds)


def _results(run: Path, all_spots: Sequence[Spot], folds: Mapping[str, Fold]) -> list[EpisodeResult]:
    refused = refused_episodes(run) if any(spot.ending == REFUSED for spot in all_spots) else ()
    said = {episode.id: episode.said for episode in refused}
    return [result(spot, folds.get(spot.id), said.get(spot.id, "")) for spot in all_spots]


def _folded(run: Path, steps: "pa.Table", missing: Sequence[Spot], environments: Environments) -> dict[str, Fold]:
    from evalkit.store.reading.arrays import integers
    from evalkit.store.reading.stream import stream_facts

    takes = integers(steps.column("take").combine_chunks())
    rows = [np.arange(spot.first, spot.first + spot.steps) for spot in missing]
    start = np.cumsum([0, *(spot.steps for spot in missing)])
    wanted = takes[np.concatenate(rows)] if rows else takes[:0]
    referee = Referee(environments)
    return {
        missing[index].id: referee.fold(missing[index], facts)
        for index, facts in stream_facts(run, [spot.id for spot in missing], wanted, start)
    }


def _keys(steps: "pa.Table", spots: Sequence[Spot]) -> list[bytes]:
    """What each episode's fold follows from, as 16 bytes."""
    if not spots:
        return []
    column = steps.column("step_digest").combine_chunks()
    words = np.frombuffer(column.buffers()[1], "<u8").reshape(-1, 2)[column.offset : column.offset + len(column)]
    first = np.array([spot.first for spot in spots])
    step = np.arange(len(words)) - np.repeat(first, [spot.steps for spot in spots])
    # Sums modulo 2^64 of the halves of digests, each times an odd number of its own, so that their order matters.
    sums = np.add.reduceat(words * (2 * step + 1).astype(np.uint64)[:, None], first, axis=0)
    lines: dict[tuple[str, str], bytes] = {}
    keys = []
    for spot, words_of_it in zip(spots, sums, strict=True):
        target_key = (spot.suite.name, spot.target.id)
        if target_key not in lines:
            lines[target_key] = hashlib.sha256(orjson.dumps([spot.suite.environment, spot.target.line])).digest()
        parts = words_of_it.tobytes(), lines[target_key], f"{spot.steps} {spot.ending}".encode()
        keys.append(hashlib.sha256(b"".join(parts)).digest()[:16])
    return keys


def _mark(env: Environment[Any, Any]) -> str:
    """What an environment's folds follow from beside the log: the format, evalkit's version, its own and its code."""
    digest = hashlib.sha256(orjson.dumps([FORMAT, __version__, env.name, env.version]))
    for path in _code(env):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _code(env: Environment[Any, Any]) -> list[Path]:
    """The files that say how its episodes are scored: its own module's, its package's, and all of `evalkit.envs`."""
    module = sys.modules[env.score.__module__]
    top = sys.modules[env.score.__module__.partition(".")[0]]
    own = [] if top.__name__ == evalkit.envs.__name__.partition(".")[0] else list(getattr(top, "__path__", ()))
    files = {path for folder in (*evalkit.envs.__path__, *own) for path in Path(folder).rglob("*.py")}
    files |= {Path(module.__file__)} if module.__file__ else set()
    return sorted(files)


def _load(run: Path) -> tuple[dict[str, str], dict[str, tuple[bytes, Fold]]]:
    """What is kept: (marks by environment, (key, fold) by episode); nothing where no file can be used."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from evalkit.store.files.segment import source_of

    try:
        source = source_of(run / FOLDER / FILE)
        if source is None:
            return {}, {}
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            marks = _MARKS.decode((file.metadata.metadata or {})[_MARK])
            names, keys, folds = (column.to_pylist() for column in file.read(["episode", "key", "fold"]).columns)
        kept = zip(keys, map(_DECODER.decode, folds), strict=True)
        return marks, dict(zip(names, kept, strict=True))
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return {}, {}


_MARKS = msgspec.json.Decoder(dict[str, str])
_DECODER = msgspec.json.Decoder(Fold)


def _save(run: Path, marks: Mapping[str, str], kept: Mapping[str, tuple[bytes, Fold]]) -> None:
    """Put the file in place in one step; where the disk refuses there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from evalkit.store.files.columns import column_of

    # JSON holds finite numbers alone.
    names = [name for name, (_, fold) in kept.items() if all(map(math.isfinite, (fold.score, *fold.metrics.values())))]
    columns = {
        "episode": column_of(names, pa.string()),
        "key": column_of([kept[name][0] for name in names], pa.binary(16)),
        "fold": column_of([msgspec.json.encode(kept[name][1]) for name in names], pa.string()),
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        pa.schema([(name, column.type) for name, column in columns.items()]),
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(pa.table(columns), row_group_size=1 << 14)
        writer.add_key_value_metadata({_MARK: msgspec.json.encode(marks)})
    put(run / FOLDER / FILE, sink.getvalue().to_pybytes())


def read_cells(run: Path) -> tuple[Manifest, list[Cell]]:
    """The manifest and the cells of a run directory alone, also of one that is being written. Raises as `read_run`."""
    manifest, _, results = read_run(run)
    return manifest, cells(manifest, results, read_voids(run))
