"""Runs of the tree as it stood, extended: what they have stays as it was, and what is added to it reads the same texts
in the same order."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from evalkit.spec import packs
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest
from evalkit.store.reading.reader import scan
from tests.net.goldens import GOLDENS, read
from tests.net.wire import digests, in_order, play
from tests.net.workspace import RUN, call, copy

MORE = """
[[agents]]
name = "another"
provider = "chat"
model = "random"
max_tokens = 900
"""


def extend(place: Path, more: str = "", replicates: int = 2) -> None:
    """Rewrite a fixture's sweep."""
    path = place / "sweep.toml"
    text = path.read_text().replace("replicates = 2", f"replicates = {replicates}", 1)
    at = text.index("[[suites]]")
    path.write_text(text[:at] + more + text[at:])


def kept(old: Manifest, new: Manifest) -> None:
    """Everything of the old manifest stands in the new one as it was."""
    assert {name: new.packs[name] for name in old.packs} == dict(old.packs)
    assert list(new.suites)[: len(old.suites)] == list(old.suites)
    for name, suite in old.suites.items():
        now, was = (msgspec.structs.replace(one, instances=tuple(one.instances)) for one in (new.suites[name], suite))
        assert now == was
    assert [name for name in new.agents if name in old.agents] == list(old.agents)
    for name, agent in old.agents.items():
        mine = new.agents[name]
        assert (mine.identity, mine.packs, mine.sampling, mine.price) == (
            agent.identity,
            agent.packs,
            agent.sampling,
            agent.price,
        )


def lines(manifest: Manifest, old: Manifest) -> list[str]:
    """The order of what the old manifest had, among what the new one has."""
    mine = []
    for line in in_order(manifest).splitlines():
        _, _, agent, *_, replicate = line.split()
        if agent in old.agents and int(replicate) < old.replicates:
            mine.append(line)
    return mine


@pytest.mark.parametrize("name", ["finished", "killed-late"])
def test_more_replicates_and_another_agent_leave_texts_and_order(name: str, tmp_path: Path) -> None:
    place = copy(name, tmp_path)
    old = read_manifest(place / RUN)
    extend(place, MORE, replicates=3)
    played = play(place, str(RUN))
    assert (played.outcome.exit_code, played.outcome.owed) == (0, 0)
    new = read_manifest(place / RUN)
    kept(old, new)
    assert new.replicates == 3
    assert lines(new, old) == in_order(old).splitlines()
    first_requests_are_those_of_the_first_replicate(place / RUN)
    assert {line for line in digests(place / RUN).splitlines() if line_of(line, old)} == set(fault_free())
    assert call(place, "verify", str(RUN)).code == 0


def first_requests_are_those_of_the_first_replicate(run: Path) -> None:
    """Nothing that an agent reads at first depends on the replicate, nor on when it was added."""
    rows = scan(run, ["agent", "suite", "instance", "replicate", "step", "request_digest"]).to_pylist()
    firsts: dict[tuple[str, str, str], dict[int, bytes]] = {}
    for row in rows:
        if row["step"] == 0:
            cell = row["agent"], row["suite"], row["instance"]
            firsts.setdefault(cell, {})[row["replicate"]] = row["request_digest"]
    assert firsts
    for cell, found in firsts.items():
        assert set(found) == {0, 1, 2}, cell
        assert len(set(found.values())) == 1, cell


def line_of(line: str, old: Manifest) -> bool:
    _, agent, _, _, replicate, *_ = line.split()
    return agent in old.agents and int(replicate) < old.replicates


def fault_free() -> list[str]:
    return (read(GOLDENS, "steps/finished") or "").splitlines()


def test_a_run_without_a_provider_is_extended_likewise(tmp_path: Path) -> None:
    place = copy("policies", tmp_path)
    old, before = read_manifest(place / RUN), digests(place / RUN).splitlines()
    extend(place, '[[agents]]\npolicy = "planner"\n', replicates=3)
    assert call(place, "run", "sweep.toml", "--json").code == 0
    new = read_manifest(place / RUN)
    kept(old, new)
    assert set(before) <= set(digests(place / RUN).splitlines())
    first_requests_are_those_of_the_first_replicate(place / RUN)
    assert call(place, "verify", str(RUN)).code == 0


@pytest.fixture
def reworded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Gives evalkit's own packs other words, as a new version may."""
    shipped = packs._FOLDER

    def reword() -> None:
        new = tmp_path / "prompts"
        shutil.copytree(shipped, new)
        for path in new.glob("*.toml"):
            text = path.read_text()
            words = re.sub(r"\b([Yy])ou\b", r"\1ou, dear friend,", text)
            assert words != text
            path.write_text(words)
        monkeypatch.setattr(packs, "_FOLDER", new)

    return reword


@pytest.mark.parametrize("replicates", [2, 3])
def test_new_wording_reaches_no_old_run(replicates: int, tmp_path: Path, reworded: Callable[[], None]) -> None:
    place = copy("killed-late", tmp_path)
    old = read_manifest(place / RUN)
    reworded()
    extend(place, MORE if replicates > 2 else "", replicates=replicates)
    played = play(place, str(RUN))
    assert (played.outcome.exit_code, played.outcome.owed) == (0, 0)
    kept(old, read_manifest(place / RUN))
    assert played.sent
    assert not [name for name, body in played.sent.items() if b"dear friend" in body]
    mine = {line for line in digests(place / RUN).splitlines() if line_of(line, old)}
    assert mine == set(fault_free())
    assert call(place, "verify", str(RUN)).code == 0


def test_new_wording_reaches_new_runs(tmp_path: Path, reworded: Callable[[], None]) -> None:
    place = copy("killed-late", tmp_path)
    reworded()
    played = play(place, "fresh", limit=1)
    assert [name for name, body in played.sent.items() if b"dear friend" in body]


def test_what_an_agent_is_may_still_not_change_under_its_name(tmp_path: Path) -> None:
    place = copy("policies", tmp_path)
    path = place / "sweep.toml"
    path.write_text(re.sub('policy = "noisy"', 'name = "noisy"\npolicy = "planner"', path.read_text()))
    said = call(place, "run", "sweep.toml")
    assert said.code == 2
    assert "agent 'noisy' is now another" in said.err
