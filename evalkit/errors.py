"""All errors that evalkit raises on purpose, each with its remedy. One flat family.

Four mechanisms are kept apart. An agent's mistake is an *observation* and never an exception. A failure of the outside
world is an `EvalkitError`. Bad input is a `UsageError`, found before anything starts. Any other exception is a bug in
evalkit.
"""

from collections.abc import Iterable


class EvalkitError(Exception):
    """Something outside evalkit prevents the work. The message says what, where, and what to do.

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


class WeakInstanceError(UsageError):
    """An instance whose optimum is next to nothing, so that no score can be told from another. What generates suites
    takes the next seed's."""


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
    """A run's log has lost or changed rows. The message names segment, episode and step as far as they are known.

    >>> import evalkit
    >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    >>> run = evalkit.run(spec)
    >>> for file in run.directory.glob("log/*/*.parquet"):
    ...     _ = file.write_bytes(b"")
    >>> try:
    ...     run.table("steps")
    ... except evalkit.CorruptLogError as flaw:
    ...     print("evalkit run --repair" in str(flaw))
    True
    """


class StorageError(EvalkitError):
    """The disk refused a write: it is full or read-only, or a permission is missing. Data on disk stays valid.

    >>> import evalkit
    >>> from pathlib import Path
    >>> _ = Path("notes").write_text("This is not a directory.")
    >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    >>> try:
    ...     evalkit.run(spec, directory="notes/first")
    ... except evalkit.EvalkitError as flaw:
    ...     print(str(flaw).split(".")[0])
    notes/first: Not a directory
    """


class StoreAway(StorageError):
    """The store of a bucket has not answered, or refuses for now: the same request may succeed later."""


class FencedError(StorageError):
    """Another process has ended this process's journal: nothing more from it enters the log."""


class BudgetReached(EvalkitError):
    """The next request's worst case does not fit the remaining budget."""


class RequestTooLarge(EvalkitError):
    """The next request of one episode can never be paid for, while those of others can; the episode is deferred and
    remains."""


class EpisodeUnavailable(EvalkitError):
    """A request failed for longer than retries allow; the episode is deferred and remains."""


QUIT = "quit"
"""How an episode ends whose agent leaves it before its environment ends it."""
ASK_LIMIT = "ask_limit"
"""How an episode ends whose agent's code asks more often than it may."""


class EpisodeRefused(EvalkitError):
    """The provider refused this episode's request, and would refuse it again. Whether the model caused it is decided by
    `evalkit.wire.exhausted`. Or who plays from outside has given the episode up."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """`context_length`, `content_filter` or `bad_request`; from outside `quit`."""


class LaneClosed(EvalkitError):
    """The lane cannot continue (bad key, unknown model, bound exceeded); its episodes remain."""


class AskRefused(EvalkitError):
    """The provider refused a request of an agent's code because of its content, or the agent may ask no more.

    `kind` is `context_length`, `content_filter`, `bad_request` or `ask_limit`. An agent may catch it and ask for
    something else. Uncaught, it ends the episode; unless the model caused it, the episode is not scored and remains.

    >>> from evalkit import AskRefused
    >>> AskRefused("context_length", "The chat is too long.").kind
    'context_length'
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


class AgentError(EvalkitError):
    """An agent's code uses its seat wrongly: two requests of one asker at once, an act after the end.

    >>> from evalkit import AgentError
    >>> raise AgentError("a fork's key is used once a step")
    Traceback (most recent call last):
    evalkit.errors.AgentError: a fork's key is used once a step
    """


class AgentFailed(EvalkitError):
    """An agent's code has raised an exception; the message is its traceback. The episode is deferred and remains."""


class AgentStopped(EvalkitError):
    """An agent cannot continue although its lane can, since a lane of another of its models is closed."""


class AgentDiverged(EvalkitError):
    """An agent's code does not repeat what the log says it did; the episode is deferred and remains."""


MOST_LISTED = 60
"""Valid names that a message lists."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or the valid names, if they are few, where none is near. For the end of a message."""
    from difflib import get_close_matches

    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Valid: {', '.join(names)}." if 0 < len(names) <= MOST_LISTED else ""
