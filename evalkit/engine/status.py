"""The status of a run: what it contains, what remains, what it has spent, and what finishing it will take. It is read
from the run's directory alone, also while the run is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert

from evalkit.client.lanes.stats import ServerStats
from evalkit.engine.forecast import (
    EpisodeEstimate,
    Forecast,
    Range,
    alone,
    asks_per_step,
    learn_all,
    read_priors,
)
from evalkit.engine.freezing.keeping import reworded
from evalkit.engine.universe import Choice
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.question_files import read_frozen
from evalkit.money import usd_number
from evalkit.results.endings import DeferredEpisodes, deferred_episodes, deferred_words, most_said, refused_episodes
from evalkit.store.events import budget_of, last_session
from evalkit.store.files.record import UNSCORED
from evalkit.store.live import read_live
from evalkit.store.lock import Holder, holder
from evalkit.store.reading.accounts import spent
from evalkit.store.reading.index import RunIndex, read_index
from evalkit.store.reading.totals import ByTier, CellTotals, TierOutlook, outlooks, rate, tiers_json
from evalkit.store.reading.unmetered import UnmeteredReplies

NOTHING = Range(0.0, 0.0, 0.0)
KILLED = "The process that played it last ended without a word: it was killed, or its machine stopped."


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """One agent on one suite."""

    agent: str
    suite: str
    planned: int
    ended: int
    started: int
    """Begun and not ended."""
    steps: int
    cost: int
    """Of its steps, in pico-dollars."""
    endings: dict[str, int]
    refused: int = 0
    """Of the started ones: how many remain because the provider refused their last request."""
    deferred: Mapping[str, int] = field(default_factory=dict)
    """Of those that remain: how many the last session left, by way (`agent_error`, `unavailable`, ...)."""
    predicted: EpisodeEstimate | None = None
    """An episode as it was expected before any had ended; None if nobody asks for money."""
    seen: EpisodeEstimate | None = None
    """An ended episode on average: cost and requests; None before the first."""
    to_finish: Range = NOTHING
    """Pico-dollars for the rest of the started episodes and for all others."""
    requests_left: float = 0.0
    seconds_left: float | None = None
    """At the rate at which its lane's requests were sent, shared with the lane's other cells; None: not known."""

    @property
    def remaining(self) -> int:
        """Episodes that have not ended."""
        return self.planned - self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run at one moment."""

    directory: Path
    name: str
    cells: tuple[CellStatus, ...]
    written_by: Holder | None
    """The process that is writing it now."""
    steps_cost: int
    charges: int
    """Charges for single attempts, in pico-dollars."""
    crash_charges: int
    """The open leases of crashed sessions; unconfirmed."""
    open_leases: int
    """What a crash would cost now, or what one costs that is not charged yet; in pico-dollars."""
    spent: int
    unmetered: UnmeteredReplies
    """Replies without usage."""
    tiers: ByTier
    """Replies by the tier that served them."""
    lane_seconds: Mapping[str, float]
    """Seconds to finish, by lane, for lanes with remaining episodes and a known rate."""
    open_sessions: int
    """Sessions that have neither closed nor been charged for their crash, the present one included."""
    budget: int | None
    """In pico-dollars, of the last session; None: it had none."""
    simulated: str
    """Whether its money is real, as of the manifest."""
    reason: str = ""
    """Why the last session ended, in one word (`RunOutcome`, or `killed`); empty: it has not."""
    why: str = ""
    """The same in a sentence."""
    deferred_words: tuple[str, ...] = ()
    """What agents' own code kept from being played, in sentences."""
    kept: tuple[str, ...] = ()
    """Prompt packs that evalkit has changed since the run began, and that the run keeps as they were; in lines."""
    workers: str = ""
    """How many processes play it now, in words; empty: one."""
    servers: Mapping[str, tuple[ServerStats, ...]] = field(default_factory=dict)
    """By lane that has several and is being played: what they do now."""
    refused_words: Mapping[str, str] = field(default_factory=dict)
    """By agent with refused episodes: what the provider said most often."""
    question: dict[str, Any] | None = None
    """What it is to find out, with its answers at the last look (`RunQuestion.to_json`); None: it is not asked
    anything, or has not looked yet."""

    @property
    def to_finish(self) -> Range:
        """Pico-dollars to end every episode; the ends are the sums of the cells' ends."""
        return Range(*(sum(ends) for ends in zip(*(cell.to_finish for cell in self.cells), strict=True)))

    @property
    def seconds_left(self) -> float | None:
        """Of the slowest lane; None if no rate is known."""
        return max(self.lane_seconds.values(), default=None)

    @property
    def by_tier(self) -> tuple[TierOutlook, ...]:
        """What remains by each tier that has served replies, and by their mixture; empty where only one has."""
        return outlooks(self.tiers, self.to_finish.expected, self.seconds_left)

    def to_json(self) -> dict[str, Any]:
        """The status with a stable schema: `version` 1; money in USD, and as whole pico-dollars."""
        return {
            "version": 1,
            "run": str(self.directory),
            "name": self.name,
            "episodes": sum(cell.planned for cell in self.cells),
            "ended": sum(cell.ended for cell in self.cells),
            "started": sum(cell.started for cell in self.cells),
            "remaining": sum(cell.remaining for cell in self.cells),
            "refused": sum(cell.refused for cell in self.cells),
            "refused_words": dict(self.refused_words),
            "steps": sum(cell.steps for cell in self.cells),
            "running": self.written_by is not None,
            **({"workers": self.workers} if self.workers else {}),
            **({"servers": _servers_json(self.servers)} if self.servers else {}),
            "reason": self.reason,
            "why": self.why,
            "written_by": None if self.written_by is None else f"{self.written_by.host}:{self.written_by.pid}",
            "money": {
                "simulated": bool(self.simulated),
                "budget_usd": None if self.budget is None else usd_number(self.budget),
                "left_usd": None if self.budget is None else usd_number(max(0, self.budget - self.spent)),
                "spent_usd": usd_number(self.spent),
                "spent_pico_usd": self.spent,
                "steps_pico_usd": self.steps_cost,
                "attempt_charges_pico_usd": self.charges,
                "crash_charges_pico_usd": self.crash_charges,
                "in_open_leases_pico_usd": self.open_leases,
                "open_sessions": self.open_sessions,
                "by_tier": tiers_json(self.tiers),
                **self.unmetered.to_json(),
            },
            "to_finish_usd": _usd(self.to_finish),
            "seconds_left": self.seconds_left,
            "to_finish_by_tier": [one.to_json() for one in self.by_tier],
            "kept": list(self.kept),
            **({} if self.question is None else {"question": self.question}),
            "cells": [_cell_json(cell) for cell in self.cells],
        }


