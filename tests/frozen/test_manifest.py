import errno
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.frozen.manifests import FOLDER, is_run, manifest_name, read_manifest, runs_in, write_manifest
from evalkit.store import disk
from evalkit.version import __version__
from tests.store.test_disk import Shim

EMPTY = Manifest(evalkit="0.1.0", name="try", created_at=1.7e9, replicates=2, agents={}, suites={}, packs={})


def with_suite(*instances: ManifestInstance) -> Manifest:
    suite = ManifestSuite(
        name="s", base="s", axes={}, environment="guessing", environment_version=1, digest="d", instances=instances
    )
    return msgspec.structs.replace(EMPTY, suites={"s": suite})


def some(count: int) -> Sequence[ManifestInstance]:
    return [
        ManifestInstance(id=f"i{i}", digest=f"{i:032x}", stratum=("odd", "even")[i % 2], line={"value": i})
        for i in range(count)
    ]


def test_a_manifest_comes_back_as_it_was_and_the_directory_is_made(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "try"
    write_manifest(run, EMPTY)
    assert read_manifest(run) == EMPTY
    assert [path.relative_to(run).as_posix() for path in run.rglob("*")] == [FOLDER, f"{FOLDER}/000000.json"]
    assert (is_run(run), is_run(tmp_path), runs_in(tmp_path / "runs")) == (True, False, [run])


def test_suites_are_described_and_their_instances_lie_beside(tmp_path: Path) -> None:
    written = write_manifest(tmp_path, with_suite(*some(300)))
    read = read_manifest(tmp_path)
    assert read == written
    assert list(read.suites["s"].instances) == list(some(300))
    small, large = (
        write_manifest(tmp_path / "a", with_suite(*some(2))),
        write_manifest(tmp_path / "b", with_suite(*some(5000))),
    )
    sizes = [(tmp_path / name / FOLDER / "000000.json").stat().st_size for name in ("a", "b")]
    assert sizes[1] - sizes[0] < 20
    assert (len(small.suites["s"].instances), len(large.suites["s"].instances)) == (2, 5000)


def test_an_extension_is_the_next_file_and_the_highest_holds(tmp_path: Path) -> None:
    write_manifest(tmp_path, EMPTY)
    first = (tmp_path / FOLDER / "000000.json").read_bytes()
    write_manifest(tmp_path, msgspec.structs.replace(EMPTY, replicates=3))
    assert read_manifest(tmp_path).replicates == 3
    assert manifest_name(tmp_path) == f"{FOLDER}/000001.json"
    assert (tmp_path / FOLDER / "000000.json").read_bytes() == first


@pytest.mark.parametrize("left", [b"", b'{"format":2'])
def test_a_damaged_highest_file_is_never_silently_an_older_one(tmp_path: Path, left: bytes) -> None:
    write_manifest(tmp_path, EMPTY)
    (tmp_path / FOLDER / "000001.json").write_bytes(left)
    with pytest.raises(CorruptLogError, match=r"000001\.json is damaged.*Restore it"):
        read_manifest(tmp_path)


def test_two_who_extend_a_run_at_once_do_not_overwrite_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(tmp_path, EMPTY)
    create, other = disk.create_durably, msgspec.structs.replace(EMPTY, replicates=7)

    def late(path: Path, data: bytes) -> None:
        monkeypatch.undo()
        write_manifest(tmp_path, other)
        create(path, data)

    monkeypatch.setattr(disk, "create_durably", late)
    with pytest.raises(RunError, match="another process"):
        write_manifest(tmp_path, msgspec.structs.replace(EMPTY, replicates=3))
    assert read_manifest(tmp_path) == other


def test_a_manifest_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, EMPTY)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "sync_file", refuse)
    with pytest.raises(StorageError, match=FOLDER):
        write_manifest(tmp_path, msgspec.structs.replace(EMPTY, replicates=3))
    with pytest.raises(StorageError, match="suites"):
        write_manifest(tmp_path, with_suite(*some(3)))
    assert read_manifest(tmp_path) == EMPTY


def test_folders_that_another_process_has_made_last_before_a_manifest_names_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("manifest", "suites"):
        (tmp_path / "run" / name).mkdir(parents=True)  # by a process that was stopped before it waited for the names
    shim = Shim(monkeypatch)
    write_manifest(tmp_path / "run", with_suite(*some(3)))
    assert ("sync_directory", "run") in shim.done[: shim.done.index(("link", "000000.json"))]


def test_what_is_no_manifest_of_ours_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, EMPTY)
    path = tmp_path / FOLDER / "000000.json"
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 4'))
    with pytest.raises(RunError, match=f"manifest format 4, written by evalkit {__version__}; this is evalkit"):
        read_manifest(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"written_by": "', b'"written_by": "by hand'))
    with pytest.raises(RunError, match=r"written by another evalkit.*Use the evalkit that wrote it\.$"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"count": 3', '"count": -3'),
        ('"count": 3', '"count": 4'),
        ('"count": 3', '"count": "3"'),
        ('"odd": 2', '"odd": 1'),
        ('"file": "', '"file": "../'),
        ('"instances": {', '"instance": {'),
    ],
)
def test_a_description_that_cannot_be_right_is_damage(tmp_path: Path, old: str, new: str) -> None:
    write_manifest(tmp_path, with_suite(*some(3)))
    path = tmp_path / FOLDER / "000000.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CorruptLogError, match=r"000000\.json is damaged"):
        read_manifest(tmp_path)
