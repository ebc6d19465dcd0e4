"""The queue that all lanes share: whoever waits there is woken, or sent home, whatever becomes of those before him."""

import asyncio
from collections import Counter

from evalkit.client.budget import BudgetStats
from evalkit.engine.admit.admission import Admission
from evalkit.engine.admit.admission_queue import AdmissionQueue
from evalkit.engine.admit.backlogs import LaneBacklog
from evalkit.engine.forecast import Forecast
from evalkit.store.reading.unmetered import UnmeteredReplies
from tests.engine.test_admission import BOUND, UNIT, an_episode, prior
from tests.support.virtual_clock import run_virtual

ENOUGH_FOR_ONE = BudgetStats(
    budget=60 * UNIT,
    spent=0,
    session=0,
    charged=0,
    reserved=0,
    left=None,
    waiting=0,
    unmetered=UnmeteredReplies(),
)


def test_who_goes_home_instead_of_starting_wakes_the_next() -> None:
    """A lane is closed while its players wait for money, which then is there: each must hear of it."""
    home: list[float] = []

    async def player(admitter: AdmissionQueue, closed: asyncio.Event) -> None:
        admitter.enter("a")
        try:
            while not closed.is_set():
                episode = admitter.next("a")
                if episode is None:
                    await admitter.wait("a")
                    continue
                await asyncio.sleep(1.0)
                closed.set()
                admitter.left(episode, "stopped")
        finally:
            admitter.leave("a")
            home.append(asyncio.get_running_loop().time())

    async def main() -> None:
        line = LaneBacklog(
            name="a",
            todo=iter([an_episode("a", number) for number in range(5)]),
            total=5,
            planned=5,
            ended=0,
            fresh=Counter({("a", "s"): 5}),
            bound=lambda: BOUND,
        )
        admission = Admission(
            Forecast([prior("a", 10.0)]),
            [line],
            stats=lambda: ENOUGH_FOR_ONE,
            clock=asyncio.get_running_loop().time,
            first_bound=lambda _: BOUND,
        )
        admitter, closed = AdmissionQueue(admission), asyncio.Event()
        async with asyncio.timeout(100), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(player(admitter, closed))
            await asyncio.sleep(0.5)
            assert admission.in_flight == 1

    run_virtual(main())
    assert home == [1.0] * 4
