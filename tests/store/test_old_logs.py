"""Runs that began in the log's first format go on in the second."""

import shutil
from pathlib import Path

import orjson
import pytest

from evalkit.store.files.chain import check_chain
from evalkit.store.files.layout import journals, lay_out
from evalkit.store.files.segment import read_segment
from evalkit.store.reading.index import HeldEpisode, read_index
from evalkit.store.reading.reader import read_ledger, scan_all
from tests.support.run_directories import a_charge, a_step, write_run, write_tails

RUNS = Path(__file__).parents[1] / "net" / "runs"
FIXTURES = sorted(path.parent for path in RUNS.glob("*/runs/**/run.json"))
NAMES = [path.relative_to(RUNS).as_posix() for path in FIXTURES]
KEYS = ("episode", "take", "step", "cost", "facts")


def old_files(run: Path) -> dict[str, bytes]:
    """The log's files of format 1; covered tails are deleted in it, too."""
    folders = ("tail", "steps", "ledger")
    files = [path for folder in folders for path in (run / folder).glob("[0-9]*.parquet") if path.stem.count("-") < 2]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("fixture", FIXTURES, ids=NAMES)
def test_an_old_run_goes_on_in_a_journal_and_its_files_stay_as_they_are(tmp_path: Path, fixture: Path) -> None:
    run = shutil.copytree(fixture, tmp_path / "run")
    rows, money, held = scan_all(run, KEYS), read_ledger(run), dict(read_index(run).episodes)
    write_run(run, [])
    before = old_files(run)
    assert journals(run) == []
    assert orjson.loads((run / "log.json").read_bytes())["format"] == 2
    going = next((name for name, one in held.items() if not one.ending), None)
    more = [a_step("new", 0)]
    if going is not None:
        one = held[going]
        place = {name: getattr(one, name) for name in ("environment", "suite", "instance", "agent", "replicate")}
        more.append(a_step(going, one.steps, take=one.take, ending="done", **place))
    write_tails(run, [more], [a_charge(3)])
    write_run(run, [[a_step("new", 1, ending="done")]])
    assert old_files(run) == before
    after = scan_all(run, KEYS)
    assert after.slice(0, rows.num_rows).equals(rows)
    assert after.num_rows == rows.num_rows + len(more) + 1
    assert read_ledger(run) == [*money, a_charge(3)]
    assert check_chain(run) == []
    _ends_hold(run, going)
    index = read_index(run).episodes
    for name, one in held.items():
        assert name == going or known(index[name]) == known(one)


def known(one: HeldEpisode) -> tuple[object, ...]:
    """An episode as the index has it."""
    return one.agent, one.suite, one.take, one.steps, one.ending, one.requests, one.cost, one.tokens


def _ends_hold(run: Path, going: str | None) -> None:
    """An episode that began in format 1 and ended in format 2 has all its facts."""
    files = (one for one in lay_out(run, "ends").segments if not one.is_commit)
    found = {row["episode"]: row for one in files for row in read_segment(one).to_pylist()}
    assert found["new"]["steps"] == 2
    if going is None:
        return
    held = read_index(run).episodes[going]
    facts = [row for row in scan_all(run, KEYS).to_pylist() if row["episode"] == going and row["take"] == held.take]
    said = orjson.loads(found[going]["facts"])
    assert (found[going]["steps"], found[going]["requests"], found[going]["cost"]) == (
        held.steps,
        held.requests,
        held.cost,
    )
    assert len(said) == held.steps
    assert said[facts[0]["step"] :] == [orjson.loads(row["facts"]) for row in facts]
