import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.redact import PIECE, SECRET_CHARS, Redactor
from tests.support.each_case import check_each
from tests.support.growth import assert_linear
from tests.support.hostile_replies import BODIES, times

KEY = "sk-planted/0123+456789"
PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\")
KEYS = st.text(PRINTABLE, min_size=SECRET_CHARS, max_size=80)
"""Backslashes left out: no key holds one, and escaping them is ambiguous."""

ESCAPES: tuple[Callable[[str], str], ...] = (
    str,
    lambda char: f"%{ord(char):02x}",
    lambda char: f"%{ord(char):02X}",
    lambda char: f"%2525{ord(char):02X}",
    lambda char: f"\\u{ord(char):04x}",
    lambda char: f"\\u{ord(char):04X}",
    lambda char: f"\\\\u{ord(char):04x}",
    lambda char: f"\\x{ord(char):02x}",
)


def in_base64(key: str) -> Iterator[str]:
    """The key in Base64 wherever it may stand, in both alphabets, with and without padding."""
    for before in ("", "a", "ab", "user:"):
        for behind in ("", "x", "xy"):
            whole = f"{before}{key}{behind}".encode()
            yield from (base64.b64encode(whole).decode(), base64.urlsafe_b64encode(whole).decode())
            yield base64.b64encode(whole).decode().rstrip("=")


def spelled(text: str) -> str:
    """Every character as a JSON escape."""
    return "".join(f"\\u{ord(char):04X}" for char in text)


@pytest.mark.parametrize(
    "body",
    [
        KEY,
        json.dumps({"error": KEY}),
        json.dumps({"error": KEY}).replace("/", "\\/"),
        f'{{"text":"{spelled(KEY)}"}}',
        f'{{"text":"{spelled(KEY).lower()} and {KEY}"}}',
        f'{{"text":"sk-{spelled("p")}lanted\\/0123\\u002B456789"}}',
    ],
    ids=["plain", "json", "slashes", "escaped", "both", "mixed"],
)
@pytest.mark.parametrize("good", [True, False])
def test_a_key_is_blacked_out_however_it_is_spelled(body: str, good: bool) -> None:
    out = Redactor(KEY).body(body.encode(), good=good)
    assert b"***" in out
    assert KEY.encode() not in out
    if body.startswith("{"):
        assert KEY not in json.dumps(json.loads(out)).replace("\\/", "/")


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_backslash_in_a_password_may_be_escaped_too(escape: Callable[[str], str]) -> None:
    password = "a\\proxy's-password-0123"
    for text in ("".join(map(escape, password)), json.dumps(password)[1:-1]):
        assert Redactor(password).body(f"[{text}]".encode(), good=True) == b"[***]"


def test_a_body_without_the_key_stays_as_it_is() -> None:
    body = b'{"text":"sk-planted\\u00e4 \\/ sk-plante\\u0064"}'
    assert Redactor(KEY).body(body, good=True) == body
    assert Redactor("").body(body, good=False) is body


LONG = "sk-proj-Aq3xZ81kLmWv7tRnC5bYp0dHsJ9uEfGiTo2-XK6_aQBvNrPw"


@pytest.mark.parametrize("good", [True, False])
def test_a_long_piece_of_a_key_is_blacked_out(good: bool) -> None:
    blackout, last = Redactor(LONG), len(LONG) - PIECE
    quotes = [LONG[start:stop] for start in range(last + 1) for stop in range(start + PIECE, len(LONG) + 1)]
    assert {blackout.text(f"({quote}...)", good=good) for quote in quotes} == {"(***...)"}
    assert blackout.text(f"Wrong: {LONG[:40]}… ({LONG[-12:]})", good=good) == "Wrong: ***… (***)"
    for body in (json.dumps({"a": f'"\\{LONG[3:30]}\\'}), json.dumps([LONG[:14] * 2])):
        assert LONG[8:14] not in json.dumps(json.loads(blackout.text(body, good=good)))


def test_a_short_piece_of_a_key_stays() -> None:
    text = f"{LONG[:8]} {LONG[:11]} {LONG[20:31]} {LONG[-4:]}"
    assert Redactor(LONG).text(text, good=True) == text


