"""JSON that evalkit wrote and that may be damaged: decoded to a record, or one typed error that says where."""

from typing import TypeVar

import msgspec
import orjson

from evalkit.errors import CorruptLogError

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
