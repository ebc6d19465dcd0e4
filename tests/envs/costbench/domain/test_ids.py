import json
from itertools import combinations as pairs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.costbench.domain import ids
from evalkit.envs.costbench.domain.catalogue_files import shipped

DIGITS = {"test": 5, "train": 7}


def number_in(text: str) -> int:
    return int("".join(letter for letter in text if letter.isdigit()))


@pytest.mark.parametrize("split", ["test", "train"])
def test_every_query_of_the_reference_has_the_number_that_arithmetic_gives(shared: Path, split: str) -> None:
    rows = json.loads((shared / f"data/costbench/{split}/queries_raw.json").read_text())
    catalogue = shipped("travel")
    times = ids.time_numbers(len(rows))
    for row, time in zip(rows, times, strict=True):
        place = row.get("location_preference")
        context = None if place is None else number_in(place)
        number = ids.preference_number(catalogue, row["task"], split, row["preferences"], context)
        label = row["task"].capitalize() + "Preference"
        assert ids.show_id(label, number, DIGITS[split]) == row["groundtruth"]
        assert ids.show_id("TimeInfo", time, DIGITS[split]) == row["TimeInfo"]
        assert ids.has_context(catalogue, row["task"]) == (context is not None)
    assert len(rows) == {"test": 1000, "train": 6000}[split]


def test_the_largest_numbers_of_the_reference_s_space() -> None:
    catalogue = shipped("travel")
    assert ids.combinations(catalogue, "dining", "test") == 256
    assert ids.largest_number(catalogue, "location", "test") == 256
    assert ids.largest_number(catalogue, "dining", "test") == 65_536
    assert ids.largest_number(catalogue, "dining", "train") == 1296 * 1296


@given(st.sampled_from(["location", "dining"]), st.sampled_from(["test", "train"]), st.data())
def test_a_number_says_which_wishes_it_stands_for(task: str, split: str, data: st.DataObject) -> None:
    catalogue = shipped("travel")
    size = ids.combinations(catalogue, task, split)
    index = data.draw(st.integers(0, size - 1))
    context = None if task == "location" else data.draw(st.integers(1, size))
    wishes = ids.preferences_at(catalogue, task, split, index)
    assert list(wishes) == sorted(wishes)
    assert ids.index_of(catalogue, task, split, wishes) == index
    number = ids.preference_number(catalogue, task, split, wishes, context)
    assert (number - 1) % size == index
    assert 1 <= number <= ids.largest_number(catalogue, task, split)


def test_values_of_the_other_split_have_no_number() -> None:
    catalogue = shipped("travel")
    wishes = ids.preferences_at(catalogue, "dining", "test", 0)
    with pytest.raises(ValueError, match="tuple"):
        ids.preference_number(catalogue, "dining", "train", wishes, 1)


def test_times_begin_again_after_the_pool() -> None:
    times = ids.time_numbers(5003)
    assert times[:2] == [3119, 389]
    assert times[5000:] == times[:3]
    assert ids.time_numbers(0) == []
    assert all(1 <= time < ids.TIMES for time in times)


def test_a_place_in_the_list_of_pairs_gives_the_pair_s_first_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "TIMES", 60)
    monkeypatch.setattr(ids, "_PAIRS", 60 * 59 // 2)
    for place, (first, _) in enumerate(pairs(range(1, 61), 2)):
        assert ids._first_of_pair(place) == first
