"""Void episodes: in the log, in no result, and said so everywhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from evalkit.envs import table
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifests import write_manifest
from evalkit.frozen.void import FILE, Void, add_voids, read_voids
from evalkit.report.report import Report, report
from evalkit.report.views import open_views
from evalkit.results.verify import verify
from evalkit.results.voided import EpisodeChoice, choose
from tests.support.guessing_game import guess, hint
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_run

MANIFEST = a_manifest([an_agent("a"), an_agent("b")], [a_suite("s", [4, 5, 6])], 1)
LOG = [
    *rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(1)]),
    *rows(MANIFEST, "a", "s", "i1", 0, search(5)),
    *rows(MANIFEST, "a", "s", "i2", 0, [hint()]),
    *rows(MANIFEST, "b", "s", "i0", 0, search(4)),
]
ID = {(row.agent, row.instance): row.episode for row in LOG}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    return write_run(tmp_path, [LOG])


def strike(run: Path, *places: tuple[str, str], undo: bool = False, reason: str = "wrong key") -> None:
    add_voids(
        run,
        [
            Void(
                episode=ID[place],
                agent=place[0],
                suite="s",
                instance=place[1],
                replicate=0,
                undo=undo,
                reason=reason,
                by="u@h",
                at=1.5e9,
            )
            for place in places
        ],
    )


def row(made: Report, name: str, agent: str) -> Mapping[str, object]:
    return next(one for one in made.table(name).rows if one["agent"] == agent)


def test_a_void_episode_is_in_no_score_and_not_owed_but_paid_for(run: Path) -> None:
    before = report(run)
    strike(run, ("a", "i0"))
    made = report(run)
    cell = made.cells[0]
    assert [one.instance for one in cell.prefix] == ["i1"]
    assert [(one.instance, reason) for one, reason in cell.voided] == [("i0", "wrong key")]
    assert (cell.planned, cell.ended, cell.remaining) == (2, 1, 1)
    assert row(made, "scores", "a")["score"] != row(before, "scores", "a")["score"]
    assert row(made, "scores", "b") == row(before, "scores", "b")
    spent = [one["cost_pico_usd"] for one in before.table("money").rows]
    assert [one["cost_pico_usd"] for one in made.table("money").rows] == spent


def test_tables_say_how_many_and_why(run: Path) -> None:
    assert not any("void" in note for note in report(run).table("scores").notes)
    strike(run, ("a", "i0"), ("a", "i1"), reason="wrong \x1b[31mkey")
    made = report(run)
    (note,) = [note for note in made.table("scores").notes if note.startswith("void")]
    assert note.startswith("void: a on s: 2 episodes left out: wrong ")
    assert "\x1b" not in note
    assert row(made, "completeness", "a")["void"] == {"wrong \x1b[31mkey": 2}
    assert row(made, "completeness", "b")["void"] == {}


def test_queries_give_what_the_tables_say(run: Path) -> None:
    strike(run, ("a", "i0"))
    views, made = open_views(run), report(run)
    found = views.sql("select instance, finished, used, void, void_reason from episodes where agent = 'a' order by all")
    assert [tuple(one.values()) for one in found.to_pylist()] == [
        ("i0", False, False, True, "wrong key"),
        ("i1", True, True, False, None),
        ("i2", False, False, False, None),
    ]
    assert views.sql("select count(*) n from scores where instance = 'i0' and agent = 'a'").to_pylist() == [{"n": 0}]
    completeness = made.table("completeness")
    for mine, theirs in zip(completeness.rows, views.sql(completeness.query).to_pylist(), strict=True):
        for name in ("agent", "planned", "ended", "remaining", "begun", "prefix", "outside"):
            assert mine[name] == theirs[name], name
        assert dict(mine["void"]) == dict(theirs["void"] or {})


def test_what_is_undone_counts_again(run: Path) -> None:
    before = report(run).to_json()
    strike(run, ("a", "i0"))
    assert report(run).to_json() != before
    strike(run, ("a", "i0"), undo=True)
    assert read_voids(run) == {}
    assert report(run).to_json() == before


def test_an_episode_that_goes_on_again_is_owed_whatever_was_decided(run: Path) -> None:
    strike(run, ("a", "i2"))
    cell = report(run).cells[0]
    assert (cell.voided, cell.planned, cell.remaining) == ((), 3, 1)


def test_verify_still_checks_what_is_void(run: Path) -> None:
    strike(run, ("a", "i0"))
    assert verify(run) == []


def test_verify_names_a_damaged_list_and_strangers_in_it(run: Path) -> None:
    strike(run, ("a", "i0"))
    (run / FILE).write_bytes((run / FILE).read_bytes().replace(b'"suite":"s"', b'"suite":"other"'))
    (finding,) = verify(run)
    assert (finding.segment, "a:other, not of this run" in finding.problem) == (FILE, True)
    (run / FILE).write_bytes(b"{\n")
    (finding,) = verify(run)
    assert "voids.jsonl:1 is damaged" in finding.problem


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (EpisodeChoice(agent="a"), ["a i0", "a i1", "a i2"]),
        (EpisodeChoice(suite="s", instance="i0"), ["a i0", "b i0"]),
        (EpisodeChoice(agent="b", instance="i1"), []),
        (EpisodeChoice(episode="b:s:i0:0"), ["b i0"]),
        (EpisodeChoice(episode="b:s:i0:0", agent="a"), []),
    ],
    ids=["agent", "instance", "none", "place", "contradiction"],
)
def test_episodes_are_chosen_by_place(run: Path, wanted: EpisodeChoice, places: Sequence[str]) -> None:
    assert [f"{one.agent} {one.instance}" for one in choose(run, wanted)] == places


def test_whether_an_episode_has_ended_is_told(run: Path) -> None:
    assert [bool(one.ending) for one in choose(run, EpisodeChoice(agent="a"))] == [True, True, False]


def test_what_the_run_lacks_is_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="no agent 'c'"):
        choose(run, EpisodeChoice(agent="c"))
    with pytest.raises(UsageError, match="no instance 'i9'"):
        choose(run, EpisodeChoice(instance="i9"))
    with pytest.raises(UsageError, match="no suite 't'"):
        choose(run, EpisodeChoice(suite="t"))
    with pytest.raises(RunError, match="holds no episode"):
        choose(run, EpisodeChoice(episode="zzz"))
