"""JSON that evalkit wrote and that may be damaged: decoded to a record, or one typed error that says where."""

from typing import TypeVar

import msgspec
import orjson

from evalkit.errors import CorruptLogError
from evalkit.plugins import install_line, is_plain
from evalkit.version import __version__

KindT = TypeVar("KindT")


def decode(data: bytes, kind: type[KindT], where: str, remedy: str) -> KindT:
    """JSON text as a value of `kind`. Raises CorruptLogError naming `where`, what is wrong, and the remedy.

    The value can be written again: it is Unicode, its integers fit 64 bits, and it is nested 254 deep at most.
    """
    try:
        value = orjson.loads(data)
        orjson.dumps(value)
        return msgspec.convert(value, kind)
    except (ValueError, TypeError) as flaw:
        raise CorruptLogError(f"{where} is damaged: {flaw}. {remedy}") from flaw


# What is said of a file in a format that this evalkit does not read.


def other_format(where: object, what: str, number: object, written_by: object, own: int) -> str:
    """A sentence on what is wrong and what to do. `what`: `log format`; `written_by`: the version of evalkit, as far as
    the file says."""
    version = written_by if isinstance(written_by, str) and is_plain(written_by) else ""
    return (
        f"{where} has {what} {number}, written by {f'evalkit {version}' if version else 'another evalkit'}; this is "
        f"evalkit {__version__}, which reads format {own}. Use the evalkit that wrote it"
        + (f": {install_line('evalkit-econ', version)}" if version else ".")
    )
