import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.lanes.buckets import PACE, Bucket, Need, apply_allowance, open_buckets, scarcest, wait_s
from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance


@pytest.mark.parametrize(
    ("per_s", "level", "at_s", "need", "now", "wait"),
    [
        (1.0, 0.0, 0.0, 1.0, 0.0, 1.0),  # begins empty
        (1.0, 0.0, 0.0, 1.0, 1.0, 0.0),
        (10.0, 0.0, 0.0, 1.0, 100.0, 0.0),
        (10.0, 0.0, 0.0, 11.0, 100.0, 0.0),  # more than a second's worth: saved up for the head
        (10.0, 0.0, 0.0, 100.0, 4.0, 6.0),
        (10.0, -50.0, 0.0, 10.0, 1.0, 5.0),  # in debt: a reply was longer than estimated
        (0.5, 0.0, 0.0, 1.0, 1.0, 1.0),  # slower than one a second: still one request
        (3.0, 0.0, 0.0, 1.0, 1 / 3, 0.0),  # rounding makes nobody wait
    ],
)
def test_a_bucket_says_how_long_to_wait(
    per_s: float, level: float, at_s: float, need: float, now: float, wait: float
) -> None:
    assert Bucket(per_s=per_s, level=level, at_s=at_s).wait_s(need, now) == pytest.approx(wait)


@given(
    per_s=st.floats(0.1, 1000),
    needs=st.lists(st.tuples(st.floats(0.01, 5000), st.floats(0, 100)), min_size=1, max_size=30),
)
def test_no_sequence_is_ahead_of_its_rate_by_more_than_a_second_or_one_request(
    per_s: float, needs: list[tuple[float, float]]
) -> None:
    bucket, now, taken = Bucket(per_s=per_s, at_s=0.0), 0.0, []
    for need, idle in needs:
        now += idle
        while (wait := bucket.wait_s(need, now)) > 0:
            now += wait
        bucket.take(need, now)
        taken.append((now, need))
    for i, (since, first) in enumerate(taken):
        sent = sum(need for _, need in taken[i:])
        most = max(per_s, *(need for _, need in taken[i:]))
        assert sent <= most + (now - since) * per_s + first * 1e-6 + 1e-6 * sent


@given(
    per_s=st.floats(0.1, 1000),
    needs=st.lists(st.tuples(st.floats(0.01, 5000), st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=30),
)
def test_neither_is_one_whose_requests_are_sent_some_time_after_they_were_booked(
    per_s: float, needs: list[tuple[float, float, float]]
) -> None:
    bucket, now, taken = Bucket(per_s=per_s, at_s=0.0), 0.0, []
    for need, idle, late in needs:
        now += idle
        while (wait := bucket.wait_s(need, now)) > 0:
            now += wait
        bucket.take(need, now)
        bucket.delay(need, now, now + late)
        now += late
        taken.append((now, need))
    for i, (since, first) in enumerate(taken):
        sent = sum(need for _, need in taken[i:])
        most = max(per_s, *(need for _, need in taken[i:]))
        assert sent <= most + (now - since) * per_s + first * 1e-6 + 1e-6 * sent


def test_what_is_used_late_leaves_no_less_than_what_is_booked_late() -> None:
    bucket = Bucket(per_s=1.0, level=1.0, at_s=0.0)
    bucket.take(1.0, 0.0)
    bucket.delay(1.0, 0.0, 60.0)
    assert bucket.wait_s(1.0, 60.0) == pytest.approx(1.0)
    bucket.take(1.0, 61.0)
    bucket.take(1.0, 62.0)  # of another, which is used at once
    assert bucket.wait_s(1.0, 62.0) == pytest.approx(1.0)  # and a third waits
    bucket.delay(1.0, 61.0, 62.9)
    assert bucket.wait_s(1.0, 62.9) == pytest.approx(1.1)  # three in two seconds and a bit would be one too many


def test_all_limits_hold_at_once() -> None:
    limits = Limits(requests_per_minute=60, input_tokens_per_minute=600, output_tokens_per_minute=60_000)
    buckets = open_buckets(limits, 0.0)
    assert wait_s(buckets, Need(input=50, output=50), 0.0) == pytest.approx(5.0 / PACE)
    assert scarcest(buckets, Need(input=50, output=50), 0.0) == "input tokens/min"
    assert wait_s({}, Need(input=50, output=50), 0.0) == 0.0


def said(remaining: float, limit: float = 100.0, reset_s: float = 50.0) -> Allowance:
    return Allowance(limit=limit, remaining=remaining, reset_s=reset_s)


def test_a_configured_bucket_is_lowered_by_headers_and_never_raised() -> None:
    buckets = {"requests": Bucket(per_s=10.0, level=5.0, at_s=0.0)}
    apply_allowance(buckets, "requests", said(80.0), 0.0)
    assert buckets["requests"].level == 5.0
    apply_allowance(buckets, "requests", said(1.0), 0.0)
    assert (buckets["requests"].level, buckets["requests"].per_s) == (1.0, 10.0)


def test_an_unknown_limit_is_adopted_when_little_remains_and_dropped_when_much_does() -> None:
    buckets: dict[str, Bucket] = {}
    apply_allowance(buckets, "tokens", said(50.0), 0.0)
    assert not buckets
    apply_allowance(buckets, "tokens", said(5.0), 0.0)
    assert buckets["tokens"].per_s == pytest.approx(95.0 / 50.0)
    apply_allowance(buckets, "tokens", said(30.0), 1.0)
    assert "tokens" in buckets
    apply_allowance(buckets, "tokens", said(60.0), 2.0)
    assert not buckets
