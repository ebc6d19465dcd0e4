"""`evalkit archive` and `evalkit verify` of what it wrote: on another machine nothing else is needed."""

import csv
import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalkit import __version__
from evalkit.envs.procurement.instance import load, market_of
from evalkit.envs.procurement.market import plan_cost, product_of, totals, workers_of
from evalkit.store.lock import hold_run
from tests.support.command_line import Call, finish, start, tree

Change = Callable[[dict[str, bytes]], None]
TOP = "mine"
ONE = "instances/mine/one.jsonl"


@pytest.fixture
def run(call: Call, spec: Path, here: Path) -> Path:
    assert call("run", str(spec)).code == 0
    return here / "runs" / "mine"


@pytest.fixture
def archive(call: Call, run: Path, here: Path) -> Path:
    assert call("archive", run, "--author", "Ada Lovelace", "--author", "Turing, Alan").code == 0
    return here / "mine.zip"


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name.removeprefix(f"{TOP}/"): file.read(name) for name in file.namelist()}


def write(archive: Path, files: dict[str, bytes], *, sums: bool = True) -> None:
    """An archive with these files; `sums`: with checksums that fit them."""
    if sums:
        listed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != "checksums.sha256"}
        files = {**files, "checksums.sha256": "".join(f"{listed[name]}  {name}\n" for name in listed).encode()}
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in files.items():
            file.writestr(f"{TOP}/{name}", data)


def test_it_holds_what_the_numbers_follow_from(call: Call, archive: Path, run: Path) -> None:
    files = contents(archive)
    assert {name.partition("/")[0] for name in files} == {
        *("run", "tables", "report.json", "optima.csv", "versions.json", "README.md"),
        *("CITATION.cff", "checksums.sha256"),
    }
    kept = {name.removeprefix("run/"): data for name, data in files.items() if name.startswith("run/")}
    own = tree(run)
    assert kept.items() <= own.items()
    assert {name.partition("/")[0] for name in own.keys() - kept.keys()} <= {"derived", "forecast.json", "lock"}
    assert json.loads(files["run/spec/000000.json"])["spec"]["agents"] == [{"policy": "knuth"}, {"policy": "random"}]
    assert files["optima.csv"].decode().splitlines()[0] == "suite,instance,stratum,digest,quantity,unit,value,solved"
    rows = list(csv.DictReader(files["optima.csv"].decode().splitlines()))
    assert [row["instance"] for row in rows] == ["seed-0", "seed-3"]
    assert all(row["value"] == row["solved"] for row in rows)
    assert json.loads(files["report.json"]) == json.loads(call("report", run, "--json").out)
    for name, data in files.items():
        if name != "checksums.sha256":
            assert f"{hashlib.sha256(data).hexdigest()}  {name}\n" in files["checksums.sha256"].decode()


@pytest.mark.exhaustive
def test_it_can_be_cited(archive: Path) -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load(contents(archive)["CITATION.cff"])
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "dataset"
    assert citation["authors"] == [
        {"given-names": "Ada", "family-names": "Lovelace"},
        {"given-names": "Alan", "family-names": "Turing"},
    ]
    assert {"message", "title"} <= citation.keys()


@pytest.mark.exhaustive
def test_the_same_run_gives_the_same_bytes(call: Call, archive: Path, run: Path) -> None:
    call("report", run)  # `derived/` is no part of it
    said = call("archive", run, "--out", "again.zip", "--author", "Ada Lovelace", "--author", "Turing, Alan")
    assert said.code == 0
    assert Path("again.zip").read_bytes() == archive.read_bytes()
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in said.out


@pytest.mark.exhaustive
def test_another_process_in_another_folder_reproduces_it(
    archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    moved = Path(shutil.move(archive, elsewhere / "got.zip"))
    for path in archive.parent.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    said = finish(start(elsewhere, "verify", "got.zip", "--json", environment={"PYTHONPATH": ":".join(sys.path)}))
    assert (said.code, said.err) == (0, "")
    told = json.loads(said.out)
    assert told["findings"] == []
    assert told["archive"]["numbers"] > 100
    assert told["archive"]["optima"] == 2
    assert told["archive"]["sha256"] == hashlib.sha256(moved.read_bytes()).hexdigest()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["got.zip"]


def in_file(name: str, old: bytes, new: bytes) -> Change:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return change


def without(name: str) -> Change:
    def change(files: dict[str, bytes]) -> None:
        del files[name]

    return change


def other_score(files: dict[str, bytes]) -> None:
    report = json.loads(files["report.json"])
    report["tables"]["scores"]["rows"][0]["score"] += 0.01
    files["report.json"] = json.dumps(report).encode()


def other_step(files: dict[str, bytes]) -> None:
    name = min(name for name in files if name.startswith(("run/steps/", "run/log/")))
    middle = len(files[name]) // 2
    files[name] = files[name][:middle] + bytes([files[name][middle] ^ 1]) + files[name][middle + 1 :]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_score, "report.json: tables.scores.rows[1].score: it holds"),
        (other_step, "run/"),
        (in_file("optima.csv", b"seed-0,", b"seed-1,"), "optima.csv: [1].instance: it holds seed-1"),
        (in_file("tables/episodes.csv", b'"knuth"', b'"knuti"'), "tables/episodes.csv"),
        (without("tables/scores.csv"), "tables/scores.csv: is missing from the archive"),
        (lambda files: files.update({"tables/more.csv": b"a\n1\n"}), "more.csv: the log does not give this file"),
        (in_file("run/manifest/000000.json", b'"notes": true', b'"notes": false'), "is not what its digest says"),
    ],
)
def test_a_number_that_the_log_does_not_give_is_told(call: Call, archive: Path, change: Change, words: str) -> None:
    files = contents(archive)
    change(files)
    write(archive, files)
    said = call("verify", archive)
    assert said.code in (1, 2)
    assert words in said.out + said.err
    write(archive, {**files, "README.md": b"other"}, sums=False)
    said = call("verify", archive)
    assert said.code == 1
    assert "README.md: was changed: its checksum is another" in said.out
    assert "the archive is not what its log gives" in said.out


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("name", ["../evil", "/evil", f"{TOP}/../../evil", "evil", "other/evil"])
def test_names_that_leave_the_folder_are_refused(call: Call, archive: Path, here: Path, name: str) -> None:
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr(name, b"x")
    said = call("verify", archive)
    assert said.code == 2
    assert "is no archive of evalkit" in said.message
    assert not list(here.parent.rglob("evil"))


