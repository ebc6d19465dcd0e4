"""What commands and pages say of a run's money: that nobody pays it, what is left of the budget, what is beyond it."""

import json
from pathlib import Path

from evalkit.engine.status import KILLED
from evalkit.view.offline import write_page
from evalkit.view.overview import overview
from evalkit.view.reading import read_run
from tests.support.command_line import Call
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget

USD = 10**12


def test_simulated_money_is_marked_wherever_it_is_shown(call: Call, here: Path) -> None:
    run = here / "runs" / "mine"
    outcome, _ = go_served(with_budget(resolved(here, served()), 5 * USD), run)
    assert outcome.to_json()["simulated_money"] is True
    told = [
        call("status", "mine"),
        call("status", "mine", "--money"),
        call("report", "mine"),
        call("show", "mine", "knuth:scheduling/basic?periods=4:seed-0:0"),
    ]
    told.append(call("plan", "mine.toml"))
    assert ["simulated money" in one.out for one in told] == [True] * len(told)
    write_page(run, here / "page.html")
    assert "simulated money" in (here / "page.html").read_text()
    assert json.loads(call("status", "mine", "--json").out)["money"]["simulated"] is True
    assert json.loads(call("plan", "mine.toml", "--json").out)["simulated_money"] is True
    report = json.loads(call("report", "mine", "--json").out)
    assert report["run"]["simulated_money"] is True
    assert "simulated money" in report["tables"]["money"]["notes"]
    (here / "free.toml").write_text('[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\n')
    assert "simulated" not in call("plan", "free.toml").out


def test_the_status_knows_what_is_left_of_the_budget_and_what_is_beyond_it(call: Call, here: Path) -> None:
    sweep, run = resolved(here, served(more='budget_usd = "5"')), here / "runs" / "mine"
    spent = go_served(sweep, run, limit=2)[0].spent
    money = json.loads(call("status", "mine", "--json").out)["money"]
    assert (money["budget_usd"], money["left_usd"]) == (5.0, (5 * USD - spent) / USD)
    assert " of the budget remain.\n" in call("status", "mine").out
    lowered, _ = go_served(with_budget(sweep, spent // 2), run)
    assert lowered.reason == "budget"
    assert json.loads(call("status", "mine", "--json").out)["money"]["left_usd"] == 0.0
    assert " more than the budget: nothing is sent until it is raised." in call("status", "mine").out


def test_a_run_whose_process_was_killed_says_so(call: Call, here: Path) -> None:
    run = here / "runs" / "mine"
    go_served(resolved(here, served()), run, limit=2)
    assert "not running.\n`--limit 2` is reached" in call("status", "mine").out
    events = run / "events.jsonl"
    events.write_text("".join(line for line in events.read_text().splitlines(True) if '"kind":"ended"' not in line))
    assert "not running.\nThe process that played it last ended without a word" in call("status", "mine").out
    assert KILLED in overview(read_run(run), "mine").warnings


def test_verify_says_how_many_episodes_have_ended(call: Call, here: Path) -> None:
    go_served(resolved(here, served()), here / "runs" / "mine", limit=1)
    assert call("verify", "mine").out.endswith("replays to what the log holds; 2 of 8 episodes have ended.\n")
    said = json.loads(call("verify", "mine", "--json").out)
    assert (said["episodes"], said["ended"]) == (8, 2)
