"""What lost rows had cost, as the rest of a run still knows it."""

from pathlib import Path

import orjson
import pytest

from evalkit.store.events import FILE
from evalkit.store.recovery.lost_money import Remains, lost_money


@pytest.mark.parametrize("spent", [1, 25_854_000_000, 7_793_000_000, 123_456_789_012_345, 2_000 * 10**12 - 1])
def test_what_was_spent_when_a_session_ended_stays_spent_to_the_last_pico_dollar(tmp_path: Path, spent: int) -> None:
    line = {"kind": "ended", "time": 1.0, "spent_usd": spent / 1e12}
    (tmp_path / FILE).write_bytes(orjson.dumps(line) + b"\n")
    rows, _ = lost_money(tmp_path, Remains(files=[], ledger=[], ledger_whole=True))
    assert [row.amount for row in rows if row.kind == "charge"] == [spent]
