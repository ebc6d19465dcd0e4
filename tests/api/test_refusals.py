"""What cannot be done as asked is refused before anything is written: with the argument, the value and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalkit
from tests.api.specs import policies

SPEC = policies()


def instance() -> evalkit.Instance:
    return evalkit.suite("scheduling/basic")[0]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: evalkit.run(3), r"spec: expected a sweep's name, its path or a mapping, got int"),  # type: ignore[arg-type]
    (lambda: evalkit.run("quickstrat"), r"Did you mean 'quickstart'"),
    (lambda: evalkit.run(Path("none.toml")), r"none.toml"),
    (lambda: evalkit.run({}), r"spec: agents is missing: write at least one table \[\[agents\]\]\."),
    (lambda: evalkit.run({**SPEC, "name": ""}), r"spec: name: .* needs a name"),
    (lambda: evalkit.run({**SPEC, "name": "a/b"}), r"spec: name: 'a/b' is not a valid name"),
    (lambda: evalkit.run({**SPEC, "nmae": "a"}), r"spec: unknown key 'nmae'. Did you mean 'name'"),
    (
        lambda: evalkit.run({**SPEC, "replicates": None}),
        r"spec: replicates: .*got None. Leave out fields that are not set",
    ),
    (lambda: evalkit.run({**SPEC, "replicates": 0}), r"spec: replicates: must be 1"),
    (lambda: evalkit.run({**SPEC, "replicates": 2**70}), r"spec: replicates: an integer of 71 bits"),
    (lambda: evalkit.run({**SPEC, "agents": [{"policy": "knth"}]}), r"spec: agents\[1\].policy: .*'knuth'"),
    (lambda: evalkit.run({**SPEC, "agents": [{"policy": object()}]}), r"agents\[1\].policy: .*got object"),
    (lambda: evalkit.run({**SPEC, "agents": []}), r"at least one \[\[agents\]\]"),
    (lambda: evalkit.run({**SPEC, 3: 4}), r"expected strings as keys, got 3"),  # type: ignore[dict-item]
    (lambda: evalkit.run({**SPEC, "suites": [{"name": "scheduling/basc"}]}), r"scheduling/basic"),
    (
        lambda: evalkit.run({**SPEC, "agents": [{"provider": "openai", "model": "m", "extra": {"api_key": "sk-1"}}]}),
        "key",
    ),
    (lambda: evalkit.run(SPEC, name=3), r"name: expected a string, got 3"),  # type: ignore[arg-type]
    (lambda: evalkit.run(SPEC, name="a b"), r"name: 'a b' is not a valid name"),
    (lambda: evalkit.run(SPEC, directory=3), r"directory: expected a path, got int"),  # type: ignore[arg-type]
    (
        lambda: evalkit.run(SPEC, only={"agnet": ["knuth"]}),
        r"only: cannot choose by 'agnet'. Did you mean 'agent'",
    ),
    (lambda: evalkit.run(SPEC, only={"agent": ["knth"]}), r"only: the sweep has no agent 'knth'. Did you mean 'knuth'"),
    (lambda: evalkit.run(SPEC, only={"agent": "knuth"}), r"only: agent: expected a list of names, got 'knuth'"),
    (lambda: evalkit.run(SPEC, only=["knuth"]), r"only: expected a mapping"),  # type: ignore[arg-type]
    (lambda: evalkit.run(SPEC, limit=0), r"limit: must be at least 1"),
    (lambda: evalkit.run(SPEC, limit=True), r"limit: must be at least 1"),
    (lambda: evalkit.run(SPEC, width=0), r"width: must be 1 to 100,000, not 0"),
    (lambda: evalkit.run(SPEC, width=1.5), r"width: must be 1 to"),  # type: ignore[arg-type]
    (lambda: evalkit.run(SPEC, retry="internal_error"), r"retry: expected a list of names, got 'internal_error'"),
    (lambda: evalkit.run(SPEC, on_progress=3), r"on_progress: expected a function, got int"),  # type: ignore[arg-type]
    (lambda: evalkit.plan("quickstart", only={"suite": ["x"]}), r"only: the sweep has no suite 'x'"),
    (lambda: evalkit.plan({}), r"spec: "),
    (lambda: evalkit.load("none"), r"There is no run 'none'"),
    (lambda: evalkit.load("."), r"is no run directory"),
    (lambda: evalkit.load(3), r"run: expected a run's name or directory, got int"),  # type: ignore[arg-type]
    (lambda: evalkit.env("pricng"), r"There is no environment 'pricng'. Did you mean 'pricing'"),
    (lambda: evalkit.env(3), r"There is no environment 3"),  # type: ignore[arg-type]
    (lambda: evalkit.suite("pricing/basc"), r"pricing/basic"),
    (lambda: evalkit.suite("none.jsonl"), r"There is no suite file none.jsonl"),
    (lambda: evalkit.suite(3), r"name: expected a suite's name or file, got int"),  # type: ignore[arg-type]
    (lambda: evalkit.suite("pricing/basic", instances="seed-0"), r"instances: expected a list of names"),
    (lambda: evalkit.suite("pricing/basic", instances=["seed"]), r"no instance 'seed'"),
    (lambda: evalkit.suite("pricing/basic", vary={"perods": [1]}), r"vary.perods: .*'periods'"),
    (lambda: evalkit.suite("pricing/basic", vary={"periods": 4}), r"vary.periods: expected a list of values, got 4"),  # type: ignore[dict-item]
    (lambda: evalkit.suite("pricing/basic", vary={"periods": []}), r"vary.periods: the list of values is empty"),
    (lambda: evalkit.suite("pricing/basic", vary={"periods": [-1]}), r"periods: -1 is out of range"),
    (lambda: evalkit.suite("pricing/basic", vary=[1]), r"vary: expected a mapping"),  # type: ignore[arg-type]
    (lambda: evalkit.game("seed-0"), r"instance: expected an instance from `evalkit.suite`, got str"),  # type: ignore[arg-type]
    (lambda: evalkit.game(instance(), prompts="none"), r"There is no prompt pack 'none'"),
    (lambda: evalkit.game(instance(), prompts=3), r"prompts: expected a prompt pack's name or path, got 3"),  # type: ignore[arg-type]
    (lambda: evalkit.play("knuth", "seed-0"), r"instance: expected an instance from"),  # type: ignore[arg-type]
    (lambda: evalkit.play(3, instance()), r"agent: expected a policy"),  # type: ignore[arg-type]
    (lambda: evalkit.play("knth", instance()), r"agent: 'knth' is neither .* Did you mean 'knuth'"),
    (lambda: evalkit.play("openai/", instance()), r"agent: 'openai/' is neither"),
    (lambda: evalkit.play("greedy", instance()), r"plays none of the suites"),
    (lambda: evalkit.play("none/m", instance()), r"no providers/none.toml"),
    (
        lambda: evalkit.play("knuth", instance(), models={"main": "a/b"}),
        r"models: nothing uses them; `agent` is 'knuth'",
    ),
    (lambda: evalkit.play("main", instance(), models={"main": "gpt"}), r"models: main: 'gpt' is neither"),
    (lambda: evalkit.play("knuth", instance(), models=3), r"models: expected a mapping from names, got 3"),  # type: ignore[arg-type]
    (lambda: evalkit.play("knuth", instance(), params={"name": "a"}), r"params: 'name' cannot be set here"),
    (lambda: evalkit.play("knuth", instance(), params={"temperature": 1.0}), r"play: agents\[1\].temperature"),
    (
        lambda: evalkit.play("knuth", instance(), params={"temprature": 1.0}),
        r"unknown key .*Did you mean 'temperature'",
    ),
    (lambda: evalkit.play("knuth", instance(), params=[]), r"params: expected a mapping"),  # type: ignore[arg-type]
    (lambda: evalkit.play("knuth", instance(), replicate=-1), r"replicate: must be 0 to 999,999, not -1"),
    (lambda: evalkit.play("knuth", instance(), replicate="1"), r"replicate: must be 0"),  # type: ignore[arg-type]
    (lambda: evalkit.play("knuth", instance(), budget_usd="much"), r"play: budget_usd: 'much'"),
    (lambda: evalkit.play("knuth", instance(), prompts="none"), r"There is no prompt pack 'none'"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_argument_is_named_and_nothing_is_written(call: Callable[[], Any], words: str, here: Path) -> None:
    with pytest.raises((evalkit.UsageError, evalkit.RunError), match=words):
        call()
    assert list(here.iterdir()) == []


def test_what_is_asked_of_a_run_wrongly_is_named() -> None:
    run = evalkit.run(SPEC)
    for call, words in (
        (lambda: run.table("episods"), "no table 'episods'. Did you mean 'episodes'"),
        (lambda: run.table("report.steps"), "no table 'report.steps'"),
        (lambda: run.table(3), "name: expected a table's name, got 3"),  # type: ignore[arg-type]
        (lambda: run.sql("selec"), "could not be answered"),
        (lambda: run.sql("copy steps to 'x.csv'"), "reads the run's views and nothing else"),
        (lambda: run.sql(3), "query: expected SQL as a string, got int"),  # type: ignore[arg-type]
        (lambda: run.episode("nobody:scheduling/basic:seed-0:0"), "The run holds no episode"),
        (lambda: run.episode(3), "name: expected an episode's name, got int"),  # type: ignore[arg-type]
    ):
        with pytest.raises((evalkit.UsageError, evalkit.RunError), match=words):
            call()


def test_a_directory_of_somebody_else_is_left_alone(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(evalkit.RunError, match="is no run directory, and it is not empty"):
        evalkit.run(SPEC, directory="mine")
    assert [path.name for path in (here / "mine").iterdir()] == ["thesis.txt"]


def test_a_spec_that_conflicts_with_its_run_changes_nothing() -> None:
    before = evalkit.run(SPEC)
    other = {**SPEC, "agents": [{"name": "knuth", "policy": "random"}]}
    with pytest.raises(evalkit.RunError, match="conflicts with the run"):
        evalkit.run(other)
    assert evalkit.load("mine") == before


def test_a_log_that_was_changed_is_an_error() -> None:
    run = evalkit.run(SPEC, limit=1)
    for path in run.directory.rglob("*.parquet"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    with pytest.raises(evalkit.CorruptLogError):
        evalkit.run(SPEC)
