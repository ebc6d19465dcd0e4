"""What logs' readers ask of an environment's record, and what they get where no such environment is installed."""

import math
from dataclasses import replace

import pytest

from evalkit.envs import table
from evalkit.envs.environment import Presentation
from tests.support.guessing_game import GUESSING


def test_what_nobody_knows_is_assumed_to_be_as_little_as_can_be() -> None:
    assert table.known("guessing") is None
    assert table.score_range("guessing") == (-math.inf, 1.0)
    assert table.presented("guessing").zero_means == ""
    assert not table.presented("guessing").one_chat
    assert not table.presented("guessing").stationary
    assert table.shares_of(["guessing"]) == {}


def test_a_record_answers_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(
        GUESSING,
        score_range=(-2.0, 1.0),
        presentation=Presentation(zero_means="far off", one_chat=True, stationary=True),
    )
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", {"guessing": mine, "other": GUESSING})
    assert table.score_range("guessing") == (-2.0, 1.0)
    assert table.presented("guessing").zero_means == "far off"
    assert table.presented("guessing").stationary
    assert table.one_chats(["absent", "guessing"]) == ["guessing"]
    # Of those that were played alone: others are not even imported.
    monkeypatch.setattr(table, "OWN_ENVIRONMENTS", {"guessing": mine})
    assert table.one_chats(["other"]) == []