def _servers_json(servers: Mapping[str, tuple[ServerStats, ...]]) -> dict[str, Any]:
    return {lane: [server.to_json() for server in own] for lane, own in servers.items()}


def _cell_json(cell: CellStatus) -> dict[str, Any]:
    return {
        "agent": cell.agent,
        "suite": cell.suite,
        "planned": cell.planned,
        "ended": cell.ended,
        "started": cell.started,
        "remaining": cell.remaining,
        "steps": cell.steps,
        "spent_usd": usd_number(cell.cost),
        "endings": cell.endings,
        "refused": cell.refused,
        "deferred": dict(cell.deferred),
        "predicted": _episode_json(cell.predicted),
        "seen": _episode_json(cell.seen),
        "to_finish_usd": _usd(cell.to_finish),
        "requests_left": cell.requests_left,
        "seconds_left": cell.seconds_left,
    }


def _episode_json(expected: EpisodeEstimate | None) -> dict[str, float] | None:
    return None if expected is None else {"usd": usd_number(expected.cost), "requests": expected.requests}


def _usd(amount: Range) -> dict[str, float]:
    return {"low": usd_number(amount.low), "expected": usd_number(amount.expected), "high": usd_number(amount.high)}


def read_status(directory: Path) -> Status:
    """The status of a run. Raises RunError if it is not a run, CorruptLogError if its log is damaged."""
    return status_of(directory, read_manifest(directory), read_index(directory))


