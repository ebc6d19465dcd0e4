"""Names of an environment's tables, columns and metrics that stand for something else are refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs import table
from evalkit.envs.environment import ActionShare, Environment, Presentation
from evalkit.envs.table import named
from evalkit.errors import UsageError
from evalkit.frozen.manifests import write_manifest
from evalkit.report.extras import refuse_clashes, refuse_tables
from evalkit.report.report import report
from tests.support.guessing_game import GUESSING
from tests.support.guessing_runs import a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_tails

MANIFEST = a_manifest([an_agent("a")], [a_suite("s", [4])], 1)
EXTRAS = """
from evalkit.report.extras import Extras, Measure
from evalkit.report.tables import Table
def table(name):
    return lambda run: (Table(name=name, title="T", columns=(), rows=(), packs=(), query=""),)
CORE, OURS, REQUESTED = (Extras(tables=table(name)) for name in ("scores", "refusals", "beside_mine"))
FINE = Extras(tables=table("guessing_seen"))
MEASURES = Extras(measures=(Measure(key="score", title="S", sql="null"),))
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_manifest(tmp_path / "run", MANIFEST)
    return write_tails(tmp_path / "run", [rows(MANIFEST, "a", "s", "i0", 0, search(4))])


@pytest.fixture(autouse=True)
def extras(site: Path) -> None:
    (site / "clashing_extras.py").write_text(EXTRAS)
    named.cache_clear()


def played(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Have the guessing game, with changes, as a foreign environment."""
    found: Mapping[str, Environment[Any, Any]] = {"guessing": replace(GUESSING, **changes)}
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", found)


def shown(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    played(monkeypatch, presentation=Presentation(**changes))


@pytest.mark.parametrize("name", ["CORE", "OURS", "REQUESTED"])
def test_a_table_of_our_own_name_is_refused(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(monkeypatch, report=f"clashing_extras:{name}")
    with pytest.raises(UsageError, match=r"There is a table '\w+' already, and .*guessing.* another name"):
        report(run)


def test_a_table_of_its_own_name_is_fine(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(monkeypatch, report="clashing_extras:FINE")
    assert report(run).table("guessing_seen").title == "T"


def test_two_environments_do_not_bring_tables_of_one_name() -> None:
    with pytest.raises(UsageError, match="table 'seen' already"):
        refuse_tables(["scores"], ["seen", "seen"], ["one", "other"])


def test_a_metric_of_our_own_name_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, score=lambda one, facts: replace(GUESSING.score(one, facts), metrics={"solved": 1.0}))
    with pytest.raises(UsageError, match="'guessing' has a metric 'solved', which is a name of evalkit's own"):
        report(run)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("name", ["score", "episodes", "turns_per_period", "exploration_rate", "cost", "tokens_in"])
def test_a_share_that_is_a_column_of_ours_is_refused(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(monkeypatch, shares={name: ActionShare(title="S", about="x")})
    with pytest.raises(UsageError, match=f"'guessing': shares: '{name}' is a column of evalkit's own"):
        report(run)


def test_a_measure_of_our_own_name_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(monkeypatch, report="clashing_extras:MEASURES")
    with pytest.raises(UsageError, match="measures: 'score' is evalkit's own"):
        report(run)


def test_shares_of_one_name_mean_one_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (
        replace(GUESSING, name=name, presentation=Presentation(shares={"waste": ActionShare(title="W", about=name)}))
        for name in ("one", "other")
    )
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", {"one": one, "other": other})
    with pytest.raises(UsageError, match="'one' and 'other' both have a share 'waste'"):
        refuse_clashes(["one", "other"])
    monkeypatch.setattr(
        table.ENVIRONMENTS, "built_in", {"one": one, "other": replace(other, presentation=one.presentation)}
    )
    refuse_clashes(["one", "other"])


def test_our_own_environments_clash_with_nothing() -> None:
    refuse_clashes(table.OWN_ENVIRONMENTS)
