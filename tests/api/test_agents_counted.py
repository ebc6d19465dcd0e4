"""What counts and shows the requests of agents that are code: forecasts, tables, `show`."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.cli.main import main
from evalkit.engine.forecast import Forecast, Prior, asks_per_step, learn_all
from evalkit.engine.status import lane_rates, read_status
from evalkit.frozen.manifests import read_manifest
from evalkit.report.nights.history import read_night
from evalkit.report.report import report
from evalkit.store.files.record import ASK, StepRecord
from evalkit.store.reading.reader import scan_all
from evalkit.store.reading.totals import CellTotals
from evalkit.view.run_cache import RunCache
from tests.support.run_directories import write_tails
from tests.view.conftest import ask

STEPS = 4
"""After which `halting` fails."""
PLACE = "halting:pricing/basic?periods=9:seed-{}:0"


FAILS = ["in a run, and not where it is planned"]


@evalkit.agent(version=1, models=("main", "judge"), parallel=2)
async def halting(seat: evalkit.Seat) -> None:
    """Three requests a step; it fails on its way to a step, so that its episode goes on another time."""
    while not seat.ending:
        drafts = await asyncio.gather(*(seat.fork(name).ask() for name in "ab"))
        if FAILS and seat.step == seat.params["steps"]:
            raise ValueError("it fails on its way")
        await seat.ask([evalkit.Message(role="user", text=drafts[0].text)], model="judge", tools=())
        await seat.act(drafts[1])


def spec(name: str, steps: int = STEPS, *, more: bool = False) -> dict[str, Any]:
    agent = {"agent": "halting", "models": {"main": "simulated/random", "judge": "simulated/random"}}
    suite = {"name": "pricing/basic", "instances": ["seed-0", "seed-1"], "vary": {"periods": [9]}}
    other = {"name": "pricing/medium", "instances": ["seed-0"]}
    return {
        "name": name,
        "budget_usd": "1",
        "agents": [{**agent, "params": {"steps": steps}}],
        "suites": [suite, other][: 1 + more],
    }


def played(spec: Mapping[str, Any], **how: Any) -> evalkit.Run:
    return evalkit.run(spec, agents={"halting": halting}, **how)


@pytest.fixture(scope="module")
def played_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `begun` was played."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        played(spec("begun"))
    return folder


@pytest.fixture
def begun(played_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> evalkit.Run:
    """A run of two episodes that have come to the same step; none has ended."""
    shutil.copytree(played_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return evalkit.load("begun")


def test_a_begun_run_expects_as_many_requests_a_step_as_it_has_asked(
    begun: evalkit.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun.ended == 0
    (steps,) = begun.sql("select count(*) as n from steps").to_pylist()
    (asks,) = begun.sql("select count(*) as n from asks").to_pylist()
    assert (steps["n"], asks["n"]) == (2 * STEPS, 2 * (3 * STEPS + 2))
    (cell,) = read_status(begun.directory).cells
    each = asks["n"] / (steps["n"] + 1)  # two episodes, each halfway to a step
    assert cell.predicted is not None
    as_steps = cell.predicted.requests / each
    assert as_steps == pytest.approx(round(as_steps))  # the stand-in's play is one request a step
    assert cell.requests_left == pytest.approx(each * 2 * max(1, as_steps - STEPS))
    monkeypatch.setattr(f"{__name__}.FAILS", [])
    (planned,) = evalkit.plan(spec("begun"), agents={"halting": halting}).to_json()["cells"]
    assert planned["requests"] == pytest.approx(cell.requests_left, rel=0.01)
    manifest = read_manifest(begun.directory)
    sums = CellTotals(agent="halting", suite="pricing/basic?periods=9", rows=22, steps=6, begun=2, spells=[(0.0, 10.0)])
    for _ in range(2):
        sums.stay(3, 0)
    assert lane_rates([sums], manifest) == {"simulated/random": pytest.approx((16 - 1) / 10)}


def test_what_a_forecast_takes_an_episode_of_code_for_grows_with_its_requests(begun: evalkit.Run) -> None:
    manifest = read_manifest(begun.directory)
    (suite,) = manifest.suites
    prior = Prior(
        agent="halting",
        suite=suite,
        stand_in="random",
        played=1,
        cost=1000.0,
        requests=20.0,
        tokens_in=400.0,
        tokens_out=40.0,
    )
    sums = CellTotals(agent="halting", suite=suite, rows=35, steps=8, begun=2)
    agent = manifest.agents["halting"]
    assert asks_per_step(agent, sums) == 27 / 9
    assert asks_per_step(agent, None) == asks_per_step(agent, CellTotals(agent="halting", suite=suite)) == 1
    forecast = Forecast([prior])
    learn_all(forecast, manifest, {sums.place: sums})
    whole = forecast.whole("halting", suite)
    assert (whole.cost, whole.requests, whole.tokens_in, whole.tokens_out) == (3000, 20, 1200, 120)


def test_a_plan_in_python_plays_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (cell,) = evalkit.plan(spec("none", steps=99), agents={"halting": halting}).to_json()["cells"]
    assert cell["requests"] % 3 == 0
    with pytest.raises(evalkit.UsageError, match="halting"):
        evalkit.plan(spec("none"))


def test_an_episode_is_shown_that_has_asked_and_not_acted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = played(spec("asked", steps=0))
    place = PLACE.format(1)
    capsys.readouterr()
    assert main(["show", "asked", place]) == 0
    shown = capsys.readouterr().out
    assert "0 steps in 0 periods" in shown
    assert "step 0 · not there yet" in shown
    assert shown.count("asks main (") == 2
    episode = run.episode(place)
    assert [(ask.step, ask.key, ask.role) for ask in sorted(episode.asks, key=lambda ask: ask.key)] == [
        (0, "a", "main"),
        (0, "b", "main"),
    ]
    assert (episode.replies, episode.chats, episode.ending, episode.score) == ((), (), "", None)
    assert main(["show", "asked", PLACE.format(2)]) == 2
    capsys.readouterr()


def test_requests_on_the_way_to_a_step_are_shown_behind_the_last_act(
    begun: evalkit.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "begun", PLACE.format(0)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("asks judge (") == STEPS
    behind = shown.partition(f"step {STEPS} · not there yet")[2]
    assert behind.count("asks main (") == 2
    assert "it remains to be played" in behind


@pytest.mark.exhaustive
@pytest.mark.parametrize("steps", [0, STEPS])
def test_the_page_of_an_episode_has_the_requests_that_no_act_has_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.chdir(tmp_path)
    run = played(spec("begun", steps))
    episode = run.sql("select episode, step from asks where instance = 'seed-0' order by step desc").to_pylist()[0]
    (said,) = ask(RunCache([run.directory.resolve()]), f"/run/begun/episode/{episode['episode']}")
    assert said.status == 200, said.text
    before, _, pending = said.text.partition('<section class="turn" id="pending"')
    assert before.count("asks judge (") == steps == episode["step"]
    assert f">step {steps}</a>" in pending
    assert "not there yet" in pending
    assert pending.count("asks main (") == 2


@pytest.mark.exhaustive
def test_the_page_of_an_episode_that_waits_for_nothing_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"{__name__}.FAILS", [])
    run = played(spec("whole"))
    (episode, *_) = run.sql("select distinct episode from asks").to_pylist()
    (said,) = ask(RunCache([run.directory.resolve()]), f"/run/whole/episode/{episode['episode']}")
    assert "asks judge (" in said.text
    assert 'id="pending"' not in said.text


def test_the_report_counts_requests_and_not_acts(begun: evalkit.Run) -> None:
    (speed,) = begun.table("report.speed").to_pylist()
    (money, *_) = begun.table("report.money").to_pylist()
    assert speed["requests"] == money["requests"] == 2 * (3 * STEPS + 2)


@pytest.mark.exhaustive
def test_what_serves_a_role_is_told_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"{__name__}.FAILS", [])
    run = played(spec("whole"))
    assert {table.name for table in report(run.directory).tables}.isdisjoint({"drift"})
    names = [field.name for field in fields(StepRecord)]
    rows = scan_all(run.directory, names).to_pylist()
    first = min(row["episode"] for row in rows)
    again = []
    for row in rows:
        if row["episode"] == first:
            values = row | {name: row[name] and row[name].encode() for name in ("reply", "facts")} | {"take": 1}
            if row["row_kind"] == ASK:
                values["base_take"] = 1
            if b'"judge"' in values["facts"]:
                values["served_model"] = "another"
            again.append(StepRecord(**values))
    write_tails(run.directory, [again])
    table = report(run.directory).table("drift")
    found = {row["served_model"]: row for row in table.rows}
    assert {row["role"] for row in table.rows} == {"judge"}
    assert {name: (row["episodes"], row["alone"]) for name, row in found.items()} == {
        "random": (1, 1),
        "another": (1, 1),
    }
    judged = sum(row.row_kind == ASK and row.served_model == "another" for row in again)
    assert found["another"]["replies"] == judged > 0
    assert any(note.startswith("drift: halting (judge) was served by 2 versions") for note in table.notes)
    assert run.sql(table.query).to_pylist() == list(table.rows)
    (cell, *_) = read_night(run.directory, "2026-11-23", 0).cells
    assert sorted(name.partition(" ")[0] for name in cell.served) == ["another", "random"]


@pytest.mark.exhaustive
def test_chats_are_exported_with_what_was_asked_and_with_its_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = played(spec("whole", steps=99))
    assert main(["export", "whole", "--format", "jsonl", "--out", "chats.jsonl"]) == 0
    chats = [json.loads(line) for line in Path("chats.jsonl").read_text().splitlines()]
    steps = sum(chat["metadata"]["chat"]["steps"] for chat in chats)
    asks = [ask for chat in chats for ask in chat["asks"]]
    assert len(asks) == 3 * steps > 0
    assert {ask["message"]["role"] for ask in asks} == {"assistant"}
    assert {(ask["key"], ask["model"]) for ask in asks} == {("a", "main"), ("b", "main"), ("", "judge")}
    (paid,) = run.sql("select sum(tokens_in) as tokens, sum(cost) as cost from asks").to_pylist()
    assert sum(chat["metadata"]["chat"]["cost_pico_usd"] for chat in chats) == paid["cost"] > 0
    assert sum(ask["tokens"]["in"] for ask in asks) == paid["tokens"]
    assert sum(chat["metadata"]["chat"]["tokens"]["in"] for chat in chats) == paid["tokens"]
