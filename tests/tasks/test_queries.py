import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.tasks.costbench.queries import cut_off, read_queries, suite_lines

Row = dict[str, Any]


def row(number: int = 1, **changes: Any) -> Row:
    """A row as the reference writes it; the wishes are the first of every dimension."""
    return {
        "query_id": f"<Query{number:05d}>",
        "TimeInfo": "<TimeInfo00904>",
        "task": "dining",
        "is_location": 0,
        "preferences": {
            "tier": "world_renowned_award_winner",
            "category": "coffee_shop",
            "style": "culinary_quality_priority",
            "feature_package": "live_music_or_performance",
        },
        "location_preference": "<LocationPreference00003>",
        "groundtruth": "<DiningPreference00513>",
        "validation_raw": "**no conflict**",
        "user_requirements": "A good place.",
        "query": {"input": "Plan <TimeInfo00904> at <LocationPreference00003>: A good place.. "},
        **changes,
    }


def written(folder: Path, *rows: object, name: str = "queries.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(list(rows)))
    return path


def test_a_row_becomes_a_line(tmp_path: Path) -> None:
    file = read_queries(written(tmp_path, row(1), row(2, user_requirements="A good")))
    one, two = suite_lines([file], length=6, seed=7)
    assert {key: value for key, value in one.items() if key not in ("query", "alternatives", "source")} == {
        "id": "q00001",
        "environment": "costbench",
        "generator": "reference",
        "catalogue": "travel",
        "task": "dining",
        "split": "test",
        "length": 6,
        "seed": 7,
        "alternatives_seed": 7,
    }
    assert one["query"] == {
        "id": "<Query00001>",
        "preferences": row()["preferences"],
        "given": {"TimeInfo": 904, "LocationPreference": 3},
        "number": 513,
        "text": "A good place.",
        "message": row()["query"]["input"],
        "truncated": False,
    }
    assert one["source"] == {"file": "queries.json", "sha256": file.sha256, "row": 1}
    assert two["query"]["truncated"] is True
    assert [other["id"] for other in one["alternatives"]] == ["<Query00002>"] * 3
    assert "message" not in one["alternatives"][0]
    assert one["alternatives"][0]["text"] == "A good"


def test_a_task_of_one_query_has_no_alternative(tmp_path: Path) -> None:
    (line,) = suite_lines([read_queries(written(tmp_path, row()))])
    assert line["alternatives"] == []


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(("split", "rows", "cut"), [("test", 381, 124), ("train", 1912, 1021)])
def test_the_references_files_are_read_whole(shared: Path, split: str, rows: int, cut: int) -> None:
    file = read_queries(shared / "data" / "costbench" / split / "queries.json")
    lines = suite_lines([file])
    assert (file.split, len(lines), sum(line["query"]["truncated"] for line in lines)) == (split, rows, cut)
    assert all(len(line["alternatives"]) == 3 for line in lines)
    assert len({line["id"] for line in lines}) == rows


def test_the_test_file_has_the_papers_mix_of_tasks(shared: Path) -> None:
    file = read_queries(shared / "data" / "costbench" / "test" / "queries.json")
    assert Counter(file.tasks) == {
        "location": 29,
        "transportation": 102,
        "accommodation": 51,
        "attraction": 56,
        "dining": 60,
        "shopping": 83,
    }


@pytest.mark.exhaustive
def test_several_files_make_one_suite(shared: Path) -> None:
    data = shared / "data" / "costbench"
    files = [read_queries(data / split / "queries.json") for split in ("test", "train")]
    names = {line["id"] for line in suite_lines(files)}
    assert {"test-q00001", "train-q00003"} <= names
    assert len(names) == 381 + 1912
    with pytest.raises(UsageError, match="is also in another file"):
        suite_lines([files[0], files[0]])


def test_alternatives_are_the_references(shared: Path) -> None:
    lines = suite_lines([read_queries(shared / "data" / "costbench" / "test" / "queries.json")])
    by_id = {line["query"]["id"]: line for line in lines}
    golden = (shared / "goldens" / "costbench" / "blocking_preference_change.jsonl").read_text().splitlines()
    compared = 0
    for one in map(json.loads, golden):
        found = by_id[one["query_id"]]["alternatives"][: one["block_num"]]
        assert [query["id"] for query in found] == [block["alternative_query_id"] for block in one["plan"]]
        wanted = [int(block["groundtruth"][-6:-1]) for block in one["plan"]]
        assert [query["number"] for query in found] == wanted
        compared += 1
    assert compared > 200


def test_a_text_is_cut_off_where_no_sentence_ends() -> None:
    assert [cut_off(text) for text in ("Done.", "Done? ", "Done!", "In sum", "so,", "“So.”", "")] == [
        *(False, False, False),
        *(True, True, True, True),
    ]


def changed(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: written(folder, row(1), row(2, **changes))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "none.json", "cannot be read"),
        (written, "has no queries"),
        (lambda folder: written(folder, {"a": 1}), "not a query file"),
        (lambda folder: written(folder, row(), row()), r"row 2: the id <Query00001> is not unique"),
        (changed(query_id="Query2"), "row 2: query_id"),
        (changed(task="dinning"), "row 2: task.*Did you mean 'dining'"),
        (changed(TimeInfo="<TimeInfo904>"), "row 2: TimeInfo"),
        (changed(TimeInfo="<TimeInfo00905>"), "row 2: query.input"),
        (changed(location_preference=None), "row 2: location_preference"),
        (changed(location_preference="<LocationPreference00000>"), "row 2: location_preference"),
        (changed(groundtruth="<DiningPreference00514>"), "number 513, but the row says 514"),
        (changed(groundtruth="<ShoppingPreference00513>"), "row 2: groundtruth"),
        (changed(preferences={"category": "coffee_shop"}), "row 2: preferences"),
        (changed(preferences=row()["preferences"] | {"mood": "cheerful"}), "row 2: preferences: unknown key 'mood'"),
        (
            changed(preferences=row()["preferences"] | {"category": "spaceship"}),
            "row 2: preferences.category: 'spaceship' is not a value in any split",
        ),
        (changed(query="Plan it."), "not a query file"),
    ],
)
def test_what_is_no_query_file_is_refused_by_row(tmp_path: Path, make: Callable[[Path], Path], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_queries(make(tmp_path))


def test_text_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "queries.json"
    path.write_bytes(b"PK\x03\x04\xff")
    with pytest.raises(UsageError, match="not a query file"):
        read_queries(path)
