"""Nights against a simulated provider: the budget, what remains, a planted regression, and calls on the same night."""

from pathlib import Path

import pytest

from evalkit.engine.freezing.freeze import resolve
from evalkit.errors import UsageError
from evalkit.money import parse_usd
from evalkit.nightly.night import Night
from evalkit.report.nights.history import NightRecord
from evalkit.spec.sweep import read_sweep
from tests.nightly.playing import House, house

FALLS = 5


def record_of(night: Night) -> NightRecord:
    assert night.record is not None
    return night.record


def remaining(record: NightRecord, agent: str, all_of_them: set[str]) -> set[str]:
    """The instances whose episode of that agent did not end."""
    return all_of_them - set(next(cell.ended for cell in record.cells if cell.agent == agent))


@pytest.mark.exhaustive
def test_a_planted_fall_is_found_the_same_night_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = house(tmp_path, monkeypatch, periods=5, width=24)
    found = []
    for day in range(1, 8):
        if day == FALLS:
            mine.instead = {"knuth": "random"}
        record = record_of(mine.play(f"2026-11-{day:02}", budget="10"))
        assert record.spent == mine.billed <= parse_usd("10")
        assert not record.remaining
        found += [(day, cell.agent) for cell in record.raised]
        served = {cell.agent: cell.served[0].split()[0] for cell in record.cells}
        assert served == {"good": mine.instead.get("knuth", "knuth"), "poor": "random"}
    assert found == [(5, "good"), (6, "good"), (7, "good")]
    last = {cell.agent: cell.alarm for cell in record.cells}
    assert last["good"] is not None
    assert last["good"].since == "2026-11-05"
    assert last["good"].threshold == pytest.approx(0.05 / 2 / 30)


@pytest.mark.exhaustive
def test_a_budget_is_never_passed_and_what_it_left_owed_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = house(tmp_path, monkeypatch, periods=2, width=2)
    (suite,) = mine.resolved.manifest.suites.values()
    everything = {one.digest for one in suite.instances}
    whole = record_of(mine.play("2026-11-01", budget="10"))
    share = f"{0.8 * whole.spent / 1e12:.4f}"
    fell_behind: set[str] = set()
    covered: list[set[str]] = []
    for day in range(2, 6):
        record = record_of(mine.play(f"2026-11-{day:02}", budget=share))
        assert mine.billed <= record.spent <= parse_usd(share)
        assert 0 < record.remaining < record.planned
        left = {agent: remaining(record, agent, everything) for agent in ("good", "poor")}
        covered.append(everything - left["good"] - left["poor"])
        assert len(covered[-1]) < len(everything)
        assert fell_behind <= covered[-1], f"night {day} left remaining again what the night before left remaining"
        fell_behind = left["good"] | left["poor"]
    assert covered[0] | covered[1] == covered[1] | covered[2] == everything


@pytest.mark.exhaustive
def test_the_first_requests_of_a_night_are_those_of_the_episodes_owed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = house(tmp_path, monkeypatch, periods=2, width=1)
    whole = record_of(mine.play("2026-11-01"))
    ids = list(dict.fromkeys(one.partition("/")[0] for one in mine.asked))
    cut = record_of(mine.play("2026-11-02", budget=f"{0.75 * whole.spent / 1e12:.4f}"))
    played = {one.partition("/")[0] for one in mine.asked}
    left = [one for one in ids if one not in played]
    assert len(left) == cut.remaining > 0
    mine.play("2026-11-03")
    again = list(dict.fromkeys(one.partition("/")[0] for one in mine.asked))
    for model in ("knuth", "random"):  # a lane each
        owed_there, asked_there = ([one for one in some if mine.models[one] == model] for some in (left, again))
        assert set(asked_there[: len(owed_there)]) == set(owed_there)
    assert set(again) == set(ids)


def test_a_night_that_is_over_is_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = house(tmp_path, monkeypatch, periods=1)
    first = mine.play("2026-11-01")
    again = mine.play("2026-11-01")
    assert (again.outcome, mine.asked) == (None, [])
    assert again.idle == "all 24 episodes have ended"
    assert again.history == first.history
    with pytest.raises(UsageError, match="is before the last night"):
        mine.play("2026-10-31")


def test_a_night_cut_by_its_budget_goes_on_only_with_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = house(tmp_path, monkeypatch, periods=1, width=2)
    part = record_of(mine.play("2026-11-01", budget="0.02"))
    assert part.remaining
    assert mine.play("2026-11-01", budget="0.02").idle == "its budget of $0.0200 is used up"
    assert mine.play("2026-11-01", budget="0.01").idle
    done = record_of(mine.play("2026-11-01", budget="5"))
    assert not done.remaining
    assert [one.night for one in mine.play("2026-11-01").history] == ["2026-11-01"]


def test_the_deadline_counts_from_when_the_night_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = house(tmp_path, monkeypatch, periods=1, width=2)
    assert record_of(mine.play("2026-11-01", budget="0.02")).remaining
    assert mine.play("2026-11-01", budget="5", deadline_s=0.001).idle == "its deadline has passed"
    assert not record_of(mine.play("2026-11-01", budget="5", deadline_s=3600)).remaining


def test_a_night_goes_on_when_its_spec_asks_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = house(tmp_path, monkeypatch, periods=1)
    small.play("2026-11-01")
    more = House(
        directory=small.directory,
        resolved=house(tmp_path, monkeypatch, periods=1, replicates=2).resolved,
        patch=monkeypatch,
    )
    record = record_of(more.play("2026-11-01"))
    assert (record.planned, record.remaining) == (48, 0)


@pytest.mark.exhaustive
def test_nights_of_another_agent_of_that_name_are_not_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = house(tmp_path, monkeypatch, periods=2)
    for day in (1, 2, 3, 4):
        mine.play(f"2026-11-{day:02}")
    path = tmp_path / "mine.toml"
    path.write_text(path.read_text().replace('model = "knuth"', 'model = "noisy"'))
    mine.resolved = resolve(read_sweep(path))
    record = record_of(mine.play("2026-11-05"))
    alarms = {cell.agent: cell.alarm for cell in record.cells}
    assert alarms["good"] is not None
    assert alarms["good"].words == "no test: no earlier night"
    assert alarms["poor"] is not None
    assert alarms["poor"].p is not None
