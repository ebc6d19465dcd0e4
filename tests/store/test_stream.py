"""Facts, episode by episode: while files move, and where rows are superseded or gone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalkit.errors import CorruptLogError
from evalkit.store.files.record import StepRecord
from evalkit.store.files.segment import read_segment
from evalkit.store.reading import looking, stream
from evalkit.store.reading.stream import stream_facts
from tests.support.log_contents import LOGS, new_log, packed_log
from tests.support.log_rows import a_step, rounds

Write = Callable[..., Path]

FACTS = [f'{{"calls":[{{"outcome":"ok","tool":"submit"}}],"step":{step}}}' for step in range(3)]


def facts(run: Path, takes: list[int], start: list[int], *episodes: str) -> dict[str, list[str]]:
    found = stream_facts(run, episodes, np.array(takes, np.int64), np.array(start, np.int64))
    return {episodes[place]: texts for place, texts in found}


@pytest.mark.parametrize("write", LOGS)
def test_only_what_is_wanted_comes_whole_and_in_step_order(tmp_path: Path, write: Write) -> None:
    write(tmp_path, rounds(["e0", "e1", "e2"], 3))
    assert facts(tmp_path, [0] * 5, [0, 3, 5], "e2", "e0") == {"e2": FACTS, "e0": FACTS[:2]}
    assert facts(tmp_path, [], [0]) == {}


@pytest.mark.parametrize("write", LOGS)
def test_rows_of_another_take_are_left_aside(tmp_path: Path, write: Write) -> None:
    write(tmp_path, [*rounds(["e0"], 3), [a_step("e0", 1, take=1, facts=b'"again"')]])
    assert facts(tmp_path, [0, 1], [0, 2], "e0") == {"e0": [FACTS[0], '"again"']}


def test_a_file_that_moves_meanwhile_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_log(tmp_path, rounds(["e0", "e1"], 3))
    monkeypatch.setattr(looking, "PAUSE_S", 0)
    plain, calls = read_segment, iter(range(100))

    def read(*args: Any) -> Any:
        if next(calls) == 1:
            raise FileNotFoundError
        return plain(*args)

    monkeypatch.setattr(stream, "read_segment", read)
    assert facts(tmp_path, [0] * 6, [0, 3, 6], "e0", "e1") == {"e0": FACTS, "e1": FACTS}


def test_rows_that_are_gone_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_log(tmp_path, rounds(["e0"], 2))
    monkeypatch.setattr(looking, "PAUSE_S", 0)
    with pytest.raises(CorruptLogError, match="1 rows of the log disappeared"):
        facts(tmp_path, [0] * 3, [0, 3], "e0")


def ended(steps: int) -> list[list[StepRecord]]:
    """Commits of two episodes that end with the last of so many steps."""
    rows = rounds(["e0", "e1"], steps)
    for row in rows[-1]:
        row.ending = "stable"
    return rows


def test_facts_of_an_episode_that_was_retried_meanwhile_are_those_that_were_asked_for(tmp_path: Path) -> None:
    rows = [*ended(3), [a_step("e0", 2, take=1, facts=b'"again"', ending="refusal")]]
    packed_log(tmp_path, rows)
    assert facts(tmp_path, [0, 0, 0], [0, 3], "e0") == {"e0": FACTS}
    assert facts(tmp_path, [0, 0, 1], [0, 3], "e0") == {"e0": [*FACTS[:2], '"again"']}
    assert facts(tmp_path, [0, 0], [0, 2], "e1") == {"e1": FACTS[:2]}
