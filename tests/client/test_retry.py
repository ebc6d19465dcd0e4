import asyncio

import pytest

from evalkit.client.retry import ATTEMPTS, FIRST_S, LONGEST_S, TOTAL_S, Retryable, Tries, backoff_s, exhausted, retrying
from evalkit.wire.http import Verdict

AGAIN = Verdict(action="retry", kind="server_error")


def test_the_servers_word_overrides_the_schedule() -> None:
    assert backoff_s(Verdict(action="retry", kind="rate_limit", wait_s=17.0), 5, "e/0") == 17.0
    assert backoff_s(Verdict(action="retry", kind="rate_limit", wait_s=1.0), 5, "e/0") == 1.0
    for tiny in (0.0, 0.001, 0.999):
        waits = [backoff_s(Verdict(action="retry", kind="rate_limit", wait_s=tiny), n, "e/0") for n in range(1, 8)]
        assert all(2.0 ** (n - 2) <= wait <= min(60.0, 2.0 ** (n - 1)) for n, wait in enumerate(waits, 1) if n < 7)
        assert 30.0 <= waits[6] <= 60.0
        assert len(set(waits)) == 7


@pytest.mark.parametrize(("failures", "bound"), [(1, 1.0), (2, 2.0), (4, 8.0), (7, LONGEST_S), (50, LONGEST_S)])
def test_waits_fill_the_whole_range_below_a_doubling_bound(failures: int, bound: float) -> None:
    waits = [backoff_s(AGAIN, failures, f"episode/{i}") for i in range(400)]
    assert all(0 <= wait < bound for wait in waits)
    assert min(waits) < 0.05 * bound
    assert max(waits) > 0.95 * bound
    assert sum(waits) / len(waits) == pytest.approx(bound / 2, rel=0.1)


def test_a_place_always_waits_the_same() -> None:
    assert backoff_s(AGAIN, 3, "e/7") == backoff_s(AGAIN, 3, "e/7") != backoff_s(AGAIN, 3, "e/8")


@pytest.mark.parametrize(
    ("counted", "now", "upcoming", "over"),
    [
        (1, 10.0, 5.0, False),
        (ATTEMPTS - 1, 10.0, 5.0, False),
        (ATTEMPTS, 10.0, 5.0, True),
        (1, TOTAL_S - 10, 5.0, False),
        (1, TOTAL_S - 10, 15.0, True),
    ],
)
def test_attempts_and_time_bound_retries(counted: int, now: float, upcoming: float, over: bool) -> None:
    tries = Tries(0.0)
    tries.counted = counted
    assert exhausted(tries, now, upcoming) is over


def test_whoever_probed_rests_no_longer_than_others() -> None:
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    async def main() -> None:
        tries = Tries(0.0)
        tries.counted = 1  # further attempts were probes
        failures = 0
        async for attempt in retrying(tries, place="e/1", clock=lambda: 0.0, sleep=sleep):
            with attempt:
                failures += 1
                if failures < 20:
                    raise Retryable(AGAIN)

    asyncio.run(main())
    assert len(rests) == 19
    assert max(rests) <= 2 * FIRST_S
