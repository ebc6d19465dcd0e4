"""The view `periods`: what it says is what scores, steps and money say, period by period."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.cli.main import main
from evalkit.errors import UsageError
from evalkit.report import views
from evalkit.report.periods import best_so_far, last_so_far, period_scores
from evalkit.report.views import Views, open_views

SPEC = """\
replicates = 2
agents = [{ policy = "noisy" }, { policy = "random" }]
suites = [
    { name = "scheduling/basic", instances = ["seed-0", "seed-3"], vary = { periods = [12] } },
    { name = "procurement/basic", instances = ["seed-0", "seed-1"], vary = { periods = [12] } },
    { name = "pricing/medium", instances = ["seed-0", "seed-1"], vary = { periods = [12] } },
    { name = "costbench/basic", instances = ["location-0000"] },
]
"""
DOCS = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("periods")
    (folder / "all.toml").write_text(SPEC)
    assert main(["run", str(folder / "all.toml"), "--dir", str(folder / "all")]) == 0
    return folder / "all"


@pytest.fixture(scope="module")
def held(run: Path) -> Views:
    return open_views(run)


def asked(held: Views, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = held.sql(query).to_pylist()
    return found


def test_what_stands_at_the_end_is_the_score(held: Views) -> None:
    found = asked(
        held,
        "select episode, e.environment, e.score, last(p.standing order by p.period) as last, count(*) as n,"
        " avg(p.standing) filter (p.period >= 6) as half from episodes e join periods p using (episode) group by all",
    )
    ends = {(row["environment"], row["n"]) for row in found}
    assert ends == {("scheduling", 12), ("procurement", 12), ("pricing", 12), ("costbench", 1)}
    for row in found:
        assert row["half" if row["environment"] == "pricing" else "last"] == pytest.approx(row["score"])


def test_a_regret_curve_has_numbers_in_every_period(held: Views) -> None:
    found = asked(
        held,
        "select environment, agent, period, avg(regret) r, avg(cumulative_regret) c"
        " from periods where used group by all",
    )
    assert len(found) == 2 * (3 * 12 + 1)
    assert all(row["r"] is not None and row["c"] is not None for row in found)
    last = {(row["environment"], row["agent"]): row["c"] for row in found if row["period"] == 11}
    sums = asked(
        held, "select environment, agent, sum(regret) / 4 s from periods where environment <> 'costbench' group by all"
    )
    assert last == pytest.approx({(row["environment"], row["agent"]): row["s"] for row in sums})


def test_periods_hold_all_steps_calls_and_money(held: Views) -> None:
    (mine,) = asked(
        held, "select sum(steps) n, sum(cost) c, sum(calls) calls, sum(tokens_in) t, sum(latency_s) s from periods"
    )
    (all_of_it,) = asked(held, "select count(*) n, sum(cost) c, sum(tokens_in) t, sum(latency_s) s from steps")
    assert mine == {
        **all_of_it,
        "calls": asked(held, "select count(*) n from calls")[0]["n"],
        "s": pytest.approx(mine["s"]),
    }


def test_nothing_done_is_no_score_and_full_regret_in_pricing(held: Views) -> None:
    idle = "select standing, regret from periods where environment = 'pricing' and score is null"
    acted = asked(held, "select distinct facts->>'$.period_end' e from steps where environment = 'pricing'")
    assert {row["e"] for row in acted} >= {"accepted"}
    assert all(row == {"standing": 0.0, "regret": 1.0} for row in asked(held, idle))


@given(st.lists(st.one_of(st.none(), st.floats(-2, 1)), max_size=12))
def test_what_stands_is_the_best_or_the_last_so_far(found: list[float | None]) -> None:
    values = np.array([np.nan if one is None else one for one in found])
    seen: list[float] = []
    for i, value in enumerate(found):
        seen += [] if value is None else [value]
        assert best_so_far(values)[i] == max([0.0, *seen])
        assert last_so_far(values)[i] == (seen[-1] if seen else 0.0)


def test_the_column_of_that_name_costs_no_folding(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = []
    made = period_scores
    monkeypatch.setattr(
        views, "period_scores", lambda link, cells: folded.append(len(list(cells))) or made(link, cells)
    )
    held = open_views(run)
    assert asked(held, "select sum(periods) n from episodes")[0]["n"] > 0
    assert "regret" in {row["column_name"] for row in asked(held, "describe periods")}
    assert not any(folded)
    asked(held, 'with mine as (select * from "PERIODS") select count(*) from mine')
    asked(held, "select count(*) from periods")
    assert [one for one in folded if one] == [8]  # once: kept, as episodes are


def test_a_misspelt_column_is_an_error(held: Views) -> None:
    with pytest.raises(UsageError, match="regret"):
        held.sql("select avg(regert) from periods")


@pytest.mark.exhaustive
def test_an_episode_that_goes_on_has_the_periods_that_have_begun(tmp_path: Path) -> None:
    spec = SPEC.replace(
        "agents = [", 'budget_usd = "0.02"\nagents = [{ name = "paid", provider = "simulated", model = "random" }, '
    )
    (tmp_path / "cut.toml").write_text(spec)
    assert main(["run", str(tmp_path / "cut.toml"), "--dir", str(tmp_path / "cut")]) == 3
    held = open_views(tmp_path / "cut")
    query = (
        "select e.episode, e.finished, e.periods, count(*) n, max(p.period) + 1 most from episodes e"
        " join periods p using (episode) where e.environment <> 'costbench' group by all"
    )
    found = asked(held, query)
    assert {row["finished"] for row in found} >= {True}
    assert all(row["n"] == row["most"] == (12 if row["finished"] else row["periods"]) for row in found)


def test_the_documented_keys_of_actions_are_exactly_those_that_occur(held: Views) -> None:
    text = DOCS.read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| (procurement|scheduling|pricing) \| `(\w+)` \|", text, re.MULTILINE))
    rows = asked(
        held, "select environment, facts->'$.action' as action from steps where (facts->'$.action') is not null"
    )
    keys = {(row["environment"], tuple(sorted(json.loads(row["action"])))) for row in rows}
    assert len(keys) == 3  # the same in every action
    assert {(environment, key) for environment, names in keys for key in names} == documented


def test_the_documented_columns_are_those_of_the_view(held: Views) -> None:
    text = DOCS.read_text(encoding="utf-8")
    section = text[text.index("## Periods") : text.index("## What an action says")]
    cells = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    named = {
        name for cell in cells for name in re.findall(r"`(\w+)`", cell[1] + (cell[3] if "to `used`" in cell[1] else ""))
    }
    columns = {row["column_name"] for row in asked(held, "describe periods")}
    assert columns == named - {"episodes"}
