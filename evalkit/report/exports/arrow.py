"""A report's table as columns of Arrow, for programs: the values of its JSON, typed."""

from typing import TYPE_CHECKING, Any

from evalkit.report.tables import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE = frozenset({"count", "tokens", "usd"})
"""Kinds of columns whose values are whole numbers."""


def as_arrow(table: Table) -> "pa.Table":
    """The rows with full precision under the columns' keys; an interval takes two columns, counts are a map.

    Fields have title, kind and unit as metadata, the schema has title and notes.
    """
    import pyarrow as pa

    fields, arrays = [], []
    for column in table.columns:
        about = {"title": column.title, "kind": column.kind, "unit": column.unit}
        values = [row.get(column.key) for row in table.rows]
        for key, array in _arrays(column, values):
            fields.append(pa.field(key, array.type, metadata=about))
            arrays.append(array)
    schema = pa.schema(fields, metadata={"title": table.title, "notes": "\n".join(table.lines_below)})
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrays(column: Column, values: list[Any]) -> "list[tuple[str, pa.Array]]":
    """(key, values) of what a column becomes."""
    import pyarrow as pa

    if column.kind == "interval":
        ends = [(None, None) if value is None else tuple(value) for value in values]
        return [
            (f"{column.key}_{name}", pa.array([end[index] for end in ends], pa.float64()))
            for index, name in enumerate(("low", "high"))
        ]
    if column.kind == "counts":
        pairs = [None if value is None else list(value.items()) for value in values]
        return [(column.key, pa.array(pairs, pa.map_(pa.string(), pa.int64())))]
    if column.kind == "text":
        return [(column.key, _texts(values))]
    whole = column.kind in WHOLE and all(isinstance(value, int | None) for value in values)
    return [(column.key, pa.array(values, pa.int64() if whole else pa.float64()))]


def _texts(values: list[Any]) -> "pa.Array":
    """Values of a column of texts; a parameter that was varied may be a number in all rows, and then is one here."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        return pa.array(values)
    return pa.array([None if value is None else str(value) for value in values], pa.string())
