"""The parts of nights: dates, the order of instances, the journal, the history's file, lines of bars."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.errors import CorruptLogError, UsageError
from evalkit.frozen.manifest import ManifestOrder
from evalkit.nightly.history_files import (
    FILE,
    accepted,
    among,
    last_end,
    note,
    read_journal,
    several,
    spans_of,
    told,
)
from evalkit.nightly.hook import facts, message
from evalkit.nightly.night import rotated, tonight, utc_date
from evalkit.report.nights.dearer import dearer
from evalkit.report.nights.history import (
    FORMAT,
    CellNight,
    NightRecord,
    Rule,
    cell_key,
    decode,
    encode,
    taken,
    with_alarms,
)
from evalkit.report.nights.trends import alarms_table, bars, changes, trend_figure
from evalkit.stats.alarm import EARLY_PART
from tests.support.small_sweeps import TWO_POLICIES, resolved

HOUR = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def night_of(now: str, nights: list[str], cut_short_at: str | None = None, asked: str | None = None) -> str:
    began = None if cut_short_at is None else at(cut_short_at)
    return tonight(nights, at(now), cut_short_at=began, asked=asked, folder="nights")


@pytest.mark.parametrize(
    ("now", "cut_short_at", "night"),
    [
        ("2026-11-21T23:30", None, "2026-11-21"),
        ("2026-11-22T00:30", None, "2026-11-22"),
        ("2026-11-22T00:30", "2026-11-21T23:30", "2026-11-21"),
        ("2026-11-22T11:29", "2026-11-21T23:30", "2026-11-21"),
        ("2026-11-22T11:31", "2026-11-21T23:30", "2026-11-22"),
        ("2026-11-22T23:30", "2026-11-21T23:30", "2026-11-22"),
    ],
)
def test_a_night_that_was_cut_short_stays_one_night_past_midnight(
    now: str, cut_short_at: str | None, night: str
) -> None:
    assert night_of(now, ["2026-11-20", "2026-11-21"], cut_short_at) == night


def test_nights_only_go_forward() -> None:
    assert night_of("2026-11-21T12:00", ["2026-11-20"], asked="2026-11-25") == "2026-11-25"
    with pytest.raises(UsageError, match=r"2026-11-21 is before the last night, 2030-01-01.*Is the clock right"):
        night_of("2026-11-21T12:00", ["2030-01-01"])
    assert utc_date(at("2026-03-29T01:59:59")) == "2026-03-29"


def cell(agent: str = "knuth", **values: Any) -> CellNight:
    plain: dict[str, Any] = {
        "agent": agent,
        "suite": "s",
        "key": "k",
        "pack": "standard",
        "planned": 2,
        "ended": {},
        "values": {},
        "score": None,
        "low": None,
        "high": None,
        "episodes": 0,
        "cost": 0,
        "tokens_in": 0,
        "tokens_out": 0,
        "steps": 0,
        "latency_s": 0.0,
        "served": (),
    }
    return CellNight(**{**plain, **values})


def test_without_a_better_direction_a_rise_is_an_alarm_and_is_called_a_change() -> None:
    def nights(**marks: Any) -> list[NightRecord]:
        scores = [{f"i{i}": ((i + n) % 5 / 20 + (0.6 if n == 4 else 0.0),) for i in range(24)} for n in range(5)]
        records = [record(f"2026-11-0{n + 1}", cell(values=values, **marks)) for n, values in enumerate(scores)]
        return with_alarms(records, {}, Rule(), {one.night for one in records})

    (plain,), (litmus,) = nights()[-1].cells, nights(litmus=True)[-1].cells
    assert plain.alarm is not None
    assert litmus.alarm is not None
    assert (plain.alarm.raised, litmus.alarm.raised) == (False, True)
    assert litmus.alarm.words.startswith("change: tonight ")
    told = message(facts("s", Path("run"), "2026-11-05", [litmus], []))
    assert told[0] == "CHANGE: knuth on s"
    # The mark is kept in the file, and only where it is.
    assert decode(encode(nights(litmus=True)), "h")[-1].cells[0].litmus is True
    assert b"litmus" not in encode(nights())


def record(night: str, *cells: CellNight) -> NightRecord:
    return NightRecord(format=FORMAT, night=night, spent=0, query="", cells=cells)


class Sweep:
    """A sweep of two agents on four instances, two replicates each, and its nights."""

    def __init__(self, tmp_path: Path, text: str = TWO_POLICIES) -> None:
        self.resolved: ResolvedSweep = resolved(tmp_path, text)
        (self.suite,) = self.resolved.manifest.suites.values()
        self.digests = [one.digest for one in self.suite.instances]

    def night(self, date: str, **ended: dict[int, int]) -> NightRecord:
        """Replicates that ended, by agent and the instance's place in the suite."""
        agents = self.resolved.manifest.agents
        return record(
            date,
            *(
                cell(
                    agent,
                    suite=self.suite.name,
                    key=cell_key(agents[agent], self.suite),
                    ended={self.digests[place]: count for place, count in counts.items()},
                )
                for agent, counts in ended.items()
            ),
        )

    def order(self, *history: NightRecord) -> list[int]:
        (suite,) = rotated(self.resolved.manifest, history).suites.values()
        return [self.digests.index(one.digest) for one in suite.instances]


