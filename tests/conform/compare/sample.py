"""The sample of golden numbers that is part of the project, as a folder laid out like the golden data.

The sample is one compressed file of JSON lines (`tests/conform/sample/`): a golden row with the file it came from, or
the ids of the reference's queries. Texts are left out: where a row had one, its digest stands.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalkit.tasks.costbench.queries import raw_queries
from tests.conform.compare.costbench_metrics import QUERIES

SAMPLE = Path(__file__).resolve().parent.parent / "sample" / "numbers.jsonl.gz"
QUERY_NUMBERS = "query_numbers"
"""Key of the line that says which of the raw queries the reference has kept, by number."""


def unpack(folder: Path) -> tuple[Path, Path]:
    """Write the sample below `folder`: (the folder of golden files, the folder of the reference's data set).

    The queries are the raw ones that evalkit generates by the reference's rule. They have no text but their ids, since
    no number depends on it.
    """
    goldens, data = folder / "goldens", folder / "data"
    files: dict[str, list[Any]] = {}
    for line in lines():
        if QUERY_NUMBERS in line:
            queries = data / QUERIES
            queries.parent.mkdir(parents=True)
            queries.write_text(json.dumps(list(_queries(frozenset(line[QUERY_NUMBERS])))))
        else:
            files.setdefault(line["file"], []).append(line["row"])
    for name, rows in files.items():
        path = goldens / name
        path.parent.mkdir(parents=True, exist_ok=True)
        listed = len(rows) > 1 and path.suffix != ".jsonl"
        path.write_text(json.dumps(rows) if listed else "".join(f"{json.dumps(row)}\n" for row in rows))
    return goldens, data


def lines() -> Iterator[Mapping[str, Any]]:
    """The sample as it is stored."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _queries(numbers: frozenset[int]) -> Iterator[Mapping[str, Any]]:
    for query in raw_queries("test"):
        if number_of(str(query["query_id"])) in numbers:
            ids = f"{query['TimeInfo']} {query.get('location_preference', '')}"
            yield {**query, "user_requirements": "", "query": {"input": ids}}


def number_of(query_id: str) -> int:
    """5 of `<Query00005>`."""
    return int(query_id.removeprefix("<Query").removesuffix(">"))
