"""Runs that are extended: what they have stays as it was, and what is added reads the same texts in the same order."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.spec import packs
from evalkit.store.reading.reader import scan
from tests.conform.sending import kept
from tests.snapshots.workspace import RUN, call, copy
from tests.support.dialect_sweep import digests, in_order, play

MORE = """
[[agents]]
name = "another"
provider = "chat"
model = "random"
max_tokens = 900
"""


def extend(place: Path, more: str, replicates: int) -> None:
    """Add agents and replicates to the sweep of a folder."""
    path = place / "sweep.toml"
    text = path.read_text().replace("replicates = 2", f"replicates = {replicates}", 1)
    at = text.index("[[suites]]")
    path.write_text(text[:at] + more + text[at:])


def keeps(old: Manifest, new: Manifest) -> None:
    """Everything of the old manifest stands in the new one as it was, in the same order."""
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
    assert of_before(in_order(new), old, agent=2) == in_order(old)


def of_before(lines: list[str], old: Manifest, *, agent: int) -> list[str]:
    """The lines whose episodes a manifest has. Word `agent` is the agent's name, the third behind it the replicate."""
    words = [line.split() for line in lines]
    return [
        line
        for line, one in zip(lines, words, strict=True)
        if one[agent] in old.agents and int(one[agent + 3]) < old.replicates
    ]


def first_requests_are_those_of_the_first_replicate(run: Path, replicates: int) -> None:
    """Nothing that an agent reads at first depends on the replicate, nor on when it was added."""
    firsts: dict[tuple[str, str, str], dict[int, bytes]] = {}
    for row in scan(run, ["agent", "suite", "instance", "replicate", "step", "request_digest"]).to_pylist():
        if row["step"] == 0:
            cell = row["agent"], row["suite"], row["instance"]
            firsts.setdefault(cell, {})[row["replicate"]] = row["request_digest"]
    assert firsts
    for cell, found in firsts.items():
        assert set(found) == {*range(replicates)}, cell
        assert len(set(found.values())) == 1, cell


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


def test_more_replicates_and_another_agent_leave_texts_and_order_whatever_packs_say_by_now(
    tmp_path: Path, reworded: Callable[[], None]
) -> None:
    place = copy("killed", tmp_path)
    old = read_manifest(place / RUN)
    reworded()
    extend(place, MORE, replicates=3)
    played = play(place, RUN)
    assert (played.outcome.exit_code, played.outcome.remaining) == (0, 0)
    new = read_manifest(place / RUN)
    assert (new.replicates, "another" in new.agents) == (3, True)
    keeps(old, new)
    assert not [name for name, body in played.sent.items() if b"dear friend" in body]
    first_requests_are_those_of_the_first_replicate(place / RUN, 3)
    assert of_before(digests(place / RUN), old, agent=1) == kept("steps", "dialects")
    assert call(place, "verify", str(RUN)).code == 0


def test_new_wording_reaches_new_runs(tmp_path: Path, reworded: Callable[[], None]) -> None:
    place = copy("killed", tmp_path)
    reworded()
    played = play(place, Path("fresh"), limit=1)
    assert [name for name, body in played.sent.items() if b"dear friend" in body]


def test_a_run_without_a_provider_is_extended_likewise(tmp_path: Path) -> None:
    place = copy("policies", tmp_path)
    old = read_manifest(place / RUN)
    extend(place, '[[agents]]\npolicy = "planner"\n', replicates=3)
    assert call(place, "run", "sweep.toml", "--json").code == 0
    keeps(old, read_manifest(place / RUN))
    first_requests_are_those_of_the_first_replicate(place / RUN, 3)
    assert of_before(digests(place / RUN), old, agent=1) == kept("steps", "policies")
    assert call(place, "verify", str(RUN)).code == 0


def test_what_an_agent_is_may_not_change_under_its_name(tmp_path: Path) -> None:
    place = copy("policies", tmp_path)
    path = place / "sweep.toml"
    path.write_text(re.sub('policy = "noisy"', 'name = "noisy"\npolicy = "planner"', path.read_text()))
    said = call(place, "run", "sweep.toml")
    assert said.code == 2
    assert "agent 'noisy' is now another" in said.err
