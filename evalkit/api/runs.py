"""A run for programs: figures, tables, queries, episodes."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from decimal import Decimal
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from evalkit.dialogue import Message, Reply
from evalkit.envs.environment import Facts, Score
from evalkit.errors import UsageError, nearest
from evalkit.frozen.manifests import read_manifest
from evalkit.money import usd
from evalkit.playing.specs import run_directory
from evalkit.results.moves import Ask, Move
from evalkit.text import many

if TYPE_CHECKING:
    import pyarrow as pa

    from evalkit.frozen.manifest import Manifest
    from evalkit.report.tables import Column, Table
    from evalkit.report.views import Views
    from evalkit.results.show import ReplayedEpisode
    from evalkit.store.reading.index import RunIndex


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Episode:
    """One episode: one agent on one instance. Its chats are rendered by replaying the logged replies.

    id           hexadecimal digits, derived from agent, instance and replicate
    agent        its name in the sweep
    environment, suite, instance
                 names; the suite with `?k=2` after it where parameters were varied
    replicate    from 0
    ending       `complete`, `stable`, `unresponsive`, ... as the environment says, or `context_length`, ... where the
                 provider refused; empty if the episode has not ended
    score        `Score`; None if the episode has not ended
    chats        every chat at its end: a tuple of tuples of `Message`, including the agent's messages
    replies      tuple of `Reply`, one per step; None if the provider refused a request
    asks         tuple of `Ask`: the requests of an agent that is code, by step and in the order of their replies
    facts        tuple with one mapping per step: the environment's response to the reply, as numbers and words
    cost_usd     Decimal; only replies, without failed attempts
    tokens_in, tokens_out
                 as counted by the provider
    latency_s    seconds, the sum over all replies
    reproduced   whether replay gave the same facts, texts and requests as the log, byte for byte

    `str(episode)` is what `evalkit show` prints.

    >>> import evalkit
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> episode = evalkit.play("knuth", instance)
    >>> episode.ending, episode.score.value, len(episode.replies)
    ('stable', 1.0, 16)
    >>> episode.messages[0].role
    'system'
    """

    id: str
    agent: str
    environment: str
    suite: str
    instance: str
    replicate: int
    ending: str
    score: Score | None
    chats: tuple[tuple[Message, ...], ...]
    replies: tuple[Reply | None, ...]
    asks: tuple[Ask, ...]
    facts: tuple[Facts, ...]
    cost_usd: Decimal
    tokens_in: int
    tokens_out: int
    latency_s: float
    reproduced: bool
    text: str = field(compare=False)
    """As `evalkit show` prints it."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of all chats, in order."""
        return tuple(message for chat in self.chats for message in chat)

    def __repr__(self) -> str:
        score = "not ended" if self.score is None else f"score {self.score.value:g}"
        address = f"{self.agent}:{self.suite}:{self.instance}:{self.replicate}"
        return f"Episode({address}: {self.ending or 'not ended'}, {many(len(self.replies), 'step')}, {score})"

    def __str__(self) -> str:
        return self.text


def episode_of(replayed: "ReplayedEpisode", *, suite: str = "") -> Episode:
    """An episode of a run as the public record; `suite`: the suite's name, if the run has another one."""
    from evalkit.results.show import trajectory_of

    result = replayed.result
    score = None
    if result.score is not None:
        score = Score(value=result.score, solved=result.solved, metrics=result.metrics, path=result.path)
    return Episode(
        id=result.id,
        agent=result.agent,
        environment=result.environment,
        suite=suite or result.suite,
        instance=result.instance,
        replicate=result.replicate,
        ending=result.ending,
        score=score,
        chats=_chats(replayed.moves),
        replies=tuple(move.reply for move in replayed.moves),
        asks=replayed.asks,
        facts=tuple(move.facts for move in replayed.moves if move.reply is not None),
        cost_usd=usd(result.cost),
        tokens_in=result.tokens_in,
        tokens_out=result.tokens_out,
        latency_s=result.latency_s,
        reproduced=all(move.reproduced for move in replayed.moves),
        text=trajectory_of(replayed).plain(),
    )


def _chats(moves: "tuple[Move, ...]") -> tuple[tuple[Message, ...], ...]:
    """Every chat at its end."""
    chats: list[list[Message]] = []
    for move in moves:
        if move.turn == 0:
            chats.append(list(move.opening))
        if move.reply is not None:
            chats[-1] += (move.reply.message(), *move.messages)
    return tuple(map(tuple, chats))


