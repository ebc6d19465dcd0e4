"""Figures of runs in which hardly anything happened."""

from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.report.figures.build import run_figures
from evalkit.report.report import report

SPEC = """\
agents = [{ name = "mute", policy = "scripted", params = { replies = ["nothing"] } }]
suites = [{ name = "pricing/basic", instances = ["seed-0", "seed-1"], vary = { periods = [3] } }]
"""


@pytest.mark.exhaustive
def test_figures_of_agents_that_never_acted_are_written(tmp_path: Path) -> None:
    (tmp_path / "mute.toml").write_text(SPEC)
    run = tmp_path / "mute"
    assert main(["run", str(tmp_path / "mute.toml"), "--dir", str(run)]) == 0
    found = run_figures(run, report(run))
    assert "figure_scores" in {one.name for one in found}
    assert all(one.table.rows for one in found)
    assert main(["report", str(run), "--figures", str(tmp_path / "drawn")]) == 0
