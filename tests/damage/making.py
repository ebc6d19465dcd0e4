"""A small run with every file that a run directory may hold: as a kill leaves it, beside one that ended well.

Two agents are played over HTTP against a simulated provider, so that there are money rows and a forecast; the log is
then laid out anew as if the process had died: half of it compacted, the rest in tails, one episode without its end.
"""

import json
import shutil
from pathlib import Path

from evalkit.cli.main import main
from evalkit.report.report import read_cells
from evalkit.store.commit import Load, commit
from evalkit.store.reader import read_ledger, scan_all
from evalkit.store.schema import STEPS, conform
from evalkit.store.segment import MARK, encode_mark, encode_segment, segment_name

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
any_model = true
[simulate]
latency = "0ms"
[usd_per_mtok]
input = "1"
output = "4"
as_of = 2026-11-21
source = "made up"
"""
TAILS = 3


def make(folder: Path) -> None:
    """Into an empty folder that is the present one: `small.toml`, `whole` (ended well), `killed`, and `sweep` with
    nights."""
    (folder / "providers").mkdir()
    (folder / "providers" / "lab.toml").write_text(LAB)
    (folder / "small.toml").write_text(SPEC)
    assert main(["run", "small.toml", "--dir", "whole", "--json"]) == 0
    episode = read_cells(Path("whole"))[1][0].episodes[0]
    assert main(["void", "whole", "--episode", episode.id, "--reason", "for the test"]) == 0
    assert main(["report", "whole"]) == 0
    shutil.copytree("whole", "killed")
    _as_killed(Path("killed"))


def _as_killed(run: Path) -> None:
    columns = scan_all(run, STEPS.names)
    steps, ledger = conform(columns, STEPS), read_ledger(run)
    for folder in ("steps", "tail", "ledger"):
        shutil.rmtree(run / folder)
        (run / folder).mkdir()
    steps = steps.slice(0, steps.num_rows - 1)
    half = steps.num_rows // 2
    (run / "steps" / segment_name(0, 3)).write_bytes(
        encode_segment(steps.slice(0, half), "steps", 0, 3, compacted=True).to_pybytes()
    )
    (run / MARK).write_bytes(encode_mark(steps=4, ledger=1))
    left = steps.num_rows - half
    for number in range(TAILS):
        begin, end = half + number * left // TAILS, half + (number + 1) * left // TAILS
        rows = [row for row in ledger if row.kind != "close"]
        entries = rows[number * len(rows) // TAILS : (number + 1) * len(rows) // TAILS] or rows[:1]
        commit(
            run,
            Load(
                steps=steps.slice(begin, end - begin),
                entries=entries,
                lines=[],
                steps_number=4 + number,
                ledger_number=number,
            ),
        )
    live = {
        "event": "live",
        "version": 1,
        "name": "small",
        "at": 1.7e9,
        "cells": [["knuth", "scheduling/basic", 1, 2]],
        "lanes": {},
    }
    (run / "live.json").write_text(json.dumps(live))
