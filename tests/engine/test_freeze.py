from pathlib import Path

import pytest

from evalkit.engine.freezing.freeze import merge, resolve
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifests import read_manifest, write_manifest
from evalkit.spec import suites
from evalkit.spec.suites import find_suite
from evalkit.spec.sweep import read_sweep
from tests.support.small_sweeps import TWO_POLICIES, resolved

SERVED = """
[[agents]]
name = "m"
provider = "simulated"
model = "knuth"
[[suites]]
name = "scheduling/basic"
"""
FREE = '[usd_per_mtok]\ninput = "0"\noutput = "0"\nsource = "made up, 2026-11-21"\n'


def test_a_manifest_survives_its_file(tmp_path: Path) -> None:
    manifest = resolved(tmp_path).manifest
    assert write_manifest(tmp_path, manifest) == read_manifest(tmp_path)
    for name, suite in read_manifest(tmp_path).suites.items():
        assert list(suite.instances) == list(manifest.suites[name].instances)
    assert list(read_manifest(tmp_path).agents) == ["knuth", "random"]


def test_varied_suites_know_their_axes(tmp_path: Path) -> None:
    text = TWO_POLICIES.replace("periods = [5]", "periods = [5, 6], k = [1, 2]")
    suites = resolved(tmp_path, text).manifest.suites
    assert list(suites) == [f"scheduling/basic?periods={p}&k={k}" for p in (5, 6) for k in (1, 2)]
    last = suites["scheduling/basic?periods=6&k=2"]
    assert dict(last.axes) == {"periods": 6, "k": 2}
    assert all(one.line["k"] == 2 and one.line["periods"] == 6 for one in last.instances)


def test_strata_are_interleaved(tmp_path: Path) -> None:
    text = TWO_POLICIES.replace('instances = ["seed-0", "seed-3", "seed-6", "seed-9"]\n', "")
    (suite,) = resolved(tmp_path, text).manifest.suites.values()
    strata = [one.stratum for one in suite.instances]
    assert len(strata) == 12
    for i in (0, 4, 8):
        assert len(set(strata[i : i + 4])) == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("scheduling/basic", "scheduling/basics"), r"Did you mean 'scheduling/basic'"),
        (('"seed-0", ', '"seed-99", '), "no instance 'seed-99'"),
        (("periods = [5]", "periodes = [5]"), r"vary\.periodes: .*Did you mean 'periods'"),
        (("periods = [5]", "periods = ['five']"), r"basic\?periods=five: seed-0: periods: expected a whole number"),
        (("periods = [5]", "periods = [0]"), r"periods: 0 is out of range"),
        (('policy = "random"', 'policy = "random"\nprompts = "standart"'), "Did you mean 'standard'"),
    ],
)
def test_what_cannot_be_found_is_named(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in TWO_POLICIES
    with pytest.raises(UsageError, match=rf"\.toml: (suites\[1\]|agent 'random'): .*{says}"):
        resolved(tmp_path, TWO_POLICIES.replace(*change))


def test_a_model_without_a_price_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "providers").mkdir()
    provider = 'dialect = "openai_chat"\nurl = "http://127.0.0.1:1/v1"\n[models.knuth]\n'
    (tmp_path / "providers" / "simulated.toml").write_text(provider)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no price is known for simulated/knuth"):
        resolved(tmp_path, SERVED)


def test_a_refused_default_is_marked_and_a_refused_wish_is_an_error(tmp_path: Path) -> None:
    text = SERVED.replace('"simulated"', '"openai"').replace('"knuth"', '"gpt-5"')
    assert resolved(tmp_path, text).manifest.agents["m"].marks == ("temperature not sent: the model refuses it",)
    with pytest.raises(UsageError, match="openai/gpt-5 refuses `temperature`"):
        resolved(tmp_path, text.replace('"gpt-5"', '"gpt-5"\ntemperature = 0.5'))


