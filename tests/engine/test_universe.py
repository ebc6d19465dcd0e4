from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalkit.engine.freezing.freeze import merge
from evalkit.engine.freezing.keeping import kept
from evalkit.engine.stand_in import admitted
from evalkit.engine.universe import KEPT, Choice, PlannedEpisode, cells, episodes, lanes, placed
from evalkit.frozen.manifest import Manifest, ManifestOrder
from evalkit.results.cells import cells as report_cells
from evalkit.results.derived import read_run
from evalkit.results.episodes import EpisodeResult
from tests.support.guessing_runs import a_manifest, a_suite, an_agent
from tests.support.small_sweeps import TWO_POLICIES, resolved
from tests.support.sweep_runs import go

TWELVE = TWO_POLICIES.replace('instances = ["seed-0", "seed-3", "seed-6", "seed-9"]\n', "")
"""Four strata of three instances each."""


def in_order(manifest: Manifest, choice: Choice | None = None) -> list[PlannedEpisode]:
    return list(episodes(manifest, list(manifest.agents.values()), choice or Choice()))


def places(found: Sequence[PlannedEpisode]) -> list[tuple[str, str, str, int]]:
    return [(one.cell.agent.name, one.suite.name, one.target.id, one.replicate) for one in found]


def as_listed(manifest: Manifest) -> Manifest:
    """The manifest as an evalkit wrote it that had no order but the file's."""
    return msgspec.structs.replace(manifest, order=ManifestOrder())


def test_replicates_come_one_after_the_other_and_agents_play_an_instance_together(tmp_path: Path) -> None:
    manifest = resolved(tmp_path).manifest
    ((name, agents),) = lanes(manifest, Choice()).items()
    assert name == "policy"
    order = [(one.replicate, one.target.id, one.cell.agent.name) for one in episodes(manifest, agents, Choice())]
    ids = ["seed-0", "seed-3", "seed-6", "seed-9"]
    assert order == [(r, i, a) for r in (0, 1) for i in ids for a in ("knuth", "random")]


def test_suites_are_interleaved_by_their_sizes(tmp_path: Path) -> None:
    text = TWO_POLICIES + '[[suites]]\nname = "scheduling/medium"\ninstances = ["seed-0", "seed-1"]\n'
    manifest = resolved(tmp_path, text).manifest
    agents = list(manifest.agents.values())[:1]
    order = [one.suite.base.split("/")[1] for one in episodes(manifest, agents, Choice())][:6]
    assert order == ["basic", "medium", "basic", "basic", "medium", "basic"]


def test_ids_are_of_what_is_played_and_how(tmp_path: Path) -> None:
    manifest = resolved(tmp_path).manifest
    first = {one.id for one in episodes(manifest, list(manifest.agents.values()), Choice())}
    assert len(first) == 2 * 4 * 2
    longer = resolved(tmp_path, TWO_POLICIES.replace("periods = [5]", "periods = [6]")).manifest
    without = resolved(tmp_path, TWO_POLICIES.replace('policy = "knuth"', 'policy = "knuth"\nnotes = false')).manifest
    again = resolved(tmp_path, "width = 7\n" + TWO_POLICIES).manifest
    for other, shared in ((longer, 0), (without, 8), (again, 16)):
        ids = {one.id for one in episodes(other, list(other.agents.values()), Choice())}
        assert len(ids & first) == shared


def test_a_choice_takes_part_of_a_sweep(tmp_path: Path) -> None:
    manifest = resolved(tmp_path).manifest
    only = Choice(agents=frozenset({"random"}), suites=frozenset({"scheduling/basic"}))
    ((_, agents),) = lanes(manifest, only).items()
    assert [agent.name for agent in agents] == ["random"]
    assert len(list(episodes(manifest, agents, only))) == 8
    nothing = Choice(suites=frozenset({"scheduling/hard"}))
    assert list(episodes(manifest, agents, nothing)) == []


def results_of(instance: str) -> EpisodeResult:
    known: dict[str, Any] = dict.fromkeys(EpisodeResult.__struct_fields__, 0)
    return EpisodeResult(
        **{**known, "id": instance, "agent": "a", "suite": "s", "instance": instance, "finished": True, "metrics": {}}
    )


def test_the_key_permutes_within_strata_and_leaves_their_turns(tmp_path: Path) -> None:
    manifest = resolved(tmp_path, TWELVE).manifest
    (suite,) = manifest.suites.values()
    found = list(manifest.admitted(suite))
    assert [one.stratum for one in found] == [one.stratum for one in suite.instances]
    assert sorted(one.id for one in found) == sorted(one.id for one in suite.instances)
    assert found != list(suite.instances)
    assert list(manifest.admitted(suite)) == found == list(resolved(tmp_path, TWELVE).manifest.admitted(suite))
    other = resolved(tmp_path, TWELVE, name="other").manifest
    assert list(other.admitted(suite)) != found
    assert list(as_listed(manifest).admitted(suite)) == list(suite.instances)


