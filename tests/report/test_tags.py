from typing import Any

import pytest

from evalkit.cli.read.report import UNTAGGED, grouped_tables, groups_of
from evalkit.errors import UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.report.tables import Column, Table
from evalkit.stats.intervals import estimate
from tests.support.guessing_runs import a_manifest, an_agent

TAGS = {
    "q8": ("family:qwen", "size:8b", "open"),
    "q32": ("family:qwen", "size:32b", "open", "reasoning"),
    "q14": ("open", "family:qwen"),
    "g5": ("family:gpt", "proprietary"),
    "lone": (),
}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return a_manifest([an_agent(name, tags=tags) for name, tags in TAGS.items()], [])


def a_table(rows: list[dict[str, Any]], **kinds: Any) -> Table:
    columns = [Column(key="suite", title="Suite", group=True), Column(key="agent", title="Agent")]
    columns += [Column(key=key, title=key, kind=kind) for key, kind in kinds.items()]
    return Table(
        name="scores", title="Scores", columns=tuple(columns), rows=tuple(rows), packs=("standard",), query="q"
    )


def scores() -> Table:
    values = {"q8": 10.0, "q32": 40.0, "q14": 10.0, "g5": 90.0, "lone": None}
    rows = [
        {"suite": suite, "agent": name, "score": value, "interval": (0, 100), "solved": value, "episodes": 3}
        for suite in ("a", "b")
        for name, value in values.items()
    ]
    return a_table(rows, score="score", interval="interval", solved="percent", episodes="count")


def test_groups_are_means_over_agents_with_an_interval_over_them(manifest: Manifest) -> None:
    (table,) = grouped_tables(manifest, [scores()], "family")
    assert [column.key for column in table.columns] == [
        *("suite", "group", "agents", "score", "score_over_agents", "score_over_agents_kind", "solved", "episodes")
    ]
    assert [(row["suite"], row["group"]) for row in table.rows] == [
        (suite, group) for suite in ("a", "b") for group in ("qwen", "gpt", UNTAGGED)
    ]
    qwen, gpt, rest = table.rows[:3]
    assert (qwen["agents"], qwen["score"], qwen["solved"], qwen["episodes"]) == (3, 20.0, 20.0, 9)
    wanted = estimate({"q8": [10.0], "q32": [40.0], "q14": [10.0]}).interval
    assert wanted is not None
    assert qwen["score_over_agents"] == pytest.approx((wanted.low, wanted.high))
    assert (gpt["score"], gpt["score_over_agents"]) == (90.0, None)
    assert (rest["agents"], rest["score"], rest["episodes"]) == (1, None, 3)
    assert table.query.endswith("of:\nq")


def test_means_over_a_part_of_their_agents_say_so(manifest: Manifest) -> None:
    rows = [{"suite": s, "agent": a, "x": None if a != "q8" else 1.0, "y": 1.0} for s in "abcdefg" for a in TAGS]
    (table,) = grouped_tables(manifest, [a_table(rows, x="score", y="number")], "family")
    notes = [note for note in table.notes if note.startswith("fewer")]
    assert notes[0] == "fewer: x of a, qwen: over 1 of 3 agents"
    assert notes[-1] == "fewer: 1 more means are over a part of their agents"
    assert len(notes) == 7


def test_shares_without_intervals_of_their_own_get_one(manifest: Manifest) -> None:
    rows = [{"suite": "a", "agent": name, "rate": float(i), "n": 1.0} for i, name in enumerate(TAGS)]
    (table,) = grouped_tables(manifest, [a_table(rows, rate="percent", n="number")], "open")
    assert [column.key for column in table.columns[3:]] == ["rate", "rate_over_agents", "rate_over_agents_kind", "n"]
    assert [(row["group"], row["rate"]) for row in table.rows] == [("open", 1.0), (UNTAGGED, 3.5)]


@pytest.mark.parametrize("kind", ["p", "usd", "seconds"])
def test_tests_money_and_speed_are_not_grouped(manifest: Manifest, kind: str) -> None:
    assert grouped_tables(manifest, [a_table([], score="score", x=kind), a_table([], n="count")], "family") == ()


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("family", ["qwen", "qwen", "qwen", "gpt", UNTAGGED]),
        ("open,proprietary", ["open", "open", "open", "proprietary", UNTAGGED]),
        ("family, size", ["qwen, 8b", "qwen, 32b", "qwen", "gpt", UNTAGGED]),
        ("reasoning", [UNTAGGED, "reasoning", UNTAGGED, UNTAGGED, UNTAGGED]),
    ],
)
def test_what_a_group_is(manifest: Manifest, by: str, groups: list[str]) -> None:
    assert list(groups_of(manifest, by).values()) == groups


def test_an_unknown_tag_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'family'"):
        groups_of(a_manifest([an_agent("a", tags=("family:x",))], []), "famly")
    with pytest.raises(UsageError, match="No agent of this run has tags"):
        groups_of(a_manifest([an_agent("a")], []), "family")
