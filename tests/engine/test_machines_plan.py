"""How many processes a sweep's limits keep busy."""

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
    LEAST_REQUESTS,
    workers_plan,
)
from evalkit.engine.planning.plan import ASSUMED_REPLY_S, PriorKnowledge, plan_sweep
from evalkit.engine.planning.planned import Plan
from evalkit.engine.universe import Choice
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


def plan_of(sweep: Resolved) -> Plan:
    return asyncio.run(plan_sweep(sweep, Choice(), requests=0, known=PriorKnowledge()))


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


def test_a_plan_says_how_many_workers_are_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = resolved(tmp_path, served(replicates=1000, width=4000))
    plan = plan_of(sweep)
    assert plan.workers is not None
    assert plan.workers.requests_per_s == pytest.approx(2 * 4000 / ASSUMED_REPLY_S)
    assert plan.workers.useful == 3
    assert plan.to_json()["workers"]["cpu_is"] == "supposed"


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