def test_a_spec_extends_a_run(tmp_path: Path) -> None:
    old = resolved(tmp_path).manifest
    grown = TWO_POLICIES.replace("replicates = 2", "replicates = 3").replace("periods = [5]", "periods = [5, 6]")
    new = resolved(tmp_path, grown + '[[agents]]\npolicy = "oracle"\n').manifest
    merged = merge(old, new, "run")
    assert merged.replicates == 3
    assert list(merged.agents) == ["knuth", "random", "oracle"]
    assert len(merged.suites) == 2
    assert merged.created_at == old.created_at
    assert merge(merged, old, "run") == merged


def test_a_suite_whose_file_is_what_it_was_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = find_suite("scheduling/basic").read_text().splitlines()[:8]
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(lines))
    text = f'[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "{file}"\nvary = {{ k = [1, 2] }}\n'
    begun = write_manifest(tmp_path / "run", resolved(tmp_path, text).manifest)
    sweep = read_sweep(tmp_path / "mine.toml")
    with monkeypatch.context() as closed:
        closed.setattr(suites, "reach", lambda *_: pytest.fail("it is looked into"))
        again = resolve(sweep, read_manifest(tmp_path / "run")).manifest
    assert merge(begun, again, "run") == begun
    assert again.suites == begun.suites
    file.write_text("\n".join(lines[:-1]))
    with pytest.raises(RunError, match=r"has other instances \(8 then, 7 now\)"):
        merge(begun, resolve(sweep, begun).manifest, "run")
    file.write_text("\n".join(reversed(lines)))
    assert merge(begun, resolve(sweep, begun).manifest, "run") == begun


