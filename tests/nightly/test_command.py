"""`evalkit nightly`: exit codes, what it says, its page, its hook, and the options that play nothing."""

import json
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from evalkit.policy.scheduling.policies import POLICIES
from evalkit.serve.launch import simulated
from evalkit.store.lock import hold_run
from tests.cli.test_run import damage
from tests.support.command_line import Call, await_requests, bill_lines, finish, lab, start, tree

NIGHTS = Path("runs/mine/nights")
HOOK = """\
import json, os, sys
facts = json.load(sys.stdin)
names = ("EVALKIT_SWEEP", "EVALKIT_NIGHT", "EVALKIT_RUN", "EVALKIT_ALARMS", "EVALKIT_SUMMARY")
with open("told.jsonl", "a") as file:
    file.write(json.dumps({"facts": facts, "more": {name: os.environ[name] for name in names}}) + "\\n")
sys.exit(int(open("code").read()))
"""


def fall(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on `knuth` plays at random."""
    monkeypatch.setitem(POLICIES, "knuth", POLICIES["random"])


def two_nights(call: Call) -> None:
    for night in ("2026-11-01", "2026-11-02"):
        said = call("nightly", "mine.toml", "--date", night)
        assert (said.code, said.err) == (0, "")
        assert "No alarm." in said.out


def test_a_fall_is_exit_code_4_and_one_screen_that_says_where_to_look(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nights(call)
    fall(monkeypatch)
    said = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert said.code == 4
    lines = said.out.splitlines()
    assert len(lines) < 25
    at = lines.index("REGRESSION: knuth on scheduling/basic?periods=4")
    assert "against" in lines[at + 1]
    look = shlex.split(lines[at + 2].removeprefix("  look: "))
    assert look == ["evalkit", "compare", f"{NIGHTS}/2026-11-01..2026-11-02:knuth", f"{NIGHTS}/2026-11-03:knuth"]
    assert call(*look[1:]).code == 0
    assert "REGRESSION: random" not in said.out
    again = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert again.code == 4
    assert "2026-11-03: all 24 episodes have ended. Nothing to do." in again.out


def test_the_command_of_an_alarm_compares_what_the_alarm_compares_also_when_the_scores_are_back(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for night in ("2026-10-29", "2026-10-30", "2026-10-31"):
        assert call("nightly", "mine.toml", "--date", night).code == 0
    two_nights(call)
    shown = []
    for night in ("2026-11-03", "2026-11-04"):
        with monkeypatch.context() as patch:
            if night == "2026-11-03":
                fall(patch)
            said = call("nightly", "mine.toml", "--date", night, "--json")
        (alarm,) = json.loads(said.out)["alarms"]
        assert alarm["since"] == "2026-11-03"
        tables = json.loads(call(*alarm["compare"][1:], "--json").out)["tables"]
        score = tables["compare"]["rows"][0]
        # Of twelve that nearly all fail it is not excluded that others succeed: at first the wins alone are sure.
        said_of_it = "A wins more often" if night == "2026-11-03" else "A better"
        assert (score["measure"], score["verdict"], score["pairs"]) == ("Score", said_of_it, 12)
        assert (score["first"], score["second"]) == pytest.approx((alarm["before"], alarm["now"]))
        shown.append(alarm["compare"][-1].rpartition("/")[2])
    assert shown == ["2026-11-03:knuth", "2026-11-03..2026-11-04:knuth"]
    for gone in ("2026-10-29", "2026-10-30", "2026-10-31", "2026-11-01", "2026-11-02"):
        shutil.rmtree(NIGHTS / gone)
    (alarm,) = json.loads(call("nightly", "mine.toml", "--look", "--json").out)["alarms"]
    assert alarm["compare"] == []
    refused = call("compare", f"{NIGHTS}/2026-11-01..2026-11-02:knuth", f"{NIGHTS}/2026-11-03:knuth").message
    assert refused == f"evalkit: compare: {NIGHTS} has no night of 2026-11-01..2026-11-02."


def test_the_hook_hears_of_a_new_alarm_once(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "hook.py").write_text(HOOK)
    (here / "code").write_text("1")
    hook = shlex.join([sys.executable, "hook.py"])
    two_nights(call)
    fall(monkeypatch)
    failed = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", hook)
    assert failed.code == 4
    assert "exited with code 1" in failed.err
    (here / "code").write_text("0")
    for night in ("2026-11-03", "2026-11-03", "2026-11-04"):
        assert call("nightly", "mine.toml", "--date", night, "--on-alarm", hook).code == 4
    heard = [json.loads(line) for line in (here / "told.jsonl").read_text().splitlines()]
    assert len(heard) == 2  # the call that failed, and the next one
    facts, more = heard[-1]["facts"], heard[-1]["more"]
    assert (facts["night"], facts["sweep"], len(facts["alarms"])) == ("2026-11-03", "mine", 1)
    (alarm,) = facts["alarms"]
    assert (alarm["agent"], alarm["suite"], alarm["new"]) == ("knuth", "scheduling/basic?periods=4", True)
    assert alarm["now"] < alarm["before"]
    assert alarm["p"] <= alarm["threshold"]
    assert more["EVALKIT_NIGHT"] == "2026-11-03"
    assert more["EVALKIT_RUN"] == str(NIGHTS / "2026-11-03")
    assert more["EVALKIT_ALARMS"] == "1"
    assert "knuth" in more["EVALKIT_SUMMARY"]


def test_the_hook_is_not_called_without_an_alarm(call: Call) -> None:
    assert call("nightly", "mine.toml", "--on-alarm", "no-such-program --and options").code == 0


def test_a_hook_that_is_not_there_is_said_and_hides_no_alarm(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    two_nights(call)
    fall(monkeypatch)
    said = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", "no-such-program")
    assert said.code == 4
    assert said.err == "evalkit: --on-alarm: no-such-program cannot be run: No such file or directory.\n"


def test_what_is_accepted_raises_no_alarm_any_more_and_later_falls_do(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_nights(call)
    fall(monkeypatch)
    assert call("nightly", "mine.toml", "--date", "2026-11-03").code == 4
    assert "no agent 'knuht'. Did you mean 'knuth'?" in call("nightly", "mine.toml", "--accept", "agent=knuht").message
    said = call("nightly", "mine.toml", "--accept", "agent=knuth")
    assert said.code == 0
    assert "1 cell is accepted at its current level" in said.out
    assert call("nightly", "mine.toml", "--look").code == 0
    assert "since" not in said.out
    calm = call("nightly", "mine.toml", "--date", "2026-11-04", "--json")
    assert calm.code == 0
    assert json.loads(calm.out)["alarms"] == []
    kept = (NIGHTS / "history.jsonl").read_bytes()
    call("nightly", "mine.toml", "--rebuild")
    assert (NIGHTS / "history.jsonl").read_bytes() == kept


@pytest.mark.exhaustive
def test_the_history_is_rebuilt_from_the_logs_alone(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    two_nights(call)
    fall(monkeypatch)
    call("nightly", "mine.toml", "--date", "2026-11-03")
    kept = (NIGHTS / "history.jsonl").read_bytes()
    (NIGHTS / "history.jsonl").unlink()
    said = call("nightly", "mine.toml", "--rebuild")
    assert said.code == 4  # the last night has its alarm
    assert "3 nights rebuilt" in said.out
    assert (NIGHTS / "history.jsonl").read_bytes() == kept
    (NIGHTS / "history.jsonl").write_bytes(kept[:-40])
    assert "--rebuild" in call("nightly", "mine.toml", "--look").message
    assert call("nightly", "mine.toml", "--rebuild").code == 4
    assert (NIGHTS / "history.jsonl").read_bytes() == kept
    shutil.rmtree(NIGHTS / "2026-11-01")
    assert "Kept unchanged, since their logs are missing: 2026-11-01" in call("nightly", "mine.toml", "--rebuild").out
    assert (NIGHTS / "history.jsonl").read_bytes() == kept


@pytest.mark.exhaustive
def test_looking_plays_nothing(call: Call) -> None:
    for option in ("--look", "--rebuild"):
        assert "runs/mine/nights has no night" in call("nightly", "mine.toml", option).message
    assert not Path("runs").exists()
    two_nights(call)
    before = tree(NIGHTS)
    said = call("nightly", "mine.toml", "--look", "--html", "page.html")
    assert said.code == 0
    assert tree(NIGHTS).keys() == before.keys()
    page = Path("page.html").read_text()
    assert "Scores by night" in page
    assert 'http-equiv="Content-Security-Policy"' in page
    assert "<script src" not in page
    assert '<link rel="stylesheet"' not in page


@pytest.mark.exhaustive
def test_a_night_that_a_wrong_clock_made_can_be_taken_away_as_the_message_says(call: Call) -> None:
    two_nights(call)
    assert call("nightly", "mine.toml", "--date", "2030-01-01").code == 0
    said = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert said.code == 2
    assert f"move {NIGHTS}/2030-01-01 away and delete its line in {NIGHTS}/history.jsonl" in said.message
    (NIGHTS / "2030-01-01").rename("mistake")
    lines = (NIGHTS / "history.jsonl").read_text().splitlines(keepends=True)
    (NIGHTS / "history.jsonl").write_text("".join(line for line in lines if '"night":"2030' not in line))
    assert call("nightly", "mine.toml", "--date", "2026-11-03").code == 0


@pytest.mark.exhaustive
def test_a_damaged_night_is_named_repaired_and_stops_no_later_night(call: Call) -> None:
    two_nights(call)
    damage(NIGHTS / "2026-11-02", "cost")
    refused = call("nightly", "mine.toml", "--date", "2026-11-02")
    assert refused.code == 2
    assert "--repair" in refused.err
    later = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert (later.code, later.err) == (0, "")
    damage(NIGHTS / "2026-11-03", "cost")
    mended = call("nightly", "mine.toml", "--date", "2026-11-03", "--repair")
    assert mended.code == 0, mended.err
    assert "24 of 24 episodes ended" in mended.out
    history = NIGHTS / "history.jsonl"
    lines = history.read_text().splitlines(keepends=True)
    history.write_text("".join(line for line in lines if '"night":"2026-11-02"' not in line))
    last = call("nightly", "mine.toml", "--date", "2026-11-04")
    assert last.code == 0
    assert "The night 2026-11-02 is left out of the history" in last.err


def test_two_calls_at_once_are_refused(call: Call) -> None:
    with hold_run(NIGHTS):
        said = call("nightly", "mine.toml")
        assert call("nightly", "mine.toml", "--look").message.startswith("evalkit: runs/mine/nights has no night")
    assert said.code == 2
    assert "is being written by process" in said.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--date", "2026-13-01"], "--date: '2026-13-01' is not a date: write it as 2026-11-21."),
        (["--date", "20261121"], "--date: '20261121' is not a date: write it as 2026-11-21."),
        (["--tolerance", "-1"], "--tolerance: must be 0 to 100, not -1."),
        (["--on-alarm", ""], "--on-alarm: the command is empty."),
        (["--on-alarm", "tell 'me"], "cannot be read"),
        (["--budget", "much"], "--budget"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(call: Call, options: list[str], words: str) -> None:
    said = call("nightly", "mine.toml", *options)
    assert said.code == 2
    assert words in said.message
    assert not Path("runs").exists()


@pytest.mark.exhaustive
def test_nights_and_a_run_of_the_same_sweep_do_not_disturb_each_other(call: Call) -> None:
    two_nights(call)
    assert call("run", "mine.toml").code == 0
    assert call("nightly", "mine.toml", "--date", "2026-11-03").code == 0
    assert call("verify", "runs/mine").code == 0
    assert call("verify", "runs/mine/nights/2026-11-03").code == 0
    assert call("report", "mine/nights/2026-11-02").code == 0


@pytest.mark.exhaustive
def test_a_killed_night_goes_on_and_a_budget_cut_one_is_as_it_should_be(here: Path, call: Call) -> None:
    bill = here / "bill.jsonl"
    with simulated({"bill": str(bill), "latency": "30ms"}) as url:
        lab(here, url, width=4, periods=3)
        command = ("nightly", "sweep.toml", "--date", "2026-11-01", "--budget", "3")
        process = start(here, *command)
        await_requests(process, bill, 20)
        process.send_signal(signal.SIGKILL)
        finish(process)
        done = finish(start(here, *command))
        assert done.code == 0, done.err + done.out
        assert "24 of 24 episodes ended" in done.out
        asked = [line["request_id"].rpartition("/")[0] for line in bill_lines(bill)]
        assert len(asked) - len(set(asked)) <= 8  # what was in flight: at most the width of both lanes
        idle = call("nightly", "sweep.toml", "--date", "2026-11-01", "--budget", "3")
        assert "all 24 episodes have ended. Nothing to do." in idle.out
        spent = json.loads(call("nightly", "sweep.toml", "--look", "--json").out)["spent_usd"]
        assert sum(line["cost"] for line in bill_lines(bill)) / 1e12 <= spent <= 3
        cut = call("nightly", "sweep.toml", "--date", "2026-11-02", "--budget", "0.3")
        assert cut.code == 0, cut.out
        assert "episodes to go. The next night starts with them." in cut.out
        nothing = call("nightly", "sweep.toml", "--date", "2026-11-03", "--budget", "0.0001")
        assert nothing.code == 5
        assert "0 of 24 episodes ended" in nothing.out


def test_a_night_without_a_reply_is_rebuilt_as_it_was_and_a_lost_history_is_asked_for(call: Call) -> None:
    assert call("nightly", "mine.toml", "--date", "2026-11-01", "--deadline", "0s").code == 5
    kept = (NIGHTS / "history.jsonl").read_bytes()
    (NIGHTS / "history.jsonl").unlink()
    assert "has nights but no history" in call("nightly", "mine.toml", "--look").message
    call("nightly", "mine.toml", "--rebuild")
    assert (NIGHTS / "history.jsonl").read_bytes() == kept


@pytest.mark.exhaustive
def test_a_page_that_cannot_be_written_hides_no_alarm(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = call("nightly", "mine.toml", "--date", "2026-11-01", "--html", "nowhere/page.html")
    assert (refused.code, NIGHTS.exists()) == (2, False)
    assert "there is no folder nowhere" in refused.message
    two_nights(call)
    fall(monkeypatch)
    (here / "page.html").mkdir()
    said = call("nightly", "mine.toml", "--date", "2026-11-03", "--html", "page.html", "--on-alarm", "touch told")
    assert said.code == 4
    assert "--html: page.html cannot be written: Is a directory." in said.err
    assert (here / "told").exists()
