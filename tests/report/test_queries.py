"""Every table says which query made it: run over the views, it gives the table's numbers."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report.tables import Table

KEYS = frozenset({"text"})


def differences(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where a table and what its query gave differ: columns that neither SQL nor a comment accounts for, and values."""
    said = {key.strip() for line in re.findall(r"^-- ([^:]+):", table.query, re.MULTILINE) for key in line.split(",")}
    names = set(rows[0]) if rows else set()
    found = [f"no column {column.key}" for column in table.columns if column.key not in names | said]
    keys = [column.key for column in table.columns if column.kind in KEYS and column.key in names]
    keys += [key for key in names & {"difficulty"} if key not in keys]
    by_key: dict[tuple[str, ...], Mapping[str, Any]] = {tuple(_text(row[key]) for key in keys): row for row in rows}
    if len(by_key) != len(rows):
        found.append(f"rows that {keys} do not tell apart")
    for row in table.rows:
        key = tuple(_text(row.get(one)) for one in keys)
        given = by_key.get(key, {})
        for column in table.columns:
            if column.key in keys or column.key not in names:
                continue
            if not _same(row.get(column.key), given.get(column.key)):
                found.append(
                    f"{key}: {column.key} is {row.get(column.key)!r}, the query gives {given.get(column.key)!r}"
                )
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _same(value: Any, given: Any) -> bool:
    if isinstance(value, Mapping):
        return dict(value) == {name: int(count) for name, count in given or ()}
    if value is None or given is None:
        return not value and not given
    return math.isclose(float(value), float(given), rel_tol=1e-9, abs_tol=1e-7)
