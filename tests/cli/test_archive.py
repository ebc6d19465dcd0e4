"""`evalkit export --format archive`, and `evalkit verify` of it: on another machine nothing else is needed."""

import hashlib
import io
import json
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalkit.report.exports import archive as archives
from evalkit.store.lock import hold_run
from tests.support.command_line import Call, Said, finish, start, tree
from tests.support.each_case import check_each

Change = Callable[[dict[str, bytes]], None]
SUMS = "SHA256SUMS"


@pytest.fixture
def run(call: Call, spec: Path, here: Path) -> Path:
    assert call("run", str(spec)).code == 0
    return here / "runs" / "mine"


@pytest.fixture
def archive(call: Call, run: Path, here: Path) -> Path:
    assert export(call, run).code == 0
    return here / "mine.zip"


def export(call: Call, run: object, out: str = "mine.zip", *more: str) -> Said:
    return call("export", run, "--format", "archive", "--out", out, *more)


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(archive: Path, files: dict[str, bytes], *, sums: bool = True) -> None:
    """An archive with these files; `sums`: with checksums that fit them."""
    if sums:
        listed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != SUMS}
        files = {**files, SUMS: "".join(f"{listed[name]}  {name}\n" for name in listed).encode()}
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)


def test_it_holds_the_run_the_numbers_and_checksums(call: Call, archive: Path, run: Path) -> None:
    files = contents(archive)
    assert {name.partition("/")[0] for name in files} == {"run", "report.json", SUMS}
    kept = {name.removeprefix("run/"): data for name, data in files.items() if name.startswith("run/")}
    own = tree(run)
    assert kept.items() <= own.items()
    assert {name.partition("/")[0] for name in own.keys() - kept.keys()} <= {"derived", "forecast.json", "lock"}
    told = json.loads(call("report", run, "--json").out)["tables"]
    assert json.loads(files["report.json"])["tables"] == {name: table["rows"] for name, table in told.items()}
    listed = files.pop(SUMS).decode().splitlines()
    assert sorted(listed) == sorted(f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in files.items())


def test_the_same_run_gives_the_same_bytes(call: Call, archive: Path, run: Path) -> None:
    call("report", run)  # `derived/` is no part of it
    assert export(call, run, "again.zip").code == 0
    assert Path("again.zip").read_bytes() == archive.read_bytes()


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
    assert told["archive"]["sha256"] == hashlib.sha256(moved.read_bytes()).hexdigest()
    assert sorted(path.name for path in elsewhere.iterdir()) == ["got.zip"]


def reported(files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files["report.json"])
    return found


def with_score(files: dict[str, bytes], more: float, **fields: Any) -> None:
    report = reported(files) | fields
    report["tables"]["scores"][0]["score"] -= more
    files["report.json"] = json.dumps(report).encode()


def other_step(files: dict[str, bytes]) -> None:
    name = min(name for name in files if name.startswith(("run/steps/", "run/log/")))
    middle = len(files[name]) // 2
    files[name] = files[name][:middle] + bytes([files[name][middle] ^ 1]) + files[name][middle + 1 :]


def other_manifest(files: dict[str, bytes]) -> None:
    name = "run/manifest/000000.json"
    assert b'"notes": true' in files[name]
    files[name] = files[name].replace(b'"notes": true', b'"notes": false', 1)


def without_a_table(files: dict[str, bytes]) -> None:
    report = reported(files)
    del report["tables"]["money"]
    files["report.json"] = json.dumps(report).encode()


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda files: with_score(files, 0.01), "report.json: scores[1].score: it holds"),
        (other_step, "run/"),
        (without_a_table, "report.json: money: it holds None, the log gives"),
        (other_manifest, "is not what its digest says"),
    ],
)
def test_a_number_that_the_log_does_not_give_is_told(call: Call, archive: Path, change: Change, words: str) -> None:
    files = contents(archive)
    change(files)
    write(archive, files)
    said = call("verify", archive)
    assert said.code in (1, 2)
    assert words in said.out + said.err


def test_a_damaged_archive_is_not_looked_into_further(call: Call, archive: Path) -> None:
    files = contents(archive)
    voids, manifest = "run/voids.jsonl", "run/manifest/000000.json"
    write(
        archive, {name: b"x" if name == manifest else data for name, data in files.items()} | {voids: b""}, sums=False
    )
    said = call("verify", archive)
    assert said.code == 1
    assert said.out.splitlines()[:2] == [
        f"{manifest}: was changed: its checksum is another",
        f"{voids}: is not listed in {SUMS}",
    ]
    assert "the archive is not what its log gives" in said.out
    del files["report.json"]
    write(archive, files)
    assert "report.json: is missing from the archive" in call("verify", archive).out


def test_last_digits_and_what_another_version_did_not_write_are_no_findings(call: Call, archive: Path) -> None:
    files = contents(archive)
    with_score(files, 1e-12)
    write(archive, files)
    said = call("verify", archive)
    assert said.code == 0
    assert "1 number differs in the last digits" in said.out
    with_score(files, 0.0, evalkit="0.0.1")
    without_a_table(files)
    write(archive, files)
    said = call("verify", archive)
    assert said.code == 0
    assert "evalkit 0.0.1 wrote it" in said.out
    files["report.json"] = b"[]"
    write(archive, files)
    assert "report.json cannot be read" in call("verify", archive).message


def member(name: str, data: bytes = b"x", *, mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> Change:
    """A file that is added to an archive's."""

    def add(path: Path) -> None:
        entry = zipfile.ZipInfo(name)
        entry.external_attr, entry.compress_type = mode << 16, method
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(entry, data)

    return add  # type: ignore[return-value]


def understated(path: Path) -> None:
    """A file that says that it is smaller than it is."""
    member("run/log/zeros", bytes(1 << 20))(path)  # type: ignore[arg-type]
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 10)
    path.write_bytes(data)


