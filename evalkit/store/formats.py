"""What is said of a file in a format that this evalkit does not read."""

import re

from evalkit import __version__
from evalkit.plugins import install_line

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,40}")


def other_format(where: object, what: str, number: object, written_by: object, own: int) -> str:
    """A sentence on what is wrong and what to do. `what`: `log format`; `written_by`: the version of evalkit, as far as
    the file says."""
    version = written_by if isinstance(written_by, str) and _VERSION.fullmatch(written_by) else ""
    return (
        f"{where} has {what} {number}, written by {f'evalkit {version}' if version else 'another evalkit'}; this is "
        f"evalkit {__version__}, which reads format {own}. Use the evalkit that wrote it"
        + (f": {install_line('evalkit-econ', version)}" if version else ".")
    )
