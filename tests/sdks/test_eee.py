"""Exported records, checked by the validator of Every Eval Ever: its schema, its paths, its joins."""

from pathlib import Path

import pytest

from evalkit.report.exports.eee import SCHEMA, write_eee
from evalkit.report.exports.episodes import Chosen
from tests.report.exports.conftest import EXPORTED, chosen, run
from tests.support.guessing_runs import ENVIRONMENTS

__all__ = ["chosen", "run"]

WHY = "needs every-eval-ever, which needs Python 3.12: pip install every-eval-ever"
validation = pytest.importorskip("every_eval_ever.validator.validation_core", reason=WHY)


def test_the_validator_accepts_every_file(chosen: Chosen, tmp_path: Path) -> None:
    write_eee(chosen, ENVIRONMENTS, tmp_path / "out")
    assert validation.get_schema_version() == SCHEMA
    files = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*.json*")}
    rows = 0
    for name, path in files.items():
        check = validation.validate_aggregate if path.suffix == ".json" else validation.validate_instance_file
        found = check(
            path,
            repo_path=name,
            available_files=frozenset(files),
            read_repo_file=lambda one: files[one].read_text(encoding="utf-8"),
            run_semantic_checks=True,
        )
        assert (found.valid, found.errors, found.warnings) == (True, [], []), name
        rows += found.line_count
    assert len(files) == 6
    assert rows == EXPORTED
