"""The reference's files of queries as lines of a suite: a user's copy, read by its path, never part of evalkit.

Every row is checked by the arithmetic of its ids, so another kind of file, or one that was changed, is refused by row.
Alternatives for preference changes are drawn as the reference draws them, from all queries of the same task in the
file. Source: specification of CostBench, sections 3.2 to 3.4 and 5.1.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from evalkit.envs.costbench.domain.catalogue import SPLITS, Catalogue, title
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.ids import preference_number, split_values
from evalkit.envs.costbench.domain.queries import reference_queries
from evalkit.envs.costbench.domain.wording import requirements
from evalkit.envs.costbench.domain.world import context_type
from evalkit.envs.costbench.instances.costs import query_seed
from evalkit.envs.mersenne import Mersenne
from evalkit.errors import UsageError, nearest
from evalkit.seeds import Stream
from evalkit.tasks.record import ReadFiles

CATALOGUE = "travel"
RAW_TOTALS = {"test": 1000, "train": 6000}
"""Raw queries of the reference by split."""

LENGTH, SEED, ALTERNATIVES = 5, 42, 3
MOST_ALTERNATIVES = 100
MOST_RAW = 99_999
"""Raw queries at most: their ids have five digits."""
BLOCK_SEED_STEP = 100
"""Between the seeds of one query's blocks, and so of its alternatives."""

_SENTENCE_ENDS = (".", "!", "?")
_QUERY_ID = re.compile(r"<Query(\d{1,9})>")


class _QueryAnswer(msgspec.Struct, frozen=True):
    input: str


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the file, as far as it is needed."""

    query_id: str
    TimeInfo: str
    task: str
    preferences: dict[str, str]
    groundtruth: str
    location_preference: str | None = None
    is_valid: int | None = None
    user_requirements: str = ""
    query: _QueryAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFile:
    """A file that was read and checked."""

    path: Path
    sha256: str
    split: str
    tasks: tuple[str, ...]
    """Each row's task."""
    queries: tuple[Mapping[str, Any], ...]
    """Each row as the `query` of a suite's line."""
    conflicts: tuple[bool | None, ...]
    """Each row's verdict; None: the row has none."""


def cut_off(text: str) -> bool:
    """Whether a text breaks off in the middle of a sentence: it does not end as a sentence does."""
    return not text.rstrip().endswith(_SENTENCE_ENDS)


def read_queries(path: Path) -> QueryFile:
    """A query file, checked row by row. Raises UsageError naming file, row and what is wrong."""
    try:
        raw = path.read_bytes()
    except OSError as flaw:
        raise UsageError(f"{path} cannot be read: {flaw.strerror or flaw}.") from flaw
    try:
        rows = msgspec.json.decode(raw, type=list[_Row])
    except msgspec.DecodeError as flaw:
        raise UsageError(
            f"{path}: this is not a query file ({flaw}). Expected the reference's queries.json, queries_raw.json or "
            f"filtered_queries.json: a list of objects with {', '.join(_Row.__struct_fields__[:5])}."
        ) from flaw
    if not rows:
        raise UsageError(f"{path}: the file has no queries.")
    catalogue = shipped(CATALOGUE)
    split = _split_of(catalogue, rows[0], f"{path}: row 1")
    queries = tuple(_query(catalogue, split, row, f"{path}: row {i}") for i, row in enumerate(rows, 1))
    seen: set[str] = set()
    for i, query in enumerate(queries, 1):
        if query["id"] in seen:
            raise UsageError(f"{path}: row {i}: the id {query['id']} is not unique.")
        seen.add(query["id"])
    return QueryFile(
        path=path,
        sha256=hashlib.sha256(raw).hexdigest(),
        split=split,
        tasks=tuple(row.task for row in rows),
        queries=queries,
        conflicts=tuple(None if row.is_valid is None else row.is_valid == 0 for row in rows),
    )


def import_queries(
    files: Sequence[Path], *, length: int | None = None, seed: int | None = None, alternatives: int | None = None
) -> ReadFiles:
    """The files' queries as lines of a suite. Raises UsageError."""
    count = ALTERNATIVES if alternatives is None else alternatives
    if not 0 <= count <= MOST_ALTERNATIVES:
        raise UsageError(f"--alternatives: must be 0 to {MOST_ALTERNATIVES}, not {count}.")
    query_files = [read_queries(path) for path in files]
    lines = suite_lines(
        query_files,
        length=LENGTH if length is None else length,
        seed=SEED if seed is None else seed,
        alternatives=count,
    )
    said = [verdict for file in query_files for verdict in file.conflicts]
    return ReadFiles(
        lines=tuple(lines),
        truncated=sum(query["truncated"] for file in query_files for query in file.queries),
        conflicts={line["id"]: verdict for line, verdict in zip(lines, said, strict=True) if verdict is not None},
    )


def raw_queries(split: str, total: int | None = None, seed: int = SEED) -> list[dict[str, object]]:
    """The reference's raw queries, in its form: what a validator and a writer would then be asked about.

    Raises UsageError for a number that cannot be.
    """
    wanted = RAW_TOTALS[split] if total is None else total
    if not 1 <= wanted <= MOST_RAW:
        raise UsageError(f"--total: must be 1 to {MOST_RAW:,}, not {wanted:,}.")
    return list(reference_queries(shipped(CATALOGUE), split, wanted, seed))


