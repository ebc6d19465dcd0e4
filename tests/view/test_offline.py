from evalkit.view.offline import chosen
from evalkit.view.reading import Reading


def test_errors_come_first_then_each_cells_ends_and_middle(reading: Reading) -> None:
    cells = reading.report.cells
    found = chosen(cells, reading.quotes)
    ids = [one.episode.id for one in found]
    assert len(ids) == len(set(ids))
    errors = [one for one in found if one.why.startswith("error: ")]
    assert found[: len(errors)] == errors
    assert {one.episode.id for one in errors} == {one.example.id for one in reading.quotes}
    for cell in cells:
        scores = {one.score for one in cell.prefix}
        held = {one.episode.score for one in found if one.episode in cell.prefix}
        assert {min(scores), max(scores)} <= held  # type: ignore[type-var]
    assert [one.why for one in chosen(cells[:1], ())] == ["any of its cell"]  # the oracle's are all optimal


def test_nothing_is_chosen_of_a_run_without_episodes() -> None:
    assert chosen([], ()) == []
