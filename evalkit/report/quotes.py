"""One trajectory quoted for each kind of error: the call as the model wrote it, and what the environment said.

Kinds are the refusals of calls by their outcome, and those that no outcome tells, which an environment's extras name.
The quote is from the shortest episode in which an error of the kind occurs, at its first place there, so the same run
gives the same quotes.

Source: Table 7 and D.2 of the CostBench paper, which have it for four kinds.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifest import Manifest, load_target
from evalkit.report import queries
from evalkit.report.extras import ErrorKind, Find, QuotedPlace, extras_of
from evalkit.report.run_data import RunData
from evalkit.report.scores import ACCEPTED, packs_of
from evalkit.report.tables import Column, Table, columns_of
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.results.moves import Move, moves
from evalkit.text import bounded

COUNTED = ("environment", "kind", "count", "unit", "episodes", "share")
"""What the query says of a quote's kind."""

BOUND = 120
"""Characters of a text that a table quotes."""

NO_FAULT = frozenset({ACCEPTED, "not_executed", "banned", "failed"})
"""Outcomes of calls that are not errors of the agent: events on the way are the environment's doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One kind of error in a run, with an example."""

    environment: str
    kind: str
    count: int
    unit: str
    """What is counted: calls, replies, periods, plans, episodes."""
    episodes: int
    """In which it occurs."""
    share: float
    """These, in percent of the environment's episodes."""
    example: EpisodeResult = field(repr=False)
    step: int
    period: int
    turn: int
    said: str
    """The call or reply as the model wrote it: untrusted and unbounded."""
    answer: str
    """What the environment said to it, as a string or as facts."""


def error_kinds(cells: Sequence[Cell]) -> tuple[ErrorKind, ...]:
    """The kinds that no outcome tells which episodes of these cells may show, in a fixed order."""
    environments = dict.fromkeys(cell.suite.environment for cell in cells)
    return tuple(kind for name in environments for kind in extras_of(name).errors)


def quotes_query(cells: Sequence[Cell]) -> str:
    """Of each kind of error how often and in how many episodes it occurs, and which of these is quoted."""
    parts = "".join(
        _OCCURRENCES.format(
            named=", ".join(map(queries.text, (kind.name, kind.unit, ""))),
            count=kind.sql,
            environment=queries.text(kind.environment),
        )
        for kind in error_kinds(cells)
    )
    return _QUERY.format(no_fault=", ".join(map(queries.text, sorted(NO_FAULT))), parts=parts)


_OCCURRENCES = """\
    union all select environment, {named}, episode, steps, ({count})::bigint
    from episodes where used and environment = {environment}
"""

_QUERY = """\
with shown(environment, kind, unit, outcome, episode, steps, n) as (
    select environment, 'refused: ' || replace(outcome, '_', ' '), 'calls', outcome, episode, steps, sum(calls)
    from (select environment, episode, steps, unnest(outcomes, recursive := true) from episodes where used)
    where outcome not in ({no_fault}) group by all
{parts}),
played as (select environment, count(*) as played from episodes where used group by all)
select environment, kind, unit, outcome, sum(n)::bigint as count, count(*) as episodes,
    100 * count(*) / played as share, arg_min(episode, (steps, episode)) as example
from shown join played using (environment) where n > 0
group by environment, kind, unit, outcome, played order by environment, episodes desc, count desc, kind"""


def quotes(
    manifest: Manifest,
    cells: Sequence[Cell],
    read: Callable[[Sequence[EpisodeResult]], Mapping[str, Sequence[Any]]],
) -> tuple[Quote, ...]:
    """A quote for each kind of error that occurs in the episodes estimates are based on, the most frequent kind first.

    read   gives the rows of a few episodes by id, with step, reply, step digest and ending; called once
    """
    shown = RunData(manifest, cells).rows(quotes_query(cells))
    known = {episode.id: episode for cell in cells for episode in cell.prefix}
    find = {(kind.environment, kind.name): kind.find for kind in error_kinds(cells)}
    rows = read([known[name] for name in dict.fromkeys(row["example"] for row in shown)])
    replayed: dict[str, tuple[Any, list[Move]]] = {}
    result = []
    for row in shown:
        example = known[row["example"]]
        if example.id not in replayed:
            replayed[example.id] = _replay(manifest, example, rows[example.id])
        instance, played = replayed[example.id]
        finder = _refused(row["outcome"]) if row["outcome"] else find[row["environment"], row["kind"]]
        position = finder(instance, played)
        if position is None:
            continue
        move = played[position[0]]
        said, answer = _quoted(move, position[1])
        result.append(
            Quote(
                **{name: row[name] for name in COUNTED},
                example=example,
                step=move.row["step"],
                period=move.period,
                turn=move.turn,
                said=said,
                answer=answer,
            )
        )
    return tuple(result)


