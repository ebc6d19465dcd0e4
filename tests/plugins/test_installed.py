"""Packages that are installed for real are found, played, reported and read; nothing of evalkit is edited."""

import json
from pathlib import Path

import pytest

from evalkit.cli.main import main
from tests.support.plugin_projects import STUBS, Installed, copies_of, page, pip_install

pytestmark = pytest.mark.exhaustive

MODEL = """
budget_usd = "1.00"
[[agents]]
name = "model"
provider = "loud"
model = "random"
[[suites]]
name = "auctions/basic"
instances = ["i0", "i1", "i2", "i3"]
"""
LOUD = """
dialect = "shout"
url = "{url}"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
HABITS = """
[[agents]]
policy = "first_tool"
[[agents]]
policy = "idle"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
vary = { periods = [3] }
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stubs are installed, and a project as `evalkit new --plugin` writes it."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "projects").mkdir()
    written = folder / "projects" / "evalkit-auctions"
    assert main(["new", "--plugin", str(written)]) == 0
    pip_install([written, *copies_of(STUBS, folder / "projects")], folder / "site")
    return folder


@pytest.fixture
def there(packages: Path, tmp_path: Path) -> Installed:
    return Installed(packages / "site", tmp_path)


@pytest.fixture(scope="module")
def project(packages: Path) -> Installed:
    """The written project's own folder."""
    return Installed(packages / "site", packages / "projects" / "evalkit-auctions")


def test_the_command_lists_all_and_finds_nothing_wrong(there: Installed) -> None:
    said = there.evalkit("tools", "plugins")
    assert "  evalkit-auctions 0.1.0  version 1; parameters: sellers; report\n" in said
    assert "wrong" not in said
    found = json.loads(there.evalkit("tools", "plugins", "--json"))
    assert (found["schema"], found["version"]) == ("evalkit.plugins", 1)
    assert {(one["group"], one["name"]): one["version"] for one in found["plugins"]} == {
        ("environments", "auctions"): "0.1.0",
        ("policies", "first_tool"): "3.1.0",
        ("policies", "idle@scheduling"): "3.1.0",
        ("policies", "patient@auctions"): "0.1.0",
        ("policies", "random@auctions"): "0.1.0",
        ("dialects", "shout"): "0.2.0",
        ("prompts", "auctions-brief"): "0.1.0",
        ("suites", "auctions"): "0.1.0",
    }
    assert all(one["offers"] and one["problems"] == [] for one in found["plugins"])


def test_a_written_project_passes_its_own_tests(project: Installed) -> None:
    done = project.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_its_policies_play_its_suite(project: Installed) -> None:
    project.evalkit("run", "runs/baselines.toml")
    query = "select agent, avg(score) as score from episodes where used group by agent order by agent"
    patient, random = json.loads(project.evalkit("sql", "runs/baselines", query, "--json"))
    assert (patient["agent"], random["agent"]) == ("patient", "random")
    assert patient["score"] > random["score"] > 0


def test_a_model_plays_it_from_the_plan_to_the_page(project: Installed) -> None:
    assert "The budget of $1.00 is enough" in project.evalkit("plan", "runs/model.toml")
    assert "40 of 40 episodes ended" in project.evalkit("run", "runs/model.toml")
    assert "every episode replays" in project.evalkit("verify", "runs/model")
    report = json.loads(project.evalkit("report", "runs/model", "--json"))
    rows = {row["agent"]: row for row in report["tables"]["scores"]["rows"]}
    assert rows.keys() == {"model", "model-brief"}
    assert all(row["kind"] == "bounded" and row["episodes"] == 20 for row in rows.values())
    assert rows["model-brief"]["prompts"] == "auctions-brief"
    assert "0 = nothing taken" in report["tables"]["scores"]["notes"][0]
    seen = report["tables"]["auctions_seen"]
    asked = json.loads(project.evalkit("sql", "runs/model", seen["query"], "--json"))
    assert asked == [{**row, "seen": pytest.approx(row["seen"])} for row in seen["rows"]]
    (episode, *_) = json.loads(project.evalkit("sql", "runs/model", "select episode from episodes", "--json"))
    with project.started("view", "runs/model", says="Pages at") as url:
        page(f"{url}/run/model/tables", "auctions/basic")
        page(f"{url}/run/model/episode/{episode['episode']}", "The first offer is ")
    assert "auctions" in project.evalkit("suites", "describe", "auctions/basic")
    project.evalkit("suites", "generate", "auctions", "--sellers", "5", "--instances", "3", "--out", "more.jsonl")
    assert len((project.here / "more.jsonl").read_text().splitlines()) == 3


