"""When the view looks at a run again."""

from pathlib import Path

from evalkit.view.reading import log_state
from tests.support.handmade_logs import append, begin, compact
from tests.support.log_rows import rounds


def test_every_commit_and_every_compaction_is_seen(tmp_path: Path) -> None:
    journal, states = begin(tmp_path), []
    for rows in rounds(["a"], 3):
        append(journal, rows)
        states.append(log_state(tmp_path))
    compact(journal, 0, 2)
    states.append(log_state(tmp_path))
    assert len(set(states)) == 4
    assert log_state(tmp_path) == states[-1]
