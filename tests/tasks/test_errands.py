import tomllib
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.errand.errand import ERRAND
from evalkit.errors import UsageError
from evalkit.spec.sweep import read_sweep
from evalkit.tasks.costbench.queries import read_queries, suite_lines
from evalkit.tasks.costbench.record import apply_texts, apply_verdicts, query_lines
from evalkit.tasks.record import Answers, ErrandAnswer, coverage_line, distinct, errand_digest
from evalkit.tasks.suites import sweep_text
from tests.tasks.test_queries import row, written

WISHES = ("coffee_shop", "restaurant", "street_food_vendor", "bakery")
SOUND, CONFLICT = ErrandAnswer(outcome="ok", value=False), ErrandAnswer(outcome="ok", value=True)
UNREAD = ErrandAnswer(outcome="unparseable")


@pytest.fixture
def suite(tmp_path: Path) -> list[dict[str, Any]]:
    """Four queries that differ in one wish."""
    rows = []
    for i, kind in enumerate(WISHES):
        number = 513 + 64 * i
        preferences = {**row()["preferences"], "category": kind}
        rows.append(row(i + 1, preferences=preferences, groundtruth=f"<DiningPreference{number:05d}>"))
    return suite_lines([read_queries(written(tmp_path, *rows))])


def answers(kind: str, suite: list[dict[str, Any]], *found: ErrandAnswer) -> Answers:
    lines = [line for line in query_lines(kind, suite, "suite") if "+" not in line["id"]]
    return {errand_digest(line): answer for line, answer in zip(lines, found, strict=True)}


def native(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "generator": "native"}


def test_wishes_are_said_in_words(suite: list[dict[str, Any]]) -> None:
    (line, *_) = query_lines("conflict", suite, "suite")
    assert ERRAND.describe(ERRAND.load(line)) == line
    assert line["id"] == "q00001"
    assert line["values"]["wishes"].splitlines() == [
        "- kind: coffee shop",
        "- level: world renowned award winner",
        "- style or priority: culinary quality priority",
        "- special feature: live music or performance",
    ]


def test_a_writer_is_told_what_must_be_told_apart_in_the_split_of_the_query(suite: list[dict[str, Any]]) -> None:
    (line, *_) = query_lines("requirement", suite, "suite")
    ERRAND.load(line)
    assert line["values"]["options"].splitlines()[0] == "- kind: coffee shop, restaurant, street food vendor, bakery"
    train = {**suite[0], "split": "train", "query": {**suite[0]["query"], "preferences": {"category": "food_truck"}}}
    assert "coffee" not in next(query_lines("requirement", [train], "suite"))["values"]["options"]


def test_what_asks_the_same_is_asked_once(suite: list[dict[str, Any]]) -> None:
    twin = {**suite[0], "id": "twin", "query": {**suite[0]["query"], "id": "<Query00009>"}}
    verdicts = list(query_lines("conflict", [*suite, twin], "suite"))
    assert [line["id"] for line in distinct(verdicts)] == ["q00001", "q00002", "q00003", "q00004"]
    # A text of its own for each query, even where the wishes are equal.
    texts = distinct(query_lines("requirement", [suite[0], twin], "suite"))
    assert [line["id"] for line in texts if "+" not in line["id"]] == ["q00001", "twin"]
    assert len(distinct([coverage_line("a", "x"), coverage_line("b", "x"), coverage_line("c", "y")])) == 2


def test_alternatives_of_our_own_are_asked_about_too(suite: list[dict[str, Any]]) -> None:
    lines = list(query_lines("conflict", [native(suite[0])], "suite"))
    assert [line["id"] for line in lines] == ["q00001", "q00001+1", "q00001+2", "q00001+3"]


def test_conflicts_are_dropped_and_unread_verdicts_kept_out(suite: list[dict[str, Any]]) -> None:
    found = answers("conflict", suite, SOUND, CONFLICT, UNREAD, SOUND)
    applied = apply_verdicts(suite, found, "suite")
    assert [line["id"] for line in applied.lines] == ["q00001", "q00004"]
    assert (applied.dropped, applied.unanswered, applied.truncated) == (("q00002",), ("q00003",), ())
    # The reference's alternatives are drawn again: from the queries that are left.
    assert [[one["id"] for one in line["alternatives"]] for line in applied.lines] == [
        ["<Query00004>"] * 3,
        ["<Query00001>"] * 3,
    ]
    assert applied.lines[0]["alternatives_seed"] == suite[0]["alternatives_seed"]
    # Only a line that is as it was is still the reference's.
    assert ["source" in line for line in applied.lines] == [True, False]


