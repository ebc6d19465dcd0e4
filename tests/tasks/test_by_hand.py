"""Samples that people check by hand: whom they hold, what a sheet says, and what agreement comes to."""

import csv
from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.tasks.by_hand import HandCheck, agreement, drawn, kappa, read_sheet, sheet

COLOURS = ("red", "pale_blue")
ITEMS = [
    HandCheck(
        id=f"i{place}",
        stratum="few" if place < 3 else "many",
        text=f"=text {place}",
        asked={"colour": (COLOURS, COLOURS[place % 2]), "number": ((), str(place) if place else "")},
    )
    for place in range(30)
]


@pytest.mark.parametrize("size", [2, 3, 10, 17, 29, 30])
def test_a_sample_has_every_stratum_in_its_share(size: int) -> None:
    sample = drawn(ITEMS, size, 4)
    few = sum(item.stratum == "few" for item in sample)
    assert len({item.id for item in sample}) == size
    assert abs(few - max(1, size / 10)) < 1
    assert sample == drawn(ITEMS, size, 4)
    assert size in (2, 30) or any(drawn(ITEMS, size, seed) != sample for seed in range(5, 9))


@pytest.mark.parametrize("size", [0, 1, 31])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="must be 2 "):
        drawn(ITEMS, size, 0)


def filled(folder: Path, name: str, **answers: str) -> Path:
    """A sheet of all items with the right answers, but for those given as `i3_colour="red"`."""
    path = folder / name
    path.write_text(sheet(ITEMS))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row, item in zip(rows, ITEMS, strict=True):
        for question, (_, right) in item.asked.items():
            row[question] = answers.get(f"{item.id}_{question}", right.replace("_", " ").upper())
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_sheet_says_what_can_be_answered_and_not_what_is_right(tmp_path: Path) -> None:
    rows = list(csv.DictReader(sheet(ITEMS).splitlines()))
    assert rows[4] == {
        "id": "i4",
        "stratum": "many",
        "text": "'=text 4",  # no formula of a spreadsheet's
        "colour": "",
        "colour_options": "red | pale_blue",
        "number": "",
        "number_options": "a whole number",
    }
    known = {item.id: item for item in ITEMS}
    said = read_sheet(filled(tmp_path, "a.csv", i5_colour="", i6_number=" 07 "), known)
    assert ("i5", "colour") not in said
    assert (said["i7", "colour"], said["i6", "number"]) == ("pale_blue", "7")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"i5_colour": "green"}, "row 7: colour: 'green' is not one of red, pale_blue"),
        ({"i5_number": "many"}, "row 7: number: 'many' is not a whole number"),
    ],
)
def test_an_answer_that_cannot_be_is_named(tmp_path: Path, answers: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_sheet(filled(tmp_path, "a.csv", **answers), {item.id: item for item in ITEMS})


def test_another_suite_s_sheet_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(sheet(ITEMS))
    with pytest.raises(UsageError, match="nothing is filled in"):
        read_sheet(path, {item.id: item for item in ITEMS})
    with pytest.raises(UsageError, match="row 2: id 'i0' is not of what the sheet was drawn from"):
        read_sheet(path, {})
    with pytest.raises(UsageError, match="cannot be read as a sheet"):
        read_sheet(tmp_path / "none.csv", {})


def test_kappa_is_cohen_s() -> None:
    # The example of a table of two by two: 20 and 15 alike, 5 and 10 not.
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert kappa([pairs]) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert kappa([[("a", "a")] * 9]) is None
    assert kappa([]) is None
    assert kappa([[("a", "b"), ("b", "a")]]) == -1
    # Groups in which chance agrees on all add nothing to agreement beyond chance.
    assert kappa([pairs, [("z", "z")] * 50]) == pytest.approx(kappa([pairs]))


def test_agreement_is_by_annotator_and_by_pair(tmp_path: Path) -> None:
    known = {item.id: item for item in ITEMS}
    sheets = {
        "a": read_sheet(filled(tmp_path, "a.csv"), known),
        "b": read_sheet(filled(tmp_path, "b.csv", i4_colour="pale blue", i6_number="5"), known),
    }
    single, both = agreement(ITEMS, sheets)
    by = {(row["annotator"], row["question"]): row for row in single.rows}
    assert by["a", "(all)"]["right"] == 100
    assert (by["b", "colour"]["answers"], by["b", "colour"]["right"]) == (30, pytest.approx(100 * 29 / 30))
    # Of the first item nobody has said the number.
    assert (by["b", "number"]["answers"], by["b", "number"]["known"]) == (29, 29)
    pair = {row["question"]: row for row in both.rows}
    assert pair["(all)"]["same"] == pytest.approx(100 * 57 / 59)
    assert 0.9 < pair["colour"]["kappa"] < 29 / 30
    assert agreement(ITEMS, {"a": sheets["a"]})[1:] == ()
