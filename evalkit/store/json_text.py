"""JSON that evalkit wrote and anybody may have damaged: as a record of its kind, or one typed error that says where."""

from typing import TypeVar

import msgspec
import orjson

from evalkit.errors import CorruptLogError

KindT = TypeVar("KindT")


def decode(data: bytes, kind: type[KindT], where: str, remedy: str) -> KindT:
    """A text as a value of `kind`. Raises CorruptLogError naming `where`, what is wrong, and the remedy.

    What comes of it can be written again: it is Unicode, its integers fit 64 bits, and it is nested 254 deep at most.
    """
    try:
        value = orjson.loads(data)
        orjson.dumps(value)
        return msgspec.convert(value, kind)
    except (ValueError, TypeError) as flaw:
        raise CorruptLogError(f"{where} is damaged: {flaw}. {remedy}") from flaw