def test_a_short_key_is_no_secret_and_stays_in_a_reply_but_not_in_an_error() -> None:
    assert Redactor("EMPTY").body(b'"EMPTY"', good=True) == b'"EMPTY"'
    assert Redactor("EMPTY").body(b'"EMPTY"', good=False) == b'"***"'


def test_words_for_people_hold_no_key() -> None:
    assert Redactor(KEY).text(f"Bad header {KEY}!") == "Bad header ***!"
    assert Redactor("").text("as it is") == "as it is"


@given(KEYS, st.data())
def test_any_of_its_characters_may_be_escaped_in_any_way(key: str, data: st.DataObject) -> None:
    spelled = "".join(data.draw(st.sampled_from(ESCAPES))(char) for char in key)
    assert Redactor(key).text(f"_{spelled}_") == "_***_"


@given(KEYS)
def test_all_of_its_characters_may_be_escaped_in_one_way(key: str) -> None:
    for escape in ESCAPES:
        assert Redactor(key).text("_" + "".join(map(escape, key)) + "_") == "_***_"
    assert Redactor(key).text(f"_{quote(key)}_{quote(key, safe='')}_") == "_***_***_"


@given(KEYS)
def test_json_with_a_key_stays_json(key: str) -> None:
    for text in (json.dumps({"a": key}), json.dumps({"a": key}).replace("/", "\\/")):
        assert json.loads(Redactor(key).text(text)) == {"a": "***"}
    twice = json.loads(Redactor(key).text(json.dumps({"arguments": json.dumps({"a": key})})))
    assert json.loads(twice["arguments"]) == {"a": "***"}


@given(KEYS)
def test_a_key_in_base64_or_hexadecimal_digits_is_found_too(key: str) -> None:
    blackout = Redactor(key)
    for digits in (key.encode().hex(), key.encode().hex().upper()):
        assert blackout.text(f"({digits})") == "(***)"
    for encoded in in_base64(key):
        for text in (encoded, quote(encoded, safe=""), encoded.replace("/", "\\/"), json.dumps(encoded)[1:-1]):
            out = blackout.text(text)
            before, found, behind = out.partition("***")
            # Of the characters that the key shares with its neighbours one remains on either side.
            assert found, (text, out)
            assert len(before) <= 10
            assert len(behind) <= 12


def test_keys_of_all_providers_are_blacked_out_the_longer_one_first() -> None:
    other = KEY + "-of-a-team"
    blackout = Redactor(KEY, "", other, "EMPTY")
    assert blackout.body(f"{KEY} {other} EMPTY".encode(), good=True) == b"*** *** EMPTY"
    assert blackout.text(f"{other.encode().hex()} {KEY}") == "*** ***"


def test_a_short_key_is_not_taken_out_of_digits_and_base64() -> None:
    encoded = base64.b64encode(b"EMPTY").decode()
    assert Redactor("EMPTY").text(f"{encoded} {b'EMPTY'.hex()}") == f"{encoded} {b'EMPTY'.hex()}"


def test_half_surrogates_are_no_obstacle() -> None:
    assert Redactor(KEY).text(f"\ud800 {KEY} \udcff") == "\ud800 *** \udcff"


@pytest.mark.parametrize("at", [*range(2**16 - 140, 2**16 - 120), *range(2**16 - 4, 2**16 + 2)])
def test_a_key_across_two_windows_is_found(at: int) -> None:
    body = b"." * at + spelled(KEY).encode() + b"behind"
    assert Redactor(KEY).body(body, good=True) == b"." * at + b"***behind"


NEARLY = {
    "the key again and again": times(KEY.encode()),
    "its beginning again and again": times(KEY[:-1].encode() + b"%41"),
    "the key, escaped": times(spelled(KEY).encode()),
    "its beginning, escaped": times(spelled(KEY[:-1]).encode()),
    "its first character": times(KEY[0].encode() + b"\\x"),
    "its beginning in Base64": times(base64.b64encode(KEY.encode())[:20] + b"\\/"),
}


def test_blacking_out_is_linear_in_any_body() -> None:
    blackout = Redactor(KEY, "a" * 40)
    bodies = {**BODIES, **NEARLY}
    check_each(bodies.items(), lambda make: assert_linear(make, lambda body: blackout.body(body, good=False)))
