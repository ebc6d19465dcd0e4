"""A killed run, resumed to its end, damaged or not: nothing on disk is asked again, what is sent is what the run that
was left in peace sent, and it ends in the same log."""

import json
from pathlib import Path

import pytest

from tests.conform.sending import SENT, kept
from tests.snapshots.damage import AFTER_A_KILL
from tests.snapshots.workspace import RUN, call, copy
from tests.support.dialect_sweep import Played, bodies_sent, digests, held, play


def money(place: Path) -> dict[str, int]:
    """What a run has cost, as `status` says."""
    sums: dict[str, int] = json.loads(call(place, "status", str(RUN), "--json").out)["money"]
    return sums


def ends_in_peace(place: Path, played: Played) -> None:
    """The run is whole, and its log and the bytes that were sent are those that are kept."""
    assert (played.outcome.exit_code, played.outcome.remaining) == (0, 0)
    assert digests(place / RUN) == kept("steps", "dialects")
    assert {*bodies_sent(place / RUN, played.sent)} <= {*(SENT / "sent.txt").read_text().splitlines()}
    assert call(place, "verify", str(RUN)).code == 0


def test_a_killed_run_ends_as_the_one_that_was_left_in_peace(tmp_path: Path) -> None:
    place = copy("killed", tmp_path)
    for limit in (1, None):
        on_disk, before = held(place / RUN), money(place)["spent_pico_usd"]
        played = play(place, RUN, limit=limit)
        assert played.asked
        assert played.asked & on_disk == set()
        assert money(place)["spent_pico_usd"] == played.outcome.spent >= before + played.bill
    ends_in_peace(place, played)
    assert money(place)["crash_charges_pico_usd"] > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("name", AFTER_A_KILL)
def test_a_killed_run_that_is_damaged_is_repaired_and_ends_likewise(name: str, tmp_path: Path) -> None:
    place = copy("killed", tmp_path)
    AFTER_A_KILL[name](place / RUN)
    played = play(place, RUN, repair=True)
    ends_in_peace(place, played)
    assert played.bill <= played.outcome.spent
