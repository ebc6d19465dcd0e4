from pathlib import Path

from evalkit.run.universe import Choice, episodes, lanes
from tests.run.sweeps import TWO_POLICIES, resolved


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
