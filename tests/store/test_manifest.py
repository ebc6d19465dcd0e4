import errno
from pathlib import Path

import msgspec
import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.store import disk
from evalkit.store.manifest import FILE, FORMAT, Manifest, read_manifest, write_manifest

EMPTY = Manifest(
    format=FORMAT, evalkit="0.1.0", name="try", created_at=1.7e9, replicates=2, agents={}, suites={}, packs={}
)


def test_a_manifest_comes_back_as_it_was_and_the_directory_is_made(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "try"
    write_manifest(run, EMPTY)
    assert read_manifest(run) == EMPTY
    assert [path.name for path in run.iterdir()] == [FILE]


def test_a_manifest_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, EMPTY)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "sync_file", refuse)
    with pytest.raises(StorageError, match=FILE):
        write_manifest(tmp_path, msgspec.structs.replace(EMPTY, replicates=3))
    assert read_manifest(tmp_path) == EMPTY


def test_what_is_no_manifest_of_ours_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        read_manifest(tmp_path)
    (tmp_path / FILE).write_bytes(b'{"format":1')
    with pytest.raises(CorruptLogError, match="Restore it"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, msgspec.structs.replace(EMPTY, format=FORMAT + 1))
    with pytest.raises(RunError, match=f"format {FORMAT + 1}"):
        read_manifest(tmp_path)
