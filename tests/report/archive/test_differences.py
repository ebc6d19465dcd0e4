"""Which values of two files of numbers count as the same."""

import orjson
import pytest

from evalkit.report.archive.differences import NumberCount, differences


def found(stored: object, made: object, *, words: bool = True) -> tuple[list[str], NumberCount]:
    tally = NumberCount()
    return list(differences("a.json", orjson.dumps(stored), orjson.dumps(made), tally, words=words)), tally


def test_the_same_is_counted() -> None:
    values = {"rows": [{"score": 98.5, "n": 4, "name": "a", "none": None, "flag": True}], "notes": ["12 of 3"]}
    assert found(values, values) == ([], NumberCount(numbers=2, rounded=0))


@pytest.mark.parametrize(
    ("stored", "made"),
    [
        (98.5, 98.6),
        (98.5, None),
        (1, 2),
        (10**12, 10**12 + 1),
        (True, 1),
        ("1", "2"),
        ("123456789012345678901234", "123456789012345678901235"),
        ("a", "b"),
        ([1, 2], [1]),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ('{"gap":0.5}', '{"gap":0.6}'),
        (0.0, 1e-6),
    ],
)
def test_what_differs_is_told_with_its_place(stored: object, made: object) -> None:
    (flaw,) = found({"rows": [{"x": stored}]}, {"rows": [{"x": made}]})[0]
    assert flaw.startswith("rows[1].x")
    assert "it holds" in flaw


@pytest.mark.parametrize(
    ("stored", "made"),
    [(0.1 + 0.2, 0.3), ("0.30000000000000004", "0.3"), ('{"gap":0.30000000000000004}', '{"gap":0.3}')],
)
def test_last_digits_may_differ_and_are_counted(stored: object, made: object) -> None:
    assert found({"x": stored}, {"x": made}) == ([], NumberCount(numbers=1, rounded=1))


def test_another_version_may_use_other_words_and_add_columns() -> None:
    stored = {"tables": {"scores": {"title": "Scores", "notes": ["a"], "rows": [{"score": 1.5}]}}}
    made = {"tables": {"scores": {"title": "Score", "notes": [], "rows": [{"score": 1.5, "more": 2}]}, "new": {}}}
    assert found(stored, made, words=False)[0] == []
    assert len(found(stored, made)[0]) == 4
    made["tables"]["scores"]["rows"] = [{"score": 1.6}]
    assert found(stored, made, words=False)[0] == ["tables.scores.rows[1].score: it holds 1.5, the log gives 1.6"]


def test_csv_is_compared_by_rows_and_columns() -> None:
    tally = NumberCount()
    one, other = b"id,score\nx,0.30000000000000004\n", b"id,score,more\nx,0.3,1\n"
    assert list(differences("a.csv", one, other, tally, words=False)) == []
    assert tally == NumberCount(numbers=1, rounded=1)
    assert list(differences("a.csv", one, b"id,score\ny,0.3\n", tally, words=True)) == [
        "[1].id: it holds x, the log gives y"
    ]


def test_what_cannot_be_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        list(differences("a.json", b"{", b"{}", NumberCount(), words=True))