def _split_of(catalogue: Catalogue, row: _Row, where: str) -> str:
    """The split whose values the row's wishes have."""
    if row.task not in catalogue.tasks:
        raise UsageError(f"{where}: task: there is no task {row.task!r}.{nearest(row.task, catalogue.tasks)}")
    for split in SPLITS:
        values = split_values(catalogue, row.task, split)
        if all(row.preferences.get(key) in values.get(key, ()) for key in catalogue.keys):
            return split
    unknown = next((key for key in catalogue.keys if not _is_value(catalogue, row, key)), None)
    if unknown is not None:
        raise UsageError(
            f"{where}: preferences.{unknown}: {row.preferences.get(unknown)!r} is not a value in any split "
            f"of {row.task}."
        )
    raise UsageError(f"{where}: preferences: {row.preferences} are from different splits of {row.task}.")


def _is_value(catalogue: Catalogue, row: _Row, key: str) -> bool:
    return any(row.preferences.get(key) in split_values(catalogue, row.task, split).get(key, ()) for split in SPLITS)


def _query(catalogue: Catalogue, split: str, row: _Row, where: str) -> dict[str, Any]:
    own = _split_of(catalogue, row, where)
    if own != split:
        raise UsageError(f"{where}: preferences: these are from the {own} split, but the rows before are from {split}.")
    if not _QUERY_ID.fullmatch(row.query_id):
        raise UsageError(f"{where}: query_id: {row.query_id!r} must have the form <Query00001>.")
    for key in row.preferences:
        if key not in catalogue.keys:
            raise UsageError(f"{where}: preferences: unknown key {key!r}.{nearest(key, catalogue.keys)}")
    digits = catalogue.digits[split]
    constant = catalogue.constants[0]
    given = {constant: _number(row.TimeInfo, constant, digits, f"{where}: TimeInfo")}
    context: int | None = None
    if row.task != catalogue.context:
        kind = context_type(catalogue)
        context = _number(row.location_preference or "", kind, digits, f"{where}: location_preference")
        given[kind] = context
    elif row.location_preference is not None:
        raise UsageError(f"{where}: location_preference: a {row.task} query must not have one.")
    number = preference_number(catalogue, row.task, split, row.preferences, context)
    declared = _number(row.groundtruth, f"{title(row.task)}Preference", digits, f"{where}: groundtruth")
    if declared != number:
        raise UsageError(
            f"{where}: groundtruth: the preferences give number {number}, but the row says {declared}. The "
            "file was changed, or its preferences are not in the reference's order."
        )
    message = row.query.input if row.query else ""
    for said_id in (row.TimeInfo, row.location_preference or "") if row.query else ():
        if said_id not in message:
            raise UsageError(f"{where}: query.input: the id {said_id} is missing.")
    # Without a text of its own a query can be played all the same, in the catalogue's words.
    draws = Stream(SEED, "wording", catalogue.name, row.task, split, row.query_id)
    return {
        "id": row.query_id,
        "preferences": dict(sorted(row.preferences.items())),
        "given": given,
        "number": number,
        "text": row.user_requirements or requirements(catalogue, row.task, row.preferences, draws),
        "message": message,
        "truncated": bool(row.user_requirements) and cut_off(row.user_requirements),
    }


def _number(text: str, label: str, digits: int, where: str) -> int:
    """The number of an id such as `<TimeInfo03119>`."""
    match = re.fullmatch(rf"<{label}([0-9]{{{digits}}})>", text)
    if not match or not int(match[1]):
        raise UsageError(f"{where}: {text!r} must have the form <{label}{1:0{digits}d}>.")
    return int(match[1])


def alternative_places(pool: Sequence[int], own: int, query_id: str, *, seed: int, count: int) -> Iterator[int]:
    """The indices of the queries that the reference changes to, block by block.

    `pool`: indices of the queries of the same task in the file's order, the query's own index `own` among them.
    """
    others = [index for index in pool if index != own]
    if others:
        base = query_seed(seed, query_id)
        yield from (Mersenne(base + BLOCK_SEED_STEP * i).choice(others) for i in range(count))


def suite_lines(
    files: Sequence[QueryFile], *, length: int = LENGTH, seed: int = SEED, alternatives: int = ALTERNATIVES
) -> list[dict[str, Any]]:
    """The files' queries as lines of one suite, `q00001` and so on; from several files, `test-q00001`.

    Raises UsageError if two lines would have one id.
    """
    lines: dict[str, dict[str, Any]] = {}
    for file in files:
        pools: dict[str, list[int]] = {}
        for index, task in enumerate(file.tasks):
            pools.setdefault(task, []).append(index)
        for index, query in enumerate(file.queries):
            pool = pools[file.tasks[index]]
            others = alternative_places(pool, index, query["id"], seed=seed, count=alternatives)
            name = f"{f'{file.split}-' if len(files) > 1 else ''}q{query['id'][len('<Query') : -1]}"
            if name in lines:
                raise UsageError(
                    f"{file.path}: row {index + 1}: {query['id']} is also in another file; name only one of them."
                )
            lines[name] = {
                "id": name,
                "environment": "costbench",
                "generator": "reference",
                "catalogue": CATALOGUE,
                "task": file.tasks[index],
                "split": file.split,
                "length": length,
                "seed": seed,
                "query": query,
                "alternatives": [without_message(file.queries[other]) for other in others],
                "alternatives_seed": seed,
            }
            if query["message"]:  # else it is not yet one of the reference's own, and no figure bears the paper's name
                lines[name]["source"] = {"file": file.path.name, "sha256": file.sha256, "row": index + 1}
    return list(lines.values())


def without_message(query: Mapping[str, Any]) -> dict[str, Any]:
    """A query as an alternative: only its wishes reach the agent, in the words of a preference change."""
    return {key: value for key, value in query.items() if key != "message"}
