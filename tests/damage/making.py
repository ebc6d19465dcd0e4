"""A small run with every file that a run directory may hold: as a kill leaves it, beside one that ended well.

Two agents are played over HTTP against a simulated provider, so that there are money rows and a forecast; the log is
then laid out anew as if the process had died: half of it compacted, the rest as it was committed, one episode without
its end.
"""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from evalkit.cli.main import main
from evalkit.results.derived import read_cells
from evalkit.store.files.journal import open_journal
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import STEPS, conform
from evalkit.store.reading.reader import read_ledger, scan_all
from tests.support.handmade_logs import compact, discard

SPEC = """
name = "small"
width = 4
budget_usd = "2"
[[agents]]
name = "knuth"
provider = "lab"
model = "knuth"
[[agents]]
policy = "random"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [2] }
"""
LAB = """
dialect = "openai_chat"
[simulate]
latency = "0ms"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""


def make(folder: Path) -> None:
    """Into an empty folder that is the present one: `small.toml`, `whole` (ended well), `killed`."""
    (folder / "providers").mkdir()
    (folder / "providers" / "lab.toml").write_text(LAB)
    (folder / "small.toml").write_text(SPEC)
    assert main(["run", "small.toml", "--dir", "whole", "--json"]) == 0
    episode = read_cells(Path("whole"))[1][0].episodes[0]
    assert main(["tools", "void", "whole", "--episode", episode.id, "--reason", "for the test"]) == 0
    assert main(["report", "whole"]) == 0
    shutil.copytree("whole", "killed")
    _as_killed(Path("killed"))


TAILS = 3
"""Commits that are not compacted."""
WRITER = "aaaaaaaa-host-1-100.000"


def _emptied(run: Path) -> tuple[pa.Table, list[LedgerRecord]]:
    """(steps but the last, money rows of sessions that have not ended), with which the log is made anew."""
    steps, ledger = conform(scan_all(run, STEPS.names), STEPS), read_ledger(run)
    for folder in ("log", "steps", "ledger"):
        shutil.rmtree(run / folder)
        (run / folder).mkdir()
    live = {
        "event": "live",
        "version": 1,
        "name": "small",
        "at": 1.7e9,
        "cells": [["knuth", "scheduling/basic", 1, 2]],
        "lanes": {},
    }
    (run / "live.json").write_text(json.dumps(live))
    return steps.slice(0, steps.num_rows - 1), [row for row in ledger if row.kind != "close"]


def _shares(steps: pa.Table, count: int) -> list[pa.Table]:
    bounds = [number * steps.num_rows // count for number in range(count + 1)]
    return [steps.slice(begin, end - begin) for begin, end in pairwise(bounds)]


def _as_killed(run: Path) -> None:
    steps, ledger = _emptied(run)
    journal = open_journal(run, WRITER)
    for number, share in enumerate(_shares(steps, 4 + TAILS)):
        if number == 4:
            compact(journal, 0, 3)
        entries = ledger[number::4] if number < 4 else ledger[:1]
        journal.commit(share, entries)
    discard(journal, 0, 3)
