"""`queries` and `judge`: imported, asked about, answered by a script, applied; nothing is written twice or by half."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evalkit.spec.packs import read_pack
from evalkit.tasks.suites import first_texts, judged_paths
from tests.support.command_line import Call, tree
from tests.tasks.test_queries import row, written

KINDS = ("coffee_shop", "restaurant", "street_food_vendor", "bakery")
PLAN = "One way:\\nDecide -> Search -> Select\\nAnother: all at once."
PLAYERS = f"""
replicates = 2
[[agents]]
name = "writes"
policy = "scripted"
params = {{ replies = [{{ text = "{PLAN}", calls = [{{ name = "nothing" }}] }}, "Done."] }}
[[agents]]
name = "brief"
policy = "scripted"
params = {{ replies = ["{PLAN}"] }}
[[agents]]
name = "silent"
policy = "scripted"
params = {{ replies = [{{ calls = [{{ name = "nothing" }}] }}, ""] }}
[[suites]]
name = "suite.jsonl"
[[suites]]
name = "suite.jsonl"
vary = {{ block = ["cost_change"] }}
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
vary = {{ periods = [1] }}
"""


@pytest.fixture
def suite(call: Call, here: Path) -> list[dict[str, Any]]:
    """Four imported queries in `suite.jsonl`."""
    rows = [
        row(
            i + 1,
            preferences={**row()["preferences"], "category": kind},
            groundtruth=f"<DiningPreference{513 + 64 * i:05d}>",
            user_requirements="A good place." if i else "A good",
        )
        for i, kind in enumerate(KINDS)
    ]
    written(here, *rows)
    said = call("tools", "queries", "import", "queries.json", "--out", "suite.jsonl", "--length", "4")
    assert said.code == 0, said.err
    assert "4 queries" in said.out
    assert "1 of them (25.0 %)" in said.out
    return lines(here / "suite.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def answer(call: Call, here: Path, name: str, replies: Sequence[object]) -> None:
    """Play an errand sweep with a script in the model's place: one reply for all errands."""
    path = here / "runs" / f"{name}.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("provider", "model", "temperature"))]
    path.write_text(
        "\n".join(kept).replace("[[agents]]", f'[[agents]]\npolicy = "scripted"\nparams = {{ replies = {replies} }}')
    )
    ran = call("run", f"runs/{name}.toml", "--json")
    assert ran.code == 0, ran.err


