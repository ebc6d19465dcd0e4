"""A run that is extended keeps the words it began with, whatever a later evalkit ships."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.engine.freezing.freeze import merge
from evalkit.engine.freezing.keeping import reworded
from evalkit.engine.status import read_status
from evalkit.envs.scheduling import scheduling
from evalkit.errors import RunError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.results.verify import verify
from evalkit.spec import packs
from tests.support.small_sweeps import TWO_POLICIES, resolved
from tests.support.sweep_runs import go

OLD, NEW = "Lists the ids of the tasks to hand out.", "All task ids."
"""The text `tools.get_task_ids.description` of scheduling, shipped then and after an upgrade."""
KEY = "tools.get_task_ids.description"

Upgrade = Callable[[str, str], None]


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """Ships `standard` with a text in other words."""
    folder = tmp_path / "shipped"
    shutil.copytree(packs._FOLDER, folder)
    monkeypatch.setattr(packs, "_FOLDER", folder)

    def change(before: str, after: str) -> None:
        path = folder / "standard.toml"
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))

    return change


def told(manifest: Manifest, agent: str, key: str = KEY, environment: str = "scheduling") -> str:
    return manifest.kit_of(manifest.agents[agent], environment).pack.texts[key]


def test_a_run_goes_on_in_its_own_words_and_says_so(tmp_path: Path, upgrade: Upgrade) -> None:
    run = tmp_path / "run"
    go(resolved(tmp_path), run, limit=3)
    half = read_status(run)
    assert half.kept == ()
    upgrade(OLD, NEW)
    heard: list[str] = []
    text = (
        TWO_POLICIES
        + '[[agents]]\nname = "late"\npolicy = "knuth"\nnotes = false\n[[suites]]\nname = "pricing/basic"\n'
    )
    text += 'instances = ["seed-0"]\n'
    outcome = go(resolved(tmp_path, text), run, announce=heard.extend)
    assert outcome.ended == outcome.episodes
    manifest = read_manifest(run)
    assert {told(manifest, name) for name in manifest.agents} == {OLD}
    assert len([pack for pack in manifest.packs.values() if KEY in pack.texts]) == 1
    (line,) = heard
    assert "reworded since (standard: scheduling)" in line
    assert read_status(run).kept == (line,)
    assert verify(run) == []
    assert told(resolved(tmp_path).manifest, "knuth") == NEW  # and a new run has the new words


def test_an_environment_that_joins_brings_the_words_of_the_day(tmp_path: Path, upgrade: Upgrade) -> None:
    old = resolved(tmp_path, TWO_POLICIES.replace('"knuth"', '"oracle"')).manifest
    upgrade("Lists the ids of all products that you set prices for.", "All product ids.")
    upgrade(OLD, NEW)
    text = TWO_POLICIES.replace('"knuth"', '"oracle"') + '[[suites]]\nname = "pricing/basic"\n'
    merged = merge(old, resolved(tmp_path, text).manifest, "run")
    assert told(merged, "oracle") == OLD
    assert told(merged, "oracle", "tools.get_product_ids.description", "pricing") == "All product ids."


def test_a_variant_that_joins_shares_what_is_not_its_own(tmp_path: Path, upgrade: Upgrade) -> None:
    old = resolved(tmp_path).manifest
    upgrade(OLD, NEW)
    text = TWO_POLICIES + '[[agents]]\nname = "thinker"\npolicy = "knuth"\ntags = ["reasoning"]\n'
    new = resolved(tmp_path, text).manifest
    merged = merge(old, new, "run")
    assert told(merged, "thinker") == OLD
    own = "notes.system"
    assert told(merged, "thinker", own) == told(new, "thinker", own) != told(merged, "knuth", own)


def test_a_pack_of_ones_own_keeps_the_shipped_words_below_it(tmp_path: Path, upgrade: Upgrade) -> None:
    mine = tmp_path / "short.toml"
    mine.write_text('[scheduling]\nreply = "On."\n')
    text = TWO_POLICIES.replace('policy = "random"', f'name = "short"\npolicy = "knuth"\nprompts = "{mine}"')
    old = resolved(tmp_path, text).manifest
    upgrade(OLD, NEW)
    assert merge(old, resolved(tmp_path, text).manifest, "run") == old
    # An agent that joins with another file stands on the run's words.
    other = tmp_path / "other.toml"
    other.write_text('[scheduling]\nreply = "Next."\n')
    late = text + f'[[agents]]\nname = "other"\npolicy = "knuth"\nprompts = "{other}"\n'
    merged = merge(old, resolved(tmp_path, late).manifest, "run")
    assert told(merged, "other") == OLD
    assert told(merged, "other", "reply") == "Next."
    # What the user changed is a conflict.
    for words in ('[scheduling]\nreply = "Off."\n', f'[scheduling]\nreply = "On."\n"{KEY}" = "Mine."\n'):
        mine.write_text(words)
        with pytest.raises(RunError, match=r"agent 'short' reads other scheduling prompts \(pack 'short'\)"):
            merge(old, resolved(tmp_path, text).manifest, "run")


def test_a_text_that_left_a_pack_of_ones_own_is_a_conflict(tmp_path: Path) -> None:
    mine = tmp_path / "short.toml"
    mine.write_text(f'[scheduling]\nreply = "On."\n"{KEY}" = "Mine."\n')
    text = TWO_POLICIES.replace('policy = "random"', f'name = "short"\npolicy = "knuth"\nprompts = "{mine}"')
    old = resolved(tmp_path, text).manifest
    mine.write_text('[scheduling]\nreply = "On."\n')
    with pytest.raises(RunError, match="reads other scheduling prompts"):
        merge(old, resolved(tmp_path, text).manifest, "run")


def test_another_pack_is_a_conflict_whatever_was_reworded(tmp_path: Path, upgrade: Upgrade) -> None:
    text = '[[agents]]\nname = "m"\npolicy = "random"\n[[suites]]\nname = "procurement/basic"\n'
    old = resolved(tmp_path, text).manifest
    upgrade(OLD, NEW)
    other = text.replace('"random"\n', '"random"\nprompts = "known_horizon"\n')
    with pytest.raises(RunError, match=r"agent 'm' reads other procurement prompts \(pack 'known_horizon'\)"):
        merge(old, resolved(tmp_path, other).manifest, "run")


def test_a_text_that_is_younger_than_the_run_says_what_is_defined_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = resolved(tmp_path).manifest
    grown = replace(
        scheduling.SCHEDULING,
        texts=replace(
            scheduling.TEXTS,
            all={**scheduling.TEXTS.all, "farewell": frozenset()},
            later={**scheduling.TEXTS.later, "farewell": "", "reply": "Never used, for the run has its own."},
        ),
    )
    before = manifest.kit_of(manifest.agents["knuth"], "scheduling")
    monkeypatch.setattr(scheduling, "SCHEDULING", grown)
    after = manifest.kit_of(manifest.agents["knuth"], "scheduling")
    assert after.pack.texts == {**before.pack.texts, "farewell": ""}
    assert after.pack.digest == before.pack.digest


def test_what_says_the_same_is_not_told(tmp_path: Path, upgrade: Upgrade) -> None:
    mine = tmp_path / "short.toml"
    mine.write_text('[scheduling]\nreply = "On."\n')
    manifest = resolved(
        tmp_path, TWO_POLICIES.replace('policy = "random"', f'policy = "random"\nprompts = "{mine}"')
    ).manifest
    assert reworded(manifest) == []
    upgrade("Lists the ids of all products that you set prices for.", "All product ids.")
    assert reworded(manifest) == []
    upgrade(OLD, NEW)
    assert len(reworded(manifest)) == 1


def test_a_plan_knows_what_the_run_holds_under_its_old_words(
    tmp_path: Path, upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    go(resolved(tmp_path), tmp_path / "runs" / "mine", limit=3)

    def remaining() -> list[int]:
        assert main(["plan", "mine.toml", "--json"]) == 0
        return [cell["episodes"] for cell in json.loads(capsys.readouterr().out)["cells"]]

    before = remaining()
    assert sum(before) == 2 * 4 * 2 - 3
    upgrade(OLD, NEW)
    assert remaining() == before
