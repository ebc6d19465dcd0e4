"""What the pages of a person who plays show: the suite's episodes, one episode at its present turn, and its end.

The present chat is the game's, as the agent reads it. Earlier periods and the end are read from the log.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evalkit.api.games import Game
from evalkit.api.runs import load
from evalkit.dialogue import Message
from evalkit.doors.page.forms import TurnForms
from evalkit.doors.recorded import OutsideEpisode, Record
from evalkit.doors.sitting import Sitting, outcome_of
from evalkit.envs.known import is_litmus, known, one_chat, scale_words
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import QUIT
from evalkit.report.charts.drawing import period_lines
from evalkit.report.tables import Column, Table
from evalkit.results.show import ReplayedEpisode, open_episode
from evalkit.view.chat import PartView, PeriodView, period_address
from evalkit.view.episode import INLINE
from evalkit.view.grid import Grid, grid
from evalkit.view.overview import Fact
from evalkit.view.places import PLAIN, episode_address

LIST = "/play"
"""Where the suite's episodes are."""

MOST_SHOWN = 4 * INLINE
"""Characters of one text in the present chat; the agent reads all of it."""

QUERY = "select episode, ending, steps, 100 * score as score, solved from episodes"
COLUMNS = (
    Column(key="instance", title="Instance"),
    Column(key="replicate", title="Replicate", kind="count"),
    Column(key="state", title="State"),
    Column(key="steps", title="Replies", kind="count"),
    Column(key="score", title="Score", kind="score"),
    Column(key="solved", title="Solved"),
)
STATES = {"ended": "badge good", "waits for you": "badge going"}
"""What a state is marked as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a person is told above all else."""

    text: str
    kind: str = "note"
    """`note` or `flaw`."""
    words: str = ""
    """What they had written, where no form has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayList:
    """The page of a suite's episodes."""

    heading: str
    agent: str
    said: str
    """How many have ended."""
    next: str
    """Where the next episode is that has not ended; empty: all have."""
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayPage:
    """The page of one episode."""

    heading: str
    place: str
    """`agent:suite:instance:replicate`."""
    action: str
    """Where replies go; the page itself."""
    word: str
    """`your turn`, or how the episode has ended."""
    facts: Sequence[Fact]
    notices: Sequence[Notice]
    past: Sequence[PeriodView]
    """Periods that are over; their chats come when they are opened."""
    detail: str
    """Where the view shows this episode; empty: it has no step yet."""
    parts: Sequence[PartView] = ()
    """The present chat."""
    newest: int = 0
    """From which part on it is new."""
    forms: TurnForms | None = None
    """None: the episode has ended."""
    step: int = 0
    talks: bool = False
    """Whether a text alone can act."""
    solved: bool = False
    metrics: Mapping[str, str] | None = None
    """Of an ended episode."""
    commands: Sequence[str] = ()
    """What shows an ended episode in a terminal."""


def address_of(seat: OutsideEpisode) -> str:
    """Where an episode is played."""
    return f"{LIST}/{quote(seat.instance.id, safe=PLAIN)}:{seat.replicate}"


def play_list(record: Record) -> PlayList:
    """The suite's episodes, with what has been played. Reads the log."""
    logged = {row["episode"]: row for row in load(record.directory).sql(QUERY).to_pylist()}
    seats, rows, going = record.episodes(), [], list[OutsideEpisode]()
    for seat in seats:
        row = logged.get(seat.id, {"steps": 0})
        state = "ended" if row.get("ending") else "waits for you" if row["steps"] else "not begun"
        going += [] if row.get("ending") else [seat]
        solved = {True: "yes", False: "no"}.get(row.get("solved")) if row.get("ending") else None
        rows.append(
            {**row, "instance": seat.instance.id, "replicate": seat.replicate, "state": state, "solved": solved}
        )
    suite = seats[0].instance
    where = {(seat.instance.id, seat.replicate): address_of(seat) for seat in seats}
    columns = [
        column
        for column in COLUMNS
        if (column.key != "replicate" or record.replicates > 1)
        and (column.key != "solved" or not is_litmus(suite.environment))
    ]
    table = Table(
        name="play",
        title="Episodes",
        columns=tuple(columns),
        rows=tuple(rows),
        packs=("",),
        notes=(f"score: {scale_words([suite.environment])}",),
    )
    begun = [seat for seat in going if logged.get(seat.id)]
    return PlayList(
        heading=suite.suite,
        agent=record.outsider.agent,
        said=f"{len(seats) - len(going):,} of {len(seats):,} episodes have ended.",
        next=address_of([*begun, *going][0]) if going else "",
        grid=grid(
            table,
            str(record.directory),
            href=lambda row, key: where[row["instance"], row["replicate"]] if key == "instance" else "",
            marks=lambda row, key: STATES.get(row["state"], "") if key == "state" else "",
            every=True,
        ),
    )


def playing_page(seat: OutsideEpisode, sitting: Sitting, forms: TurnForms, *told: Notice) -> PlayPage:
    """The page of an episode that waits for a reply, without its past."""
    game = sitting.game
    parts, newest = _chat(game)
    return PlayPage(
        heading=seat.instance.id,
        place=seat.place,
        action=address_of(seat),
        word="your turn",
        facts=_facts(game),
        notices=[*told, *([] if told else _refused(game))],
        past=(),
        detail="",
        parts=parts,
        newest=newest,
        forms=forms,
        step=game.step,
        talks=sitting.talks,
    )