def test_what_is_no_archive_is_refused(call: Call, archive: Path, here: Path) -> None:
    (here / "text.zip").write_text("hello")
    assert "is no archive of evalkit, or is damaged" in call("verify", "text.zip").message
    (here / "half.zip").write_bytes(archive.read_bytes()[:-200])
    assert "is no archive of evalkit, or is damaged" in call("verify", "half.zip").message
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    (here / "bit.zip").write_bytes(data)
    said = call("verify", "bit.zip")
    assert said.code in (1, 2)
    files = contents(archive)
    write(archive, {**files, "versions.json": files["versions.json"].replace(b'"archive": 1', b'"archive": 9')})
    assert f"has archive format 9, written by evalkit {__version__}; this is evalkit" in call("verify", archive).message


@pytest.mark.exhaustive
def test_an_archive_of_another_version_is_compared_by_its_numbers(call: Call, archive: Path) -> None:
    files = contents(archive)
    versions = json.loads(files["versions.json"])
    versions["evalkit"] = "0.0.1"
    report = json.loads(files["report.json"])
    report["tables"]["scores"]["title"] = "Old words"
    files |= {"versions.json": json.dumps(versions).encode(), "report.json": json.dumps(report).encode()}
    write(archive, files)
    said = call("verify", archive)
    assert said.code == 0
    assert "evalkit 0.0.1 wrote it" in said.out


def test_what_cannot_be_archived_is_refused(call: Call, archive: Path, run: Path, here: Path) -> None:
    assert "mine.zip exists already; nothing was written" in call("archive", run).message
    with hold_run(run):
        assert "is being written by process" in call("archive", run, "--out", "b.zip").message
    file = min((run / "steps").iterdir())
    file.write_bytes(file.read_bytes()[:-50])
    said = call("archive", run, "--out", "b.zip")
    assert said.code == 2
    assert "cannot be archived" in said.message
    assert [path.name for path in here.glob("*.zip*")] == [archive.name]


@pytest.mark.exhaustive
def test_a_part_of_a_run_with_void_episodes_is_archived(call: Call, spec: Path, here: Path) -> None:
    assert call("run", str(spec), "--limit", "3").code == 3
    assert (
        call("tools", "void", "mine", "--episode", "knuth:scheduling/basic?periods=4:seed-0:0", "--reason", "x").code
        == 0
    )
    said = call("archive", "mine")
    assert said.code == 0
    assert "The run is not complete: 2 of 3 episodes have ended." in said.out
    assert "CITATION.cff names no author" in said.out
    assert call("verify", here / "mine.zip").code == 0
    shutil.rmtree("runs/mine/spec")
    assert "The sweep's text is not in it: the run has none." in call("archive", "mine", "--out", "again.zip").out


@pytest.mark.exhaustive
def test_an_optimum_that_is_not_the_best_is_seen(call: Call, here: Path) -> None:
    """A suite may come with an optimum that nobody has proven; what solving gives stands beside it."""
    assert call("suites", "generate", "procurement", "--instances", "1", "--periods", "3", "--out", ONE).code == 0
    file = here / ONE
    line = json.loads(file.read_text())
    line["optimum"] = worse(line)
    file.write_text(json.dumps(line))
    spec = here / "worse.toml"
    spec.write_text('[[agents]]\npolicy = "climber"\n[[suites]]\nname = "mine/one"\n')
    assert call("run", spec).code == 0
    assert call("archive", "worse").code == 0
    with zipfile.ZipFile("worse.zip") as archive:
        rows = list(csv.DictReader(archive.read("worse/optima.csv").decode().splitlines()))
    assert any(float(row["value"]) < float(row["solved"]) for row in rows)
    assert call("verify", "worse.zip").code == 0


def worse(line: dict[str, Any]) -> dict[str, Any]:
    """A plan that buys one of something less than the best, as a suite's line holds it."""
    market = market_of(load(line)).market
    for name, count in line["optimum"]["plan"].items():
        plan = {deal: one for deal, one in {**line["optimum"]["plan"], name: count - 1}.items() if one}
        quantities = [plan.get(deal.id, 0) for deal in market.deals]
        by_category = totals(market, quantities)
        if product_of(by_category) >= 1:
            made = {"product": str(product_of(by_category)), "workers": workers_of(by_category)}
            return {**line["optimum"], **made, "plan": plan, "cost": plan_cost(market, quantities), "proven": False}
    raise AssertionError("no plan is worse and supports somebody")
