"""Files of editors that begin with a mark of their encoding: that of UTF-8 is no part of the text, others are told."""

import codecs
from pathlib import Path

from evalkit.errors import UsageError


def without_mark(data: bytes, path: Path) -> bytes:
    """The beginning of a text file, or all of it, with blanks in place of UTF-8's mark: places of bytes stay. Raises
    UsageError for UTF-16 and UTF-32, with their marks or without."""
    if data.startswith(codecs.BOM_UTF8):
        return b" " * len(codecs.BOM_UTF8) + data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4]:
        raise UsageError(f"{path} is not UTF-8 text, but UTF-16 or UTF-32. Save it as UTF-8 in your editor.")
    return data
