"""What lost rows had cost, as the rest of a run still knows it."""

from dataclasses import replace
from itertools import compress, product
from pathlib import Path

import orjson
import pytest

from evalkit.money import PicoUsd
from evalkit.store.events import FILE
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import Account, accounts
from evalkit.store.reading.totals import Totals
from evalkit.store.recovery.correction import Remains, lost_money


def row(kind: str, amount: int = 0, reason: str = "") -> LedgerRecord:
    return LedgerRecord(kind=kind, session="s", amount=PicoUsd(amount), reason=reason, at=1.0)


OPENED, LEASED, CHARGED, CRASHED = row("open"), row("lease", 900), row("charge", 200, "timeout"), row("crash", 700)


@pytest.mark.parametrize(
    "ledger",
    [
        (OPENED, LEASED, CHARGED, row("close", 200)),
        (OPENED, row("close")),
        (OPENED, LEASED, CHARGED, CRASHED),
        (OPENED, row("crash")),
        (OPENED, LEASED, CHARGED),
    ],
)
def test_what_running_totals_say_of_a_session_stays_true_whichever_rows_are_lost(
    tmp_path: Path, ledger: tuple[LedgerRecord, ...]
) -> None:
    said = accounts(ledger, {})
    for chosen in product((True, False), repeat=len(ledger)):
        left = list(compress(ledger, chosen))
        remains = Remains(files=[], ledger=left, ledger_whole=False, said=Totals(accounts=said))
        rows, doubtful = lost_money(tmp_path, remains)
        books = accounts([*left, *rows], {}).get("s", Account(session="s"))
        assert books.charged + books.crashed >= said["s"].charged + said["s"].crashed
        same = {name: getattr(said["s"], name) for name in ("charged", "crashed")}
        assert replace(books, **same) == said["s"], chosen
        assert doubtful == (() if said["s"].closed or not (left or rows) else ("s",)), "it may have leased more"


@pytest.mark.parametrize("spent", [1, 25_854_000_000, 7_793_000_000, 123_456_789_012_345, 2_000 * 10**12 - 1])
def test_what_was_spent_when_a_session_ended_stays_spent_to_the_last_pico_dollar(tmp_path: Path, spent: int) -> None:
    line = {"kind": "ended", "time": 1.0, "spent_usd": spent / 1e12}
    (tmp_path / FILE).write_bytes(orjson.dumps(line) + b"\n")
    rows, _ = lost_money(tmp_path, Remains(files=[], ledger=[], ledger_whole=True))
    assert [row.amount for row in rows if row.kind == "charge"] == [spent]
