"""One episode of an agent that is code: its coroutine from the beginning to the episode's end, or until it is left.

The coroutine runs in a task of its own. What stops an episode (money, a closed lane, the end of the run, a divergence
from the log) is never raised inside it, where `except Exception` could catch it: the task is cancelled. Requests in
flight are awaited first, and their replies logged, since they are paid for.
"""

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from evalkit.engine.agents.roles import RoleAskers
from evalkit.engine.agents.seat import EpisodeSeat
from evalkit.engine.episode import ActiveEpisode, LaneContext, Player, leave_refused
from evalkit.errors import QUIT, AgentDiverged, AgentError, AgentFailed, AskRefused

CANCELS = 100
"""How often a task that catches its cancellation is cancelled before it is left alone."""

MOST_TOLD = 64 * 1024
"""Letters of what it raised, from the end."""


@dataclass(frozen=True, slots=True)
class CodePlayer(Player):
    """Plays the episodes of an agent that is code in one environment."""

    role_askers: RoleAskers

    async def play(self, active: ActiveEpisode, context: LaneContext) -> str:
        """Play to the end, or until the episode must be left; returns how. Raises what `episode.play` understands."""
        return await play_code(self.role_askers, active, context)


async def play_code(role_askers: RoleAskers, active: ActiveEpisode, context: LaneContext) -> str:
    """Play; returns how the episode was left. Raises what `episode.play` turns into a way of leaving it."""
    seat = EpisodeSeat(role_askers, active, context)
    running = asyncio.ensure_future(_run(role_askers, seat))
    running.add_done_callback(_read)
    either: set[asyncio.Future[Any]] = {running, seat.fate}
    leave = context.lane_stop.listen(seat.stop)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        seat.abandon()
        raise
    finally:
        leave()
        await _stop(running)
        seat.close()
        await seat.settle()
    if seat.fate.done():
        how = seat.fate.result()
        if isinstance(how, BaseException):
            raise how
        return active.position.ending or how
    why = _why_left(running, seat)
    if active.position.ending:
        return active.position.ending
    if len(active.rows) > active.position.step:
        raise AgentDiverged(f"its code returned at step {active.position.step}; the log goes on.")
    return await leave_refused(active, why.kind, str(why), context, asks=seat.asks_logged(seat.step))


async def _run(role_askers: RoleAskers, seat: EpisodeSeat) -> None:
    try:
        await role_askers.code.play(seat)
    except (SystemExit, KeyboardInterrupt) as flaw:  # a task passes these on to its loop, and that would end the run
        raise AgentError(f"the agent raised {flaw!r}.") from flaw
    finally:
        seat.close()


def _why_left(running: "asyncio.Future[None]", seat: EpisodeSeat) -> AskRefused:
    """How the agent ended the episode, if its environment has not: as `QUIT`, or because a request was refused, also
    where it caught that and asked and did nothing afterwards. Raises AgentFailed."""
    flaw = running.exception() if not running.cancelled() else asyncio.CancelledError("the agent cancelled itself")
    if flaw is None:
        return seat.refused or AskRefused(QUIT)
    refused = _refused(flaw)
    if refused:
        return min(refused, key=lambda one: one.kind)
    raise AgentFailed("".join(traceback.format_exception(flaw))[-MOST_TOLD:])


def _refused(flaw: BaseException) -> list[AskRefused]:
    """The refused requests, if it tells of nothing else: a task group raises what its tasks raised as one."""
    if isinstance(flaw, AskRefused):
        return [flaw]
    each = [_refused(one) for one in flaw.exceptions] if isinstance(flaw, BaseExceptionGroup) else []
    return [one for several in each for one in several] if all(each) else []


def _read(running: "asyncio.Future[None]") -> None:
    """Else asyncio prints what the code of an episode raised that was left anyway."""
    if not running.cancelled():
        running.exception()


async def _stop(running: "asyncio.Future[None]") -> None:
    """Cancel a task that has not ended, until it has."""
    for _ in range(CANCELS):
        if running.done():
            return
        running.cancel()
        await asyncio.wait({running}, timeout=0.01)
