"""Every failure of the world that evalkit names, each with its remedy. One flat family.

Four mechanisms, kept apart: an agent's mistake is an *observation* and never comes here; a failure of the world is an
`EvalkitError`; a bug of ours is any other exception; bad input is a `UsageError` that was found before anything began.
"""

from collections.abc import Iterable


class EvalkitError(Exception):
    """Something in the world is not as it must be. The message says what, where, and what to do.

    All errors that evalkit raises on purpose are of this family; any other exception is a bug.

    >>> import evalkit
    >>> try:
    ...     evalkit.env("pricng")
    ... except evalkit.EvalkitError as flaw:
    ...     print(type(flaw).__name__, flaw)
    UsageError There is no environment 'pricng'. Did you mean 'pricing'?
    """


class UsageError(EvalkitError):
    """What the user asked for cannot be started: a spec, a suite, a flag. Nothing was written.

    >>> import evalkit
    >>> try:
    ...     evalkit.run({"name": "mine", "agents": [{"policy": "knth"}], "suites": [{"name": "scheduling/basic"}]})
    ... except evalkit.UsageError as flaw:
    ...     print(flaw)
    spec: agents[1].policy: there is no policy 'knth'. Did you mean 'knuth'?
    """


class UnfitInstance(UsageError):
    """A line of a large suite turned out, when it was reached, to be no instance: it alone is not played."""


class RunError(EvalkitError):
    """A run directory cannot be used as asked: locked, foreign, conflicting.

    >>> import evalkit
    >>> try:
    ...     evalkit.load("nowhere")
    ... except evalkit.RunError as flaw:
    ...     print(flaw)
    There is no run 'nowhere': no such directory, here or in runs/.
    """


class CorruptLogError(EvalkitError):
    """A run's log has lost or changed rows. Names segment, episode and step as far as they are known."""


class StorageError(EvalkitError):
    """The disk refused a write: full, read-only, no permission. What was durable before stays valid."""


class FencedError(StorageError):
    """Another process has ended this one's journal: nothing more of it enters the log."""


class BudgetReached(EvalkitError):
    """The next request's worst case does not fit the budget any more."""


class EpisodeUnavailable(EvalkitError):
    """A request failed for longer than retries allow; the episode is parked and owed."""


class EpisodeRefused(EvalkitError):
    """The provider refused this episode's request because of its content; the model's doing, final."""

    def __init__(self, ending: str, message: str) -> None:
        super().__init__(message)
        self.ending = ending
        """`context_length`, `content_filter` or `bad_request`."""


class LaneClosed(EvalkitError):
    """The lane cannot go on (bad key, unknown model, bound exceeded); its episodes are owed."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or the valid names if none is near. For the end of a message."""
    from difflib import get_close_matches

    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Valid: {', '.join(names)}." if names else ""
