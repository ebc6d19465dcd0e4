from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.spec.model import Sweep
from evalkit.spec.sweep import find_sweep, read_sweep

GOOD = """
replicates = 2
budget_usd = "1.50"
deadline = "2h"
[[agents]]
name = "m"
provider = "simulated"
model = "knuth"
temperature = 0.5
[[agents]]
policy = "random"
[[suites]]
name = "scheduling/basic"
vary = { k = [1, 2] }
"""


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_sweep(path)


def test_a_sweep_is_read_with_its_units(tmp_path: Path) -> None:
    sweep = read(tmp_path, GOOD)
    assert sweep.name == "mine"
    assert sweep.budget == 1_500_000_000_000
    assert sweep.deadline_s == 7200
    assert [agent.name for agent in sweep.agents] == ["m", "random"]
    assert [agent.lane for agent in sweep.agents] == ["simulated/knuth", "policy"]
    assert sweep.agents[0].overrides == {"temperature": 0.5}
    assert sweep.suites[0].vary == {"k": (1, 2)}


def test_tags_are_words_or_names_with_a_value(tmp_path: Path) -> None:
    tags = ("open", "family:qwen", "size:32b", "reasoning")
    text = GOOD.replace("temperature = 0.5", 'tags = ["open", "family:qwen", "size:32b", "reasoning"]')
    assert read(tmp_path, text).agents[0].tags == tags


@pytest.mark.parametrize(("text", "seed"), [("false", False), ("0", 0), ("7", 7)])
def test_an_agent_may_fix_its_seed_or_have_none_sent(tmp_path: Path, text: str, seed: object) -> None:
    given = read(tmp_path, GOOD.replace("temperature = 0.5", f"seed = {text}")).agents[0].overrides
    assert given == {"seed": seed}
    assert type(given["seed"]) is type(seed)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("replicates = 2", "replicats = 2"), "unknown key 'replicats'. Did you mean 'replicates'"),
        (("replicates = 2", "replicates = 0"), "replicates: must be 1 to"),
        (("temperature = 0.5", "temprature = 0.5"), r"agents\[1\]\.temprature'. Did you mean 'temperature'"),
        (("temperature = 0.5", "temperature = 'hot'"), r"agents\[1\]\.temperature"),
        (("temperature = 0.5", "temperature = 99"), "temperature: must be 0 to 10"),
        (
            ("temperature = 0.5", "seed = true"),
            r"agents\[1\]\.seed: must be false .* or 0 to 2,147,483,647 .*, not true",
        ),
        (("temperature = 0.5", "seed = -1"), "seed: must be false .*, not -1"),
        (("temperature = 0.5", "seed = 2147483648"), "seed: must be false"),
        (("temperature = 0.5", "seed = 'x'"), r"agents\[1\]\.seed"),
        (('policy = "random"', 'policy = "random"\nseed = 1'), "has no sampling settings"),
        *(
            ((before, f"{before}\n{key}"), f"unknown key .*{key.partition(' ')[0]}")
            for before, key in (
                *(
                    ("temperature = 0.5", key)
                    for key in ('stand_in = "knuth"', 'stream = "on"', "parallel_calls = true")
                ),
                *(("replicates = 2", key) for key in ("unpriced = true", 'budgets = { "simulated/knuth" = "1" }')),
            )
        ),
        (('policy = "random"', 'policy = "randon"'), "there is no policy 'randon'. Did you mean 'random'"),
        (('policy = "random"', 'policy = "random"\nmodel = "x"'), "has no `provider` or `model`"),
        (('policy = "random"', 'policy = "random"\ntemperature = 1.0'), "has no sampling settings"),
        (('policy = "random"', 'name = "m"\npolicy = "random"'), "two agents have the name 'm'"),
        (('policy = "random"', 'provider = "openai"'), "set either `policy`, or both"),
        (('budget_usd = "1.50"', 'budget_usd = "plenty"'), "'plenty' is not an amount in USD"),
        (('deadline = "2h"', 'deadline = "later"'), "not a span of time"),
        (("k = [1, 2]", "k = []"), "the list of values is empty"),
        (("replicates = 2", 'name = "../up"'), "is not a valid name"),
        *(
            (("temperature = 0.5", f'tags = ["open", "{tag}"]'), r"agents\[1\]\.tags: .* is not a tag: write a word")
            for tag in ("", ":32b", "size:", "a:b:c", "two words", "family:<b>", "a/b")
        ),
        (('[[suites]]\nname = "scheduling/basic"\nvary = { k = [1, 2] }', ""), "suites"),
    ],
)
def test_a_bad_sweep_is_refused_by_place_and_nearest_name(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(UsageError, match=says):
        read(tmp_path, GOOD.replace(*change))


def test_limits_must_name_a_lane_that_is_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no agent uses the lane 'simulated/kunth'. Did you mean 'simulated/knuth'"):
        read(tmp_path, GOOD + '[limits."simulated/kunth"]\nin_flight = 3\n')
    sweep = read(tmp_path, GOOD + '[limits."simulated/knuth"]\nin_flight = 3\n')
    assert sweep.limits["simulated/knuth"].in_flight == 3
    with pytest.raises(UsageError, match=r"no agent uses the provider 'simulatde'. Did you mean 'simulated'"):
        read(tmp_path, GOOD + "[limits.simulatde]\nin_flight = 3\n")
    assert read(tmp_path, GOOD + "[limits.simulated]\nin_flight = 3\n").limits["simulated"].in_flight == 3


def test_sweeps_are_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.toml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert find_sweep("mine").read_text() == GOOD
    assert find_sweep("runs/mine.toml").read_text() == GOOD
    assert find_sweep("quickstart").name == "quickstart.toml"
    with pytest.raises(UsageError, match="quickstart"):
        find_sweep("quickstrat")
    with pytest.raises(UsageError, match="no such file"):
        find_sweep("runs/absent.toml")


def machines(tmp_path: Path, *lines: str) -> Sweep:
    return read(tmp_path, GOOD + "\n".join(["[machines]", *lines]))


def test_where_a_run_is_played_is_a_setting(tmp_path: Path) -> None:
    usual = machines(tmp_path)
    assert (usual.on, usual.workers) == ("here", 1)
    own = machines(tmp_path, 'on = "ray"', "workers = 8")
    assert (own.on, own.workers) == ("ray", 8)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('on = "dask"', "machines.on"),
    ],
)
def test_machines_that_cannot_be_used_are_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machines(tmp_path, line)
