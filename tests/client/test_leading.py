"""Before a request of a run in a bucket: whoever may have been taken over asks first, and sends nothing if it was."""

import asyncio

import pytest

from evalkit.client import ask as leading
from evalkit.client.ask import renewed
from evalkit.errors import FencedError


class Right:
    """Confirmed by the last of some questions, or refused by it."""

    def __init__(self, questions: int, *, deposed: bool = False) -> None:
        self.left, self.deposed = questions, deposed

    @property
    def is_current(self) -> bool:
        return self.left == 0 and not self.deposed

    def check(self) -> None:
        self.left -= 1
        if self.left == 0 and self.deposed:
            raise FencedError("Another process has taken it over.")


def test_a_right_is_asked_for_until_it_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "AGAIN_S", 0.0)
    right = Right(3)
    asyncio.run(renewed(right))
    assert right.left == 0


def test_one_that_was_deposed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "AGAIN_S", 0.0)
    with pytest.raises(FencedError):
        asyncio.run(renewed(Right(2, deposed=True)))
