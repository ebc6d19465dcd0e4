"""Values that the command line replaces in a sweep, and lists in an agent's table that cross."""

from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.spec.model import Sweep
from evalkit.spec.sweep import read_sweep, sweep_from, with_settings

FILE = """
replicates = 2
[[agents]]
name = "gpt"
provider = "openai"
model = "gpt-5.1"
effort = "low"
[[agents]]
provider = "openai"
model = "gpt-4.1"
[[agents]]
policy = "knuth"
[[suites]]
name = "scheduling/basic"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def agents(sweep: Sweep) -> dict[str, dict[str, Any]]:
    return {agent.name: dict(agent.overrides) for agent in sweep.agents}


def test_values_of_every_part_of_a_sweep_are_replaced(file: Path) -> None:
    settings = (
        *("agents.gpt.effort=high", "agents.gpt-4.1.temperature=0.5", "agents.gpt-4.1.extra.user.name=me"),
        *("suites.scheduling/basic.vary.periods=[3, 4]", "replicates=5", "name=other", 'budget_usd="7.50"'),
        *("limits.openai/gpt-5.1.in_flight=9", "limits.openai.requests_per_minute=60"),
    )
    sweep = read_sweep(file, settings)
    assert agents(sweep) == {
        "gpt": {"effort": "high"},
        "gpt-4.1": {"temperature": 0.5, "extra": '{"user":{"name":"me"}}'},
        "knuth": {},
    }
    assert (sweep.replicates, sweep.name, sweep.budget) == (5, "other", 7_500_000_000_000)
    assert sweep.suites[0].vary == {"periods": (3, 4)}
    assert sweep.limits["openai/gpt-5.1"].in_flight == 9
    assert sweep.limits["openai"].requests_per_minute == 60
    assert sweep.settings == settings
    assert sweep.written["agents"][0]["effort"] == "high"
    assert read_sweep(file).settings == ()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("agents.gpt.effort", "--set agents.gpt.effort: expected KEY=VALUE"),
        ("=high", "expected KEY=VALUE"),
        ("agents.gtp.effort=high", "the sweep has no agent 'gtp'. Did you mean"),
        ("agents.gpt=high", "'gpt' is a table; name a key of it"),
        ("agents.gpt.efort=high", "agents[1].efort'. Did you mean 'effort'?"),
        ("agents.gpt.effort=3", "agents[1].effort: expected a string or nothing, got a whole number"),
        ("agents.gpt.effort.more=1", "'effort' is no table, so it has no key 'more'"),
        ("suites.pricing/basic.instances=[]", "the sweep has no suite 'pricing/basic'"),
        ("limits.opnai.in_flight=60", "the sweep has no lane or provider 'opnai'. Did you mean 'openai'?"),
        ("replicate=3", "unknown key 'replicate'. Did you mean 'replicates'?"),
        ("replicates=many", "replicates: expected a whole number, got a string"),
        ("agents.gpt..effort=high", "a part of the key is empty"),
        ("agents.gpt.extra.api_key=sk-1234567890abcdefghijklmnop", "key"),
        ("agents.gpt.temperature=99999999999999999999", "bits is too long"),
    ],
)
def test_what_cannot_be_replaced_is_named(file: Path, setting: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_sweep(file, (setting,))
    assert words in str(refused.value)


def test_a_value_is_toml_or_else_text() -> None:
    settings = ["a=1", "b=true", "c=[1, 2]", 'd="1"', "e=high", "f=2026-11-21", "g=", "h=a=b", "i={x = 1}"]
    read = with_settings({}, [*settings, "j=1\nk = 2"])
    assert list(read.values()) == [1, True, [1, 2], "1", "high", "2026-11-21", "", "a=b", {"x": 1}, "1\nk = 2"]
    assert list(read) == list("abcdefghij")


def sweep(*tables: dict[str, Any]) -> Sweep:
    suites = [{"name": "scheduling/basic"}]
    return sweep_from({"name": "mine", "agents": list(tables), "suites": suites}, "spec", "")


GPT = {"provider": "openai", "model": "gpt-5"}


def test_lists_cross() -> None:
    made = sweep({**GPT, "name": "gpt", "effort": ["low", "high"], "temperature": [0, 0.5]}, {"policy": "knuth"})
    assert agents(made) == {
        "gpt@effort=low@temperature=0": {"effort": "low", "temperature": 0},
        "gpt@effort=low@temperature=0.5": {"effort": "low", "temperature": 0.5},
        "gpt@effort=high@temperature=0": {"effort": "high", "temperature": 0},
        "gpt@effort=high@temperature=0.5": {"effort": "high", "temperature": 0.5},
        "knuth": {},
    }
    assert made.agents[1].tags == ("effort:low", "temperature:0.5")


def test_agents_without_a_name_are_called_after_what_crosses() -> None:
    assert [agent.name for agent in sweep({"policy": ["knuth", "random"]}).agents] == ["knuth", "random"]
    models = sweep({"provider": "openai", "model": ["a", "b"], "notes": [True, False]}).agents
    assert [agent.name for agent in models] == ["a@notes=true", "a@notes=false", "b@notes=true", "b@notes=false"]
    named = sweep({**GPT, "name": "gpt", "model": ["a", "b"], "tags": ["model:mine", "open"]}).agents
    assert [agent.name for agent in named] == ["gpt@model=a", "gpt@model=b"]
    assert named[0].tags == ("model:mine", "open")
    one = sweep({**GPT, "name": "gpt", "effort": ["low"]}).agents
    assert [agent.name for agent in one] == ["gpt@effort=low"]
    odd = sweep({**GPT, "name": "gpt", "extra": [{"a": 1}, {"a": 2}]}).agents
    assert [agent.name for agent in odd] == ["gpt@extra=1", "gpt@extra=2"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({**GPT, "effort": []}, "agents[2].effort: the list of values is empty"),
        ({**GPT, "effort": ["low", 3]}, "agents[2].effort: expected a string"),
        ({**GPT, "efort": ["low"]}, "unknown key 'agents[2].efort'. Did you mean 'effort'?"),
        ({**GPT, "effort": ["low", "low"]}, "two agents have the name 'gpt-5@effort=low'"),
        ({**GPT, "temperature": [0, 11]}, "agents[2].temperature: must be 0 to 10, not 11"),
        ({**GPT, "seed": [*range(40)], "max_tokens": [*range(1, 40)]}, "its lists have more than 1,000 combinations"),
    ],
)
def test_what_cannot_cross_is_named_by_its_table(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        sweep({"policy": ["knuth", "random"]}, table)
    assert words in str(refused.value)


def test_a_setting_may_cross(file: Path) -> None:
    made = read_sweep(file, ['agents.gpt.effort=["low", "high"]'])
    assert list(agents(made)) == ["gpt@effort=low", "gpt@effort=high", "gpt-4.1", "knuth"]
