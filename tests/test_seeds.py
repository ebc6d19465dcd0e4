"""Draws by place: the same in every process, and spread as they should be."""

from evalkit.seeds import fractions


def test_fractions_are_those_of_the_place_and_frozen() -> None:
    assert fractions(1, "cost", "A") == fractions(1, "cost", "A") == (0.8883171287648931, 0.07854029250028371)
    assert fractions(1, "cost", "B") != fractions(1, "cost", "A") != fractions(2, "cost", "A")


def test_fractions_fill_the_unit_square_evenly() -> None:
    drawn = [fractions(0, "place", i) for i in range(20_000)]
    assert all(0 <= one < 1 and 0 <= other < 1 for one, other in drawn)
    # Of 16 cells, 1250 each; a count's deviation is 34.
    counts = [0] * 16
    for one, other in drawn:
        counts[4 * int(4 * one) + int(4 * other)] += 1
    assert all(abs(count - 1250) < 5 * 34 for count in counts)