NAMES = (
    "../evil",
    "/evil",
    "run/../../evil",
    "run/./evil",
    "other/evil",
    ".",
    "run",
    "report.json/evil",
    "run/log/a\n",
    "run/derived/a",
    "run/log/a/b/c/d/e",
)
HOSTILE: dict[str, tuple[Any, str]] = {
    **{f"the name {name!r}": (member(name), "is not allowed") for name in NAMES},
    "a link": (member("run/evil", b"/etc/passwd", mode=0o120777), "'run/evil' is not allowed"),
    "a device": (member("run/evil", mode=0o020666), "'run/evil' is not allowed"),
    "other compression": (member("run/log/evil", method=zipfile.ZIP_LZMA), "'run/log/evil' is not allowed"),
    "two of a name": (member("report.json"), "a name is there twice"),
    "a bomb": (member("run/log/evil", bytes(2 << 20)), "bytes are unpacked"),
    "many folders": (lambda path: [member(f"run/log/{name}/a/b/c")(path) for name in range(100)], "bytes are unpacked"),
    "a wrong size": (understated, "is damaged"),
    "text": (lambda path: path.write_text("hello"), "is damaged"),
    "a half": (lambda path: path.write_bytes(path.read_bytes()[:-200]), "is damaged"),
    "nothing in it": (lambda path: zipfile.ZipFile(path, "w").close(), f"it has no {SUMS}"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_no_archive_is_refused(call: Call, archive: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive.read_bytes()
    monkeypatch.setattr(archives, "SMALL", 1 << 20)
    monkeypatch.setattr(archives, "MOST_GROWTH", 10)
    assert call("verify", archive).code == 0
    for about, (change, words) in HOSTILE.items():
        archive.write_bytes(whole)
        change(archive)
        said = call("verify", archive)
        assert said.code == 2, about
        assert words in said.message, about
    archive.write_bytes(whole)
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    assert "at most 3 files" in call("verify", archive).message
    assert not list(here.parent.rglob("evil"))


TEXT = pa.string()
COLUMNS: dict[str, tuple[pa.Table, dict[str, Any], str]] = {
    "zeros": (pa.table({"reply": ["0" * (18 << 20)]}), {"compression": "zstd"}, "take more than"),
    "a long word by number": (
        pa.table({"agent": pa.array(["w" * (1 << 16)], TEXT).take(pa.array([0] * 300))}),
        {"use_dictionary": True},
        "take more than",
    ),
    "many rows": (pa.table({"step": pa.array([0]).take(pa.array([0] * (3 << 19)))}), {}, "take more than"),
    "prefixes": (
        pa.table({"reply": ["x" * (1 << 16)] * 300}),
        {"use_dictionary": False, "column_encoding": {"reply": "DELTA_BYTE_ARRAY"}},
        "is encoded as",
    ),
    "no columns": (pa.table({}), {}, ""),
}


def lying_footer(size: int) -> bytes:
    """A file with a column of so many bytes, of which its footer says that it has 100."""

    def as_thrift(number: int) -> bytes:
        parts = [number * 2 >> 7 * place & 127 | 128 for place in range(4)]
        return bytes([*parts[:-1], parts[-1] & 127])

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"reply": ["0" * size]}), sink, compression="zstd", use_dictionary=False)
    whole = bytes(sink.getvalue())
    column = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0).column(0)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    footer = whole[start:].replace(as_thrift(column.total_uncompressed_size), as_thrift(100))
    lying = whole[:start] + footer
    assert pq.ParquetFile(io.BytesIO(lying)).metadata.row_group(0).column(0).total_uncompressed_size == 100
    return lying


def test_columns_that_grow_in_memory_are_refused_before_they_are_read(call: Call, archive: Path) -> None:
    whole = contents(archive)

    def check(case: tuple[pa.Table, dict[str, Any], str]) -> None:
        table, settings, words = case
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **settings)
        write(archive, {**whole, "run/log/evil/000000001.parquet": bytes(sink.getvalue())})
        assert archive.stat().st_size < archives.SMALL // archives.MOST_GROWTH
        said = call("verify", archive)
        assert said.code in (1, 2)
        assert words in said.out + said.err

    check_each(COLUMNS.items(), check)
    write(archive, {**whole, "run/log/evil/000000001.parquet": lying_footer(18 << 20)})
    assert "take more than" in call("verify", archive).message
    write(archive, {**whole, "run/log/evil/000000001.parquet": b"PAR1 is none"})
    assert "000000001.parquet cannot be read" in call("verify", archive).message


def test_what_cannot_be_archived_is_refused(call: Call, archive: Path, run: Path, here: Path) -> None:
    assert "mine.zip exists already; nothing was written" in export(call, run).message
    with hold_run(run):
        assert "is being written by process" in export(call, run, "b.zip").message
    assert "holds a whole run" in export(call, run, "b.zip", "--only", "agent=knuth").message
    file = min((run / "steps").iterdir())
    file.write_bytes(file.read_bytes()[:-50])
    said = export(call, run, "b.zip")
    assert said.code == 2
    assert [path.name for path in here.glob("*.zip*")] == [archive.name]


def test_a_part_of_a_run_with_void_episodes_is_archived(call: Call, spec: Path, here: Path) -> None:
    assert call("run", str(spec), "--limit", "3").code == 3
    assert (
        call("tools", "void", "mine", "--episode", "knuth:scheduling/basic?periods=4:seed-0:0", "--reason", "x").code
        == 0
    )
    said = export(call, "mine")
    assert said.code == 0
    assert "Not included" not in said.out
    assert call("verify", here / "mine.zip").code == 0
