import pytest

from evalkit.wire.allowance import LONGEST_S, Allowance, read_allowances, span_of
from tests.support.each_case import check_each


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


def test_a_reset_is_a_duration_or_a_moment_by_what_is_plausible() -> None:
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    now = 1792567680
    cases: dict[str, tuple[str, str | None, float | None]] = {
        "a duration": ("6m0s", date, 360.0),
        "plain seconds": ("86400", date, 86_400.0),
        "in seconds": (str(now + 30), date, 30.0),
        "in seconds, with a part": (f"{now + 30}.5", date, 30.0),
        "in thousandths": (str((now + 30) * 1000), date, 30.0),
        "in millionths": (str((now + 30) * 10**6), date, 30.0),
        "in billionths": (str((now + 30) * 10**9), date, 30.0),
        "past": (str(now - 30), date, 0.0),
        "in a year": (str(now + 365 * 86_400), date, None),
        "without a date": (str(now + 30), None, None),
        "too many digits": ("99999999999", date, LONGEST_S),
    }

    def check(case: tuple[str, str | None, float | None]) -> None:
        reset, at, seconds = case
        headers = {
            "x-ratelimit-limit-requests": "100",
            "x-ratelimit-remaining-requests": "7",
            "x-ratelimit-reset-requests": reset,
        } | ({"date": at} if at else {})
        requests, tokens = read_allowances(headers)
        assert tokens is None
        assert (requests and requests.reset_s) == seconds

    check_each(cases.items(), check)
