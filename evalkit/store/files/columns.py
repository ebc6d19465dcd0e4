"""Python values as Arrow columns, built from buffers.

`pyarrow.array` would do the same in the same time, but its first call imports pandas wherever that is installed: 0.3 s
of CPU and 50 MB in a process that never uses it.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

Values = Sequence[Any]


def column_of(values: Values, kind: pa.DataType) -> pa.Array:
    """One column of type string, binary, binary(n), int32, int64 or float64.

    A value that does not fit the type (half a surrogate pair, bytes that are not UTF-8, an integer that is too large,
    None) is replaced by the nearest value that does. The reply was paid for, and one provider's odd value must not cost
    the other rows.
    """
    build, nearest = _KINDS[kind.id]
    try:
        return build(values, kind)
    except (ValueError, OverflowError, TypeError, AttributeError):
        return build([nearest(value, kind) for value in values], kind)


def column_with_gaps(values: Values, kind: pa.DataType) -> pa.Array:
    """The same, also of type bool; it has no value where `values` has None."""
    if None not in values and not pa.types.is_boolean(kind):
        return column_of(values, kind)
    present = [value is not None for value in values]
    if pa.types.is_boolean(kind):
        data = [pa.py_buffer(_bits(values))]
    else:
        nothing = "" if pa.types.is_string(kind) else 0
        filled = [nothing if value is None else value for value in values]
        _, *data = column_of(filled, kind).buffers()
    gaps = None if all(present) else pa.py_buffer(_bits(present))
    return pa.Array.from_buffers(kind, len(values), [gaps, *data])


def _texts(values: Values, kind: pa.DataType) -> pa.Array:
    if values and not isinstance(values[0], str):
        return _json_texts(values, kind)
    joined = "".join(values)
    if joined.isascii():
        return _variable(values, joined.encode(), kind)
    encoded = [value.encode() for value in values]
    return _variable(encoded, b"".join(encoded), kind)


def _json_texts(values: Values, kind: pa.DataType) -> pa.Array:
    """UTF-8 that is encoded already."""
    column = _bytes(values, kind)
    if not b"".join(filter(None, values)).isascii():
        for value in filter(None, values):
            value.decode()  # bytes that are not UTF-8 must not become a string
    return column


def _bytes(values: Values, kind: pa.DataType) -> pa.Array:
    if None not in values:
        return _variable(values, b"".join(values), kind)
    present = [value is not None for value in values]
    filled = [value or b"" for value in values]
    return _variable(filled, b"".join(filled), kind, _bits(present))


def _variable(values: Values, data: bytes, kind: pa.DataType, present: bytes | None = None) -> pa.Array:
    offsets = array("i", accumulate(map(len, values), initial=0))
    buffers = [present if present is None else pa.py_buffer(present), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _bits(flags: Sequence[Any]) -> bytes:
    """A bit for each value, whether it is true: the first value is the lowest bit of the first byte."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits or "0", 2).to_bytes((len(flags) + 7) // 8, "little")


def _digests(values: Values, kind: pa.DataType) -> pa.Array:
    data = b"".join(values)
    if len(data) != len(values) * kind.byte_width:
        raise ValueError(f"a digest does not have {kind.byte_width} bytes")
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def _numbers(code: str) -> Callable[[Values, pa.DataType], pa.Array]:
    def build(values: Values, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(code, values))])

    return build


def _nearest_text(value: Any, _: pa.DataType) -> Any:
    if isinstance(value, bytes):
        # None among bytes stays None, so bytes must stay bytes.
        return value.decode("utf-8", "replace").encode()
    return value if value is None else str(value).encode("utf-8", "replace").decode()


def _nearest_bytes(value: Any, _: pa.DataType) -> Any:
    return value if value is None else bytes(value)


def _nearest_digest(value: Any, kind: pa.DataType) -> Any:
    return bytes(value or b"")[: kind.byte_width].ljust(kind.byte_width, b"\0")


def _nearest_integer(value: Any, kind: pa.DataType) -> Any:
    most = 2 ** (kind.bit_width - 1) - 1
    return max(-most - 1, min(most, int(value or 0)))


def _nearest_float(value: Any, _: pa.DataType) -> Any:
    return float(value or 0.0)


_KINDS = {
    pa.string().id: (_texts, _nearest_text),
    pa.binary().id: (_bytes, _nearest_bytes),
    pa.binary(1).id: (_digests, _nearest_digest),
    pa.int32().id: (_numbers("i"), _nearest_integer),
    pa.int64().id: (_numbers("q"), _nearest_integer),
    pa.float64().id: (_numbers("d"), _nearest_float),
}
