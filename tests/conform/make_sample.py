"""`python -m tests.conform.make_sample GOLDENS --data DATA`: writes the sample of golden numbers anew.

Of each golden file it takes the first row of every stratum (difficulty, name of the case, kind of block, length) and
then every n-th row; episodes whose groups' figures are part of the sample are taken whole. It leaves out what is not a
number, an id or a scripted action: notes, timings, messages of errors, and rows that evalkit does not compare. A text
that evalkit has to reproduce is kept as its digest.
"""

import argparse
import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.conform.compare.costbench_metrics import QUERIES
from tests.conform.compare.files import cases, golden_files
from tests.conform.compare.goldens import digest_of
from tests.conform.compare.sample import QUERY_NUMBERS, SAMPLE, number_of

MOST_BYTES = 300_000

STRATA = ("env", "difficulty", "name", "start", "block_mode", "task", "task_length", "refinement_level")
"""Fields that tell cases of one file apart, as far as a row has them."""

EVERY: Mapping[str, int] = {
    "metrics_*": 1,
    "scheduling_instances*": 3,
    "scheduling_feedback_streams*": 3,
    "scheduling_matchings*": 12,
    "pricing_instances*": 4,
    "pricing_vectors*": 48,
    "procurement_instances*": 4,
    "procurement_plans*": 8,
    "costs_*": 12,
    "paths_*": 24,
    "blocking_*": 12,
}
"""Every n-th row of these files; of all others every row."""

LEFT_OUT = ("provider_conversions*",)
"""Files that evalkit compares with nothing."""

TEXTS = frozenset({"menu_text", "reason", "status"})
"""Texts of the reference that evalkit's own must equal."""

UNUSED = frozenset(
    {"note", "msg", "code", "cost_gap_definition", "upstream_greedy", "cuts", "iterations", "model", "opt_source"}
    | {"cpu_s", "wall_s", "cpu_seconds", "cpu_ms_per_matching", "fast_cpu_s", "cpu_s_upstream", "max_rss_mb"}
)
"""Notes, timings and other fields that no comparison reads."""


def main(argv: Sequence[str]) -> int:
    """Choose, write and say how much it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.conform.make_sample", description="Write the sample.")
    parser.add_argument("goldens", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    chosen = parser.parse_args(argv)
    packed = pack(_lines(chosen.goldens, chosen.data))
    if len(packed) > MOST_BYTES:
        print(f"{len(packed):,} bytes are more than {MOST_BYTES:,}: take fewer rows", file=sys.stderr)
        return 1
    SAMPLE.write_bytes(packed)
    print(f"{SAMPLE}: {len(packed):,} bytes")
    return 0


def pack(lines: Iterator[Mapping[str, Any]]) -> bytes:
    """JSON lines, compressed; the same bytes whenever it is done."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return buffer.getvalue()


def _lines(goldens: Path, data: Path) -> Iterator[Mapping[str, Any]]:
    queries = json.loads((data / QUERIES).read_bytes())
    yield {QUERY_NUMBERS: [number_of(query["query_id"]) for query in queries]}
    for path in golden_files(goldens):
        if any(fnmatchcase(path.name, pattern) for pattern in LEFT_OUT):
            continue
        name = path.relative_to(goldens).as_posix()
        for row in chosen_rows([case.row for case in cases(path, goldens)], path.name):
            yield {"file": name, "row": textless(row)}


def chosen_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    """The first of each stratum, and every n-th."""
    step = next((every for pattern, every in EVERY.items() if fnmatchcase(name, pattern)), 1)
    seen = set()
    for i, row in enumerate(rows):
        stratum = tuple(str(row.get(key)) for key in STRATA)
        if (i % step == 0 or stratum not in seen) and "error" not in row:
            yield row
        seen.add(stratum)


def textless(value: Any) -> Any:
    """A row without what no comparison reads, its texts as digests."""
    if isinstance(value, list):
        return [textless(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {key: textless(entry) for key, entry in value.items() if key not in UNUSED}
    for key in TEXTS & kept.keys():
        if isinstance(kept[key], str) and " " in kept[key]:
            kept[key] = digest_of(kept[key])
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
