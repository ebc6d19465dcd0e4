"""Decisions on episodes: written whole, read back in their last word, refused when damaged."""

from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, StorageError
from evalkit.frozen.void import FILE, Void, add_voids, read_voids
from evalkit.store import disk


def a_void(episode: str, *, undo: bool = False, reason: str = "bad key") -> Void:
    return Void(
        episode=episode, agent="a", suite="s", instance="i0", replicate=0, undo=undo, reason=reason, by="u@h", at=1.5e9
    )


def test_a_run_without_decisions_has_no_void_episodes(tmp_path: Path) -> None:
    assert read_voids(tmp_path) == {}


def test_the_last_decision_on_an_episode_holds(tmp_path: Path) -> None:
    add_voids(tmp_path, [a_void("e0"), a_void("e1")])
    add_voids(tmp_path, [a_void("e0", undo=True), a_void("e1", reason="worse\nthan that \u2028")])
    assert {name: one.reason for name, one in read_voids(tmp_path).items()} == {"e1": "worse\nthan that \u2028"}
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 4


def test_a_last_line_without_its_end_is_kept_apart_from_the_next(tmp_path: Path) -> None:
    add_voids(tmp_path, [a_void("e0")])
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    add_voids(tmp_path, [a_void("e1")])
    assert set(read_voids(tmp_path)) == {"e0", "e1"}


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"episode":1}', b"\xff\xfe", b"null", b""])
def test_a_damaged_line_is_named_and_nothing_is_added(tmp_path: Path, line: bytes) -> None:
    add_voids(tmp_path, [a_void("e0")])
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + line + b"\n")
    before = path.read_bytes()
    with pytest.raises(CorruptLogError, match=r"voids\.jsonl:2 is damaged"):
        read_voids(tmp_path)
    with pytest.raises(CorruptLogError):
        add_voids(tmp_path, [a_void("e1")])
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_decisions_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_voids(tmp_path, [a_void("e0")])

    def refuse(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "rename", refuse)
    with pytest.raises(StorageError, match="free some space"):
        add_voids(tmp_path, [a_void("e1")])
    assert set(read_voids(tmp_path)) == {"e0"}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