REPORT = "report."
"""Prefix of a table's name: the report's table, if a view has the same name."""
AGAIN_S = 0.1
"""Between two tries to end a query."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """A run in its directory: its state when `run` or `load` returned, and methods to read it.

    name        as in the spec
    directory   absolute Path
    reason      why the last call of `run` ended: `complete`, `limit`, `budget`, `deadline`, `interrupt`, `lane` (a
                provider failed for good), `agent` (its own code failed), `refused` (its provider refused requests),
                `deferred` (it did not answer), `storage`, `errors`; empty while another process writes the run, or if
                that process was killed
    planned     all episodes of the run: agents x instances x replicates, without void ones
    ended       of these, the episodes that have ended and have a score; the others remain
    void        ended episodes that `evalkit tools void` excludes
    spent_usd   Decimal, exact: replies, failed attempts that may have been billed, and charges for crashes
    messages    why the call did not complete the run, and what to do, as sentences; empty for `load`

    `table`, `sql` and `episode` read the log again each time, also while it is being written.

    >>> import evalkit
    >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    >>> run = evalkit.run(spec)
    >>> run.reason, run.planned, run.ended, run.void, run.spent_usd
    ('complete', 12, 12, 0, Decimal('0'))
    """

    name: str
    directory: Path
    reason: str
    planned: int
    ended: int
    void: int
    spent_usd: Decimal
    messages: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        why = self.reason or "not ended"
        return f"Run({self.name}: {why}, {self.ended:,} of {self.planned:,} episodes, {self.spent_usd} USD)"

    def _repr_html_(self) -> str:
        """For notebooks: its state and its scores."""
        from evalkit.report.report import report

        scores = report(self.directory).tables[0]
        return replace(scores, title=repr(self))._repr_html_()

    def table(self, name: str) -> "pa.Table":
        """A view of `evalkit sql`, or a table of `evalkit report`, as a `pyarrow.Table`.

        Views (docs/sql.md): `steps`, `calls`, `log`, `cells`, `episodes`, `scores`, `periods`, `ledger`, `agents`,
        `instances`. Tables: `behaviour`, `refusals`, `completeness`, `money`, `speed`, and others that only some
        runs have. `report.NAME` is always the report's table, as in `report.scores`, since there is also a view
        `scores`. Rows of a view have no order; use `sql` for an order.

        Columns of a report's table are its keys in JSON. Scores and percentages are 0 to 100; an interval is two
        columns, `KEY_low` and `KEY_high`; money is whole pico-dollars (1e-12 USD), times are seconds; counts are a map
        from names to numbers. Each field's metadata holds `title`, `kind` and `unit`, the table's `title` and `notes`.

        Raises UsageError with the nearest name, CorruptLogError.

        >>> import evalkit
        >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
        >>> run = evalkit.run(spec)
        >>> run.table("episodes").num_rows
        12
        >>> run.table("report.scores").select(["suite", "agent", "episodes"]).to_pylist()
        [{'suite': 'scheduling/basic', 'agent': 'knuth', 'episodes': 12}]
        """
        from evalkit.report.report import report
        from evalkit.report.views import VIEWS

        if not isinstance(name, str):
            raise UsageError(f"name: expected a table's name, got {name!r}.")
        if name in VIEWS:
            return self.sql(f"from {name}")
        tables = {table.name: table for table in report(self.directory).tables}
        wanted = name.removeprefix(REPORT)
        if wanted not in tables:
            known = [*VIEWS, *(title if title not in VIEWS else f"{REPORT}{title}" for title in tables)]
            raise UsageError(f"The run has no table {name!r}.{nearest(name, known)}")
        return as_arrow(tables[wanted])

    def sql(self, query: str) -> "pa.Table":
        """The answer to a query over the run's views, as a `pyarrow.Table`: DuckDB's SQL, as for `evalkit sql`.

        The query can read only the views, not the disk or the network. Raises UsageError with DuckDB's message for a
        refused query, and CorruptLogError.

        >>> import evalkit
        >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
        >>> run = evalkit.run(spec)
        >>> run.sql("select agent, count(*) as n, avg(score) as mean from episodes where used group by 1").to_pylist()
        [{'agent': 'knuth', 'n': 12, 'mean': 1.0}]
        """
        from evalkit.report.views import open_views

        if not isinstance(query, str):
            raise UsageError(f"query: expected SQL as a string, got {type(query).__name__}.")
        return asked(open_views(self.directory), query)

    def episode(self, name: str) -> Episode:
        """One episode, replayed from the log: by its id, the start of one, or `agent:suite:instance:replicate`.

        Raises RunError if no episode or more than one matches; CorruptLogError if its rows cannot be read.

        >>> import evalkit
        >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
        >>> evalkit.run(spec).episode("knuth:scheduling/basic:seed-0:0").ending
        'stable'
        """
        from evalkit.results.show import open_episode

        if not isinstance(name, str):
            raise UsageError(f"name: expected an episode's name, got {type(name).__name__}.")
        return episode_of(open_episode(self.directory, name))


def load(run: str | PathLike[str]) -> Run:
    """An existing run, by its directory or by its name below `runs/`; also while it is being written.

    Raises RunError if there is no such run, CorruptLogError if its log is damaged.

    >>> import evalkit
    >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    >>> evalkit.run(spec) == evalkit.load("first")
    True
    """
    directory = run_directory(run)
    loaded = run_at(directory, reason=_last_reason(directory))
    return replace(loaded, reason="complete") if not loaded.reason and loaded.ended == loaded.planned else loaded


def run_at(directory: Path, *, reason: str, messages: tuple[str, ...] = ()) -> Run:
    """The run in a directory, with its current state."""
    from evalkit.store.reading.index import read_index

    manifest = read_manifest(directory)
    index = read_index(directory)
    planned, ended, void = _counts(directory, manifest, index)
    return Run(
        name=manifest.name,
        directory=directory.absolute(),
        reason=reason,
        planned=planned,
        ended=ended,
        void=void,
        spent_usd=usd(index.spent),
        messages=messages,
    )


def _counts(directory: Path, manifest: "Manifest", index: "RunIndex") -> tuple[int, int, int]:
    """(planned, ended, void) episodes, as reports count them."""
    from evalkit.frozen.void import read_voids
    from evalkit.results.cells import planned_cells

    if read_voids(directory):
        from evalkit.results.derived import read_cells

        cells = read_cells(directory)[1]
        counts = ((cell.planned, cell.ended, len(cell.voided)) for cell in cells)
        planned, ended, void = map(sum, zip(*counts, strict=True))
        return planned, ended, void
    planned = sum(len(suite.instances) * manifest.replicates for suite, _ in planned_cells(manifest))
    return planned, sum(cell.ended for cell in index.cells.values()), 0


def _last_reason(directory: Path) -> str:
    """Why the last call of `run` ended; empty if it is running or was killed."""
    from evalkit.store.events import last_session

    return str(last_session(directory)[1].get("reason", ""))


# A report's table as columns of Arrow, for programs: the values of its JSON, typed.

WHOLE = frozenset({"count", "tokens", "usd"})
"""Kinds of columns whose values are whole numbers."""


def as_arrow(table: "Table") -> "pa.Table":
    """The rows with full precision under the columns' keys; an interval takes two columns, counts are a map.

    Fields have title, kind and unit as metadata, the schema has title and notes.
    """
    import pyarrow as pa

    fields, arrays = [], []
    for column in table.columns:
        about = {"title": column.title, "kind": column.kind, "unit": column.unit}
        values = [row.get(column.key) for row in table.rows]
        for key, array in _arrays(column, values):
            fields.append(pa.field(key, array.type, metadata=about))
            arrays.append(array)
    schema = pa.schema(fields, metadata={"title": table.title, "notes": "\n".join(table.lines_below)})
    return pa.Table.from_arrays(arrays, schema=schema)


def _arrays(column: "Column", values: list[Any]) -> "list[tuple[str, pa.Array]]":
    """(key, values) of what a column becomes."""
    import pyarrow as pa

    if column.kind == "interval":
        ends = [(None, None) if value is None else tuple(value) for value in values]
        return [
            (f"{column.key}_{name}", pa.array([end[index] for end in ends], pa.float64()))
            for index, name in enumerate(("low", "high"))
        ]
    if column.kind == "counts":
        pairs = [None if value is None else list(value.items()) for value in values]
        return [(column.key, pa.array(pairs, pa.map_(pa.string(), pa.int64())))]
    if column.kind == "text":
        return [(column.key, _texts(values))]
    whole = column.kind in WHOLE and all(isinstance(value, int | None) for value in values)
    return [(column.key, pa.array(values, pa.int64() if whole else pa.float64()))]


def _texts(values: list[Any]) -> "pa.Array":
    """Values of a column of texts; a parameter that was varied may be a number in all rows, and then is one here."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        return pa.array(values)
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def asked(views: "Views", query: str) -> "pa.Table":
    """The answer to a query, in a thread: Ctrl-C reaches Python while DuckDB computes, and ends the query. Raises as
    `Views.sql`."""
    pool = ThreadPoolExecutor(1)
    try:
        answer = pool.submit(views.sql, query)
        while not answer.done():  # not for ever: a signal that comes just before it waits does not wake it
            wait([answer], AGAIN_S)
        return answer.result()
    except KeyboardInterrupt:
        ending = Thread(target=pool.shutdown)
        ending.start()
        while ending.is_alive():  # an interruption before the query has begun is lost
            views.interrupt()
            ending.join(AGAIN_S)
        raise
    finally:
        pool.shutdown()
