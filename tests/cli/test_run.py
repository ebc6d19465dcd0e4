"""`evalkit run`: its exit codes, what it tells at the end, and that the commands it recommends work as they stand."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from evalkit.cli.choosing import program
from evalkit.client.outside import PolicyAsker
from evalkit.serve.launch import simulated
from tests.support.command_line import POLICIES, Call, Said, bill_lines, lab, tree

OUTCOME = {
    *(
        "version",
        "run",
        "exit_code",
        "reason",
        "why",
        "simulated_money",
        "refused",
        "messages",
        "episodes",
        "ended",
        "remaining",
        "unfinished",
        "owed_usd",
        "broken",
        "steps",
    ),
    *("elapsed_s", "spent_usd", "unconfirmed_usd", "budget_usd"),
    *("unmetered_replies", "unmetered_pico_usd"),
    *("doubtful_replies", "doubtful_pico_usd"),
}


def recommended(said: Said) -> list[list[str]]:
    """The `evalkit` commands that a call's last words recommend, as a shell would read them."""
    lines = [line.strip().split("  ")[0] for line in said.out.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("evalkit ")]


def test_a_complete_run_says_where_it_lies_and_what_to_do_next(call: Call, spec: Path) -> None:
    folder = spec.parent / "my runs"
    said = call("run", "mine.toml", "--dir", folder)
    assert said.code == 0
    assert "4 of 4 episodes ended" in said.out
    assert str(folder) in said.out
    commands = recommended(said)
    assert [command[0] for command in commands] == ["report", "show", "verify"]
    for command in commands:
        assert call(*command).code == 0, command


def test_scores_come_last_and_one_line_sums_up(call: Call, spec: Path) -> None:
    lines = call("run", "mine.toml").out.splitlines()
    at = lines.index("Scores")
    assert re.fullmatch(r"4 of 4 episodes ended; \d+ steps in [\d.]+ s; \$0 spent\.", lines[-1])
    assert any(line.lstrip().startswith("score: ") for line in lines[:at])
    assert any(line.startswith("The run is in ") for line in lines[:at])
    rows = [line.split() for line in lines[at + 1 : -1] if line.strip(" ─")]
    assert [row[0] for row in rows] == ["Suite", "scheduling/basic", "random"]
    assert "interval" not in rows[0]  # two instances have none: the column would be empty


def test_a_partial_run_says_in_one_line_what_is_partial_and_in_one_what_remains(call: Call, spec: Path) -> None:
    spec.write_text(spec.read_text().replace("periods = [4]", "periods = [4, 5]"))
    lines = call("run", "mine.toml", "--limit", "1").out.splitlines()
    partial = [line for line in lines if "partial: " in line]
    assert len(partial) == 1
    assert "partial: 4 of 4 rows, 7 episodes remaining; each row uses its first episodes" in partial[0]
    at = lines.index("Scores")
    (summary,) = [number for number, line in enumerate(lines) if line.startswith("1 of 8 episodes ended, 7 remain; ")]
    assert summary > at
    assert lines[summary + 1 :] == [
        "Everything so far is on disk in runs/mine. Continue with:",
        "  evalkit run mine.toml",
    ]


def test_the_trajectory_it_recommends_is_one_that_was_played(call: Call, spec: Path) -> None:
    said = call("run", "mine.toml", "--only", "agent=random")
    assert said.code == 0
    assert all(call(*command).code == 0 for command in recommended(said))


def test_with_json_there_is_one_object_on_standard_output(call: Call, spec: Path) -> None:
    said = call("run", "mine.toml", "--json")
    outcome = json.loads(said.out)
    assert set(outcome) == OUTCOME
    assert (outcome["exit_code"], outcome["reason"], outcome["episodes"], outcome["remaining"]) == (0, "complete", 4, 0)
    assert all(json.loads(line)["event"] == "progress" for line in said.err.splitlines())


