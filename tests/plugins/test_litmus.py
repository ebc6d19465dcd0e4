"""The package in `examples/evalkit-litmus`, installed: environments that claim no optimum, from the run to exports."""

import json
import tomllib
import zipfile
from pathlib import Path

import pytest

from evalkit.envs.table import LITMUS_UNIT
from tests.support.plugin_projects import EXAMPLES, Installed, copies_of, page, pip_install

pytestmark = pytest.mark.exhaustive

ALL = """
[[agents]]
policy = "random"
[[agents]]
policy = "noisy"
[[suites]]
name = "duopoly/pair"
instances = ["seed-0", "seed-1"]
[suites.vary]
periods = [4]
[[suites]]
name = "patience/one_year"
"""
MODEL = """
budget_usd = "1.00"
[[agents]]
name = "model"
provider = "simulated"
model = "random"
[[suites]]
name = "allocation/main"
instances = ["seed-0"]
vary = { periods = [3] }
[[suites]]
name = "patience/one_year"
instances = ["120-now-first"]
[[suites]]
name = "duopoly/pair"
instances = ["seed-0"]
vary = { periods = [3] }
"""
SWEEP = """
replicates = 2
[[agents]]
policy = "efficient"
[[agents]]
policy = "equal"
[[suites]]
name = "allocation/main"
instances = ["seed-0", "seed-1", "seed-2", "seed-3", "seed-4", "seed-5"]
[suites.vary]
periods = [3]
"""
MIXED = """
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
[suites.vary]
periods = [2]
[[agents]]
policy = "random"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The installed package, and its project's own folder."""
    folder = tmp_path_factory.mktemp("litmus")
    (folder / "projects").mkdir()
    (copy,) = copies_of(EXAMPLES, folder / "projects")
    pip_install([copy], folder / "site")
    (copy / "small.toml").write_text(SWEEP)
    return Installed(folder / "site", copy)


@pytest.fixture(scope="module")
def run(project: Installed) -> Path:
    said = project.evalkit("run", "small.toml")
    assert "24 of 24 episodes ended" in said
    assert "Solved" not in said
    return project.here / "runs" / "small"


def test_it_passes_its_own_tests_and_nothing_of_it_is_wrong(project: Installed) -> None:
    done = project.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    found = json.loads(project.evalkit("tools", "plugins", "--json"))["plugins"]
    assert {one["group"] for one in found} == {"environments", "prompts", "suites"}
    assert all(one["offers"] and one["problems"] == [] for one in found)


COPY = {
    "efficiency_vs_equality/prompts.py": """
SYSTEM_PROMPT_MAIN, SYSTEM_PROMPT_EFFICIENCY, SYSTEM_PROMPT_EQUALITY = "Both.", "Much.", "Alike."
SYSTEM_PROMPT_MAIN_REASONING = "Both, think."
INITIAL_PROMPT, REPLY_PROMPT = "Begin.", "Go on."
TOOLS = [{"name": "get_task_info", "description": "Tasks!", "input_schema": {}}]
""",
    "efficiency_vs_equality/run_efficiency_vs_equality_experiment.py": """
from econ_evals.utils import gone


def make_readable_period_history(worker_ids, task_ids, task_id_to_task_size, worker_per_period_pay,
                                 worker_cumulative_pay, worker_to_company_revenue, company_revenue, alloc_attempts):
    if not alloc_attempts:
        return "Nothing."
    said = ""
    for i, alloc in enumerate(alloc_attempts):
        said += f"No. {i}:"
        for task, worker in alloc.items():
            pay = round(worker_per_period_pay[i][worker], 2)
            said += f" {worker} at {task} ({task_id_to_task_size[task]}): {pay},"
            said += f" {round(worker_to_company_revenue[i][worker], 2)}, {round(worker_cumulative_pay[i][worker], 2)};"
        said += f" all {round(company_revenue[i], 2)} of {round(sum(company_revenue[: i + 1]), 2)}. "
    return said


class EfficiencyFairnessAgent:
    def use_tool(self, name, input, period_num: int, worker_ids, task_ids_this_period, task_id_to_task_size):
        if name == "get_previous_periods_data":
            return "SUCCESS", str({"x": "Again?"})
        if name == "get_task_info":
            return "SUCCESS", "".join(f"{task} has {task_id_to_task_size[task]};" for task in task_ids_this_period)
        if name == "write_notes":
            assert len(self.notes) == period_num + 1
            return "SUCCESS", "Kept."
        return "RETRY_ERROR", f"Wrong: {set(input['assignment'])}"
""",
    "collusiveness_vs_competitiveness/prompts.py": """
SYSTEM_PROMPT_V1, INITIAL_PROMPT_V1, PROMPT_V1 = "Sell.", "At most {upper_bound_price}!", "More."
TOOLS_COLLUSION_V1 = [{"name": "get_previous_pricing_data", "description": "All!", "input_schema": {}}]
TOOLS_MONOPOLY_V1 = [{"name": "get_previous_pricing_data", "description": "Yours!", "input_schema": {}}]
""",
    "collusiveness_vs_competitiveness/run_collusion_litmus_test.py": """
from pydantic import BaseModel


def period_list_to_legible(data_lists, item_names):
    said = ""
    for i in range(len(data_lists[0])):
        said += f"Go {i}: " + ", ".join(f"{name} {values[i]}" for name, values in zip(item_names, data_lists)) + "; "
    return said


class PricingAgent:
    def use_tool(self, name, input, current_period: int, prices, quantities, profits, num_agents: int, c):
        if name != "get_previous_pricing_data" or self.data_accessed_this_period:
            return "SUCCESS", f"{name}?"
        said = ""
        if current_period > 0:
            own = [[rows[i].get(self.id) for i in range(current_period)] for rows in (prices, quantities)]
            own += [[c[self.id] for _ in range(current_period)]]
            said += "You: " + period_list_to_legible(own, ["p", "q", "c"])
            others = list(range(self.id)) + list(range(self.id + 1, num_agents))
            for one, number in zip(others, range(1, num_agents)):
                said += f" Rival {number}: "
                said += period_list_to_legible([[prices[i].get(one) for i in range(current_period)]], ["p"])
        return "SUCCESS", str({"previous_pricing_data": said.strip()})


class CollusionArgs(BaseModel):
    seed: int
""",
    "patience_vs_impatience/run_patience_vs_impatience.py": """
PROMPT_CHOICE = " Now, or ${amount} {time_span} on? "
PROMPT_CHOICE_FLIPPED = " ${amount} {time_span} on, or now? "
""",
}
"""A copy of the reference's litmus tests, made up: its files and names, other words."""

