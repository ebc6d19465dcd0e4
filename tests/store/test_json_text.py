import msgspec
import pytest

from evalkit.errors import CorruptLogError
from evalkit.store.json_text import decode


class Value(msgspec.Struct):
    number: int = 0
    rest: object = None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"number": 1.5}',
        b'{"number": 1' + b"0" * 30 + b"}",
        b'{"number": 1' + b"0" * 6000 + b"}",
        b'{"rest": 1e999}',
        b'{"rest": NaN}',
        b'{"rest": "\xff"}',
        b'{"rest": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"rest": ' + b"[" * 100_000,
        b'{"rest": "torn',
    ],
)
def test_whatever_is_no_such_value_is_one_error_with_place_and_remedy(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"^here:3 is damaged: .*Delete it\.$"):
        decode(data, Value, "here:3", "Delete it.")


def test_what_is_one_comes_as_its_kind() -> None:
    assert decode(b'{"number": 3, "rest": [1, {"a": "b"}]}', Value, "", "") == Value(number=3, rest=[1, {"a": "b"}])