def run_quotes(run: Path, manifest: Manifest, cells: Sequence[Cell]) -> tuple[Quote, ...]:
    """The quotes of a run directory, whose cells these are. Raises CorruptLogError."""
    from evalkit.store.reading.reader import replay_rows

    def read(episodes: Sequence[EpisodeResult]) -> Mapping[str, Sequence[Any]]:
        rows = replay_rows(run, {episode.id for episode in episodes})
        return {
            episode.id: [
                {name: getattr(row, name) for name in ("step", "reply", "step_digest", "ending")}
                for row in rows[episode.id]
            ]
            for episode in episodes
        }

    return quotes(manifest, cells, read)


def _replay(manifest: Manifest, example: EpisodeResult, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, list[Move]]:
    agent, suite = manifest.agents[example.agent], manifest.suites[example.suite]
    kit = manifest.kit_of(agent, suite.environment)
    env = ENVIRONMENTS[suite.environment]
    instance = load_target(env, manifest.targets([(suite.name, example.instance)])[suite.name, example.instance][1])
    return instance, list(moves(env, instance, kit, rows))


def _quoted(move: Move, index: int | None) -> tuple[str, str]:
    """(what the agent said, what the environment answered)."""
    reply = move.reply
    assert reply is not None
    if index is None:
        said = reply.text or (
            "(an empty reply)" if not reply.calls else _call(reply.calls[-1].name, reply.calls[-1].arguments)
        )
        feedback = "\n".join(message.text for message in move.messages if message.role != "tool")
        return said, feedback or _facts(move.facts)
    call = reply.calls[index]
    heard = [message for message in move.messages if message.role == "tool"]
    answer = heard[index].text if index < len(heard) else ""
    accepted = move.facts["calls"][index]["outcome"] == ACCEPTED
    return _call(call.name, call.arguments), answer or _facts(move.facts if accepted else move.facts["calls"][index])


def _call(name: str, arguments: str) -> str:
    return f"{name}({arguments})"


def _facts(facts: Mapping[str, Any]) -> str:
    """What was recorded where the agent was told nothing: without its place; of an action that failed, the reasons."""
    rest = {key: value for key, value in facts.items() if key not in {"period", "turn", "calls"}}
    action = rest.get("action")
    if isinstance(action, Mapping) and action.get("reasons"):
        rest["action"] = {"reasons": action["reasons"]}
    return orjson.dumps(rest, option=orjson.OPT_SORT_KEYS).decode()


def _refused(outcome: str) -> Find:
    def find(_: Any, played: Sequence[Move]) -> QuotedPlace | None:
        calls = ((i, j, call) for i, move in enumerate(played) for j, call in enumerate(move.facts.get("calls", ())))
        return next(((i, j) for i, j, call in calls if call["outcome"] == outcome), None)

    return find


def quotes_table(quotes: Sequence[Quote], cells: Sequence[Cell], run: str) -> Table:
    """The quotes as a table; `run` is how the run is named in the command that shows the rest."""
    return Table(
        name="quotes",
        title="Errors, one of each kind quoted",
        columns=(
            Column(key="environment", title="Environment", group=True),
            Column(key="kind", title="Kind"),
            Column(key="count", title="Count", kind="count"),
            Column(key="unit", title="Of"),
            Column(key="episodes", title="Episodes", kind="count"),
            Column(key="share", title="Share", kind="percent", unit="% of episodes"),
            *columns_of(said="The agent", answer="The environment", command="The rest"),
        ),
        rows=tuple(_row(quote, run) for quote in quotes),
        packs=packs_of(cells),
        notes=(
            "quoted: the first occurrence in the shortest episode that has one; text in braces is what was recorded if "
            "the agent was told nothing",
            "share: of the environment's episodes that scores are based on",
        ),
        query=quotes_query(cells),
    )


def _row(quote: Quote, run: str) -> dict[str, Any]:
    period = f" --period {quote.period}" if quote.example.periods > 1 else ""
    return {
        **{name: getattr(quote, name) for name in COUNTED},
        "said": _line(quote.said),
        "answer": _line(quote.answer),
        "command": f"evalkit show {shlex.quote(run)} {quote.example.id}{period}",
    }


def _line(text: str) -> str:
    """A text on one line, bounded, with nothing in it that a terminal would obey."""
    return bounded(" ".join(text.split()), BOUND)
