"""What the tests of linear readers call linear is: a square is told from a line, whatever makes it one, by counting."""

import re
from collections import deque
from collections.abc import Callable, Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.wire import lenient
from tests.support.growth import MOST, WIDER, assert_linear, units
from tests.support.regex_steps import steps

STEP = 4
NESTED = re.compile(r"(?:x+)+y")
RUN = re.compile(r"x+y")
WORD = re.compile(r"x{1,16}")


def places(given: str) -> range:
    return range(0, len(given), STEP)


def looked_at(given: str) -> None:
    for _ in given:
        pass


def found_behind_what_was_found(given: str) -> None:
    at = 0
    while (at := given.find("x", at)) >= 0:
        at += STEP


def matched_one_by_one(given: str) -> list[str]:
    return [match[0] for match in WORD.finditer(given)]


def kept_in_a_set(given: str) -> bool:
    seen = set(places(given))
    return all(place in seen for place in places(given))


def taken_from_the_end(given: str) -> None:
    left = [*places(given)]
    while left:
        left.pop()


def taken_from_a_queue(given: str) -> None:
    left = deque(places(given))
    while left:
        left.append(left.popleft())
        left.pop()


def joined_once(given: str) -> str:
    return "".join(given[place : place + STEP] for place in places(given))


def added_to_an_array(given: str) -> bytearray:
    whole = bytearray()
    for place in places(given):
        whole += given[place : place + STEP].encode()
    return whole


LINES = [
    *(looked_at, found_behind_what_was_found, matched_one_by_one, kept_in_a_set, taken_from_the_end),
    *(taken_from_a_queue, joined_once, added_to_an_array),
]


def cut_from_the_front(given: str) -> None:
    while given:
        given = given[STEP:]


def searched_for_each(given: str) -> None:
    seen: list[int] = []
    for place in places(given):
        if place not in seen:
            seen.append(place)


def added_to_a_text(given: str) -> bytes:
    whole = b""
    for place in places(given):
        whole += given[place : place + STEP].encode()
    return whole


def joined_again(given: str) -> bytes:
    whole = b""
    for place in places(given):
        whole = whole + given[place : place + STEP].encode()
    return whole


def found_from_the_start(given: str) -> None:
    for _ in places(given):
        given.find("y")


def counted_each_time(given: str) -> int:
    return max(given.count("y", place) for place in places(given))


def held_each_time(given: str) -> bool:
    return any("y" in given for _ in places(given))


def compared_each_time(given: str) -> bool:
    other = given.lower()
    return all(given == other for _ in places(given))


def encoded_each_time(given: str) -> int:
    return max(len(given.encode()) for _ in places(given))


def parsed_each_time(given: str) -> None:
    body = orjson.dumps(given)
    for _ in places(given):
        orjson.loads(body)


def read_each_time(given: str) -> None:
    for _ in places(given):
        lenient.loads_lenient(b'{"a":NaN,"b":"%b"}' % given.encode())


def formatted_each_time(given: str) -> int:
    return sum(len(f"{given}!") for _ in places(given))


def taken_from_the_front(given: str) -> None:
    left = [*places(given)]
    while left:
        left.pop(0)


def put_at_the_front(given: str) -> None:
    left: list[int] = []
    for place in places(given):
        left.insert(0, place)


def deleted_at_the_front(given: str) -> None:
    left = [*places(given)]
    while left:
        del left[0]


def copied_each_time(given: str) -> None:
    left: list[int] = []
    for place in places(given):
        left = [*left, place]


def looked_at_in_pairs(given: str) -> int:
    return sum(1 for one in places(given) for other in places(given) if one < other)


def sorted_each_time(given: str) -> None:
    left: list[int] = []
    for place in places(given):
        left.append(place)
        left.sort()


def mapped_each_time(given: str) -> list[int]:
    return [max(map(abs, places(given))) for _ in places(given)]


def searched_from_every_place(given: str) -> None:
    RUN.search(given)


def in_a_generator(given: str) -> None:
    def rest(text: str) -> Iterator[str]:
        while text:
            text = text[STEP:]
            yield text

    for _ in rest(given):
        pass


SQUARES = [
    *(cut_from_the_front, searched_for_each, added_to_a_text, joined_again, found_from_the_start, counted_each_time),
    *(held_each_time, compared_each_time, encoded_each_time, parsed_each_time, read_each_time, formatted_each_time),
    *(taken_from_the_front, put_at_the_front, deleted_at_the_front, copied_each_time, looked_at_in_pairs),
    *(sorted_each_time, mapped_each_time, searched_from_every_place, in_a_generator),
]


def name_of(work: Callable[[str], object]) -> str:
    return work.__name__


@pytest.mark.parametrize("work", LINES, ids=name_of)
def test_a_line_passes(work: Callable[[str], object]) -> None:
    assert_linear(text_of, work)


@pytest.mark.parametrize("work", SQUARES, ids=name_of)
def test_a_square_is_found(work: Callable[[str], object]) -> None:
    with pytest.raises(AssertionError, match=r"^wide: 1024 bytes took \d+ units, 128 of them \d+"):
        assert_linear(text_of, work, last=2**10, what="wide")


def text_of(n: int) -> str:
    return "x" * n


def test_a_regular_expression_that_tries_everything_again_is_found() -> None:
    taken = [steps(NESTED, text_of(n), 0, n, how="match")[0] for n in (6, 12)]
    assert taken[1] > 50 * taken[0]


def test_a_square_lies_far_from_what_is_allowed() -> None:
    assert WIDER < MOST < WIDER**2 / 4


def test_work_is_counted_alike_each_time_and_what_was_translated_is_put_back() -> None:
    plain, body = lenient.loads_lenient.__code__, b'{"a":[1,NaN]}'

    def read(body: bytes) -> None:
        assert lenient.loads_lenient.__code__ is not plain
        assert str(lenient.loads_lenient(body)) == "({'a': [1, nan]}, True)"

    counted = [units(read, body, {lenient.__name__}) for _ in range(2)]
    assert counted[0] == counted[1] > len(body)
    assert lenient.loads_lenient.__code__ is plain
    with pytest.raises(lenient.MalformedReplyError):
        units(lenient.loads_lenient, b"", {lenient.__name__})
    assert lenient.loads_lenient.__code__ is plain


PATTERNS = (
    *(r"\s*([+-]?\d{1,18})(?:\.0*)?\s*", r'"(?:[^"\\]|\\.)*+"?', r"(a|ab)*c", r"(?:a+)+b", r"\b(?:ab|ba)\b"),
    *(r"(?<=a)b*?c", r"(?!ab)[ab]{2,3}c|a.b", r"(?:a|b){2,4}?c", r"^ab$|c+?b", r"(a*)*b", r"(?:a??b?)*c", r"(?>a*)b"),
    *(r"(a|b)*\1c", r"([ab]+)c*\1", r"((?:a|1)(b*))\2+a?"),
)


@pytest.mark.parametrize("flags", [re.NOFLAG, re.IGNORECASE | re.DOTALL])
@given(st.text('abcA"\\ 1.\n', max_size=12), st.sampled_from(PATTERNS), st.data())
def test_steps_are_counted_of_the_search_that_python_does(
    flags: re.RegexFlag, text: str, pattern: str, data: st.DataObject
) -> None:
    compiled = re.compile(pattern, flags)
    at, end = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from([5, 99]))
    for how in ("search", "match", "fullmatch"):
        found = getattr(compiled, how)(text, at, end)
        assert steps(compiled, text, at, end, how=how)[1] == (found and found.span())