def test_imported_lines_can_be_played(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    assert [line["id"] for line in suite] == ["q00001", "q00002", "q00003", "q00004"]
    assert all(line["length"] == 4 and line["seed"] == 42 and line["optimum"] > 0 for line in suite)
    blocks = 'vary = { block = ["none", "preference_change"] }'
    (here / "own.toml").write_text(f'[[agents]]\npolicy = "oracle"\n[[suites]]\nname = "suite.jsonl"\n{blocks}\n')
    ran = call("run", "own.toml", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["ended"] == 8
    assert call("verify", "own").code == 0
    shown = call("show", "own", "oracle:suite.jsonl?block=none:q00002:0").out
    assert row()["query"]["input"].strip() in re.sub(r"\s+", " ", shown)


def test_conflicting_queries_are_left_out(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    asked = call(
        "tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/any", "--name", "check"
    )
    assert asked.code == 0, asked.err
    assert "evalkit" in asked.out
    assert "queries apply runs/check suite.jsonl --out suite-conflict.jsonl" in asked.out
    assert len(lines(here / "instances/queries/check.jsonl")) == 4
    answer(call, here, "check", ["**no conflict**"])
    used = call("tools", "queries", "apply", "runs/check", "suite.jsonl", "--out", "sound.jsonl")
    assert used.code == 0, used.err
    assert "Wrote 4 of 4 queries to sound.jsonl." in used.out
    assert lines(here / "sound.jsonl") == suite


@pytest.mark.parametrize("reply", ["**conflict**", "who knows", ""])
def test_a_suite_of_which_nothing_is_left_is_not_written(
    call: Call, here: Path, suite: list[dict[str, Any]], reply: str
) -> None:
    call("tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/any", "--name", "check")
    answer(call, here, "check", [reply])
    used = call("tools", "queries", "apply", "check", "suite.jsonl", "--out", "sound.jsonl")
    assert used.code == 2
    assert "no query would remain" in used.message
    assert not (here / "sound.jsonl").exists()


def test_written_texts_replace_those_of_the_suite(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    asked = (
        "tools",
        "queries",
        "ask",
        "suite.jsonl",
        "--for",
        "requirement",
        "--model",
        "simulated/any",
        "--name",
        "write",
    )
    assert call(*asked).code == 0
    answer(call, here, "write", ["<think>Hm.</think>Somewhere with live music, please."])
    used = call("tools", "queries", "apply", "write", "suite.jsonl", "--out", "own.jsonl")
    assert used.code == 0, used.err
    found = lines(here / "own.jsonl")
    assert {line["query"]["text"] for line in found} == {"Somewhere with live music, please."}
    assert {one["text"] for line in found for one in line["alternatives"]} == {"Somewhere with live music, please."}
    assert not any("message" in line["query"] or "truncated" in line["query"] for line in found)
    for old, new in zip(suite, found, strict=True):
        kept = {key: value for key, value in old.items() if key != "source"}
        assert {**new, "query": 0, "alternatives": 0} == {**kept, "query": 0, "alternatives": 0}
    (here / "own.toml").write_text('[[agents]]\npolicy = "greedy"\n[[suites]]\nname = "own.jsonl"\n')
    assert call("run", "own.toml", "--json").code == 0
    shown = call("show", "own", "greedy:own.jsonl:q00002:0").out
    assert "Somewhere with live music, please." in re.sub(r"\s+", " ", shown)
    assert "<TimeInfo00904>" in shown


def test_texts_that_were_cut_off_are_counted_and_marked(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    call(
        "tools", "queries", "ask", "suite.jsonl", "--for", "requirement", "--model", "simulated/any", "--name", "write"
    )
    path = here / "runs" / "write.toml"
    text = path.read_text().replace('provider = "simulated"', 'policy = "scripted"')
    text = text.replace('model = "any"', 'params = { replies = [{ text = "Somewhere", finish = "length" }] }')
    path.write_text(text.replace("temperature = 0.6", ""))
    assert call("run", "write").code == 0
    used = call("tools", "queries", "apply", "write", "suite.jsonl", "--out", "own.jsonl")
    assert "4 kept and marked" in used.out
    assert all(line["query"]["truncated"] for line in lines(here / "own.jsonl"))


@pytest.mark.exhaustive
def test_a_judge_counts_each_text_once(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    (here / "mine.toml").write_text(PLAYERS)
    assert call("run", "mine.toml", "--json").code == 0
    said = call("tools", "judge", "mine", "--model", "simulated/any")
    assert said.code == 0, said.err
    assert "report runs/mine --judged runs/mine-judge" in said.out
    (errand,) = lines(here / "instances/judge/mine.jsonl")  # all static episodes begin with the same text
    assert errand["values"]["text"].startswith("One way:")
    answer(call, here, "mine-judge", ["**2**"])

    report = json.loads(call("report", "mine", "--judged", "mine-judge", "--json").out)
    rows = [one for one in report["tables"]["coverage"]["rows"] if one["agent"] == "writes"]
    assert [one["judged_runs"] for one in rows] == [8]
    assert rows[0]["judged_coverage"] == 25.0  # 2 of 2^(4-1)
    assert "judged_runs" not in call("report", "mine", "--json").out

    texts = first_texts(here / "runs" / "mine")
    assert (
        len(texts) == 8
    )  # four queries, two replicates; neither the blocked ones, nor those of agents without a plan or a call
    kind, counts, unread = judged_paths(here / "runs" / "mine", here / "runs" / "mine-judge")
    assert (kind, counts, unread) == ("coverage", dict.fromkeys(texts, 2), 0)
    assert call("tools", "judge", "mine", "--model", "simulated/any", "--name", "second").code == 0
    assert (here / "instances/judge/second.jsonl").is_file()


@pytest.mark.exhaustive
def test_a_judge_in_the_paper_s_sense_stands_beside_ours(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    (here / "mine.toml").write_text(PLAYERS)
    assert call("run", "mine.toml", "--json").code == 0
    for name, options, said in (("ours", (), "**2**"), ("listed", ("--listed",), "5")):
        assert call("tools", "judge", "mine", "--model", "simulated/any", "--name", name, *options).code == 0
        (errand,) = lines(here / f"instances/judge/{name}.jsonl")
        assert errand["kind"] == ("enumeration" if options else "coverage")
        answer(call, here, name, [said])
    report = json.loads(call("report", "mine", "--judged", "ours", "--judged", "listed", "--json").out)
    table = report["tables"]["coverage"]
    (row,) = [one for one in table["rows"] if one["agent"] == "writes"]
    assert (row["judged_coverage"], row["judged_runs"]) == (25.0, 8)
    # Five of 2^(4-1), although the plan holds two: what is valid was not asked.
    assert (row["listed_coverage"], row["listed_runs"]) == (62.5, 8)
    assert any("whether it is valid or not" in note for note in table["notes"])
    alone = json.loads(call("report", "mine", "--judged", "listed", "--json").out)["tables"]["coverage"]
    assert not any(column["key"].startswith("judged_") for column in alone["columns"])
    assert call("report", "mine", "--judged", "listed", "--judged", "listed").code == 2


def test_a_judge_s_instructions_ask_for_what_is_listed_and_not_whether_it_is_valid() -> None:
    texts = read_pack("standard", "errand").texts
    assert "not for you to judge" in texts["enumeration.system"]
    assert "complete" in texts["coverage.system"]


@pytest.mark.parametrize(("split", "total"), [("test", 1000), ("train", 6000)])
def test_raw_queries_are_the_reference_s_but_for_line_ends(
    call: Call, here: Path, shared: Path, split: str, total: int
) -> None:
    assert f"{total:,} raw queries" in call("tools", "queries", "raw", "--split", split, "--out", "raw.json").out
    made = (here / "raw.json").read_bytes()
    there = (shared / "data" / "costbench" / split / "queries_raw.json").read_bytes()
    assert made == there.replace(b"\r\n", b"\n")


def test_raw_queries_can_be_fewer_and_never_lie_over_a_file(call: Call, here: Path) -> None:
    assert call("tools", "queries", "raw", "--total", "7", "--out", "raw.json").code == 0
    rows = json.loads((here / "raw.json").read_text())
    # Seven over six tasks: the first has one more.
    assert [one["task"] for one in rows].count("location") == 2
    assert len({one["task"] for one in rows}) == 6
    assert [one["query_id"] for one in rows] == [f"<Query{i:05d}>" for i in range(1, 8)]
    assert call("tools", "queries", "raw", "--out", "raw.json").code == 2
    assert call("tools", "queries", "raw", "--total", "0", "--out", "other.json").code == 2
    assert call("tools", "queries", "raw", "--out", "other.jsonl").code == 2
    assert not (here / "other.json").exists()


def chain(call: Call, here: Path, source: str, total: int) -> list[dict[str, Any]]:
    """From raw queries to a suite with texts, each command with what the one before wrote; the clerk answers."""
    asked = ("--model", "simulated/clerk", "--name")
    steps: list[tuple[str, ...]] = [
        ("ask", source, "--for", "conflict", *asked, "check"),
        ("apply", "check", source, "--out", "checked.jsonl", "--seed", "7"),
        ("filter", "checked.jsonl", "--out", "sound.jsonl"),
        ("ask", "sound.jsonl", "--for", "requirement", *asked, "write"),
        ("apply", "write", "sound.jsonl", "--out", "written.jsonl"),
    ]
    for step in steps:
        if step[0] == "apply":
            assert call("run", step[1], "--json", "--budget", "1").code == 0
        said = call("tools", "queries", *step)
        assert said.code == 0, (step, said.err)
    assert len(lines(here / "instances/queries/check.jsonl")) <= total
    found = lines(here / "written.jsonl")
    (here / "own.toml").write_text(
        f'[[agents]]\npolicy = "oracle"\n[[suites]]\nname = "written.jsonl"\ninstances = ["{found[-1]["id"]}"]\n'
    )
    assert call("run", "own.toml", "--json").code == 0
    return found


def test_raw_queries_become_a_suite_with_texts_one_command_after_another(call: Call, here: Path) -> None:
    assert call("tools", "queries", "raw", "--total", "12", "--seed", "5", "--out", "raw.json").code == 0
    rows = json.loads((here / "raw.json").read_text())
    assert call("tools", "queries", "raw", "--total", "12", "--out", "other.json").code == 0
    assert rows != json.loads((here / "other.json").read_text())
    found = chain(call, here, "raw.json", 12)
    assert 0 < len(found) < 12  # the domain says of some that nobody asks for them
    wishes = {row["query_id"]: row["preferences"] for row in rows}
    assert all(line["query"]["preferences"] == wishes[line["query"]["id"]] for line in found)
    assert {line["seed"] for line in found} == {7}
    assert all("all that is listed" in line["query"]["text"] for line in found)


@pytest.mark.exhaustive
def test_the_reference_s_own_files_go_through_the_chain(call: Call, here: Path, shared: Path) -> None:
    data = shared / "data" / "costbench" / "test"
    for name, count in (("queries_raw", 1000), ("filtered_queries", 1000), ("filtered_queries_with_requirements", 381)):
        said = call("tools", "queries", "import", str(data / f"{name}.json"), "--out", f"{name}.jsonl")
        assert f"Wrote {count:,} queries" in said.out
        assert ("619 of them conflict" in said.out) is (name == "filtered_queries")
    (here / "raw.json").write_bytes((data / "queries_raw.json").read_bytes())
    assert 381 < len(chain(call, here, "raw.json", 1000)) < 1000


def test_what_the_reference_s_verdicts_leave_is_what_it_plays(call: Call, here: Path, shared: Path) -> None:
    data = shared / "data" / "costbench" / "test"
    said = call("tools", "queries", "filter", str(data / "filtered_queries.json"), "--out", "sound.jsonl")
    assert "Wrote 381 of 1,000 queries" in said.out
    assert call("tools", "queries", "import", str(data / "queries.json"), "--out", "whole.jsonl").code == 0
    for mine, whole in zip(lines(here / "sound.jsonl"), lines(here / "whole.jsonl"), strict=True):
        assert all(mine[key] == whole[key] for key in ("id", "seed", "digest", "optimum"))
        assert "source" in whole
        assert "source" not in mine  # its texts are not the reference's
        assert [one["id"] for one in mine["alternatives"]] == [one["id"] for one in whole["alternatives"]]


def test_counts_that_cannot_be_read_are_told(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    (here / "mine.toml").write_text(PLAYERS.replace("replicates = 2", "replicates = 1"))
    assert call("run", "mine.toml", "--json").code == 0
    call("tools", "judge", "mine", "--model", "simulated/any")
    answer(call, here, "mine-judge", ["between 3 and 4"])
    said = call("report", "mine", "--judged", "mine-judge")
    assert said.code == 2
    assert "has no count for a text" in said.message
    said = call("report", "mine", "--judged", "mine")
    assert said.code == 2
    assert "not an errand run" in said.message
    call("tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/any", "--name", "check")
    answer(call, here, "check", ["**conflict**"])
    assert "a run of conflict errands" in call("report", "mine", "--judged", "check").message


def test_errands_are_planned_and_played_as_any_sweep(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    call("tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/clerk", "--name", "check")
    plan = json.loads(call("plan", "runs/check.toml", "--json").out)
    assert (plan["episodes"], plan["requests"]) == (4, 4)
    assert plan["usd"]["expected"] > 0
    assert call("run", "runs/check.toml", "--json", "--budget", "1").code == 0
    assert call("verify", "check").code == 0
    assert "Wrote 4 of 4" in call("tools", "queries", "apply", "check", "suite.jsonl", "--out", "sound.jsonl").out
    assert "4 of 4 episodes ended" in call("report", "check").out


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["tools", "queries", "import", "none.json", "--out", "x.jsonl"], "none.json cannot be read"),
        (["tools", "queries", "import", "queries.json", "--out", "x.json"], ".jsonl"),
        (["tools", "queries", "import", "queries.json", "--out", "suite.jsonl"], "exists"),
        (["tools", "queries", "import", "queries.json", "--out", "x.jsonl", "--length", "2"], "length"),
        (["tools", "queries", "import", "queries.json", "--out", "x.jsonl", "--seed", "-1"], "seed"),
        (["tools", "queries", "import", "queries.json", "--out", "x.jsonl", "--alternatives", "-1"], "--alternatives"),
        (["tools", "queries", "import", "suite.jsonl", "--out", "x.jsonl"], "not a query file"),
        (["tools", "queries", "filter", "suite.jsonl", "queries.json", "--out", "x.jsonl"], "expected one suite"),
        (["tools", "queries", "filter", "suite.jsonl", "--seed", "1", "--out", "x.jsonl"], "leave it out"),
        (["tools", "queries", "ask", "suite.jsonl", "--for", "fun", "--model", "simulated/a", "--name", "a"], "--for"),
        (
            ["tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "a", "--name", "a"],
            "PROVIDER/MODEL",
        ),
        (
            ["tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "a/b", "--name", "a"],
            "no provider 'a'",
        ),
        (
            ["tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/a", "--name", "a/b"],
            "--name",
        ),
        (
            ["tools", "queries", "ask", "no.jsonl", "--for", "conflict", "--model", "simulated/a", "--name", "a"],
            "no.jsonl",
        ),
        (
            [
                "tools",
                "queries",
                "ask",
                "suite.jsonl",
                "--for",
                "conflict",
                "--model",
                "simulated/a",
                "--name",
                "a",
                "--budget=x",
            ],
            "--budget",
        ),
        (
            [
                "tools",
                "queries",
                "ask",
                "scheduling/basic",
                "--for",
                "conflict",
                "--model",
                "simulated/a",
                "--name",
                "a",
            ],
            "costbench",
        ),
        (["tools", "queries", "apply", "none", "suite.jsonl", "--out", "x.jsonl"], "no run 'none'"),
        (["tools", "queries", "apply", "played", "suite.jsonl", "--out", "x.jsonl"], "not an errand run"),
        (["tools", "judge", "none", "--model", "simulated/a"], "no run 'none'"),
        (["tools", "judge", "played", "--model", "simulated/a"], "nothing to judge"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_written(
    call: Call, here: Path, suite: list[dict[str, Any]], argv: list[str], words: str
) -> None:
    only = 'instances = ["seed-0"]\nvary = { periods = [1] }'
    (here / "played.toml").write_text(f'[[agents]]\npolicy = "oracle"\n[[suites]]\nname = "scheduling/basic"\n{only}\n')
    assert call("run", "played.toml", "--json").code == 0
    before = tree(here)
    said = call(*argv)
    assert said.code == 2
    assert words in said.message
    assert tree(here) == before


def test_no_file_is_written_over_and_none_alone(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    argv = (
        "tools",
        "queries",
        "ask",
        "suite.jsonl",
        "--for",
        "conflict",
        "--model",
        "simulated/any",
        "--name",
        "check",
    )
    (here / "runs").mkdir()
    (here / "runs" / "check.toml").write_text("mine")
    said = call(*argv)
    assert said.code == 2
    assert "check.toml exists" in said.message
    assert not (here / "instances").exists()


def test_answers_are_used_only_when_all_are_there(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    call("tools", "queries", "ask", "suite.jsonl", "--for", "conflict", "--model", "simulated/any", "--name", "check")
    path = here / "runs" / "check.toml"
    text = path.read_text().replace('provider = "simulated"', 'policy = "scripted"')
    path.write_text(text.replace('model = "any"', 'params = { replies = ["**no conflict**"] }'))
    assert call("run", "check", "--limit", "1").code == 3
    said = call("tools", "queries", "apply", "check", "suite.jsonl", "--out", "x.jsonl")
    assert said.code == 2
    assert "3 of 4 errands have no answer yet" in said.message
    path.write_text(
        path.read_text().replace("[[suites]]", "[[suites]]", 1).replace("name = ", "replicates = 2\nname = ", 1)
    )
    assert call("run", "check").code == 0
    said = call("tools", "queries", "apply", "check", "suite.jsonl", "--out", "x.jsonl")
    assert "2 replicates" in said.message


def test_a_sample_is_drawn_filled_in_and_compared(call: Call, here: Path, suite: list[dict[str, Any]]) -> None:
    said = call("tools", "queries", "sample", "suite.jsonl", "--size", "4", "--out", "sheet.csv")
    assert "Wrote 4 texts of 1 strata to sheet.csv." in said.out
    rows = (here / "sheet.csv").read_text()
    assert all(line["query"]["preferences"]["category"] in rows for line in suite)
    filled = rows.replace(",,coffee_shop", ",bakery,coffee_shop")
    (here / "a.csv").write_text(filled)
    (here / "b.csv").write_text(filled)
    tables = json.loads(call("tools", "queries", "agree", "suite.jsonl", "a.csv", "b.csv", "--json").out)
    assert [row["right"] for row in tables["by_hand"]["rows"] if row["question"] == "category"] == [25.0, 25.0]
    assert tables["by_hand_agreement"]["rows"][0]["same"] == 100
    assert call("tools", "queries", "agree", "suite.jsonl", "a.csv").out.count("Annotator") == 1
    assert "is no run" in call("tools", "queries", "agree", "suite.jsonl", "a.csv", "--judged", "x").message


def test_plans_are_sampled_by_setting_and_compared_with_the_judge(
    call: Call, here: Path, suite: list[dict[str, Any]]
) -> None:
    (here / "mine.toml").write_text(PLAYERS.replace("replicates = 2", "replicates = 1"))
    assert call("run", "mine.toml", "--json").code == 0
    call("tools", "judge", "mine", "--model", "simulated/any")
    answer(call, here, "mine-judge", ["**2**"])
    asked = ("tools", "queries", "sample", "mine", "--size", "3", "--out", "plans.csv")
    assert "Wrote 3 texts of 1 strata" in call(*asked).out
    sheet = (here / "plans.csv").read_text()
    assert "Decide -> Search -> Select" in sheet
    (here / "a.csv").write_text(sheet.replace(",,a whole number", ",2,a whole number"))
    tables = json.loads(call("tools", "queries", "agree", "mine", "a.csv", "--judged", "mine-judge", "--json").out)
    (row,) = tables["by_hand"]["rows"]
    assert (row["question"], row["answers"], row["right"]) == ("paths", 3, 100)
