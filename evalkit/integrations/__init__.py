"""What an integration says where the library that it opens to is not installed."""

from evalkit.errors import UsageError


class MissingLibraryError(UsageError, ModuleNotFoundError):
    """An integration's library is not installed: an error of usage to a command, a failed import to a program."""


def missing(library: str, extra: str) -> MissingLibraryError:
    """The error that says how to install it."""
    return MissingLibraryError(f"{library} is not installed. Install it with: pip install 'evalkit-econ[{extra}]'")
