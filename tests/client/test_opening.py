import pytest

from evalkit.client.lanes.buckets import announced_room
from evalkit.wire.allowance import Allowance


def limit(most: float, remaining: float, reset_s: float = 1.0) -> Allowance:
    return Allowance(limit=most, remaining=remaining, reset_s=reset_s)


@pytest.mark.parametrize(
    ("requests", "tokens", "took_s", "room"),
    [
        (None, None, 20.0, 0.0),
        (limit(600, 596), None, 20.0, 200.0),  # ten a second, for twenty seconds
        (limit(600, 596), None, 0.5, 5.0),  # quick replies need few in flight
        (limit(60_000, 100), None, 20.0, 104.0),  # what remains, with the four in flight
        (None, limit(3_000_000, 2_990_000), 20.0, 400.0),  # 2,500 tokens are missing for each of four
        (None, limit(3_000_000, 2_999_999), 20.0, 1000.0),  # 1,000 were used
        (limit(6_000, 5_996), limit(3_000_000, 2_999_999), 20.0, 1000.0),  # the lower one
        (limit(1_000, 999, 86_400), None, 20.0, 1000 * 20 / 60),  # one by the day says more than it admits
    ],
)
def test_a_lane_opens_by_what_was_announced(
    requests: Allowance | None, tokens: Allowance | None, took_s: float, room: float
) -> None:
    found = announced_room(requests, tokens, in_flight=4, took_s=took_s, used=1000)
    assert found == pytest.approx(room)
