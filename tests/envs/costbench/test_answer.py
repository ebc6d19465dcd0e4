import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import World, make_world
from evalkit.envs.costbench.step import ends_turn, read_answer


def dining() -> World:
    return make_world(shipped("travel"), "dining", 5, whole=False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer> <DiningCandidate00012> </answer>", "00012"),
        ("<answer><DiningCandidate{Candidate_ID: 00012}></answer>", "00012"),
        ("<answer>< DiningCandidate { Candidate_ID : 00012 } ></answer>", "00012"),
        ("<answer><DiningCandidate{00012}></answer>", "00012"),
        ("<answer>DiningCandidate{Candidate_ID:00012}</answer>", "00012"),
        ("<answer>DiningCandidate{00012}</answer>", "00012"),
        ("<answer>it is DiningCandidate00012.</answer>", "00012"),
        ("<ANSWER><LocationCandidate00012></Answer>", "00012"),
        ("So:\n<answer>\n<ShoppingCandidate00012>\n</answer> <answer><DiningCandidate00013></answer>", "00012"),
        ("<answer>DiningCandidate00013 or <DiningCandidate00012></answer>", "00012"),
        ("<think><answer><DiningCandidate00013></answer></think><answer><DiningCandidate00012></answer>", "00012"),
        ("<answer><DiningCandidateSet00012></answer>", ""),
        ("<answer>00012</answer>", ""),
        ("<answer><DiningCandidate0012></answer>", ""),
        ("<answer><DiningCandidate000123></answer>", ""),
        ("<answer><HotelCandidate00012></answer>", ""),
        ("<answer><DiningCandidate00012>", ""),
        ("It is <DiningCandidate00012>.", ""),
        ("<think><answer><DiningCandidate00013></answer></think> I am done.", ""),
        ("I am done.", None),
        ("", None),
        ("The answer is 00012.", None),
    ],
)
def test_the_answer_is_read_by_the_stricter_rule(text: str, found: str | None) -> None:
    assert read_answer(text, dining(), 5) == found


def test_an_answer_of_the_training_split_has_more_digits() -> None:
    assert read_answer("<answer><DiningCandidate0000012></answer>", dining(), 7) == "0000012"
    assert read_answer("<answer><DiningCandidate00012></answer>", dining(), 7) == ""


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("<answer> <DiningCandidate00012> </answer>", True),
        ("<answer>00012</answer>", True),
        ("<answer>12, and 345</answer> <answer>1</answer>", True),
        ("<answer>1</answer> <answer>00012</answer>", False),
        ("<answer>000123</answer>", False),
        ("<answer>00012", False),
        ("</answer>00012<answer>", False),
        ("00012", False),
        ("<answer>\u0661\u0662\u0663\u0664\u0665</answer>", False),
    ],
)
def test_the_looser_rule_ends_the_episode(text: str, ends: bool) -> None:
    assert ends_turn(text, 5) is ends


PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<",
        ">",
        "DiningCandidate",
        "00012",
        "{",
        "}",
        "Candidate_ID:",
        " ",
        "<think>",
        "</think>",
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join))
def test_any_text_is_read(text: str) -> None:
    found = read_answer(text, dining(), 5)
    assert found is None or found == "" or (len(found) == 5 and found in text)
    assert ends_turn(text, 5) in (True, False)


def test_long_texts_are_read_in_linear_time() -> None:
    for text in ("<answer>" * 100_000, "<" * 500_000, "<answer>" + "< " * 200_000 + "</answer>", " " * 500_000):
        assert not ends_turn(text, 5)
        assert not read_answer(text, dining(), 5)
