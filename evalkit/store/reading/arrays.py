"""Arrow columns as arrays of numbers, and rows in another order. pyarrow's own conversions would import pandas."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evalkit.store.reading.effect import Flags, Ints, void


def coded(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """(values, for each row the number of its value) of a column of strings."""
    column = table.column(name)
    if not len(column):
        return [], np.zeros(0, np.int64)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunks = column.unify_dictionaries().chunks
    return chunks[-1].dictionary.to_pylist(), np.concatenate([integers(chunk.indices) for chunk in chunks])


def words(table: pa.Table, name: str) -> list[str]:
    """A column of strings without nulls. `to_pylist` takes several times as long, and makes each row's string anew."""
    values, codes = coded(table, name)
    return [values[code] for code in codes.tolist()]


def ints(table: pa.Table, name: str) -> Ints:
    """A column of integers without nulls."""
    return np.concatenate([np.zeros(0, np.int64), *map(integers, table.column(name).chunks)])


def floats(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """A column of doubles without nulls."""
    pieces = [np.zeros(0)]
    for chunk in table.column(name).chunks:
        buffer = chunk.buffers()[1]
        if buffer is not None:
            pieces.append(np.frombuffer(buffer, np.float64)[chunk.offset : chunk.offset + len(chunk)])
    return np.concatenate(pieces)


def integers(array: pa.Array) -> Ints:
    """An int32 or int64 array without nulls."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(0, np.int64)
    words = np.frombuffer(buffer, np.int32 if array.type.bit_width == 32 else np.int64)
    return words[array.offset : array.offset + len(array)].astype(np.int64)


def texts(table: pa.Table, name: str) -> list[bytes]:
    """A column of strings or bytes without nulls, as UTF-8."""
    encoded: list[bytes] = []
    for chunk in table.column(name).chunks:
        _, places, values = chunk.buffers()
        if len(chunk):
            data = b"" if values is None else values.to_pybytes()
            ends = np.frombuffer(places, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
            encoded += [data[begin:end] for begin, end in pairwise(ends)]
    return encoded


def take_rows(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows of these numbers, in this order."""
    return table.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows.astype(np.int64))]))


def of_kind(table: pa.Table, *kinds: str) -> Flags:
    """Which rows are of one of these kinds."""
    known, codes = coded(table, "row_kind")
    return np.array([kind in kinds for kind in known], np.bool_)[codes]


def rows_of_kind(table: pa.Table, *kinds: str) -> pa.Table:
    """The rows of a table that are of one of these kinds; the table itself where all are."""
    chosen = of_kind(table, *kinds)
    return table if chosen.all() else take_rows(table, np.flatnonzero(chosen))


def without_void(table: pa.Table, cuts: pa.Table) -> pa.Table:
    """The rows of a table that none of these cuts makes void (`effect.void`)."""
    if not table.num_rows or not cuts.num_rows:
        return table
    names, codes = coded(table, "episode")
    numbers = {name: number for number, name in enumerate(names)}
    cut = [numbers.get(name, -1) for name in words(cuts, "episode")]
    places = zip(cut, ints(cuts, "take").tolist(), ints(cuts, "step").tolist(), strict=True)
    gone = void(codes, ints(table, "take"), ints(table, "step"), places)
    return take_rows(table, np.flatnonzero(~gone)) if gone.any() else table


def together(table: pa.Table, *names: str) -> Ints:
    """The numbers of a table's rows, those alike in these columns of strings together, in the order they have there."""
    order: Ints = np.lexsort([coded(table, name)[1] for name in reversed(names)])
    return order
