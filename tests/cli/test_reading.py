"""`plan`, `status`, `report`, `show`, `verify`, `providers`: what they print, and the schema of their JSON."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from evalkit.cli.display import render
from evalkit.engine.view import LaneView, View
from evalkit.playing import planning
from tests.support.command_line import SERVED, Call

PLAN = {
    *("version", "name", "episodes", "requests", "tokens_in", "tokens_out", "usd", "budget_usd", "seconds", "cells"),
    *("ended", "spent_usd", "budget_pays_for", "in_flight", "simulated_money"),
}
PLAN_CELL = {
    *("agent", "suite", "lane", "stand_in", "episodes", "played", "requests", "tokens_in", "tokens_out", "usd"),
    *("longest_chain", "longest_prompt_tokens", "basis", "ended", "context_tokens", "too_long"),
}
STATUS = {
    "version",
    "run",
    "name",
    "episodes",
    "ended",
    "started",
    "remaining",
    "steps",
    "running",
    "written_by",
    "money",
    "kept",
}
STATUS |= {"to_finish_usd", "to_finish_by_tier", "seconds_left", "refused", "refused_words", "reason", "why"}
STATUS_CELL = {"agent", "suite", "planned", "ended", "started", "remaining", "steps", "spent_usd", "endings"}
STATUS_CELL |= {"refused", "deferred", "predicted", "seen", "to_finish_usd", "requests_left", "seconds_left"}
TABLES = [
    *("scores", "behaviour", "refusals", "completeness", "money", "speed"),
    *("econ_scores", "econ_action_quality", "econ_exploration"),
]


@pytest.fixture
def run(call: Call, spec: Path) -> str:
    assert call("run", "mine.toml").code == 0
    return "mine"


def test_a_report_loads_no_pandas(run: str, here: Path) -> None:
    code = f"import sys; from evalkit.cli.main import main; code = main(['report', {run!r}])\n"
    code += "print(code, 'pandas' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True)
    assert ran.stdout.split()[-2:] == ["0", "False"]


def test_a_plan_as_json_has_its_schema_and_writes_nothing(call: Call, here: Path) -> None:
    text = SERVED.format(width=4, periods=3).replace('"lab"', '"simulated"')
    (here / "sweep.toml").write_text("budget_usd = 1\n" + text)
    said = call("plan", "sweep.toml", "--json")
    plan = json.loads(said.out)
    assert set(plan) == PLAN | {"lanes", "marks"}
    assert (plan["version"], plan["episodes"], plan["budget_usd"]) == (1, 24, 1.0)
    assert all(set(cell) == PLAN_CELL for cell in plan["cells"])
    assert sum(cell["requests"] for cell in plan["cells"]) == plan["requests"] > 24
    assert plan["usd"]["low"] <= plan["usd"]["expected"] <= plan["usd"]["high"]
    assert plan["usd"]["expected"] == pytest.approx((plan["tokens_in"] + 4 * plan["tokens_out"]) / 1e6)
    assert [path.name for path in here.iterdir()] == ["sweep.toml"]


@pytest.mark.exhaustive
def test_a_plan_says_where_the_run_goes_on(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SERVED.format(width=20_000, periods=3).replace('"lab"', '"simulated"')
    (here / "sweep.toml").write_text("replicates = 5000\n" + text)
    monkeypatch.setattr(planning, "is_run", lambda run: False)  # no store is asked
    monkeypatch.setattr(planning, "manifest_if_run", lambda run: None)
    said = " ".join(call("plan", "sweep.toml", "--dir", "s3://lab/runs/mine").out.split())
    assert "evalkit run sweep.toml --dir s3://lab/runs/mine" in said


def test_a_plan_narrowed_to_an_agent_has_that_one_alone(call: Call, spec: Path) -> None:
    plan = json.loads(call("plan", "mine.toml", "--only", "agent=random", "--json").out)
    assert [cell["agent"] for cell in plan["cells"]] == ["random"]


@pytest.mark.parametrize(("budget", "words"), [("50", "is enough"), ("0.001", "will not do: it pays for about 0%")])
def test_a_plan_says_whether_the_budget_will_do(call: Call, here: Path, budget: str, words: str) -> None:
    text = SERVED.format(width=4, periods=3).replace('"lab"', '"simulated"')
    (here / "sweep.toml").write_text(f"budget_usd = {budget}\n{text}")
    said = call("plan", "sweep.toml")
    assert words in said.out
    assert said.out.endswith("Next: evalkit run sweep.toml\n") == (budget == "50")


def test_a_plan_names_the_stand_in_of_a_model(call: Call, here: Path) -> None:
    suite = '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\nvary = { periods = [2] }\n'
    model = '[[agents]]\nprovider = "openai"\nmodel = "gpt-5"\n'
    (here / "sweep.toml").write_text(model + suite)
    said = call("plan", "sweep.toml")
    assert "turns of gpt-5 are those of the policy knuth" in said.out
    assert "(assumed)" in said.out
    assert "No budget is set" in said.out
    (here / "sweep.toml").write_text(f'{model}budget_usd = "0.25"\n{suite}')
    said = call("plan", "sweep.toml")
    assert "The run has no budget, but agents have their own: gpt-5 $0.2500." in " ".join(said.out.split())


def test_status_as_json_has_its_schema(call: Call, run: str) -> None:
    status = json.loads(call("status", run, "--json").out)
    assert set(status) == STATUS | {"cells"}
    assert (status["version"], status["episodes"], status["ended"], status["remaining"]) == (1, 4, 4, 0)
    assert (status["running"], status["written_by"]) == (False, None)
    assert all(set(cell) == STATUS_CELL for cell in status["cells"])
    assert sum(cell["steps"] for cell in status["cells"]) == status["steps"]


def test_status_in_words(call: Call, spec: Path) -> None:
    call("run", "mine.toml", "--limit", "1")
    said = call("status", "mine")
    assert "mine: 1 of 4 episodes ended, not running." in said.out
    assert "$0 spent" in said.out


def test_a_report_as_json_has_its_schema(call: Call, run: str) -> None:
    report = json.loads(call("report", run, "--json").out)
    assert set(report) == {"schema", "version", "evalkit", "run", "agents", "suites", "tables"}
    assert (report["schema"], report["version"]) == ("evalkit.report", 1)
    assert list(report["tables"]) == TABLES
    rows = report["tables"]["scores"]["rows"]
    assert [row["agent"] for row in rows] == ["knuth", "random"]
    assert all(row["prompts"] == "standard" for row in rows)


def test_a_report_as_markdown_and_as_csv(call: Call, run: str, here: Path) -> None:
    assert call("report", run, "--markdown").out.startswith("### Scores")
    said = call("report", run, "--csv", "tables")
    assert said.code == 0
    assert sorted(path.stem for path in (here / "tables").iterdir()) == sorted(TABLES)
    (here / "file").write_text("")
    refused = call("report", run, "--csv", "file")
    assert refused.code == 2
    assert "--csv" in refused.message


def test_show_prints_a_trajectory_and_one_of_its_periods(call: Call, run: str) -> None:
    name = "random:scheduling/basic?periods=4:seed-3:0"
    whole, one = call("show", run, name), call("show", run, name, "--period", "1")
    assert (whole.code, one.code) == (0, 0)
    assert whole.out.count("agent calls submit_assignment") == 4
    assert one.out.count("agent calls submit_assignment") == 1
    assert "replay differs" not in whole.out
    wrong = call("show", run, name.replace("seed-3", "seed-33"))
    assert "Did you mean" in wrong.message
    assert "0 to 3" in call("show", run, name, "--period", "4").message


def test_show_without_an_episode_lists_some_and_each_can_be_shown(call: Call, run: str) -> None:
    said = call("show", run)
    assert said.code == 0
    places = [line.split()[1] for line in said.out.splitlines() if line.startswith("  ") and ":" in line]
    assert {place.split(":")[0] for place in places} == {"knuth", "random"}
    assert f"evalkit show {run} {shlex.quote(places[0])}" in said.out
    for place in places:
        assert call("show", run, place).code == 0
    refused = call("show", run, "--period", "0")
    assert refused.code != 0
    assert "name it" in refused.err


def test_verify_as_json(call: Call, run: str) -> None:
    assert json.loads(call("verify", run, "--json").out) == {
        "version": 1,
        "findings": [],
        "episodes": 4,
        "ended": 4,
    }


def test_providers_fit_80_columns_and_say_which_keys_are_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    said = call("providers")
    assert "OPENAI_API_KEY (env)" in said.out
    assert "sk-planted" not in said.out
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "OPENAI_API_KEY (not set)" in call("providers").out
    assert "gpt-5-mini" in call("providers", "openai").out


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_the_live_display_cuts_no_number(columns: int) -> None:
    lane = LaneView(
        name="laboratory/a-model-with-a-very-long-name",
        episodes=12_345,
        target=12_345,
        done=10_222,
        playing=64,
        steps=99,
        rate=1234.4,
        in_flight=1024,
        window=2048,
        waiting=77,
        paused_s=12.0,
        latency_s=1.25,
        failures={"429": 31},
        left={"unavailable": 2, "complete": 9},
    )
    view = View(
        name="x",
        elapsed_s=61.0,
        lanes=(lane,),
        spent=2 * 10**12,
        simulated="",
        reserved=0,
        budget=4 * 10**12,
        stopping="interrupt",
    )
    console = Console(width=columns)
    with console.capture() as capture:
        console.print(render(view, columns))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= columns
    for word in ("10,222/12,345", "1,234", "1,024/2,048", "1,250 ms", "77", "in flight", "waiting"):
        assert any(word in line for line in lines[:2]), word
    text = " ".join(line.strip() for line in lines)
    for words in ("429 31", "unavailable 2", "retries in 12 s", "$2.00 of $4.00 spent", "Ctrl-C again"):
        assert words in text


@pytest.mark.exhaustive
def test_a_plan_goes_on_with_the_run_there_is(call: Call, here: Path) -> None:
    (here / "sweep.toml").write_text(SERVED.format(width=4, periods=3).replace('"lab"', '"simulated"'))
    call("run", "sweep.toml", "--limit", "3")
    rest = json.loads(call("plan", "sweep.toml", "--json").out)
    assert (rest["episodes"], rest["ended"]) == (18, 6)
    assert {cell["basis"] for cell in rest["cells"]} == {"3 episodes of sweep"}


@pytest.mark.exhaustive
def test_status_says_what_it_takes_to_finish(call: Call, here: Path) -> None:
    (here / "sweep.toml").write_text(SERVED.format(width=4, periods=3).replace('"lab"', '"simulated"'))
    call("run", "sweep.toml", "--limit", "3")
    said = call("status", "sweep")
    assert "Predicted" in said.out
    assert "To finish: $" in said.out
    values = json.loads(call("status", "sweep", "--json").out)
    assert values["to_finish_usd"]["low"] < values["to_finish_usd"]["expected"] < values["to_finish_usd"]["high"]
    assert values["seconds_left"] > 0


@pytest.mark.exhaustive
def test_status_breaks_no_name_of_a_suite_in_a_narrow_terminal(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SERVED.format(width=4, periods="3, 4").replace('"lab"', '"simulated"')
    (here / "sweep.toml").write_text(text.replace("vary = {", "vary = { k = [1],"))
    call("run", "sweep.toml", "--limit", "1")
    monkeypatch.setattr("evalkit.report.render.terminal.console", lambda: Console(width=80, highlight=False))
    lines = [line.strip() for line in call("status", "sweep").out.splitlines()]
    names = {suite for suite in lines if suite.startswith("scheduling/basic?")}
    assert names == {f"scheduling/basic?k=1&periods={periods}" for periods in (3, 4)}
    assert max(map(len, lines)) <= 80
