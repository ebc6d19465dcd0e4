"""Runs in a bucket: what reading commands say of one, objects that another program has brought, and what is refused."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.frozen.copying import download
from evalkit.results.verify import verify
from evalkit.store.bucket import BucketPath, place_of
from evalkit.store.disk import read_lines
from evalkit.store.events import FILE as EVENTS
from evalkit.store.events import read_events
from evalkit.store.files.journal import has_ended, newest_claim
from evalkit.store.files.layout import journals
from tests.soak.test_kill import steps
from tests.support.command_line import POLICIES, Call, start, tree
from tests.support.object_stores import StoreProxy, make_bucket, proxy, reached_at
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import resolved
from tests.support.spread_runs import SpreadRun, play
from tests.support.sweep_runs import served, with_budget

pytestmark = pytest.mark.exhaustive

READING = (
    ("status", "RUN", "--json"),
    ("report", "RUN", "--json"),
    ("report", "RUN", "--markdown"),
    ("status", "RUN", "--money", "--json"),
    ("verify", "RUN", "--json"),
    ("show", "RUN", "knuth:scheduling/basic?periods=4:seed-0:0"),
    ("sql", "RUN", "select * from episodes order by all", "--json"),
    ("sql", "RUN", "select agent, step, facts, cost from steps order by all", "--csv"),
    ("compare", "RUN", "RUN", "--json"),
    ("compare", "RUN:knuth", "RUN:random", "--json"),
    ("plan", "mine.toml", "--dir", "RUN", "--json"),
)


@pytest.fixture
def store() -> Iterator[StoreProxy]:
    with proxy() as state, reached_at(state.url):
        yield state


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was played in two sessions, with its sweep beside it."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "mine.toml").write_text(POLICIES)
    for words, code in (("--limit 1", 3), ("", 0)):
        process = start(folder, "run", "mine.toml", *words.split())
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, said
    return folder


def brought(run: Path, target: Path) -> None:
    """Every file of a run under its own name in another place, as `aws s3 sync` does."""
    names = run.below() if isinstance(run, BucketPath) else tree(run)
    for name in names:
        if isinstance(target, BucketPath):
            (target / name).put((run / name).read_bytes())
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((run / name).read_bytes())


@pytest.fixture
def copied(store: StoreProxy, call: Call, here: Path, played: Path) -> str:
    """The run in runs/mine, copied to a bucket."""
    shutil.copytree(played, here, dirs_exist_ok=True)
    place = f"{make_bucket()}/runs/mine"
    brought(here / "runs" / "mine", place_of(place))
    return place


def test_reading_commands_say_the_same_of_a_bucket_and_of_a_copy(copied: str, call: Call, here: Path) -> None:
    brought(place_of(copied), here / "runs" / "back")
    for command in READING:
        one, other = (call(*(word.replace("RUN", name) for word in command)) for name in (copied, "runs/back"))
        assert one.code == other.code == 0, (command, one.err, other.err)
        assert one.out.replace(copied, "runs/back") == other.out, command
        assert one.out.strip(), command


def test_events_come_along_whoever_brings_them(store: StoreProxy, call: Call, here: Path, played: Path) -> None:
    shutil.copytree(played, here, dirs_exist_ok=True)
    place = f"{make_bucket()}/runs/mine"
    brought(here / "runs" / "mine", place_of(place))
    assert call("run", "mine.toml", "--dir", place, "--retry", "unstable").code == 0
    brought(place_of(place), here / "runs" / "back")
    download(place_of(place), here / "runs" / "down")
    folders = [place_of(place), *(here / "runs" / name for name in ("back", "down", "mine"))]
    there, back, down, before = (read_lines(run / EVENTS) for run in folders)
    assert there == back == down
    assert there.startswith(before)
    assert len(there) > len(before) > 0


def test_exports_and_archives_are_those_of_the_copy(copied: str, call: Call, here: Path) -> None:
    for name, out in ((copied, "a"), ("mine", "b")):
        assert call("export", name, "--format", "jsonl", "--out", f"{out}.jsonl").code == 0
        assert call("export", name, "--format", "archive", "--out", f"{out}.zip").code == 0
    assert (here / "a.jsonl").read_bytes() == (here / "b.jsonl").read_bytes()
    assert (here / "a.zip").read_bytes() == (here / "b.zip").read_bytes()


def test_a_copied_run_goes_on(copied: str, call: Call, here: Path) -> None:
    brought(place_of(copied), here / "runs" / "back")
    assert call("run", "mine.toml", "--dir", "runs/back").code == 0
    again = call("run", "mine.toml", "--dir", "runs/back", "--retry", "unstable", "--json")
    assert json.loads(again.out.splitlines()[-1])["ended"] == 4


def test_what_is_not_there_is_named(copied: str, call: Call) -> None:
    assert f"There is no run {copied}x" in call("report", f"{copied}x").message
    assert call("report", "s3://a/../b").message.startswith("evalkit: s3://a/../b: expected")


ROWS = "select agent, instance, step, reply, facts, ending, cost from steps order by all"


def test_a_run_is_played_and_gone_on_with_in_a_bucket(played: Path, store: StoreProxy, call: Call, here: Path) -> None:
    shutil.copytree(played, here, dirs_exist_ok=True)
    place = f"{make_bucket()}/runs/mine"
    assert call("run", "mine.toml", "--dir", place, "--limit", "1").code == 3
    again = call("run", "mine.toml", "--dir", place)
    assert again.code == 0, again.err
    assert place in again.out
    assert call("verify", place).code == 0
    for query in (ROWS, "select kind, count(*) from ledger group by kind order by all"):
        one, other = (call("sql", name, query, "--csv") for name in (place, "mine"))
        assert one.out == other.out != ""
    assert call("tools", "void", place, "--only", "agent=knuth", "--reason", "why").code == 0
    assert b"why" in (place_of(place) / "voids.jsonl").read_bytes()
    assert not json.loads(call("status", place, "--json").out)["running"]


def test_a_run_that_was_killed_goes_on_in_its_bucket(played: Path, store: StoreProxy, call: Call, here: Path) -> None:
    shutil.copytree(played, here, dirs_exist_ok=True)
    store.delay_s = 0.05
    place = f"{make_bucket()}/mine"
    process = start(here, "run", "mine.toml", "--dir", place)
    until = time.monotonic() + PATIENCE_S
    while not any(name.startswith("log/") and name.endswith(".parquet") for name in place_of(place).below()):  # type: ignore[attr-defined]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    process.communicate()
    again = call("run", "mine.toml", "--dir", place)
    assert again.code == 0, again.err
    assert call("verify", place).code == 0
    one, other = (call("sql", name, ROWS, "--csv") for name in (place, "mine"))
    assert one.out == other.out


def test_a_worker_that_is_killed_in_a_bucket_is_replaced(store: StoreProxy, tmp_path: Path) -> None:
    sweep = resolved(tmp_path, served(replicates=4, width=6, periods=4))
    place, whole = place_of(f"{make_bucket()}/torn"), tmp_path / "whole"
    budget = play(sweep, whole, workers=1).simulator.totals.bill * 3

    def kill_one(run: SpreadRun) -> None:
        if len(run.children) == 2 and run.steps > 40:
            run.children[0].kill()

    torn = play(with_budget(sweep, budget), place, simulate={"latency": "100ms"}, during=kill_one)
    assert (torn.ended.reason, len(torn.children)) == ("complete", 3)
    assert torn.simulator.totals.bill <= torn.ended.spent <= budget
    assert verify(place) == []
    download(place, tmp_path / "copy")
    assert steps(tmp_path / "copy") == steps(whole)
    killed, *_ = read_events(place, "worker_lost")
    newest = newest_claim(place, killed["writer"])
    assert newest is not None
    assert newest["kind"] == "seal"


def test_several_processes_play_in_a_bucket(played: Path, store: StoreProxy, call: Call, here: Path) -> None:
    shutil.copytree(played, here, dirs_exist_ok=True)
    place = f"{make_bucket()}/mine"
    said = call("run", "mine.toml", "--dir", place, "--workers", "2")
    assert said.code == 0, said.err
    assert 1 <= len(journals(place_of(place))) <= 2, "of each worker that has played; their coordinator writes none"
    assert all(has_ended(place_of(place), writer) for writer in journals(place_of(place)))
    assert call("verify", place).code == 0
    one, other = (call("sql", name, ROWS, "--csv") for name in (place, "mine"))
    assert one.out == other.out


def test_what_a_bucket_does_not_take_is_refused_without_a_trace(copied: str, store: StoreProxy, call: Call) -> None:
    place = place_of(copied)
    before = place.below()  # type: ignore[attr-defined]
    assert "is repaired on a disk" in call("run", "mine.toml", "--dir", copied, "--repair").message
    store.ignores_conditions = True
    assert call("run", "mine.toml", "--dir", copied).code == 0  # nothing is left, so nothing is written
    assert "can hold a finished run" in call("run", "mine.toml", "--dir", copied, "--set", "replicates=5").message
    assert place.below() == before  # type: ignore[attr-defined]