def with_past(page: PlayPage, seat: OutsideEpisode, directory: Path, prefix: str, period: int) -> PlayPage:
    """The same with the periods before `period`, from the log. `prefix`: where the view shows the run."""
    if not page.step:
        return page
    replayed = open_episode(directory, seat.id)
    past = [one for one in _past(replayed, prefix) if one.number < period]
    fresh = bool(past) and not any(move.period >= period for move in replayed.moves)
    told = [Notice(text=f"Period {past[-1].number} has ended: {past[-1].line}. {past[-1].numbers}.")] if fresh else []
    detail = episode_address(prefix, replayed.result)
    return replace(page, past=past, detail=detail, notices=[*page.notices, *told])


def ended_page(seat: OutsideEpisode, directory: Path, prefix: str, *told: Notice) -> PlayPage:
    """The page of an episode that has ended, from the log."""
    replayed = open_episode(directory, seat.id)
    result = replayed.result
    score = 0.0 if result.score is None else 100 * result.score
    litmus = is_litmus(result.environment)
    facts = [
        Fact(title="Score", value=f"{score:.1f}", note="" if litmus else "solved" if result.solved else "not solved")
    ]
    if not litmus:
        facts.append(Fact(title="Below the optimum", value=f"{100 - score:.1f}", note="points of 100"))
    facts += [
        Fact(title="Ended", value=result.ending.replace("_", " "), note="left" if result.ending == QUIT else ""),
        Fact(title="Replies", value=f"{result.steps:,}"),
    ]
    run = shlex.quote(str(directory))
    return PlayPage(
        heading=seat.instance.id,
        place=seat.place,
        action=address_of(seat),
        word="ended",
        facts=facts,
        notices=told,
        past=list(_past(replayed, prefix)),
        detail=episode_address(prefix, result),
        solved=result.solved,
        metrics={name: f"{value:,.3f}".rstrip("0").rstrip(".") for name, value in result.metrics.items()},
        commands=[f"evalkit show {run} {shlex.quote(seat.place)}", f"evalkit view {run}"],
    )


def _facts(game: Game) -> list[Fact]:
    environment, score = game.instance.environment, 100 * game.score().value
    env = known(environment)
    ends = (
        f"100 = {env.presentation.one_means}, 0 = {env.presentation.zero_means}"
        if env is not None and is_litmus(environment)
        else ""
    )
    facts = [
        Fact(
            title="Score so far",
            value=f"{score:.1f}",
            note=ends or "100 = optimum; as if you did nothing more",
        ),
        Fact(title="Replies so far", value=f"{game.step:,}"),
    ]
    if not one_chat(environment):
        facts.append(Fact(title="Period", value=f"{game.period:,}", note=f"reply {game.turn + 1:,} in it"))
    return facts


def _refused(game: Game) -> Iterator[Notice]:
    """What became of the reply before, if that was not accepted."""
    facts = game.facts
    if facts and game.turn and (outcome := outcome_of(facts[-1])) != "ok":
        yield Notice(text=f"Your last call was refused: {outcome.replace('_', ' ')}.", kind="flaw")


def _chat(game: Game) -> tuple[list[PartView], int]:
    """(the chat's texts, from which on they are new)."""
    parts, newest = list[PartView](), 0
    for message in game.messages:
        if message.role == "assistant":
            newest = len(parts)
        parts += _texts(message, folded=game.step > 0)
    return parts, newest


def _texts(message: Message, *, folded: bool) -> Iterator[PartView]:
    if message.role == "assistant":
        if message.text:
            yield PartView(kind="said", title="you", text=message.text, folded=False)
        for call in message.calls:
            yield PartView(kind="call", title=f"you call {call.name}", text=call.arguments, folded=False)
        return
    text = message.text if len(message.text) <= MOST_SHOWN else f"{message.text[:MOST_SHOWN]}... cut off here"
    title = message.name or {"user": "told"}.get(message.role, message.role)
    yield PartView(kind="read", title=title, text=text, folded=folded and message.role == "system")


def _past(replayed: ReplayedEpisode, prefix: str) -> Iterator[PeriodView]:
    """The periods of an episode that were begun, each with what came of it and the score after it."""
    result, env = replayed.result, ENVIRONMENTS[replayed.result.environment]
    lines = period_lines(result.environment, replayed.target, replayed.moves)
    address, facts, before = episode_address(prefix, result), list[Any](), 0.0
    for number, group in groupby(replayed.moves, key=lambda move: move.period):
        played = list(group)
        facts += [move.facts for move in played if move.reply is not None]
        score = 100 * env.score(replayed.target, facts).value
        yield PeriodView(
            number=number,
            anchor=f"p{number}",
            line=lines.get(number, "no action was accepted"),
            numbers=f"Score so far {score:.1f} ({score - before:+.1f})",
            warned=False,
            opening=(),
            turns=(),
            open=False,
            href=period_address(address, number),
        )
        before = score
