"""How far two paths are apart: insertions, deletions and replacements of calls. Source: specification, section 7.1."""

from collections.abc import Sequence


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The Levenshtein distance of two sequences of names."""
    if first == second:
        return 0
    from rapidfuzz.distance import Levenshtein

    letters: dict[str, str] = {}
    # One character a name: strings are what the library is quickest at.
    texts = ["".join([letters.setdefault(name, chr(len(letters) + 1)) for name in path]) for path in (first, second)]
    return Levenshtein.distance(*texts)


def normalised(first: Sequence[str], second: Sequence[str]) -> float:
    """The distance over the longer one's length, from 0 to 1; 0 if both are empty."""
    longer = max(len(first), len(second))
    return edit_distance(first, second) / longer if longer else 0.0
