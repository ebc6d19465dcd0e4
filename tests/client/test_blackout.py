import json

import pytest

from evalkit.client.blackout import Blackout

KEY = "sk-planted/0123+456789"


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
    out = Blackout(KEY).body(body.encode(), good=good)
    assert b"***" in out
    assert KEY.encode() not in out
    if body.startswith("{"):
        assert KEY not in json.dumps(json.loads(out)).replace("\\/", "/")


def test_a_body_without_the_key_stays_as_it_is() -> None:
    body = b'{"text":"sk-planted\\u00e4 \\/ sk-plante\\u0064"}'
    assert Blackout(KEY).body(body, good=True) == body
    assert Blackout("").body(body, good=False) is body


def test_a_short_key_is_no_secret_and_stays_in_a_reply_but_not_in_an_error() -> None:
    assert Blackout("EMPTY").body(b'"EMPTY"', good=True) == b'"EMPTY"'
    assert Blackout("EMPTY").body(b'"EMPTY"', good=False) == b'"***"'


def test_words_for_people_hold_no_key() -> None:
    assert Blackout(KEY).text(f"Bad header {KEY}!") == "Bad header ***!"
    assert Blackout("").text("as it is") == "as it is"