def test_instances_are_played_in_the_order_in_which_they_were_measured_last(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    whole, front, back = dict.fromkeys(range(4), 2), {0: 2, 1: 2}, {2: 2, 3: 2}
    assert sweep.order() == [0, 1, 2, 3]
    full = sweep.night("1", knuth=whole, random=whole)
    assert sweep.order(full) == [0, 1, 2, 3]
    first = sweep.night("2", knuth=front, random=front)
    assert sweep.order(full, first) == [2, 3, 0, 1]
    second = sweep.night("3", knuth=back, random=back)
    assert sweep.order(full, first, second) == [0, 1, 2, 3]


def test_one_agents_owed_episode_or_one_owed_replicate_puts_its_instance_first(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    whole = dict.fromkeys(range(4), 2)
    assert sweep.order(sweep.night("1", knuth=whole, random={0: 2, 1: 2, 3: 2})) == [2, 0, 1, 3]
    assert sweep.order(sweep.night("1", knuth=whole, random={**whole, 3: 1})) == [3, 0, 1, 2]
    assert sweep.order(sweep.night("1", knuth={**whole, 1: 0}, random={**whole, 2: 1})) == [1, 2, 0, 3]


def test_instances_of_equal_age_come_in_the_sweeps_order_and_no_others_change_places(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, TWO_POLICIES.replace('instances = ["seed-0", "seed-3", "seed-6", "seed-9"]\n', ""))
    manifest = sweep.resolved.manifest
    frozen = [sweep.digests.index(one.digest) for one in manifest.admitted(sweep.suite)]
    assert frozen != sorted(frozen) == list(range(12))
    assert sweep.order() == frozen
    measured = frozen[:7]
    night = sweep.night("1", knuth=dict.fromkeys(measured, 2), random=dict.fromkeys(measured, 2))
    assert sweep.order(night) == frozen[7:] + measured
    # The night lists its order: nobody permutes it again.
    listed = rotated(manifest, [night])
    (suite,) = listed.suites.values()
    assert list(listed.admitted(suite)) == list(suite.instances)
    # A manifest without a key is rotated as it is listed.
    old = msgspec.structs.replace(manifest, order=ManifestOrder())
    sweep.resolved = dataclasses.replace(sweep.resolved, manifest=old)
    assert sweep.order(night) == [one for one in range(12) if one not in measured] + sorted(measured)


def test_another_agent_of_that_name_has_measured_nothing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    whole = dict.fromkeys(range(4), 2)
    old = sweep.night("1", knuth=whole, random={0: 2})
    other = record("1", *(msgspec.structs.replace(one, key="another") for one in old.cells))
    assert sweep.order(old) == [1, 2, 3, 0]
    assert sweep.order(other) == [0, 1, 2, 3]


def test_the_journal_keeps_its_lines_also_behind_one_that_was_cut(tmp_path: Path) -> None:
    assert read_journal(tmp_path) == []
    note(tmp_path, "ended", "2026-11-01", reason="budget", budget=5)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind":"ended","ni')
    note(tmp_path, "accepted", "2026-11-02", cells=[("a", "s")])
    note(tmp_path, "told", "2026-11-03", cells=[("b", "s")])
    entries = read_journal(tmp_path)
    end = last_end(entries, "2026-11-01")
    assert end is not None
    assert (end.reason, end.budget) == ("budget", 5)
    note(tmp_path, "began", "2026-11-01")
    assert last_end(read_journal(tmp_path), "2026-11-01") is None
    assert last_end(entries, "2026-11-02") is None
    assert accepted(entries) == {("a", "s"): ["2026-11-02"]}
    assert told(entries, "2026-11-03") == {("b", "s")}


def test_some_of_the_nights_are_named_by_first_and_last() -> None:
    nights = [f"2026-11-{night:02}" for night in (1, 2, 3, 6, 7, 9)]
    for chosen, words in (
        (nights, "2026-11-01..2026-11-09"),
        (nights[:1], "2026-11-01"),
        ([*nights[:2], *nights[4:]], "2026-11-01..2026-11-02,2026-11-07..2026-11-09"),
        ([nights[0], nights[2]], "2026-11-01,2026-11-03"),
        ([], ""),
    ):
        assert spans_of(chosen, nights) == words
        assert among(words, nights) == chosen
    assert several(f"runs/n/nights/{nights[0]}..{nights[3]}") == ("runs/n/nights", "2026-11-01..2026-11-06")
    for other in ("runs/n/nights/2026-11-01", "runs/mine", "2026-11-01..2026-11-06", "n/2026-11-01..mine"):
        assert several(other) == ("", "")


def test_a_history_is_read_as_it_was_written_and_a_damaged_line_is_named() -> None:
    records = [record("2026-11-02", cell(values={"i": (0.5, 0.25)})), record("2026-11-01", cell())]
    data = encode(records)
    assert decode(data, "history") == [records[1], records[0]]
    assert encode(decode(data, "history")) == data
    with pytest.raises(CorruptLogError, match=r"history:2 is damaged.*--rebuild"):
        decode(data[:-9], "history")
    other = encode([msgspec.structs.replace(records[0], format=FORMAT + 1)])
    with pytest.raises(CorruptLogError, match="history:1 has format 2"):
        decode(other, "history")
    whole = msgspec.structs.replace(records[0].cells[0], score=50.0, low=40.0, high=60.0)
    for odd in ({"low": None}, {"high": None}, {"score": None}, {"values": {"i": ()}}):
        lone = msgspec.structs.replace(records[0], cells=(msgspec.structs.replace(whole, **odd),))
        with pytest.raises(CorruptLogError, match=r"history:1 is damaged: .* lacks a score or an end.*--rebuild"):
            decode(encode([lone]), "history")


def flat(night: int, share: float) -> NightRecord:
    return record(f"2026-11-{night:02}", cell(values={f"i{i}": (share,) for i in range(12)}))


def test_an_alarm_stands_while_nothing_changes_and_goes_when_the_scores_are_back() -> None:
    shares = [0.8] * 4 + [0.2] * 12 + [0.8] * 6
    nights = [flat(night, share) for night, share in enumerate(shares, 1)]
    done = with_alarms(nights, {}, Rule(), [one.night for one in nights])
    raised = [bool(one.raised) for one in done]
    assert raised[:4] == [False] * 4
    assert raised[4:16] == [True] * 12
    assert not raised[-1]
    assert {one.cells[0].alarm.since for one in done[4:16] if one.cells[0].alarm} == {"2026-11-05"}
    again = with_alarms(done, {}, Rule(), [done[9].night])
    assert again == done


def ten_nights(missing: int = 0) -> list[NightRecord]:
    """Twelve instances on ten nights: 99.9 until the fall to about 20 on nights 6 to 8; of night 6 some are missing."""
    scores = [0.999 if night not in (6, 7, 8) else 0.15 + 0.02 * night for night in range(1, 11)]
    nights = [
        record(
            f"2026-11-{night:02}",
            cell(values={f"i{i}": (share,) for i in range(missing if night == 6 else 0, 12)}, served=(f"m{share}",)),
        )
        for night, share in enumerate(scores, 1)
    ]
    return with_alarms(nights, {}, Rule(), [one.night for one in nights])


@pytest.mark.parametrize("missing", [0, 4, 9, 11])
def test_the_nights_since_a_fall_are_no_part_of_what_it_was(missing: int) -> None:
    nights = ten_nights(missing)
    raised = [one for one in nights if one.raised]
    assert [one.night for one in raised] == [f"2026-11-{night:02}" for night in range(7 if missing == 11 else 6, 11)]
    for one in raised:
        (fallen,) = one.raised
        alarm = fallen.alarm
        assert alarm is not None
        assert alarm.before == pytest.approx(0.999)
        assert alarm.was == tuple(f"2026-11-{night:02}" for night in range(1, 6))
        assert alarm.window == tuple(known.night for known in nights if known.night <= one.night)[-alarm.nights :]
        stands = " the fall" if alarm.since != one.night else ""
        assert f" against 99.9 in the 5 nights before{stands}, over" in alarm.words
        (told,) = facts("s", Path("run"), one.night, one.raised, nights)["alarms"]
        assert told["before"] == pytest.approx(99.9)
        assert told["served_before"] == ["m0.999"]
    (row, *_) = alarms_table(nights).rows
    assert row["before"] == pytest.approx(99.9)
    drawn = trend_figure([msgspec.structs.replace(one, cells=(scored(one.cells[0]),)) for one in nights])
    assert drawn is not None
    assert "dashed: the nights that it compares with" in str(drawn.spec)
    dashed = {point["night"]: point["was"] for point in drawn.table.rows}
    assert [night for night, was in dashed.items() if was is None] == (["2026-11-06"] if missing == 11 else [])
    assert [was for was in dashed.values() if was is not None] == pytest.approx([99.9] * (9 if missing == 11 else 10))


def scored(plain: CellNight) -> CellNight:
    return msgspec.structs.replace(plain, score=100 * sum(value for (value,) in plain.values.values()) / 12)


def test_an_alarm_ends_on_the_fourth_night_on_which_the_scores_are_back() -> None:
    shares = [0.999] * 5 + [0.2] * 3 + [0.999] * 5
    nights = [flat(night, share) for night, share in enumerate(shares, 1)]
    done = with_alarms(nights, {}, Rule(), [one.night for one in nights])
    assert [int(one.night[-2:]) for one in done if one.raised] == [6, 7, 8, 9, 10, 11]
    # None of its nights is a part of what it was or is afterwards.
    last = done[-1].cells[0].alarm
    assert last is not None
    assert last.words.startswith("no regression: ")
    assert last.before == last.now == pytest.approx(0.999)


def test_what_was_accepted_is_the_new_level() -> None:
    nights = [flat(night, share) for night, share in enumerate([0.8] * 4 + [0.4] * 4 + [0.1] * 2, 1)]
    taken = {("knuth", "s"): ["2026-11-05"]}
    done = with_alarms(nights, taken, Rule(), [one.night for one in nights])
    assert [int(one.night[-2:]) for one in done if one.raised] == [5, 9, 10]
    assert done[8].cells[0].alarm is not None
    assert done[8].cells[0].alarm.before == pytest.approx(0.4)
    assert done[8].cells[0].alarm.since == "2026-11-09"


def test_a_replaced_suite_is_a_new_baseline_and_no_fall() -> None:
    """Harder instances say nothing of the agent, and later nights are compared with these alone."""
    names = [[f"{'new' if night > 6 else 'old'}{i}" for i in range(12)] for night in range(1, 12)]
    shares = [0.8] * 6 + [0.5] * 3 + [0.1] * 2
    nights = [
        record(f"2026-11-{night:02}", cell(values=dict.fromkeys(own, (share,))))
        for night, (own, share) in enumerate(zip(names, shares, strict=True), 1)
    ]
    done = with_alarms(nights, {}, Rule(), [one.night for one in nights])
    told = [one.cells[0].alarm for one in done]
    assert told[6] is not None
    assert told[6].words == "no test: most of its instances were in no night before: tonight is a new baseline"
    assert [int(one.night[-2:]) for one in done if one.raised] == [10, 11]
    assert told[9] is not None
    assert told[9].before == pytest.approx(0.5)
    # A half that stays is compared with itself.
    mixed = [*nights[:6], record("2026-11-07", cell(values=dict.fromkeys(names[0][:6] + names[6][:6], (0.1,))))]
    assert "new baseline" not in str(with_alarms(mixed, {}, Rule(), ["2026-11-07"])[6].cells[0].alarm)


def test_an_episode_that_takes_twice_as_much_is_told_that_night_and_one_that_takes_a_little_more_is_not() -> None:
    draws = np.random.Generator(np.random.Philox(1))

    def night(number: int, times: float) -> NightRecord:
        noise = draws.normal(0, 0.2, 20)
        took = {f"i{i}": (1e9 * (1 + i) * times * float(np.exp(more)), 500.0) for i, more in enumerate(noise)}
        return record(f"2026-11-{number:02}", cell(values=dict.fromkeys(took, (0.8,)), took=took))

    nights = [night(number, 1.0) for number in range(1, 11)]
    for times, risen in ((2.0, True), (1.05, False)):
        last = with_alarms([*nights, night(11, times)], {}, Rule(), ["2026-11-11"])[-1]
        assert (len(last.rises) == 1) == risen
        if risen:
            payload = facts("sweep", Path("run"), last.night, last.raised, [last])
            assert payload["alarms"] == []
            (line,) = message(payload)
            assert line.startswith("DEARER: knuth on s: an episode costs 2")
            assert "times as much tonight as before, over 20 shared instances; p = " in line
            assert taken(last, {("knuth", "s"): ["2026-11-11"]}).rises == ()
            assert taken(last, {("random", "s"): ["2026-11-11"]}).rises == last.rises


def test_what_all_of_a_night_share_is_no_rise_where_nights_vary_so() -> None:
    draws = np.random.Generator(np.random.Philox(2))
    own = draws.uniform(1e9, 1e10, 40)
    for varying, said in ((0.0, True), (0.08, False)):
        shared = varying * np.resize([1.0, -1.0, 0.5, -0.5], 12)
        nights = [own * np.exp(night + draws.normal(0, 0.05, 40)) for night in (*shared, 0.15)]
        took = [{str(i): (float(one), 500.0) for i, one in enumerate(night)} for night in nights]
        assert bool(dearer(took[:-1], took[-1], 0.05)) == said
    assert dearer([], took[-1], 0.05) == dearer(took, {}, 0.05) == ()


def test_each_cell_gets_its_part_of_alpha() -> None:
    nights = [record(f"2026-11-0{n}", *(cell(f"a{i}", values={"x": (1.0,)}) for i in range(5))) for n in (1, 2)]
    done = with_alarms(nights, {}, Rule(alpha=0.3), ["2026-11-02"])
    assert [one.alarm.threshold for one in done[1].cells if one.alarm] == pytest.approx([EARLY_PART * 0.3 / 5 / 30] * 5)
    assert done[0] == nights[0]  # was not asked for


def test_bars_show_change_and_not_chance() -> None:
    assert bars([]) == ""
    assert bars([None, None]) == "··"
    assert bars([50.0, 50.2, None, 49.8]) == "▅▅·▄"
    assert bars([0.0, 100.0, 50.0]) == "▁█▅"
    assert len(set(bars([50.0, 51.0]))) <= 2


def test_a_change_of_what_is_served_is_seen_across_nights_that_do_not_say() -> None:
    history = [
        record("1", cell(served=("m fp_1",))),
        record("2", cell()),
        record("3", cell(served=("m fp_1",))),
        record("4", cell(served=("m fp_1", "m fp_2"))),
        record("5", cell(served=("m fp_2", "m fp_1"))),
    ]
    assert [changes(history, place) for place in range(5)] == [[], [], [], ["knuth"], []]
