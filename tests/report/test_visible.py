import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.text import bounded, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, naïve 寿司 🧮", "plain words, naïve 寿司 🧮"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\tb\rc\x00", "a\\tb\\rc\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028\u200b\ufeff", "\\u2028\\u200b\\ufeff"),
        ("half \ud83d", "half \\ud83d"),
        ("private \U000f0000", "private \\U000f0000"),
        ("no\u00a0break", "no\u00a0break"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_what_has_no_shape_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(), max_size=50))
def test_nothing_that_is_shown_controls_anything(text: str) -> None:
    for char in visible(text):
        assert char == "\n" or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_a_long_text_is_cut_and_says_so() -> None:
    assert bounded("x" * 2000) == "x" * 2000
    assert bounded("x" * 5000) == "x" * 2000 + "... 3,000 more characters"
    assert bounded("\x1b" * 3, 2) == "\\x1b\\x1b... 1 more characters"
