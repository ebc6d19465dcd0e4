import pytest

from evalkit.client.lanes.health import DOWN_AFTER, DOWN_FEW, DOWN_S, FIRST_PROBE_S, GIVE_UP_S, LAST_PROBE_S, Health


def fallen(now: float = 0.0) -> Health:
    health = Health()
    for _ in range(DOWN_AFTER):
        health.failed(probe=False, now=now, words="reset")
    return health


def test_it_takes_many_failures_in_a_row() -> None:
    health = Health()
    for _ in range(5):
        for _ in range(DOWN_AFTER - 1):
            health.failed(probe=False, now=0.0, words="reset")
        assert not health.answered()
    assert not health.down


def test_probes_come_at_doubling_intervals_and_others_do_not_count() -> None:
    health, now = fallen(), 0.0
    waits = []
    for _ in range(9):
        waits.append(health.next_probe - now)
        now = health.next_probe
        health.failed(probe=False, now=now, words="sent before the fall")
        health.failed(probe=True, now=now, words="refused")
    assert waits == pytest.approx([min(LAST_PROBE_S, FIRST_PROBE_S * 2**i) for i in range(9)])
    assert health.last == "refused"


def test_one_answer_ends_an_outage_and_forgets_it() -> None:
    health = fallen()
    assert health.answered()
    assert not health.down
    health.failed(probe=False, now=5.0, words="reset")
    assert not health.down


def test_it_gives_up_only_after_its_bound() -> None:
    health = fallen(now=100.0)
    assert not health.given_up(100.0 + GIVE_UP_S - 1)
    assert health.given_up(100.0 + GIVE_UP_S)
    health.answered()
    assert not health.given_up(1e9)


def test_a_few_failures_are_enough_where_nothing_succeeds_for_long_and_refusals_count_only_so() -> None:
    for refusal in (True, False):
        health = Health()
        for i in range(DOWN_FEW):
            assert not health.down
            health.failed(probe=False, now=i * DOWN_S / (DOWN_FEW - 1), words="no", refusal=refusal)
        assert health.down
    busy = Health()
    for i in range(5 * DOWN_AFTER):
        busy.failed(probe=False, now=i * 0.01, words="429", refusal=True)
    assert not busy.down
