"""Runs on suites that are too large to be looked into: begun, played on, and what is wrong with single lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.cli.main import main
from evalkit.engine.freezing.freeze import Resolved, merge, resolve
from evalkit.engine.planning.plan import plan_sweep
from evalkit.engine.resume import RunPart, order, read_holdings
from evalkit.engine.universe import Choice, episodes
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError
from evalkit.spec import suites
from evalkit.spec.sweep import read_sweep
from evalkit.store import suite_file
from evalkit.store.events import read_events
from evalkit.store.instances import laid
from evalkit.store.manifests import read_manifest, write_manifest
from evalkit.store.reading.index import read_index

COUNT = 40
SPEC = """
name = "large"
width = 3
replicates = {replicates}
[[agents]]
policy = "knuth"
[[suites]]
name = "many.jsonl"
"""


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is large is so soon; the lines are written to `many.jsonl` by `begin`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suites, "LOOKED_INTO", 10)
    monkeypatch.setattr(suite_file, "FEW", 0)
    return [dict(line) for line in ENVIRONMENTS["scheduling"].generate({"n": 4, "periods": 2}, COUNT, 3)]


def begin(found: list[dict[str, Any]], replicates: int = 1) -> Resolved:
    Path("many.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in found))
    Path("large.toml").write_text(SPEC.format(replicates=replicates))
    return resolve(read_sweep(Path("large.toml")))


def go(*more: str) -> int:
    return main(["run", "large.toml", "--dir", "run", "--json", *more])


def ids(resolved: Resolved) -> list[str]:
    manifest = resolved.manifest
    return [one.id for one in episodes(manifest, list(manifest.agents.values()), Choice())]


def test_ids_and_order_are_those_of_a_suite_that_was_loaded(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ids(begin(lines))
    monkeypatch.setattr(suites, "LOOKED_INTO", 10_000)
    assert quick == ids(begin(lines))
    assert len(set(quick)) == COUNT


def test_the_run_plays_from_its_own_copy_in_the_same_order(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    resolved = begin(lines)
    frozen = write_manifest(tmp_path / "run", resolved.manifest)
    Path("many.jsonl").unlink()
    agents = list(frozen.agents.values())
    assert [one.id for one in episodes(read_manifest(tmp_path / "run"), agents, Choice())] == [
        one.id for one in episodes(frozen, agents, Choice())
    ]


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "with \\ and \n", "é", "last"])
def test_ids_of_any_kind_and_place_are_copied_as_they_are(
    lines: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    lines[5] = {"id": name, **{key: value for key, value in lines[5].items() if key != "id"}}
    if name == "last":
        lines[5] = {**{key: value for key, value in lines[5].items() if key != "id"}, "id": name}
    write_manifest(tmp_path / "run", begin(lines).manifest)
    (suite,) = read_manifest(tmp_path / "run").suites.values()
    assert [one.id for one in suite.instances] == [line["id"] for line in lines]
    assert not [one.flaw for one in suite.instances if one.flaw]


def test_the_copy_has_the_lines_as_they_stand_and_can_be_copied_itself(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    begin(lines)
    plain = Path("many.jsonl").read_bytes()
    Path("many.jsonl").write_bytes(plain.replace(b"\n", b"\r\n \n", 3))
    resolved = resolve(read_sweep(Path("large.toml")))
    copy = write_manifest(tmp_path / "one", resolved.manifest)
    copied = write_manifest(tmp_path / "two", copy)
    ((given,), (first,), (second,)) = (one.suites.values() for one in (resolved.manifest, copy, copied))
    held = [line.strip() for part in laid(first.instances).encoded() for line in part]
    assert held == plain.splitlines()
    assert list(first.instances) == list(given.instances) == list(second.instances)
    assert first.instances == second.instances


def test_a_large_run_is_played_on_wherever_it_stopped(lines: list[dict[str, Any]]) -> None:
    wanted = ids(begin(lines, replicates=2))
    for done in (7, 14, 50):
        assert go("--limit", str(done - len(read_index(Path("run")).episodes))) == 3
        assert set(read_index(Path("run")).episodes) == set(wanted[:done])
    assert go() == 0
    assert set(read_index(Path("run")).episodes) == set(wanted)
    assert main(["verify", "run"]) == main(["report", "run"]) == main(["status", "run"]) == 0


def test_what_was_played_is_not_read_to_find_what_was_not(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(lines)
    assert go("--limit", "25") == 3
    manifest, holdings = read_manifest(Path("run")), read_holdings(Path("run"))
    part = RunPart(manifest=manifest, agents=list(manifest.agents.values()), choice=Choice())
    (suite,) = manifest.suites.values()
    read: list[int] = []
    kind: Any = type(suite.instances)
    plain = kind.at
    monkeypatch.setattr(kind, "at", lambda own, place: read.append(place) or plain(own, place))
    assert list(order(part, holdings, frozenset(), "begun")) == []
    assert read == []
    assert len(list(order(part, holdings, frozenset(), "fresh"))) == len(read) == COUNT - 25


def test_a_run_that_is_complete_draws_nothing(lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    begin(lines)
    assert go() == 0

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("somebody looks for episodes")

    monkeypatch.setattr("evalkit.engine.resume.episodes", refuse)
    assert go() == 0


def test_the_same_file_is_the_same_suite_without_being_looked_into(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(lines)
    assert go("--limit", "3") == 3
    monkeypatch.setattr(suites, "scan", lambda *_: pytest.fail("it is looked into"))
    assert go("--limit", "3") == 3


def test_another_file_of_the_same_instances_is_the_same_suite_and_others_are_a_conflict(
    lines: list[dict[str, Any]],
) -> None:
    old = begin(lines).manifest
    assert list(merge(old, begin(lines[::-1]).manifest, "run").suites) == list(old.suites)
    with pytest.raises(RunError, match=r"has other instances \(40 then, 39 now\)"):
        merge(old, begin(lines[1:]).manifest, "run")
    with pytest.raises(RunError, match="has other instances"):
        merge(old, begin([{**lines[0], "no_action": "restart"}, *lines[1:]]).manifest, "run")


def again(found: list[dict[str, Any]]) -> None:
    """The 20th line under another id, not byte by byte: its fields come in another order."""
    line = {**found[20], "id": "again"}
    found[21] = {key: line[key] for key in sorted(line)}


SPOILT: dict[str, tuple[Callable[[list[dict[str, Any]]], None], str]] = {
    "a value out of range": (lambda found: found[21].update(n=-1), "n:"),
    "an unknown field": (lambda found: found[21].update(m=3), "m: a scheduling instance has no such field"),
    "what was drawn is another": (lambda found: found[21].update(seed=77), "digest"),
    "the same in other words": (again, "it equals an earlier instance"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_line_that_is_no_instance_is_left_alone_and_named(lines: list[dict[str, Any]], what: str) -> None:
    spoil, says = SPOILT[what]
    spoil(lines)
    begin(lines)
    assert go() == 3
    index = read_index(Path("run"))
    assert len(index.episodes) == COUNT - 1
    assert all(held.ending for held in index.episodes.values())
    (parked,) = read_events(Path("run"), "parked")
    assert parked["why"] == "unfit"
    assert says in parked["detail"]
    assert go() == 3
    assert len(read_index(Path("run")).episodes) == COUNT - 1
    for command in ("verify", "report", "status"):
        assert main([command, "run"]) == 0, command


async def _plan(resolved: Resolved) -> Any:
    return await plan_sweep(resolved, Choice(), requests=100)


def test_a_plan_reads_a_sample(lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    resolved = begin(lines)
    (suite,) = resolved.manifest.suites.values()
    read: list[int] = []
    kind: Any = type(suite.instances)
    plain = kind.at
    monkeypatch.setattr(kind, "at", lambda own, place: read.append(place) or plain(own, place))
    monkeypatch.setattr("time.process_time", iter(range(10**6)).__next__)
    plan = asyncio.run(_plan(resolved))
    assert plan.cells[0].episodes == COUNT
    assert len(read) < 3


def test_suites_that_share_instances_are_refused(lines: list[dict[str, Any]]) -> None:
    from evalkit.errors import UsageError

    begin(lines)
    Path("copy.jsonl").write_bytes(Path("many.jsonl").read_bytes())
    text = Path("large.toml").read_text() + '[[suites]]\nname = "copy.jsonl"\nvary = { periods = [2] }\n'
    Path("large.toml").write_text(text)
    with pytest.raises(UsageError, match="have instances in common"):
        resolve(read_sweep(Path("large.toml")))
    Path("large.toml").write_text(text[: text.rindex("periods")] + "periods = [3] }\n")
    assert len(resolve(read_sweep(Path("large.toml"))).manifest.suites) == 2


def test_verify_looks_at_each_block_and_into_what_was_played(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite_file, "ROWS", 4)
    begin(lines)
    assert go("--limit", "3") == 3
    read, plain = list[str](), suite_file.reached

    def counting(*given: Any) -> Any:
        found = plain(*given)
        read.append(found.id)
        return found

    monkeypatch.setattr(suite_file, "reached", counting)
    assert main(["verify", "run"]) == 0
    assert len(set(read)) < COUNT / 2
    (path,) = Path("run/suites").iterdir()
    raw = path.read_bytes()
    for place in (1, raw.index(b"\x50\x2a\x4d\x18") - 2):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        capsys.readouterr()
        assert main(["verify", "run"]) in (1, 2)  # 2: somebody has played an instance of that block
        assert path.name in "".join(capsys.readouterr())


def test_an_instance_is_named_by_its_id_without_a_look_at_the_others(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(lines)
    assert go("--limit", "3") == 3
    some = next(iter(read_index(Path("run")).episodes.values())).instance
    read, plain = list[str](), suite_file.reached
    monkeypatch.setattr(suite_file, "reached", lambda *given: read.append("") or plain(*given))
    assert main(["tools", "void", "run", "--only", f"instance={some}", "--reason", "r"]) == 0
    assert len(read) < 3
    assert main(["tools", "void", "run", "--only", f"instance={lines[7]['id']}0", "--reason", "r"]) == 2
    assert f"Did you mean '{lines[7]['id']}'" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "words",
    [
        ("compare", "run", "run"),
        ("report", "run", "--html", "page.html"),
        ("export", "run", "--format", "jsonl", "--out", "chats.jsonl"),
        ("sql", "run", "select count(*) from periods"),
    ],
)
def test_what_is_told_of_a_run_reads_what_was_played(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    begin(lines)
    assert go("--limit", "3") == 3
    played = {one.instance for one in read_index(Path("run")).episodes.values()}
    read, plain = set[str](), suite_file.reached

    def counting(*given: Any) -> Any:
        found = plain(*given)
        read.add(found.id)
        return found

    monkeypatch.setattr(suite_file, "reached", counting)
    assert main([*words]) == 0
    assert read <= played


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("what", SPOILT)
def test_a_sweep_that_asks_looks_into_every_line_first(
    lines: list[dict[str, Any]], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that cannot be played would hold up the evidence at its draw."""
    whole = [dict(line) for line in lines]
    spoil, says = SPOILT[what]
    spoil(lines)
    begin(lines)
    asking = '[decide]\nmargin = 50\nscores = [0, 1]\n[[agents]]\npolicy = "random"\n'
    Path("large.toml").write_text(Path("large.toml").read_text() + asking)
    assert go() == 2
    assert says in capsys.readouterr().err
    assert not Path("run").exists()
    Path("many.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in whole))
    assert go() == 0
