from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.cli.make import warmup


def test_warmup_says_what_it_compiles_and_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warmup, "compile_all", lambda _: iter([("scheduling", "rows_blocking")]))
    assert main(["warmup"]) == 0
    said = capsys.readouterr().out
    assert "scheduling: rows_blocking, after 0 s" in said
    assert str(tmp_path) in said


def test_where_nothing_can_be_kept_warmup_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(environments: object) -> Iterator[tuple[str, str]]:
        del environments
        raise PermissionError(13, "Permission denied", str(tmp_path))
        yield "", ""

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warmup, "compile_all", refused)
    assert main(["warmup"]) == 2
    said = capsys.readouterr().err
    assert f"cannot be stored in {tmp_path}: Permission denied" in said
    assert "Set NUMBA_CACHE_DIR" in said
    assert "Runs work without" in said