def test_a_complete_run_is_not_touched_by_another_call(call: Call, spec: Path) -> None:
    call("run", "mine.toml")
    before = {name: data for name, data in tree(spec.parent / "runs").items() if name.endswith(".parquet")}
    again = json.loads(call("run", "mine.toml", "--json").out)
    assert (again["exit_code"], again["steps"], again["ended"]) == (0, 0, 4)
    assert {n: d for n, d in tree(spec.parent / "runs").items() if n.endswith(".parquet")} == before


def test_a_call_with_nothing_to_play_makes_no_report(call: Call, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("run", "mine.toml")
    monkeypatch.setattr("evalkit.report.report.report", lambda _: pytest.fail("a report was made"))
    said = call("run", "mine.toml")
    assert said.code == 0
    assert "4 of 4 episodes ended; 0 steps" in said.out


def test_a_limit_leaves_the_run_incomplete_and_says_how_to_go_on(call: Call, spec: Path) -> None:
    said = call("run", "mine.toml", "--limit", "1", "--name", "small", "--only", "agent=knuth")
    assert said.code == 3
    assert (
        "`--limit 1` is reached: this call was to end 1 episode of each model.\n1 of 2 episodes ended, 1 remains; "
        in said.out
    )
    (command,) = recommended(said)
    assert command == ["run", "mine.toml", "--name", "small", "--only", "agent=knuth"]
    rest = call(*command, "--json")
    assert rest.code == 0
    assert json.loads(rest.out)["run"] == "runs/small"


def test_a_budget_ends_the_run_incomplete_and_a_higher_one_completes_it(call: Call, here: Path) -> None:
    with simulated({"bill": str(here / "bill.jsonl")}) as url:
        lab(here, url)
        said = call("run", "sweep.toml", "--budget", "0.10")
        assert said.code == 3
        assert "--budget MORE" in said.out
        assert sum(line["cost"] for line in bill_lines(here / "bill.jsonl")) <= 10**11
        whole = json.loads(call("run", "sweep.toml", "--budget", "5", "--json").out)
    assert (whole["exit_code"], whole["reason"]) == (0, "complete")
    bill = bill_lines(here / "bill.jsonl")
    assert whole["spent_usd"] == pytest.approx(sum(line["cost"] for line in bill) / 1e12)
    assert len({line["request_id"].rpartition("/")[0] for line in bill}) == len(bill)  # nothing was asked twice


def test_an_internal_error_is_exit_code_1_and_can_be_retried(
    call: Call, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PolicyAsker.ask

    async def buggy(self: PolicyAsker, question: Any) -> Any:
        if question.step == 3 and question.episode.startswith(tuple("0123")):
            raise ZeroDivisionError("a planted bug")
        return await plain(self, question)

    spec.write_text(POLICIES.replace('instances = ["seed-0", "seed-3"]', ""))
    with monkeypatch.context() as patch:
        patch.setattr(PolicyAsker, "ask", buggy)
        said = call("run", "mine.toml", "--set", "width=1")
    assert said.code == 1
    assert "events.jsonl" in said.out
    command = recommended(said)[-1]
    assert command[-2:] == ["--retry", "internal_error"]
    assert "a planted bug" in Path("runs/mine/events.jsonl").read_text()
    assert call(*command).code == 0


def test_a_wrong_key_ends_its_lane_alone(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "not-the-right-one")
    with simulated({"key": "the-right-one"}) as url:
        lab(here, url, more='key_env = "LAB_KEY"')
        said = call("run", "sweep.toml")
    assert said.code == 3
    assert "LAB_KEY" in said.out
    assert "not-the-right-one" not in said.out + said.err


def test_retrying_an_ending_that_nothing_has_is_said(call: Call, spec: Path) -> None:
    assert call("run", "mine.toml").code == 0
    said = call("run", "mine.toml", "--retry", "complte")
    assert said.code == 0
    assert "--retry complte: no episode of this run has that ending. Did you mean 'complete'?" in said.out
    assert "0 steps" in said.out
    again = call("run", "mine.toml", "--retry", "complete", "--json")
    assert json.loads(again.out)["steps"] > 0
    assert json.loads(again.out)["messages"] == []


def damage(run: Path, column: str) -> None:
    """Flip a byte in the middle of a column of the run's steps."""
    path = max((run / "steps").glob("*.parquet"), key=lambda one: one.stat().st_size)
    group = parquet.read_metadata(path).row_group(0)
    found = next(one for n in range(group.num_columns) if (one := group.column(n)).path_in_schema == column)
    data = bytearray(path.read_bytes())
    data[found.data_page_offset + found.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_log_is_refused_until_it_is_repaired(call: Call, spec: Path) -> None:
    assert call("run", "mine.toml").code == 0
    damage(Path("runs/mine"), "cost")
    before = tree(Path("runs/mine"))
    found = call("verify", "runs/mine")
    assert found.code == 1
    assert "steps/" in found.out
    assert json.loads(call("verify", "runs/mine", "--json").out)["findings"]
    spec.write_text(POLICIES + "\n[[agents]]\npolicy = 'oracle'\n")
    refused = call("run", "mine.toml")
    assert refused.code == 2
    assert "steps/" in refused.err
    assert "--repair" in refused.err
    assert tree(Path("runs/mine")).keys() == before.keys()

    mended = call("run", "mine.toml", "--repair")
    assert mended.code == 0, mended.err
    assert "flaw" in mended.err
    assert "given up" in mended.err or "lost" in mended.err
    assert "6 of 6 episodes ended" in mended.out
    assert call("verify", "runs/mine").code == 0
    assert any(name.startswith("quarantine/") for name in tree(Path("runs/mine")))
    assert '"repaired"' in Path("runs/mine/events.jsonl").read_text()


@pytest.mark.exhaustive
def test_repairing_a_whole_log_changes_nothing(call: Call, spec: Path) -> None:
    assert call("run", "mine.toml").code == 0
    said = call("run", "mine.toml", "--repair")
    assert said.code == 0
    assert "nothing to repair" in said.err
    assert call("run", "mine.toml", "--repair", "--name", "new").code == 0  # where there is no log yet


def test_what_to_do_next_names_evalkit_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/evalkit", "run", "quickstart"])
    assert program() == ".venv/bin/evalkit"
    (tmp_path / "evalkit").touch(0o755)
    assert program() == "evalkit"
    for place, called in (
        ("/cache/uv/archive-v0/x/bin", "uvx evalkit-econ"),
        ("/share/pipx/.cache/x/bin", "pipx run evalkit-econ"),
        ("/project/.venv/bin", "evalkit-econ"),
    ):
        monkeypatch.setattr("sys.argv", [f"{place}/evalkit-econ"])
        assert program() == called


WANDERING = """
import os
import evalkit

@evalkit.agent(version=1)
async def wandering(seat):
    os.chdir("/")
    while not seat.ending:
        await seat.act("nothing")
"""


@pytest.mark.parametrize("command", ["run", "nightly"])
def test_an_agent_that_changes_the_working_directory_changes_nothing_else(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.syspath_prepend(here)
    (here / "wandering_agent.py").write_text(WANDERING)
    (here / "walk.toml").write_text(
        'budget_usd = "1"\n[[agents]]\nagent = "wandering_agent:wandering"\nmodels = { main = "simulated/random" }\n'
        '[[suites]]\nname = "pricing/basic"\nvary = { periods = [1] }\n'
    )
    said = call(command, "walk.toml")
    assert (said.code, said.err.count("moved")) == (0, 0), said.err
    assert "12 of 12 episodes ended" in said.out
    assert str(here) not in said.out
    monkeypatch.chdir(here)
    (manifest,) = here.rglob("manifest")
    assert call("verify", manifest.parent).code == 0
    assert not (manifest.parent / "live.json").exists()
