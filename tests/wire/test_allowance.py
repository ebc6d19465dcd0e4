import pytest

from evalkit.wire.allowance import Allowance, read_allowances
from evalkit.wire.durations import span_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360.0), ("1.5s", 1.5), ("120ms", 0.12), ("1h2m3s", 3723.0), ("17", 17.0), ("0s", 0.0), ("2d", 172_800.0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert span_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 s", "2026-01-01T00:00:00Z", "1x"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert span_of(text) is None


def test_headers_give_both_allowances_or_none() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-remaining-tokens": "many",
        "x-ratelimit-limit-tokens": "5",
        "x-ratelimit-reset-tokens": "1s",
    }
    assert read_allowances(headers) == (Allowance(limit=500.0, remaining=499.0, reset_s=0.12), None)
    assert read_allowances({}) == (None, None)


@pytest.mark.parametrize(("limit", "remaining"), [("0", "0"), ("-5", "1"), ("nan", "1"), ("5", "7"), ("5", "inf")])
def test_nonsense_is_not_heeded(limit: str, remaining: str) -> None:
    headers = {
        "x-ratelimit-limit-tokens": limit,
        "x-ratelimit-remaining-tokens": remaining,
        "x-ratelimit-reset-tokens": "1s",
    }
    assert read_allowances(headers) == (None, None)
