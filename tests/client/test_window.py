import random
from math import exp

from bench.calibrations.window import NOISE, Meeting, Server
from evalkit.client.lanes.window import CUT, FAST, FIRST, Window


def round_trip(window: Window, *, start: float, latency_s: float, full: bool = True) -> float:
    """All that fit go and come back; returns when."""
    for _ in range(int(window.size)):
        window.succeeded(sent_at=start, now=start + latency_s, beside=int(window.size), full=full)
    return start + latency_s


def test_a_full_window_grows_fast_up_to_its_bound() -> None:
    window, now = Window(200), 0.0
    sizes = []
    for _ in range(3):
        now = round_trip(window, start=now, latency_s=1.0)
        sizes.append(window.size)
    assert sizes == [32, 64, 128]


def test_512_requests_are_in_flight_after_six_round_trips() -> None:
    meeting = Meeting(Server(name="", base_s=20, slots=lambda _: 10_000, for_s=200), Window(1000), random.Random(1))
    meeting.run()
    assert meeting.many_at < 6.3 * 20 * exp(NOISE**2 / 2)


def test_a_server_that_answers_its_first_requests_one_after_another_gets_few_more() -> None:
    window = Window(500)
    for place in range(FIRST):
        window.succeeded(sent_at=0.0, now=5.0 * (place + 1), beside=FIRST, full=True)
    assert window.size <= FIRST + 2 * FAST


def test_a_window_that_is_not_full_does_not_grow() -> None:
    window = Window(500)
    round_trip(window, start=0.0, latency_s=1.0, full=False)
    assert window.size == FIRST


def test_a_small_bound_holds_from_the_start() -> None:
    assert Window(3).size == 3


def test_a_window_starts_as_wide_as_it_is_told_within_its_bound() -> None:
    assert Window(500, start=256).size == 256
    assert Window(100, start=256).size == 100
    assert Window(500, start=2).size == 2


def test_a_window_opens_to_what_its_provider_says_until_something_was_refused() -> None:
    window = Window(500)
    window.open_to(200.0, 1.0)
    assert window.size == 200
    window.open_to(50.0, 1.0)
    assert window.size == 200
    window.open_to(9000.0, 1.0)
    assert window.size == 500
    window.refused(sent_at=2.0, now=3.0)
    window.open_to(500.0, 3.0)
    assert window.size == 500 * CUT


def test_a_window_is_proven_once_a_sample_of_replies_came() -> None:
    window = Window(500, start=64)
    assert window.proven == 0
    round_trip(window, start=0.0, latency_s=1.0)
    assert 64 <= window.proven == int(window.size)


def test_a_storm_of_refusals_cuts_once_a_round_trip() -> None:
    window = Window(500)
    assert window.refused(sent_at=0.0, now=1.0)
    assert not any(window.refused(sent_at=0.5, now=1.0 + i / 100) for i in range(100))
    assert window.size == FIRST * CUT
    assert window.refused(sent_at=1.2, now=2.0)
    assert window.size == FIRST * CUT * CUT


def test_it_never_closes() -> None:
    window = Window(500)
    for i in range(100):
        window.refused(sent_at=float(i), now=float(i))
    assert window.size == 1.0


def test_after_a_refusal_it_grows_slowly() -> None:
    window, now = Window(500), 0.0
    while window.size < 256:
        now = round_trip(window, start=now, latency_s=1.0)
    window.refused(sent_at=now, now=now)
    before = window.size
    round_trip(window, start=now, latency_s=1.0)
    assert before < window.size <= before * 1.05


def grown(window: Window, latency_s: float) -> float:
    now = 0.0
    while window.size < 256:
        now = round_trip(window, start=now, latency_s=latency_s)
    return now


def slowed(window: Window) -> float:
    """A grown window after replies have become 2.5 times as slow, for as long as a sample of them may take to fill."""
    now = grown(window, 1.0)
    for _ in range(3):
        if window.size == 256:
            now = round_trip(window, start=now, latency_s=2.5)
    return now


def test_a_doubled_median_latency_cuts() -> None:
    window = Window(256)
    slowed(window)
    assert window.size == 256 * CUT


def test_when_the_cut_helps_the_old_best_stays_in_force() -> None:
    window = Window(256)
    now = slowed(window)
    for _ in range(3):
        now = round_trip(window, start=now, latency_s=2.1, full=False)  # better, still more than twice the best
    assert window.size == 256 * CUT * CUT


def test_when_it_does_not_help_replies_are_just_longer_and_the_window_grows_again() -> None:
    window = Window(256)
    now = slowed(window)
    size = window.size
    for _ in range(20):
        now = round_trip(window, start=now, latency_s=2.6)
    assert window.size > size


def test_one_slow_reply_is_no_sign() -> None:
    window = Window(256)
    now = grown(window, 1.0)
    for i in range(256):
        window.succeeded(sent_at=now, now=now + (60.0 if i == 0 else 1.0), beside=256, full=False)
    assert window.size == 256


def test_requests_that_a_quick_server_loses_cut_the_window_for_a_while_and_not_for_good() -> None:
    window, now = Window(64), 0.0
    for _ in range(300):
        for place in range(int(window.size)):
            if place % 10 == 9:
                window.refused(sent_at=now, now=now + 2.0, timed_out=True)
            else:
                window.succeeded(sent_at=now, now=now + 0.05, beside=int(window.size), full=True)
        now += 2.0
    for _ in range(40):
        now = round_trip(window, start=now, latency_s=0.05)
    assert window.size > 32


def test_a_server_that_only_becomes_slower_is_met_before_its_requests_take_long() -> None:
    window, now = Window(500), 0.0
    for _ in range(60):
        latency_s = max(1.0, window.size / 40)
        now = round_trip(window, start=now, latency_s=latency_s)
    assert 40 <= window.size <= 100


def test_a_stray_timeout_cuts_nothing_and_several_do() -> None:
    window = Window(500)
    now = grown(window, 1.0)
    before = window.size
    assert not window.refused(sent_at=now, now=now + 60.0, timed_out=True)
    assert window.size == before
    assert any(window.refused(sent_at=now, now=now + 60.0, timed_out=True) for _ in range(30))


def test_where_requests_time_out_the_window_does_not_grow_up_to_there_again() -> None:
    window, now = Window(500), 0.0
    while window.size < 100:
        now = round_trip(window, start=now, latency_s=1.0)
    wide = window.size
    for _ in range(30):
        window.refused(sent_at=now, now=now + 2.0, timed_out=True)
    now += 2.0
    for _ in range(100):
        now = round_trip(window, start=now, latency_s=0.9)
    assert wide * CUT < window.size < wide


def test_after_an_outage_it_goes_on_from_half_or_from_all_where_a_rate_paces_it() -> None:
    for paced, part in ((False, 0.5), (True, 1.0)):
        window = Window(500)
        now = grown(window, 1.0)
        before = window.size
        for i in range(20):
            window.refused(sent_at=now + i, now=now + i)
        window.restart(now + 30.0, paced=paced)
        assert window.size == before * part


def test_replies_that_are_slow_because_of_our_own_process_close_nothing() -> None:
    sizes = {}
    for late in (0.0, 0.2):
        window, now = Window(500), 0.0
        for _ in range(40):
            latency_s = max(0.05, window.size / 600)  # 600 replies a second, however many are in flight
            window.late_s = late * latency_s
            now = round_trip(window, start=now, latency_s=latency_s)
        sizes[late] = window.size
    assert sizes[0.0] < 250
    assert sizes[0.2] == 500