def test_all_who_need_the_order_take_the_manifests(tmp_path: Path) -> None:
    manifest = resolved(tmp_path, TWELVE).manifest
    (suite,) = manifest.suites.values()
    ids = [one.id for one in manifest.admitted(suite)]
    cell = cells(manifest)["knuth", suite.environment]
    assert [one.target.id for one in admitted(manifest, cell, suite)] == ids * 2
    assert [one.target.id for one in in_order(manifest) if one.cell.agent.name == "knuth"] == ids * 2


def test_a_report_stands_on_the_prefix_of_the_frozen_order() -> None:
    suite = a_suite("s", range(0, 40, 2))
    manifest = msgspec.structs.replace(a_manifest([an_agent("a")], [suite]), order=ManifestOrder(key=5))
    ids = [one.id for one in manifest.admitted(suite)]
    assert ids != [one.id for one in suite.instances]
    ended = [results_of(name) for name in ids[:6]] + [results_of(ids[7])]
    (cell,) = report_cells(manifest, sorted(ended, key=lambda one: one.id))
    assert [one.instance for one in cell.prefix] == ids[:6]
    assert cell.outside == 1


def test_nothing_is_listed_to_find_the_first_places(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = a_suite("s", [0] * (KEPT + 1))
    manifest = msgspec.structs.replace(a_manifest([], [suite]), order=ManifestOrder(key=5))
    asked: list[int] = []
    monkeypatch.setattr(
        "evalkit.frozen.instances.Permutation.at", lambda order, place: asked.append(place) or place, raising=True
    )
    assert len(list(islice(placed(manifest, [suite]), 10))) == 10
    assert len(asked) < 20


EXTENSIONS = {
    "an agent": TWELVE + '[[agents]]\nname = "late"\npolicy = "knuth"\nnotes = false\n',
    "a suite": TWELVE + '[[suites]]\nname = "scheduling/medium"\n',
    "replicates": TWELVE.replace("replicates = 2", "replicates = 4"),
    "all": TWELVE.replace("replicates = 2", "replicates = 3")
    + '[[suites]]\nname = "scheduling/medium"\n[[agents]]\nname = "late"\npolicy = "knuth"\nnotes = false\n',
}


@pytest.mark.parametrize("what", EXTENSIONS)
@pytest.mark.parametrize("keyed", [True, False])
def test_what_joins_a_run_comes_after_what_was_frozen(tmp_path: Path, what: str, keyed: bool) -> None:
    old = resolved(tmp_path, TWELVE).manifest
    old = old if keyed else as_listed(old)
    new = resolved(tmp_path, EXTENSIONS[what]).manifest
    merged = merge(old, new, "run")
    before, after = in_order(old), in_order(merged)
    assert [one.id for one in after[: len(before)]] == [one.id for one in before]
    assert sorted(places(after)) == sorted(places(in_order(new)))
    assert len({one.id for one in after}) == len(after) > len(before)
    assert merged.order.key == old.order.key
    # What the call plays is what the run holds, and asking again changes nothing.
    assert places(in_order(kept(old, new))) == places(after)
    assert merge(merged, new, "run") == merged
    # The next extension keeps both places.
    more = resolved(tmp_path, EXTENSIONS[what] + '[[agents]]\nname = "last"\npolicy = "oracle"\n').manifest
    assert places(in_order(merge(merged, more, "run")))[: len(after)] == places(after)
    # Within the additions: replicates one after the other.
    added = [one.replicate for one in after[len(before) :]]
    assert added == sorted(added)


def test_a_file_in_another_order_does_not_move_what_was_frozen(tmp_path: Path) -> None:
    for manifest in (resolved(tmp_path, TWELVE).manifest, as_listed(resolved(tmp_path, TWELVE).manifest)):
        turned = {
            name: msgspec.structs.replace(suite, instances=suite.instances[::-1])
            for name, suite in manifest.suites.items()
        }
        now = msgspec.structs.replace(manifest, suites=turned)
        assert places(in_order(kept(manifest, now))) == places(in_order(manifest))


def test_a_part_of_a_run_comes_in_the_order_of_the_whole(tmp_path: Path) -> None:
    merged = merge(resolved(tmp_path, TWELVE).manifest, resolved(tmp_path, EXTENSIONS["all"]).manifest, "run")
    only = Choice(suites=frozenset({"scheduling/basic?periods=5"}))
    whole = [one for one in places(in_order(merged)) if only.takes_suite(merged.suites[one[1]])]
    assert places(in_order(merged, only)) == whole


def test_a_run_that_is_cut_and_extended_reports_the_prefix_of_its_order(tmp_path: Path) -> None:
    run = tmp_path / "run"
    go(resolved(tmp_path, TWELVE), run, limit=10)
    manifest, _, results = read_run(run)
    (suite,) = manifest.suites.values()
    ids = [one.id for one in manifest.admitted(suite)]
    for cell in report_cells(manifest, results):
        assert [one.instance for one in cell.prefix] == ids[:5]
        assert cell.outside == 0
    outcome = go(resolved(tmp_path, EXTENSIONS["a suite"]), run, limit=38)
    assert outcome.example.split(":")[2] == ids[0]
    manifest, _, results = read_run(run)
    for cell in report_cells(manifest, results):
        # All 48 episodes that were frozen have ended, and none of the suite that joined has begun.
        assert len(cell.prefix) == (24 if cell.suite.name == suite.name else 0)
        assert cell.outside == 0