def test_without_conflicts_the_references_suite_stays_as_it_is(suite: list[dict[str, Any]]) -> None:
    applied = apply_verdicts(suite, answers("conflict", suite, SOUND, SOUND, SOUND, SOUND), "suite")
    assert list(applied.lines) == suite
    assert applied.without_alternative == ()


def test_our_own_alternatives_go_where_they_conflict_or_have_no_verdict(suite: list[dict[str, Any]]) -> None:
    found = answers("conflict", suite, SOUND, CONFLICT, UNREAD, SOUND)
    line = native(suite[0]) | {"alternatives": [other["query"] for other in suite[1:]]}
    applied = apply_verdicts([line], found, "suite")
    assert [one["id"] for one in applied.lines[0]["alternatives"]] == ["<Query00004>"]
    assert applied.without_alternative == ("q00001",)


def test_texts_are_replaced_and_the_old_message_goes_with_them(suite: list[dict[str, Any]]) -> None:
    cut = ErrandAnswer(outcome="ok", text="A cosy", truncated=True)
    whole = ErrandAnswer(outcome="ok", text="A cosy place.")
    found = answers("requirement", suite, cut, whole, whole, ErrandAnswer(outcome="empty"))
    applied = apply_texts(suite, found, "suite")
    assert [line["id"] for line in applied.lines] == ["q00001", "q00002", "q00003"]
    assert (applied.truncated, applied.unanswered) == (("q00001",), ("q00004",))
    first = applied.lines[0]["query"]
    assert (first["text"], first["truncated"], first.get("message")) == ("A cosy", True, None)
    assert {key: first[key] for key in ("id", "given", "number")} == {
        key: suite[0]["query"][key] for key in ("id", "given", "number")
    }
    assert "source" not in applied.lines[0]
    said = {one["id"]: one["text"] for line in applied.lines for one in line["alternatives"]}
    assert {said.get(f"<Query{i:05d}>", "A cosy place.") for i in (2, 3)} == {"A cosy place."}
    assert said.get("<Query00004>", "A good place.") == "A good place."
    assert suite[0]["query"]["text"] == "A good place."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": "scheduling"}, "q00001: this line is not of costbench"),
        ({"query": None}, "q00001: query"),
        ({"query": {"text": "x"}}, "q00001: query"),
        ({"task": "brunch"}, "q00001: task"),
        ({"catalogue": "nowhere"}, "there is no catalogue 'nowhere'"),
    ],
)
def test_lines_without_queries_are_refused(suite: list[dict[str, Any]], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(query_lines("conflict", [{**suite[0], **changes}], "suite"))


def test_the_sweep_is_one_that_can_be_read(tmp_path: Path) -> None:
    text = sweep_text("mine", "requirement", "simulated/clerk", Path("instances/x.jsonl"), "About it.")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    sweep = read_sweep(path)
    assert (sweep.name, sweep.budget, sweep.suites[0].name) == ("mine", None, "instances/x.jsonl")
    (agent,) = sweep.agents
    assert (agent.name, agent.provider, agent.model) == ("writer", "simulated", "clerk")
    assert agent.overrides == {"temperature": 0.6}
    plain = sweep_text("mine", "conflict", "simulated/clerk", Path("x.jsonl"), "About it.")
    assert tomllib.loads(plain)["agents"] == [{"name": "validator", "provider": "simulated", "model": "clerk"}]


def test_a_model_that_refuses_a_temperature_is_not_sent_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "own.toml").write_text(
        'dialect = "openai_chat"\nurl = "http://localhost:1"\n[models."deep/think"]\nrefuses = ["temperature"]\n'
    )
    text = sweep_text("mine", "requirement", "own/deep/think", Path("x.jsonl"), "About it.")
    assert tomllib.loads(text)["agents"] == [{"name": "writer", "provider": "own", "model": "deep/think"}]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("clerk", "PROVIDER/MODEL"),
        ("simulatd/clerk", "Did you mean 'simulated'"),
        ("openai/gpt-none", "lists no model"),
    ],
)
def test_an_unknown_model_is_refused_at_once(model: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sweep_text("mine", "conflict", model, Path("x.jsonl"), "About it.")