def status_of(directory: Path, manifest: Manifest, index: RunIndex) -> Status:
    """The status of a run whose log comes to this."""
    books = index.books()
    logged = logged_cells(manifest, index.cells)
    forecast = forecast_of(directory, manifest, logged)
    started, ended = last_session(directory)
    deferred = deferred_episodes(directory)
    cells = [_deferred(_cell(manifest, cell, forecast), deferred) for cell in logged]
    lanes = {agent.name: agent.lane for agent in manifest.agents.values()}
    rates = lane_rates(index.cells.values(), manifest) if any(cell.remaining for cell in cells) else {}
    lane_seconds = _lane_seconds(cells, lanes, rates)
    steps_cost = index.totals["cost"]
    written_by = holder(directory)
    live = read_live(directory) if written_by is not None else None
    killed = bool(started) and not ended and written_by is None
    return Status(
        directory=directory,
        name=manifest.name,
        cells=tuple(replace(cell, seconds_left=_share(cell, lanes, rates)) for cell in cells),
        written_by=written_by,
        workers=str(live.get("workers", "")) if live is not None else "",
        servers={} if live is None else _servers(live),
        steps_cost=steps_cost,
        charges=sum(account.charged - account.released + account.confirmed for account in books.values()),
        crash_charges=sum(account.crashed - account.confirmed for account in books.values()),
        open_leases=sum(account.open_leases for account in books.values()),
        spent=spent(steps_cost, books.values()),
        unmetered=index.unmetered,
        tiers=index.tiers,
        lane_seconds=lane_seconds,
        open_sessions=sum(not account.closed for account in books.values()),
        budget=budget_of(started),
        simulated=manifest.simulated,
        reason="killed" if killed else str(ended.get("reason", "")),
        why=KILLED if killed else str(ended.get("why", "")),
        deferred_words=_deferred_words(deferred) if any(cell.remaining for cell in cells) else (),
        kept=tuple(reworded(manifest)),
        refused_words=_refused_words(directory) if any(cell.refused for cell in cells) else {},
        question=_question(directory, live, ended),
    )


def _deferred(cell: CellStatus, deferred: Mapping[tuple[str, str, str], DeferredEpisodes]) -> CellStatus:
    here = {why: one.episodes for (*place, why), one in deferred.items() if place == [cell.agent, cell.suite]}
    return replace(cell, deferred=here) if cell.remaining else cell


def _deferred_words(deferred: Mapping[tuple[str, str, str], DeferredEpisodes]) -> tuple[str, ...]:
    by_agent: dict[tuple[str, str], DeferredEpisodes] = {}
    for (agent, _, why), one in deferred.items():
        before = by_agent.get((agent, why), DeferredEpisodes())
        by_agent[agent, why] = DeferredEpisodes(before.episodes + one.episodes, one.last)
    return tuple(filter(None, (deferred_words(*key, one) for key, one in by_agent.items())))


def _refused_words(directory: Path) -> dict[str, str]:
    by_agent: dict[str, list[str]] = {}
    for episode in refused_episodes(directory):
        by_agent.setdefault(episode.agent, []).append(episode.said)
    return {agent: most_said(said) for agent, said in by_agent.items()}


def _question(directory: Path, live: dict[str, Any] | None, ended: dict[str, Any]) -> dict[str, Any] | None:
    """What is known at the last look: of a running process, or of the last that has ended."""
    if read_frozen(directory) is None:
        return None
    question = (ended if live is None else live).get("question")
    # Anybody may have edited these files.
    answers = question.get("answers") if isinstance(question, dict) else None
    whole = isinstance(answers, list) and all(isinstance(one, dict) and one.keys() >= _ANSWER for one in answers)
    return question if whole else None


def _servers(live: dict[str, Any]) -> dict[str, tuple[ServerStats, ...]]:
    lanes = live.get("lanes")
    found = {}
    for name, lane in lanes.items() if isinstance(lanes, dict) else ():
        with suppress(ValidationError):  # anybody may have edited this file
            found[str(name)] = convert(
                lane.get("servers", ()) if isinstance(lane, dict) else (), tuple[ServerStats, ...]
            )
    return {name: servers for name, servers in found.items() if servers}


_ANSWER = {"about", "answer", "low", "high", "draws", "answered_at", "open", "words"}
"""Keys of an answer."""


def logged_cells(manifest: Manifest, known: Mapping[tuple[str, str], CellTotals]) -> list[CellTotals]:
    """What the log knows of each agent on each suite, in the manifest's order."""
    return [
        known.get((agent.name, suite.name)) or CellTotals(agent=agent.name, suite=suite.name)
        for suite in manifest.suites.values()
        for agent in manifest.agents.values()
        if suite.environment in agent.packs
    ]


