"""`new`, `generate`, `prompts import`: files made by one command are what another one takes."""

import json
from pathlib import Path

import pytest

from evalkit.envs.table import ENVIRONMENTS
from tests.spec.test_packs import CHECKS, PROMPTS, RUN
from tests.support.command_line import Call, tree

NAMED = {"task": "dining", "example": True, "deals": 12, "budget": 100}
"""Values of parameters that have neither a default nor choices nor a range."""


def test_a_new_spec_is_one_that_plan_and_run_accept(call: Call, here: Path) -> None:
    said = call("new", "runs/mine.toml")
    assert said.code == 0
    assert "evalkit plan runs/mine.toml" in said.out
    plan = call("plan", "runs/mine.toml", "--json")
    assert json.loads(plan.out)["episodes"] == 24
    assert call("run", "runs/mine.toml", "--only", "agent=random", "--limit", "1").code == 3
    again = call("new", "runs/mine.toml")
    assert again.code == 2
    assert "exists" in again.message


def test_every_key_that_the_new_spec_mentions_is_a_real_one(call: Call, here: Path) -> None:
    call("new", "mine.toml")
    lines = []
    for line in (here / "mine.toml").read_text().splitlines():
        bare = line.removeprefix("# ")
        a_key = line.startswith("# ") and (" = " in bare or bare.startswith("[")) and bare[-1] != "."
        lines.append(bare if a_key and "my.toml" not in bare else line)
    (here / "mine.toml").write_text("\n".join(lines))
    said = call("plan", "mine.toml", "--json")
    assert said.code == 0, said.err
    assert len(json.loads(said.out)["cells"]) == 6  # two agents, k = 1, 2, 5


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--n", "4", "--k", "2"], {"n": 4, "k": 2}),
        (["--n=3", "--periods=2", "--queries=5"], {"n": 3, "periods": 2, "queries": 5}),
        (["--n", "4", "--family", "correlated", "--no-action", "restart"], {"family": "correlated"}),
        (["--n", "4", "--generator", "reference", "--family", "uniform"], {"generator": "reference"}),
        (["--n", "4", "--worker-gap", "2.5", "--task_gap", "0"], {"worker_gap": 2.5, "task_gap": 0.0}),
    ],
)
def test_a_generated_suite_can_be_used_in_a_sweep(call: Call, here: Path, words: list[str], expected: object) -> None:
    said = call("suites", "generate", "scheduling", *words, "--instances", "2", "--out", "suites/own.jsonl")
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in (here / "suites/own.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert isinstance(expected, dict)
    assert all(line[name] == value for line in lines for name, value in expected.items())
    suite = '[[suites]]\nname = "suites/own.jsonl"\nvary = { periods = [2] }\n'
    (here / "sweep.toml").write_text(f'[[agents]]\npolicy = "knuth"\n{suite}')
    ran = call("run", "sweep.toml", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["ended"] == 2
    assert call("verify", "sweep").code == 0


def test_every_parameter_is_in_the_help_and_can_be_given(call: Call, here: Path) -> None:
    listed = call("suites", "generate", "--help").out
    for name, env in ENVIRONMENTS.items():
        for key, parameter in env.parameters.items():
            if key == "seed":
                continue
            assert f"--{key.replace('_', '-')} " in listed
            values = [parameter.default, *(one for one in parameter.choices if one != "explicit"), NAMED.get(key)]
            value = next((one for one in values if one is not None), max(parameter.least or 1, 1))
            said = call(
                "suites", "generate", name, f"--{key}={value}", "--instances", "1", "--out", f"{name}-{key}.jsonl"
            )
            assert said.code == 0, said.err


def test_the_same_seed_makes_the_same_suite(call: Call, here: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        call(
            "suites",
            "generate",
            "scheduling",
            "--n",
            "4",
            "--instances",
            "3",
            "--seed",
            str(seed),
            "--out",
            f"{name}.jsonl",
        )
    files = tree(here)
    assert files["a.jsonl"] == files["b.jsonl"] != files["c.jsonl"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["schedulin", "--out", "x.jsonl"], "Did you mean 'scheduling'?"),
        (["scheduling", "--out", "x.json"], ".jsonl"),
        (["scheduling", "--out", "x.jsonl", "--instances", "0"], "--instances"),
        (["scheduling", "--out", "x.jsonl", "--perods", "3"], "Did you mean 'periods'?"),
        (["scheduling", "--out", "x.jsonl", "--n", "many"], "--n: 'many' is not a whole number"),
        (["scheduling", "--out", "x.jsonl", "--n", "0"], "--n: 0 is out of range"),
        (["scheduling", "--out", "x.jsonl", "--n"], "--n: the value is missing"),
        (["scheduling", "--out", "x.jsonl", "--family", "corelated"], "Did you mean 'correlated'?"),
        (["scheduling", "--out", "x.jsonl", "--worker-gap", "nan"], "worker_gap"),
        (["scheduling", "--out", "x.jsonl", "3"], "'3'"),
        (["scheduling"], "--out"),
        (["scheduling", "--out", "there.jsonl"], "exists"),
    ],
)
def test_a_suite_that_cannot_be_made_is_refused(call: Call, here: Path, argv: list[str], words: str) -> None:
    (here / "there.jsonl").write_text("frozen\n")
    said = call("suites", "generate", *argv)
    assert said.code == 2
    assert words in said.message
    assert tree(here) == {"there.jsonl": b"frozen\n"}


def test_prompts_are_imported_from_a_copy_of_the_reference(call: Call, here: Path) -> None:
    folder = here / "paper" / "econ_evals" / "experiments" / "scheduling"
    folder.mkdir(parents=True)
    for name, text in (
        ("prompts", PROMPTS),
        ("run_scheduling_experiment", RUN),
        ("stable_matching_environment", CHECKS),
    ):
        (folder / f"{name}.py").write_text(text)
    said = call("tools", "prompts", "import", "paper", "--out", "paper.toml")
    assert said.code == 0, said.err
    assert 'prompts = "paper.toml"' in said.out
    assert "Executed the code of paper" in said.out
    assert "You sort people." in (here / "paper.toml").read_text()
    again = call("tools", "prompts", "import", "paper", "--out", "paper.toml")
    assert again.code == 2
    assert "exists" in again.message
    suite = '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\nvary = { periods = [1] }\n'
    (here / "sweep.toml").write_text(f'[[agents]]\npolicy = "knuth"\nprompts = "paper.toml"\n{suite}')
    assert call("run", "sweep.toml").code == 0
    shown = call("show", "sweep", "knuth:scheduling/basic?periods=1:seed-0:0")
    assert "You sort people." in shown.out
    assert "paper" in call("report", "sweep").out


def test_prompts_of_no_copy_are_refused(call: Call, here: Path) -> None:
    for argv in (["none", "--out", "paper.toml"], [".", "--out", "paper.txt"], [".", "--out", "paper.toml"]):
        said = call("tools", "prompts", "import", *argv)
        assert said.code == 2
        assert argv[0] in said.message or argv[-1] in said.message
    assert tree(here) == {}
    assert call("tools", "prompts", "list").out.split() == [
        "explicit",
        "known_horizon",
        "known_horizon_goal",
        "standard",
    ]