def test_prices_stay_as_they_were_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = resolved(tmp_path, SERVED).manifest
    (tmp_path / "providers").mkdir()
    dearer = 'dialect = "openai_chat"\nurl = "http://127.0.0.1:1/v1"\n[usd_per_mtok]\ninput = "9"\n'
    dearer += 'output = "9"\nsource = "x, 2026-01-01"\n'
    (tmp_path / "providers" / "simulated.toml").write_text(dearer)
    monkeypatch.chdir(tmp_path)
    new = resolved(tmp_path, SERVED).manifest
    assert new.agents["m"].price != old.agents["m"].price
    assert merge(old, new, "run").agents["m"].price == old.agents["m"].price


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('model = "knuth"', 'model = "random"'), r"agent 'm' is now another: model was 'knuth', now 'random'"),
        (('model = "knuth"', 'model = "knuth"\ntemperature = 0.1'), "overrides was"),
        (('model = "knuth"', 'model = "knuth"\nnotes = false'), "notes was True, now False"),
        (('model = "knuth"', 'model = "knuth"\ntags = ["reasoning"]'), "tagged as a reasoning model"),
        (('name = "scheduling/basic"', 'name = "scheduling/basic"\ninstances = ["seed-1"]'), "12 then, 1 now"),
    ],
)
def test_other_content_under_the_same_name_is_a_conflict(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    old = resolved(tmp_path, SERVED).manifest
    assert change[0] in SERVED
    new = resolved(tmp_path, SERVED.replace(*change)).manifest
    with pytest.raises(RunError, match=says):
        merge(old, new, "run")


def test_what_is_no_part_of_identity_may_change(tmp_path: Path) -> None:
    old = resolved(tmp_path, SERVED).manifest
    other = 'width = 3\nbudget_usd = "1"\ndeadline = "1h"\n' + SERVED + '[limits."simulated/knuth"]\nin_flight = 2\n'
    new = resolved(tmp_path, other).manifest
    assert merge(old, new, "run") == old


def test_a_provider_that_takes_fewer_tools_is_an_error_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers").mkdir()
    provider = 'dialect = "openai_chat"\nmost_tools = {most}\n[simulate]\n' + FREE
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers" / "simulated.toml").write_text(provider.replace("{most}", str(6)))
    with pytest.raises(UsageError, match=r"'scheduling/basic' offers up to 7 tools.* takes 6"):
        resolved(tmp_path, SERVED)
    (tmp_path / "providers" / "simulated.toml").write_text(provider.replace("{most}", str(7)))
    assert list(resolved(tmp_path, SERVED).manifest.agents) == ["m"]


def test_a_price_that_a_simulated_provider_asks_for_is_no_real_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    for name, where in (("simulated", ""), ("lab", 'url = "http://localhost:1/v1"')):
        served = "" if where else "[simulate]"
        (tmp_path / "providers" / f"{name}.toml").write_text(f'dialect = "openai_chat"\n{where}\n{FREE}{served}')
    real = '[[agents]]\nname = "r"\nprovider = "lab"\nmodel = "m-1"\n'
    policy = '[[agents]]\npolicy = "random"\n'
    assert resolved(tmp_path, SERVED).manifest.simulated == "simulated"
    assert resolved(tmp_path, policy + SERVED).manifest.simulated == "simulated"
    assert resolved(tmp_path, real + SERVED).manifest.simulated == "partly simulated"
    assert resolved(tmp_path, TWO_POLICIES).manifest.simulated == ""


def test_what_two_names_stand_for_is_refused_and_not_logged_twice(tmp_path: Path) -> None:
    agents = TWO_POLICIES.replace('policy = "random"', 'name = "again"\npolicy = "knuth"')
    with pytest.raises(UsageError, match=r"agents 'knuth' and 'again' are the same: .* `replicates`"):
        resolved(tmp_path, agents)
    suites = SERVED + '[[suites]]\nname = "scheduling/basic"\nvary = { k = [1, 2] }'
    with pytest.raises(UsageError, match=r"'scheduling/basic' and 'scheduling/basic\?k=1' .* \('seed-0' and 11 more\)"):
        resolved(tmp_path, suites)


def test_a_run_is_not_extended_by_what_it_has_under_another_name(tmp_path: Path) -> None:
    old = resolved(tmp_path, SERVED).manifest
    for change in (('name = "m"', 'name = "other"'), ('"scheduling/basic"', '"scheduling/basic"\nvary = { k = [1] }')):
        new = resolved(tmp_path, SERVED.replace(*change)).manifest
        with pytest.raises(RunError, match=r"asks again, under another name, for what the run in run has already"):
            merge(old, new, "run")


def test_agents_that_read_other_texts_are_different_agents(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text('[scheduling]\nreply = "On."\n')
    second = f'name = "short"\npolicy = "knuth"\nprompts = "{tmp_path}/short.toml"'
    manifest = resolved(tmp_path, TWO_POLICIES.replace('policy = "random"', second)).manifest
    assert list(manifest.agents) == ["knuth", "short"]


def test_combinations_that_come_to_the_same_are_one_suite(tmp_path: Path) -> None:
    text = '[[agents]]\npolicy = "greedy"\n[[suites]]\nname = "costbench/basic"\ninstances = ["dining-0004"]\n'
    vary = 'vary = { block = ["none", "ban_tool"], blocks = [1, 2] }\n'
    assert list(resolved(tmp_path, text + vary).manifest.suites) == [
        "costbench/basic?block=none&blocks=1",
        "costbench/basic?block=ban_tool&blocks=1",
        "costbench/basic?block=ban_tool&blocks=2",
    ]


HORIZON = """
[[agents]]
name = "plain"
policy = "random"
[[agents]]
name = "told"
policy = "random"
tags = ["reasoning"]
prompts = "known_horizon"
[[suites]]
name = "procurement/basic"
[[suites]]
name = "pricing/basic"
"""


def test_a_pack_names_what_it_changes_and_not_what_it_leaves_as_it_is(tmp_path: Path) -> None:
    manifest = resolved(tmp_path, HORIZON).manifest
    named = {
        (name, environment): manifest.packs[digest].name
        for name, agent in manifest.agents.items()
        for environment, digest in agent.packs.items()
    }
    assert named.pop(("told", "procurement")) == "known_horizon"
    assert set(named.values()) == {"standard"}
    # It is the agent's all the same, whichever environment comes last.
    assert [agent.pack for agent in manifest.agents.values()] == ["standard", "known_horizon"]


def test_agents_that_are_the_same_in_one_environment_are_told_which(tmp_path: Path) -> None:
    text = HORIZON.replace('tags = ["reasoning"]\n', "")
    with pytest.raises(UsageError, match=r"'plain' and 'told' are the same in pricing, .*: play pricing in a sweep of"):
        resolved(tmp_path, text)
    alone = text[: text.rindex("[[suites]]")]
    assert list(resolved(tmp_path, alone).manifest.agents) == ["plain", "told"]