def forecast_of(directory: Path, manifest: Manifest, logged: Sequence[CellTotals]) -> Forecast:
    """From the priors that the run wrote; those of cells with remaining episodes that it lacks are made now, and not
    kept. `logged`: what the log knows of each cell."""
    priors = {(prior.agent, prior.suite): prior for prior in read_priors(directory)}
    owing = [
        cell
        for cell in logged
        # If an environment is not installed, its remaining episodes cannot be played.
        if cell.ended < _planned(manifest, cell.suite) and manifest.suites[cell.suite].environment in ENVIRONMENTS
    ]
    if owing:
        only = Choice(agents=frozenset(cell.agent for cell in owing), suites=frozenset(cell.suite for cell in owing))
        from evalkit.engine.stand_in import make_priors  # environments and policies come with it

        priors |= {(prior.agent, prior.suite): prior for prior in alone(make_priors(manifest, only, known=priors))}
    forecast = Forecast(priors.values())
    learn_all(forecast, manifest, {cell.place: cell for cell in logged})
    return forecast


def _planned(manifest: Manifest, suite: str) -> int:
    return len(manifest.suites[suite].instances) * manifest.replicates


def _cell(manifest: Manifest, cell: CellTotals, forecast: Forecast) -> CellStatus:
    agent, suite = cell_key = cell.place
    planned = _planned(manifest, suite)
    # Episodes that have come equally far count as their mean.
    begun = [(count, steps / count, cost / count) for count, steps, cost in cell.going.values() if count > 0]
    fresh, whole, prior = planned - cell.begun, forecast.whole(*cell_key), forecast.priors.get(cell_key)
    expected = fresh * whole.cost + sum(n * forecast.rest(*cell_key, cost=cost, requests=far) for n, far, cost in begun)
    _, middle, high = forecast.remaining(*cell_key, planned - cell.ended)
    factor, asks = high / middle if middle else 1.0, asks_per_step(manifest.agents[agent], cell)
    return CellStatus(
        agent=agent,
        suite=suite,
        planned=planned,
        ended=cell.ended,
        started=cell.begun - cell.ended,
        steps=cell.steps,
        cost=cell.cost,
        endings={word: count for word, count in sorted(cell.endings.items()) if count and word not in UNSCORED},
        refused=cell.refused,
        predicted=None if prior is None else _in_requests(prior.expected, asks),
        seen=_in_requests(forecast.seen(*cell_key), asks),
        to_finish=Range(expected / factor, expected, expected * factor),
        requests_left=asks * (fresh * whole.requests + sum(n * max(1.0, whole.requests - far) for n, far, _ in begun)),
    )


def _in_requests(expected: EpisodeEstimate | None, asks: float) -> EpisodeEstimate | None:
    """An expectation with its requests, of which each step takes so many."""
    return None if expected is None else expected._replace(requests=asks * expected.requests)


def lane_rates(cells: Iterable[CellTotals], manifest: Manifest) -> dict[str, float]:
    """Requests per second by lane, while it was sending any."""
    of_lane: dict[str, list[CellTotals]] = {}
    for cell in cells:
        agent = manifest.agents.get(cell.agent)
        if agent is not None:
            sent = cell.rows if agent.code is None else cell.rows - cell.steps  # steps of code are no requests
            of_lane.setdefault(agent.lane, []).append(replace(cell, rows=sent))
    rates = {lane: rate(own) for lane, own in of_lane.items()}
    return {lane: pace for lane, pace in rates.items() if pace is not None}


def _lane_seconds(
    cells: Sequence[CellStatus], lanes: Mapping[str, str], rates: Mapping[str, float]
) -> dict[str, float]:
    left: dict[str, float] = {}
    for cell in cells:
        left[lanes[cell.agent]] = left.get(lanes[cell.agent], 0.0) + cell.requests_left
    return {lane: requests / rates[lane] for lane, requests in left.items() if requests and lane in rates}


def _share(cell: CellStatus, lanes: Mapping[str, str], rates: Mapping[str, float]) -> float | None:
    rate = rates.get(lanes[cell.agent])
    return 0.0 if not cell.remaining else None if rate is None else cell.requests_left / rate