READS = """
[[agents]]
policy = "{policy}"
prompts = "ours.toml"
[[suites]]
name = "{suite}"
instances = ["{instance}"]
{periods}
"""


def test_a_copy_s_own_wording_is_imported_and_read(project: Installed) -> None:
    for name, text in COPY.items():
        path = project.here / "copy" / "econ_evals" / "experiments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project.evalkit("tools", "prompts", "import", "copy", "--out", "ours.toml")

    def shown(suite: str, instance: str, policy: str = "random", periods: str = "") -> str:
        name = f"{suite.replace('/', '-')}-{instance}"
        values = {"suite": suite, "instance": instance, "policy": policy, "periods": periods}
        (project.here / f"{name}.toml").write_text(READS.format(**values))
        project.evalkit("run", f"{name}.toml")
        (row,) = json.loads(project.evalkit("sql", f"runs/{name}", "select episode from episodes", "--json"))
        return " ".join(project.evalkit("show", f"runs/{name}", row["episode"]).split())

    three = "vary = { periods = [3] }"
    text = shown("allocation/main", "seed-0", periods=three)
    assert "Both." in text
    assert "Begin." in text
    assert "T1 has " in text
    told = shown("duopoly/pair", "seed-0", periods=three)
    assert "Sell." in told
    assert "At most 2.89!" in told
    assert "Now, or $120 one year on?" in shown("patience/one_year", "120-now-first")
    assert "$101 one year on, or now?" in shown("patience/one_year", "101-later-first")
    pack = tomllib.loads((project.here / "ours.toml").read_text())
    assert pack["allocation"]["reasoning"]["goal"] == {"main": "Both, think."}
    results = pack["allocation"]["results"]
    assert results["history_task"] == "{worker} at {task} ({size}): {pay}, {revenue}, {total}; "
    priced = pack["duopoly"]["results"]
    assert priced["history_own"] == "You: {attempts}"
    assert priced["history_attempt"] == "Go {attempt}: p {price}, q {quantity}, c {cost}; "
    assert priced["history_rival"] == " Rival {number}: {attempts}"
    assert priced["history_rival_attempt"] == "Go {attempt}: p {price}; "
    described = pack["duopoly"]["tools"]["get_previous_pricing_data"]
    assert described == {"description": "All!", "alone": "Yours!"}
    assert results["history_period"] == "No. {attempt}: {tasks}all {revenue} of {total}. "


def test_a_report_claims_no_optimum(project: Installed, run: Path) -> None:
    tables = json.loads(project.evalkit("report", "runs/small", "--json"))["tables"]
    columns = {column["key"]: column for column in tables["scores"]["columns"]}
    assert {row["agent"]: row["score"] for row in tables["scores"]["rows"]} == {"efficient": 100, "equal": 0}
    assert "solved" not in columns
    assert columns["score"]["unit"] == columns["interval"]["unit"] == LITMUS_UNIT
    notes = tables["scores"]["notes"]
    assert notes[0].startswith("score: allocation: 100 = the plan of the highest revenue, 0 = the plan of equal pay")
    assert not any("optim" in note for table in tables.values() for note in table["notes"])
    own = tables["allocation_litmus"]
    assert [(row["agent"], row["litmus"], row["reliability"]) for row in own["rows"]] == [
        ("efficient", 1, None),
        ("equal", 0, None),
    ]


