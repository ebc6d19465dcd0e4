"""How many processes a sweep's limits keep busy, and what a bucket takes for its requests."""

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from evalkit.api.planning import planned
from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.planning.machines import (
    BUSY,
    CPU_A_REQUEST_S,
    DAY_S,
    LEAST_REQUESTS,
    StorePlan,
    store_plan,
    workers_plan,
)
from evalkit.engine.planning.plan import ASSUMED_REPLY_S, PriorKnowledge, plan_sweep
from evalkit.engine.planning.planned import Plan
from evalkit.engine.universe import Choice
from evalkit.store.writing.pace import LINES_S, PUT_LEAST_S, PUT_MOST_S
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served


@pytest.mark.parametrize(
    ("rates", "shared", "useful"),
    [
        ({"a": 1.0}, [], 1),
        ({"a": 3 * BUSY / CPU_A_REQUEST_S - 1}, [], 3),
        ({"a": 3 * BUSY / CPU_A_REQUEST_S + 1}, [], 4),
        ({"a": 4000.0, "b": 4000.0}, [], 5),
        ({"a": 4000.0, "b": 4000.0}, [(("a", "b"), 1600.0)], 1),
        ({"a": 4000.0, "b": 4000.0, "c": 3200.0}, [(("a", "b"), 1600.0)], 3),
    ],
)
def test_so_many_workers_are_of_use_as_the_limits_keep_busy(
    rates: dict[str, float], shared: list[tuple[tuple[str, ...], float]], useful: int
) -> None:
    plan = workers_plan(rates, shared, 1, None)
    assert plan is not None
    assert plan.useful == useful
    assert not plan.measured


def test_the_run_s_own_time_counts_instead_of_the_assumed_one() -> None:
    plan = workers_plan({"a": 1000.0}, [], 2, 4 * CPU_A_REQUEST_S)
    assert plan is not None
    assert (plan.useful, plan.measured, plan.planned) == (3, True, 2)
    assert workers_plan({}, [], 2, None) is None


@pytest.mark.parametrize(
    ("reply_s", "writers", "rows_per_s", "commit_s"),
    [
        (0.5, 1, 1e6, PUT_LEAST_S),
        (10.0, 1, 1e6, 1.0),
        (60.0, 1, 1e6, PUT_MOST_S),
        (10.0, 1, 0.1, 10.0),
        (10.0, 64, 1e6, 1.0),
    ],
    ids=["quick replies", "slow ones", "slower ones", "few rows", "many workers"],
)
def test_commits_are_paid_for(reply_s: float, writers: int, rows_per_s: float, commit_s: float) -> None:
    plan = store_plan(reply_s, writers, rows_per_s)
    assert plan.commit_s == pytest.approx(commit_s)
    assert plan.puts_per_day == pytest.approx(DAY_S * (writers / commit_s + 3 / LINES_S))
    assert plan.usd_per_day == pytest.approx(5e-6 * plan.puts_per_day)
    assert StorePlan(puts_per_day=2e6, commit_s=1.0, usd_per_million_puts=2.5).usd_per_day == 5.0


def plan_of(sweep: Resolved, *, in_bucket: bool = False) -> Plan:
    return asyncio.run(plan_sweep(sweep, Choice(), requests=0, known=PriorKnowledge(in_bucket=in_bucket)))


SEVERAL = """
dialect = "openai_chat"
url = [{{ url = "${{GPU}}/v1", {limit} }}, {{ url = "http://b:1/v1", {limit} }}]
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-01-01"
"""


def test_a_plan_counts_the_limits_of_all_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    file = tmp_path / "providers" / "simulated.toml"

    def lane(limit: str) -> tuple[float, str]:
        file.write_text(SEVERAL.format(limit=limit))
        (own,) = (
            one for one in plan_of(resolved(tmp_path, served(replicates=9, width=64))).lanes if "knuth" in one.lane
        )
        return own.requests / own.seconds, own.bound

    monkeypatch.delenv("GPU", raising=False)  # a plan needs no URL
    assert lane("requests_per_minute = 60") == (pytest.approx(2.0), "requests/min")
    assert lane("in_flight = 4") == (pytest.approx(8 / ASSUMED_REPLY_S), "width")
    monkeypatch.setenv("GPU", "http://a:1,http://a:2")
    assert lane("in_flight = 4") == (pytest.approx(12 / ASSUMED_REPLY_S), "width")
    file.write_text(SEVERAL.format(limit="in_flight = 4").replace(", in_flight = 4", "", 1))
    sweep = resolved(tmp_path, served(replicates=9, width=30))
    (own,) = (one for one in plan_of(sweep).lanes if "knuth" in one.lane)
    assert own.requests / own.seconds == pytest.approx(30 / ASSUMED_REPLY_S), "one has no limit of its own"


def test_a_plan_says_what_a_bucket_takes_and_how_many_workers_are_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = resolved(tmp_path, served(replicates=1000, width=4000))
    plan = plan_of(sweep, in_bucket=True)
    assert plan.workers is not None
    assert plan.workers.requests_per_s == pytest.approx(2 * 4000 / ASSUMED_REPLY_S)
    assert plan.workers.useful == 3
    assert plan.store is not None
    said = plan.to_json()
    assert said["workers"]["cpu_is"] == "supposed"
    assert said["store"]["assumed_usd_per_million_puts"] == 5.0
    assert "store" not in plan_of(sweep).to_json()


def test_a_run_notes_its_own_cpu_time_and_a_plan_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = resolved(tmp_path, served())
    run = tmp_path / "runs" / "mine"
    go_served(sweep, run)
    plan = planned(sweep.sweep).plan
    assert plan.workers is None, "nothing is left to play"
    more = replace(sweep.sweep, replicates=2)
    few = planned(more).plan.workers
    assert few is not None
    assert not few.measured, "too few requests to tell"
    with (run / "events.jsonl").open("ab") as events:
        events.write(orjson.dumps({"kind": "cpu", "seconds": 2.0, "requests": LEAST_REQUESTS}) + b"\n")
    own = planned(more).plan.workers
    assert own is not None
    assert (own.measured, own.cpu_s) == (True, 0.002)
