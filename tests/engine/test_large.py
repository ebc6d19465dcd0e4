"""Runs on suites of rows, whose lines stay in their file: begun, played on, told of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.cli.main import main
from evalkit.engine.freezing.freeze import ResolvedSweep, merge, resolve
from evalkit.engine.planning.plan import plan_sweep
from evalkit.engine.resume import order, read_holdings
from evalkit.engine.universe import Choice, RunPart, episodes
from evalkit.envs import suite_rows
from evalkit.envs.suite_rows import SuiteRow, encode_rows
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError
from evalkit.frozen import suite_file
from evalkit.frozen.manifests import read_manifest, write_manifest
from evalkit.results import cells, frozen
from evalkit.spec import suites
from evalkit.spec.suites import rows_of
from evalkit.spec.sweep import read_sweep
from evalkit.store.reading.index import read_index

COUNT = 40
SPEC = """
name = "large"
width = 3
replicates = {replicates}
[[agents]]
policy = "knuth"
[[suites]]
name = "many.parquet"
"""


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is large is so soon; the lines are written to `many.parquet` by `begin`."""
    monkeypatch.chdir(tmp_path)
    for module in (suites, suite_file, cells, frozen):
        monkeypatch.setattr(module, "MOST_LINES", 10)
    monkeypatch.setattr(suite_rows, "ROWS", 4)
    monkeypatch.setattr(suite_rows, "GROUPS_KEPT", 2)
    return [dict(line) for line in ENVIRONMENTS["scheduling"].generate({"n": 4, "periods": 2}, COUNT, 3)]


def begin(found: list[dict[str, Any]], replicates: int = 1) -> ResolvedSweep:
    Path("many.parquet").write_bytes(encode_rows(rows_of(found, "here")).data.to_pybytes())
    Path("large.toml").write_text(SPEC.format(replicates=replicates))
    return resolve(read_sweep(Path("large.toml")))


def go(*more: str) -> int:
    return main(["run", "large.toml", "--dir", "run", "--json", *more])


def ids(resolved: ResolvedSweep) -> list[str]:
    manifest = resolved.manifest
    return [one.id for one in episodes(manifest, list(manifest.agents.values()), Choice())]


def test_ids_and_order_are_those_of_a_text_file(lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ids(begin(lines))
    monkeypatch.setattr(suites, "MOST_LINES", COUNT)
    Path("many.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    Path("large.toml").write_text(SPEC.format(replicates=1).replace("many.parquet", "many.jsonl"))
    assert quick == ids(resolve(read_sweep(Path("large.toml"))))
    assert len(set(quick)) == COUNT


def test_the_run_plays_from_its_own_copy_in_the_same_order(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    resolved = begin(lines)
    frozen = write_manifest(tmp_path / "run", resolved.manifest)
    Path("many.parquet").unlink()
    agents = list(frozen.agents.values())
    assert [one.id for one in episodes(read_manifest(tmp_path / "run"), agents, Choice())] == [
        one.id for one in episodes(frozen, agents, Choice())
    ]


def test_the_copy_can_be_copied_itself(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    for number, name in enumerate(["plain", 'with "quotes"', "with \\ and \n", "é"]):
        lines[number]["id"] = name
    resolved = begin(lines)
    copy = write_manifest(tmp_path / "one", resolved.manifest)
    copied = write_manifest(tmp_path / "two", copy)
    ((given,), (first,), (second,)) = (one.suites.values() for one in (resolved.manifest, copy, copied))
    assert list(first.instances) == list(given.instances) == list(second.instances)
    assert [one.id for one in first.instances] == [line["id"] for line in lines]
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
    monkeypatch.setattr(suites, "encode_rows", lambda *_: pytest.fail("it is looked into"))
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


async def _plan(resolved: ResolvedSweep) -> Any:
    return await plan_sweep(resolved, Choice(), steps=100)


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
    Path("copy.parquet").write_bytes(Path("many.parquet").read_bytes())
    text = Path("large.toml").read_text() + '[[suites]]\nname = "copy.parquet"\nvary = { periods = [2] }\n'
    Path("large.toml").write_text(text)
    with pytest.raises(UsageError, match="have instances in common"):
        resolve(read_sweep(Path("large.toml")))
    Path("large.toml").write_text(text[: text.rindex("periods")] + "periods = [3] }\n")
    assert len(resolve(read_sweep(Path("large.toml"))).manifest.suites) == 2


def read_by(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> set[str]:
    """The instances whose lines an act reads."""
    read, plain = set[str](), suite_file.StoredInstances._made

    def counting(own: suite_file.StoredInstances, row: SuiteRow) -> Any:
        read.add(row.id)
        return plain(own, row)

    with monkeypatch.context() as patch:
        patch.setattr(suite_file.StoredInstances, "_made", counting)
        act()
    return read


def test_verify_looks_at_every_line_and_loads_what_was_played(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(lines)
    assert go("--limit", "3") == 3
    assert len(read_by(monkeypatch, lambda: main(["verify", "run"]))) == COUNT
    monkeypatch.setattr(frozen, "load_target", lambda *_: pytest.fail("an instance is loaded that was not played"))
    assert main(["verify", "run"]) == 0
    (path,) = Path("run/suites").iterdir()
    raw = path.read_bytes()
    path.write_bytes(raw[:90] + bytes([raw[90] ^ 1]) + raw[91:])
    capsys.readouterr()
    assert main(["verify", "run"]) == 1
    assert path.name in "".join(capsys.readouterr())


def test_an_instance_is_named_by_its_id_without_a_look_at_the_others(
    lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(lines)
    assert go("--limit", "3") == 3
    some = next(iter(read_index(Path("run")).episodes.values())).instance
    words = ["tools", "void", "run", "--reason", "r", "--only"]
    assert len(read_by(monkeypatch, lambda: main([*words, f"instance={some}"]))) < 3
    assert main([*words, f"instance={lines[7]['id']}0"]) == 2
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
    assert read_by(monkeypatch, lambda: main([*words])) <= played
