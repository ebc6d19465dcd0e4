"""Facts, episode by episode: while files move, and where rows are superseded or gone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalkit.errors import CorruptLogError
from evalkit.store import stream
from evalkit.store.stream import stream_facts
from tests.logs import a_step, rounds, write_tails

FACTS = [f'{{"calls":[{{"outcome":"ok","tool":"submit"}}],"step":{step}}}' for step in range(3)]


def facts(run: Path, takes: list[int], start: list[int], *episodes: str) -> dict[str, list[str]]:
    found = stream_facts(run, episodes, np.array(takes, np.int64), np.array(start, np.int64))
    return {episodes[place]: texts for place, texts in found}


def test_only_what_is_wanted_comes_whole_and_in_step_order(tmp_path: Path) -> None:
    write_tails(tmp_path, rounds(["e0", "e1", "e2"], 3))
    assert facts(tmp_path, [0] * 5, [0, 3, 5], "e2", "e0") == {"e2": FACTS, "e0": FACTS[:2]}
    assert facts(tmp_path, [], [0]) == {}


def test_rows_of_another_take_are_left_aside(tmp_path: Path) -> None:
    write_tails(tmp_path, [*rounds(["e0"], 3), [a_step("e0", 1, take=1, facts=b'"again"')]])
    assert facts(tmp_path, [0, 1], [0, 2], "e0") == {"e0": [FACTS[0], '"again"']}


def test_a_file_that_moves_meanwhile_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tails(tmp_path, rounds(["e0", "e1"], 3))
    monkeypatch.setattr(stream, "_PAUSE_S", 0)
    plain, calls = stream.read_segment, iter(range(100))

    def read(*args: Any) -> Any:
        if next(calls) == 1:
            raise FileNotFoundError
        return plain(*args)

    monkeypatch.setattr(stream, "read_segment", read)
    assert facts(tmp_path, [0] * 6, [0, 3, 6], "e0", "e1") == {"e0": FACTS, "e1": FACTS}


def test_rows_that_are_gone_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tails(tmp_path, rounds(["e0"], 2))
    monkeypatch.setattr(stream, "_PAUSE_S", 0)
    with pytest.raises(CorruptLogError, match="gone while it is read: 1"):
        facts(tmp_path, [0] * 3, [0, 3], "e0")
