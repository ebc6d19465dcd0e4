import pytest
from msgspec.structs import replace

from evalkit.envs.costbench.domain.catalogue_files import only_task, parse_catalogue, shipped
from evalkit.envs.costbench.domain.ids import preferences_at
from evalkit.envs.costbench.domain.queries import native_query
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.wording import message, requirements
from evalkit.seeds import Stream

WISHES = preferences_at(shipped("travel"), "dining", "test", 77)


def said(place: int) -> str:
    return requirements(shipped("travel"), "dining", WISHES, Stream(5, place))


def test_wishes_stand_between_an_opening_and_a_closing_each_in_a_frame_of_its_own() -> None:
    catalogue = shipped("travel")
    words = catalogue.words
    openings = {text.replace("{about}", "a place to eat") for text in words.openings}
    phrases = {
        (key, phrase): [join.replace("{phrase}", phrase) for join in words.joins]
        for key, value in WISHES.items()
        for phrase in catalogue.tasks["dining"].phrases[key][value]
    }
    for place in range(100):
        text = said(place)
        (opening,) = [one for one in openings if text.startswith(one)]
        (closing,) = [one for one in words.closings if text.endswith(one)]
        middle = text.removeprefix(opening).removesuffix(closing).strip()
        found = [
            (key, frame, sentence)
            for (key, _), sentences in phrases.items()
            for frame, sentence in enumerate(sentences)
            if sentence in middle
        ]
        assert sorted(key for key, _, _ in found) == sorted(WISHES)
        assert len({frame for _, frame, _ in found}) == len(WISHES)
        assert sum(len(sentence) for _, _, sentence in found) + len(found) - 1 == len(middle)


def test_order_frames_and_phrases_vary_and_one_place_says_the_same_again() -> None:
    assert len({said(place) for place in range(100)}) == 100
    assert said(3) == said(3)


def test_frames_come_again_only_when_all_have_been_used_and_sentences_begin_large() -> None:
    plain = only_task(shipped("travel"), "dining")
    plain["words"]["joins"] = ["{phrase}, please.", "I want {phrase}."]
    catalogue = parse_catalogue(plain, "line")
    for place in range(20):
        text = requirements(catalogue, "dining", WISHES, Stream(1, place))
        assert text.count(", please.") == text.count("I want") == 2
        assert all(part[0].isupper() for part in text.split(". "))


def test_a_value_without_phrases_is_named_with_spaces() -> None:
    plain = only_task(shipped("travel"), "dining")
    del plain["tasks"]["dining"]["phrases"]
    text = requirements(parse_catalogue(plain, "line"), "dining", WISHES, Stream(1))
    assert all(value.replace("_", " ") in text for value in WISHES.values())


@pytest.mark.parametrize(
    ("name", "task", "split", "ids"),
    [
        ("travel", "dining", "test", "at the time <TimeInfo00904> to <LocationPreference00012>."),
        ("travel", "location", "test", "at the time <TimeInfo00904>."),
        ("travel", "dining", "train", "at the time <TimeInfo0000904> to <LocationPreference0000012>."),
        ("delivery", "release", "test", "in <Sprint00904> on <ServiceBrief00012>."),
    ],
)
def test_the_message_holds_the_ids_that_are_given_and_the_requirements(
    name: str, task: str, split: str, ids: str
) -> None:
    catalogue = shipped(name)
    query = native_query(catalogue, task, split, 0, 0)
    given = {kind: 904 if kind in catalogue.constants else 12 for kind in query.given}
    text = message(catalogue, split, replace(query, given=given))
    assert ids in text
    assert text.endswith(query.text)
    assert "{" not in text


def test_a_message_that_a_query_brings_along_is_kept() -> None:
    query = Query(id="<Query00001>", preferences=WISHES, given={}, number=1, text="Hungry.", message="Feed me {ids}.")
    assert message(shipped("travel"), "test", query) == "Feed me {ids}."
