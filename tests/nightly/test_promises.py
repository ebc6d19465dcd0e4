"""What docs/nightly.md promises and no other test of nights shows."""

import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evalkit.cli.play.nightly import _code
from evalkit.engine.outcome import RunOutcome
from evalkit.nightly import hook
from evalkit.report.nights.history import AlarmNote, NightRecord, Rule, cell_key, judged
from evalkit.stats.alarm import watched
from evalkit.store.reading.unmetered import UnmeteredReplies
from tests.nightly.playing import house
from tests.nightly.test_command import fall, two_nights
from tests.nightly.test_parts import Sweep, cell, flat, record
from tests.support.command_line import Call
from tests.support.each_case import check_each
from tests.support.small_sweeps import TWO_POLICIES

TWELVE = TWO_POLICIES.replace('instances = ["seed-0", "seed-3", "seed-6", "seed-9"]\n', "")


def test_a_budget_for_a_third_of_the_sweep_plays_each_instance_every_third_night(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, TWELVE)
    history: list[NightRecord] = []
    played: Counter[int] = Counter()
    for night in range(9):
        tonight = sweep.order(*history)[:4]
        played.update(tonight)
        whole = dict.fromkeys(tonight, 2)
        history.append(sweep.night(f"2026-11-{night + 1:02}", knuth=whole, random=whole))
        assert len(played) == min(12, 4 * (night + 1))
    assert set(played.values()) == {3}


def test_an_instance_that_was_refused_has_had_its_turn(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    night = sweep.night("1", knuth={0: 2, 1: 2}, random={0: 2, 1: 2})
    assert sweep.order(night) == [2, 3, 0, 1]
    refused = {sweep.digests[2]: 2}
    filtered = msgspec.structs.replace(
        night, cells=tuple(msgspec.structs.replace(one, refused=refused) for one in night.cells)
    )
    assert sweep.order(filtered) == [3, 0, 1, 2]


def test_nights_send_the_same_first_requests_with_the_same_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = house(tmp_path, monkeypatch, periods=1)
    sent = []
    for night in ("2026-11-01", "2026-11-02"):
        mine.play(night)
        first = {name.partition("/")[0]: name for name in reversed(mine.asked)}
        sent.append({name: mine.requests[name] for name in first.values()})
    assert len(sent[0]) == 24
    assert sent[0] == sent[1]


def test_another_prompt_setting_or_version_is_another_thing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    agent = sweep.resolved.manifest.agents["knuth"]
    env = sweep.suite.environment
    changed = [
        (msgspec.structs.replace(agent, identity="another"), sweep.suite),
        (msgspec.structs.replace(agent, packs={env: "another"}), sweep.suite),
        (msgspec.structs.replace(agent, sampling={env: {"temperature": 0.5}}), sweep.suite),
        (agent, msgspec.structs.replace(sweep.suite, environment_version="another")),
    ]
    assert len({cell_key(agent, sweep.suite), *(cell_key(*one) for one in changed)}) == 5


def test_the_visible_fall_gets_smaller_with_replicates() -> None:
    draws = np.random.Generator(np.random.Philox(3))

    def visible(replicates: int) -> float:
        scores = 0.7 + 0.15 * draws.standard_normal((8, 30, replicates))
        told = [{str(place): list(map(float, values)) for place, values in enumerate(night)} for night in scores]
        found = watched(told[:-1], told[-1], tolerance=0.02).visible
        assert found is not None
        return found

    assert visible(16) < visible(4) < visible(1)


def test_an_alarm_that_took_long_to_be_found_looks_back_as_far() -> None:
    """It was raised on the eighth night of the fall, so eight nights are judged and not four."""
    found = AlarmNote(
        raised=True,
        p=0.0,
        threshold=0.001,
        nights=8,
        before=0.8,
        now=0.7,
        words="",
        since="2026-11-18",
        fell="2026-11-11",
    )
    history = [flat(night, 0.8 if night <= 10 else 0.7) for night in range(1, 21)]
    history[17] = record("2026-11-18", msgspec.structs.replace(history[17].cells[0], alarm=found))
    history[18] = record("2026-11-19", msgspec.structs.replace(history[18].cells[0], alarm=found))
    (alarm,) = (one.alarm for one in judged(history[:19], history[19], {}, Rule()).cells)
    assert alarm is not None
    assert (alarm.since, alarm.fell) == ("2026-11-18", "2026-11-11")
    assert alarm.was == tuple(f"2026-11-{night:02}" for night in range(1, 11))
    assert alarm.before == pytest.approx(0.8)


def outcome(reason: str, remaining: int, **more: Any) -> RunOutcome:
    plain: dict[str, Any] = {
        "directory": Path(),
        "place": Path(),
        "why": "",
        "simulated": "",
        "messages": (),
        "episodes": 4,
        "ended": 4 - remaining,
        "unfinished": 0,
        "remaining_cost": None,
        "refused": 0,
        "broken": 0,
        "steps": 0,
        "elapsed_s": 0.0,
        "spent": 0,
        "unconfirmed": 0,
        "budget": None,
        "unmetered": UnmeteredReplies(),
        "example": "",
    }
    return RunOutcome(**{**plain, "reason": reason, "remaining": remaining, **more})


def test_each_end_of_a_night_has_its_exit_code() -> None:
    def night(ended: int) -> NightRecord:
        return record("1", cell(planned=4, ended={"i": ended}))

    check_each(
        (
            ("complete", (outcome("complete", 0), night(4), 0)),
            ("its budget", (outcome("budget", 2), night(2), 0)),
            ("its deadline", (outcome("deadline", 3), night(1), 0)),
            ("nothing to do", (None, night(2), 0)),
            ("a budget for nothing", (outcome("budget", 4), night(0), 3)),
            ("errors in evalkit", (outcome("errors", 1, broken=1), night(3), 1)),
            ("an outage", (outcome("lane", 2), night(2), 3)),
            ("a full disk", (outcome("storage", 2), night(2), 3)),
            ("Ctrl-C", (outcome("interrupt", 2), None, 130)),
        ),
        lambda case: _same(_code(case[0], case[1]), case[2]),
    )


def _same(found: int, expected: int) -> None:
    assert found == expected


def test_a_command_that_hangs_is_stopped_and_what_was_told_and_written_is_said(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nights(call)
    fall(monkeypatch)
    (here / "sleep.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(hook, "HOOK_WITHIN_S", 0.2)
    command = shlex.join([sys.executable, "sleep.py"])
    said = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", command)
    assert said.code == 4
    assert "took longer than 0.2 s and was stopped" in said.err
    monkeypatch.undo()
    monkeypatch.chdir(here)
    (here / "good.py").write_text("")
    command = shlex.join([sys.executable, "good.py"])
    said = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", command, "--html", "page.html")
    assert said.out.splitlines()[-2:] == [f"--on-alarm: {sys.executable} was told of 1 new alarm.", "Wrote page.html."]
    again = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", command)
    assert "was told" not in again.out
