"""Killed runs of the tree as it stood, resumed to their end: nothing on disk is asked again, what is sent is what the
run left in peace sent, and it ends in the same log. No difference is listed for this: old runs keep their texts."""

import json
from pathlib import Path

import pytest

from evalkit.store.reading.reader import scan
from tests.net.damage import AFTER_A_KILL
from tests.net.goldens import GOLDENS, ids, read
from tests.net.wire import Played, by_cell, digests, play
from tests.net.workspace import RUN, call, copy

KILLED = ("killed-early", "killed-late")


def held(run: Path) -> set[tuple[str, int]]:
    """The steps on disk that a reply made."""
    return {(row["episode"], row["step"]) for row in scan(run, ["episode", "step"]).to_pylist()}


def asked(played: Played) -> set[tuple[str, int]]:
    return {(episode, int(step)) for episode, step, _ in (name.split("/") for name in played.sent)}


def billed(run: Path) -> int:
    """What the bills that were kept beside a run come to, in pico-dollars."""
    bills = [path.read_text().splitlines() for path in run.glob("bill-*.jsonl")]
    return sum(json.loads(line)["cost"] for lines in bills for line in lines)


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_ends_as_the_one_that_was_left_in_peace(name: str, tmp_path: Path) -> None:
    place = copy(name, tmp_path)
    run = place / RUN
    on_disk, before = held(run), billed(run)
    played = play(place, str(RUN))
    assert (played.outcome.exit_code, played.outcome.owed) == (0, 0)
    assert asked(played) & on_disk == set()
    assert len(asked(played)) > 50
    assert digests(run) == read(GOLDENS, "steps/finished")
    assert call(place, "verify", str(RUN)).code == 0
    money = json.loads(call(place, "status", str(RUN), "--json").out)["money"]
    assert before + played.bill <= money["spent_pico_usd"]
    assert money["crash_charges_pico_usd"] > 0


@pytest.mark.parametrize("name", KILLED)
def test_a_resumed_run_sends_the_bytes_that_were_sent_then(name: str, tmp_path: Path) -> None:
    place = copy(name, tmp_path)
    played = play(place, str(RUN))
    sent = by_cell(place / RUN, played.sent)
    assert sent
    for cell, lines in sent.items():
        golden = read(GOLDENS, f"steps/sent/{cell}")
        assert golden is not None
        assert set(lines.splitlines()) <= set(golden.splitlines()), cell


def test_the_bytes_of_every_cell_are_golden() -> None:
    cells = {one.removeprefix("steps/sent/") for one in ids(group="steps/sent")}
    environments = ("costbench", "pricing", "procurement", "scheduling")
    assert cells == {f"{agent}/{env}" for agent in ("chat", "responses", "messages", "gemini") for env in environments}


@pytest.mark.parametrize("name", KILLED)
def test_a_run_killed_again_and_again_loses_nothing(name: str, tmp_path: Path) -> None:
    place = copy(name, tmp_path)
    seen = held(place / RUN)
    for limit in (1, 2, None):
        played = play(place, str(RUN), limit=limit)
        assert asked(played) & seen == set()
        seen |= asked(played)
    assert digests(place / RUN) == read(GOLDENS, "steps/finished")


@pytest.mark.parametrize("name", sorted(AFTER_A_KILL))
def test_a_killed_run_that_is_damaged_is_repaired_and_ends_likewise(name: str, tmp_path: Path) -> None:
    place = copy("killed-late", tmp_path)
    run = place / RUN
    before = billed(run)
    AFTER_A_KILL[name](run)
    played = play(place, str(RUN), repair=True)
    assert (played.outcome.exit_code, played.outcome.owed) == (0, 0)
    assert digests(run) == read(GOLDENS, "steps/finished")
    assert call(place, "verify", str(RUN)).code == 0
    assert played.bill <= played.outcome.spent
    if name not in ("killed-missing-lease", "killed-missing-last-tail"):  # what was lost there, nobody can know
        assert before + played.bill <= played.outcome.spent


def test_a_killed_night_goes_on_and_ends_as_a_night_left_in_peace(tmp_path: Path) -> None:
    place = copy("nightly", tmp_path)
    night = place / RUN / "nights" / "2026-11-05"
    on_disk = held(night)
    said = call(place, "nightly", "sweep.toml", "--date", "2026-11-05")
    assert said.code == 0, said.err
    assert "24 of 24 episodes ended" in said.out
    bills = [path.read_text().splitlines() for path in night.glob("bill-*.jsonl")]
    names = [json.loads(line)["request_id"].split("/") for lines in bills for line in lines]
    again = {(episode, int(step)) for episode, step, _ in names}
    assert again
    assert again & on_disk == set()
    assert call(place, "verify", str(RUN / "nights" / "2026-11-05")).code == 0
    # Nights without faults ask the same models the same: only a night's own instances come in another order.
    assert steps_alone(night) == steps_alone(place / RUN / "nights" / "2026-11-03")


def steps_alone(run: Path) -> list[str]:
    return digests(run).splitlines()
