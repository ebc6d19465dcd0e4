"""What commands write for the user is there whole or not at all, also where the disk is full."""

import errno
import os
from pathlib import Path

import pytest

from evalkit.files import write_whole
from tests.support.command_line import Call, tree

WRITING = {
    "page.html": ("report", "mine", "--html", "page.html"),
    "tables/scores.csv": ("report", "mine", "--csv", "tables"),
    "figures/index.html": ("report", "mine", "--figures", "figures"),
    "new.toml": ("new", "new.toml"),
    "plugin/README.md": ("new", "--plugin", "plugin"),
}
"""By a file that a command writes."""


def half(path: Path, data: bytes) -> int:
    """A disk that becomes full."""
    with path.open("wb") as file:
        file.write(data[: len(data) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_full_disk_leaves_no_half_files(call: Call, spec: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("run", "mine.toml").code == 0
    for file, words in WRITING.items():
        if words[0] == "report":
            (here / file).parent.mkdir(exist_ok=True)
            (here / file).write_text("an older one")
        before = tree(here)
        with monkeypatch.context() as full:
            full.setattr(Path, "write_bytes", half)
            said = call(*words)
        assert (said.code, said.out) == (2, ""), words
        assert "cannot be written: No space left on device." in said.message
        after = tree(here)
        assert {name: data for name, data in after.items() if "/derived/" not in name} == {
            name: data for name, data in before.items() if "/derived/" not in name
        }, words
        assert call(*words).code == 0
        assert (here / file).stat().st_size > 100


def test_a_file_is_replaced_where_a_link_leads_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file = tmp_path / "there" / "page.html"
    write_whole(file, b"old")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o640)
    assert [path.name for path in file.parent.iterdir()] == ["page.html"]
    write_whole(Path(os.devnull), b"gone")
    assert not Path(os.devnull).is_file()