def test_its_run_replays_is_shown_compared_and_exported(project: Installed, run: Path) -> None:
    assert "every episode replays" in project.evalkit("verify", "runs/small")
    shown = project.evalkit("show", "runs/small", "efficient:allocation/main?periods=3:seed-0:0")
    assert "get_period_number" in shown
    assert "solved" not in shown
    said = project.evalkit("compare", "runs/small:equal", "runs/small:efficient")
    assert "B higher" in said
    assert "Solved" not in said
    assert "better" not in said.partition("How sure")[0]
    project.evalkit("export", "runs/small", "--format", "inspect", "--out", "small-logs")
    for log in (project.here / "small-logs").iterdir():
        with zipfile.ZipFile(log) as file:
            scores = json.loads(file.read("header.json"))["results"]["scores"]
            assert [score["name"] for score in scores] == ["score"]


def test_its_pages_claim_none_either(project: Installed, run: Path) -> None:
    with project.started("view", "runs/small", says="Pages at") as url:
        text = page(f"{url}/run/small/", "neither is better")
        assert "optimum" not in text
        assert "optimum" not in page(f"{url}/", "none of theirs is better than another")
        assert "optimum" not in page(f"{url}/run/small/episodes", "ends")
        page(f"{url}/run/small/figures", "Allocation: inequality over periods")
        (first, *_) = json.loads(project.evalkit("sql", "runs/small", "select episode from episodes", "--json"))
        assert "solved" not in page(f"{url}/run/small/episode/{first['episode']}", "Score").partition("select")[0]


def test_beside_an_environment_with_an_optimum_each_keeps_its_scale(project: Installed) -> None:
    (project.here / "mixed.toml").write_text(SWEEP.replace("replicates = 2", "") + MIXED)
    project.evalkit("run", "mixed.toml", "--only", "agent=random")
    scores = json.loads(project.evalkit("report", "runs/mixed", "--json"))["tables"]["scores"]
    solved = {(row["suite"], row["agent"]): row["solved"] for row in scores["rows"] if row["score"] is not None}
    assert solved == {("allocation/main", "random"): None, ("scheduling/basic", "random"): 0}
    unit = next(column["unit"] for column in scores["columns"] if column["key"] == "score")
    assert unit == "100 = optimum; of litmus tests, one of two ends"
    assert "100 = optimal, 0 = random assignment; allocation: 100 = " in scores["notes"][0]


def test_two_sellers_and_single_questions_run_replay_and_are_exported(project: Installed) -> None:
    (project.here / "all.toml").write_text(ALL)
    assert "84 of 84 episodes ended" in project.evalkit("run", "all.toml")
    assert "every episode replays" in project.evalkit("verify", "runs/all")
    tables = json.loads(project.evalkit("report", "runs/all", "--json"))["tables"]
    assert [(row["agent"], row["episodes"]) for row in tables["duopoly_litmus"]["rows"]] == [
        ("noisy", 2),
        ("random", 2),
    ]
    rates = {row["agent"]: row for row in tables["patience_rates"]["rows"] if row["horizon"] == "one_year"}
    assert (rates["random"]["answers"], rates["random"]["amounts"], rates["random"]["unreadable"]) == (40, 20, 0)
    assert rates["noisy"]["unreadable"] > 0
    shown = project.evalkit("show", "runs/all", "random:duopoly/pair?periods=4:seed-0:0", "--period", "1")
    assert shown.count("agent calls set_prices") == 2
    project.evalkit("export", "runs/all", "--format", "inspect", "--out", "logs")
    for log in (project.here / "logs").glob("*duopoly*random*.eval"):
        with zipfile.ZipFile(log) as file:
            for name in file.namelist():
                if name.startswith("samples/"):
                    events = json.loads(file.read(name))["events"]
                    spans = [event["id"] for event in events if event["event"] == "span_begin"]
                    assert len(spans) == len(set(spans)) == 8


def test_a_model_plays_all_three_over_http(project: Installed) -> None:
    (project.here / "model.toml").write_text(MODEL)
    assert "3 of 3 episodes ended" in project.evalkit("run", "model.toml")
    query = "select environment, steps, ending from episodes order by environment"
    found = json.loads(project.evalkit("sql", "runs/model", query, "--json"))
    # The requests that its random player takes: in allocation and duopoly two for each chat.
    assert [(row["environment"], row["steps"], row["ending"]) for row in found] == [
        ("allocation", 6, "complete"),
        ("duopoly", 12, "complete"),
        ("patience", 1, "answered"),
    ]