def test_its_run_is_read_where_it_is_not_installed(project: Installed, tmp_path: Path) -> None:
    project.evalkit("run", "runs/baselines.toml")
    scores = project.evalkit("sql", "runs/baselines", "select instance, agent, score from episodes", "--json")
    alone = Installed(tmp_path, project.here)
    assert "No plug-in is installed" in alone.evalkit("tools", "plugins")
    assert alone.evalkit("sql", "runs/baselines", "select instance, agent, score from episodes", "--json") == scores
    assert "auctions/basic" in alone.evalkit("report", "runs/baselines")
    said = alone.evalkit("run", "runs/baselines.toml", code=2)
    assert "pip install evalkit-auctions==0.1.0" in said
    with alone.started("view", "runs/baselines", says="Pages at") as url:
        page(f"{url}/run/baselines/", "Leaderboard")
        page(f"{url}/run/baselines/tables", "auctions/basic")


def test_a_dialect_of_a_package_asks_a_model(there: Installed) -> None:
    (there.here / "providers").mkdir()
    (there.here / "mine.toml").write_text(MODEL)
    with there.started("simulate", "--port", "0", says="listening on") as url:
        (there.here / "providers" / "loud.toml").write_text(LOUD.format(url=f"{url}/v1"))
        there.evalkit("plan", "mine.toml")
        assert "4 of 4 episodes ended" in there.evalkit("run", "mine.toml")
    (manifest,) = (there.here / "runs" / "mine" / "manifest").iterdir()
    lines = {one["entry"]: one["package"] for one in json.loads(manifest.read_text())["plugins"]}
    assert lines["evalkit.dialects:shout"] == "evalkit-shout"
    assert lines["evalkit.environments:auctions"] == "evalkit-auctions"
    there.evalkit("verify", "runs/mine")


def test_policies_of_a_package_play_environments_of_ours(there: Installed) -> None:
    (there.here / "habits.toml").write_text(HABITS)
    there.evalkit("run", "habits.toml")
    asked = "select agent, without_call from episodes order by agent"
    first, idle = json.loads(there.evalkit("sql", "runs/habits", asked, "--json"))
    assert (first["agent"], first["without_call"]) == ("first_tool", 0)
    assert idle["agent"] == "idle"
    assert idle["without_call"] > 0
    (manifest,) = (there.here / "runs" / "habits" / "manifest").iterdir()
    assert {one["entry"] for one in json.loads(manifest.read_text())["plugins"]} == {
        "evalkit.policies:first_tool",
        "evalkit.policies:idle@scheduling",
    }
    (there.here / "habits.toml").write_text(HABITS.replace('"idle"', '"idel"'))
    assert "There is no policy 'idel'. Did you mean 'idle'" in there.evalkit("run", "habits.toml", code=2).replace(
        "there is", "There is"
    )
    (there.here / "habits.toml").write_text(HABITS.replace("scheduling/basic", "auctions/basic").partition("vary")[0])
    assert "seed-0" in there.evalkit("run", "habits.toml", "--name", "x", code=2)


def test_a_policy_of_a_package_is_served_as_a_model_where_it_is_named(there: Installed) -> None:
    (there.here / "providers").mkdir()
    text = (Path(__file__).parents[2] / "providers" / "simulated.toml").read_text()
    (there.here / "providers" / "mine.toml").write_text(text.replace("[simulate]", '[simulate]\nmodels = ["patient"]'))
    spec = MODEL.replace('"loud"', '"mine"').replace('"random"', '"patient"')
    (there.here / "served.toml").write_text(spec)
    assert "4 of 4 episodes ended" in there.evalkit("run", "served.toml")
