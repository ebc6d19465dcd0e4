"""A sweep that asks something: it ends when that is known, whatever happens in between."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.engine import question
from evalkit.engine.outcome import RunOutcome
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import RunError, StorageError
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.question_files import ANSWERS, QUESTION, read_given
from evalkit.money import PicoUsd
from evalkit.results.answers import RunQuestion
from evalkit.results.asked import read_question
from evalkit.results.derived import read_afresh
from evalkit.results.question import freeze_question
from evalkit.results.verify import verify
from tests.support.question_runs import INSTANCES, asking, many
from tests.support.spread_runs import events
from tests.support.sweep_runs import go, go_served


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many(tmp_path_factory.mktemp("suite") / "many.jsonl")


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """These sweeps are over within a second, in which a run would look once or twice."""
    monkeypatch.setattr(question, "BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(question, "LEAST_S", 0.0)


def asked_of(run: Path) -> RunQuestion:
    found = read_question(run, read_manifest(run), read_afresh(run))
    assert found is not None
    return found


def said(run: Path) -> dict[tuple[str, ...], tuple[str, int]]:
    """Each answer, and with how many draws it was given."""
    return {answer.subject: (answer.answer, answer.at) for answer in asked_of(run).answers}


def given(run: Path) -> dict[tuple[str, ...], tuple[str, int]]:
    """The same, as it is kept on disk."""
    return {tuple(one.about): (one.answer, one.draws) for many in read_given(run) for one in many.answers}


def played(run: Path) -> Counter[str]:
    return Counter(episode.agent for episode in read_afresh(run) if episode.finished)


def words(outcome: RunOutcome) -> str:
    return " ".join(outcome.messages)


def test_a_sweep_ends_when_its_question_is_answered(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    outcome = go(asking(tmp_path, suite), run)
    assert (outcome.reason, outcome.exit_code) == ("decided", 0)
    assert said(run) == given(run)
    assert said(run)["knuth", "random"][0] == "below"
    assert said(run)["random", "oracle"][0] == "above"
    assert said(run)["knuth", "oracle"][0] == "equal"
    assert "knuth is better than random by" in words(outcome)
    assert "knuth and oracle are equal within 15.0 points" in words(outcome)
    # Whole agents were spared, and the one whose questions were answered first most of all.
    counts = played(run)
    assert counts["random"] < counts["knuth"] <= INSTANCES
    assert outcome.ended == counts.total() == outcome.episodes - outcome.spared
    assert verify(run) == []


def test_nothing_is_played_once_all_is_answered(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite), run)
    before = {path.name: path.read_bytes() for path in (run / ANSWERS).iterdir()}
    again = go(asking(tmp_path, suite), run)
    assert (again.reason, again.exit_code, again.steps) == ("decided", 0, 0)
    assert {path.name: path.read_bytes() for path in (run / ANSWERS).iterdir()} == before


def test_about_this_suite_few_instances_answer_all_and_pieces_change_nothing(tmp_path: Path) -> None:
    few = many(tmp_path / "few.jsonl", 30)
    whole, run = tmp_path / "whole", tmp_path / "pieces"
    ask = asking(tmp_path, few, 'scope = "this suite"\nmargin = 5')
    ends = {"decided", "complete"}
    assert go(ask, whole).reason in ends
    while go(ask, run, limit=17).reason not in ends:
        assert played(run).total() < 90
    assert said(run) == said(whole) == given(run)
    assert "undecided" not in {answer for answer, _ in said(run).values()}
    assert min(at for _, at in said(run).values()) < 30
    for answer in asked_of(run).answers:
        if answer.draws == 30:
            assert answer.low == answer.mean == answer.high
    assert verify(run) == []


@pytest.mark.exhaustive
def test_play_all_goes_on_and_the_answers_stay(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite), run)
    before = said(run)
    outcome = go(asking(tmp_path, suite), run, play_all=True)
    assert (outcome.reason, outcome.remaining, outcome.spared) == ("complete", 0, 0)
    assert said(run) == before == given(run)
    assert all(answer.draws == asked_of(run).draws for answer in asked_of(run).answers)
    assert verify(run) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("pieces", [3, 17])
def test_a_run_in_pieces_gives_the_same_answers(tmp_path: Path, suite: Path, pieces: int) -> None:
    whole, run = tmp_path / "whole", tmp_path / "pieces"
    go(asking(tmp_path, suite), whole)
    for _ in range(INSTANCES):
        outcome = go(asking(tmp_path, suite), run, limit=pieces)
        if outcome.reason == "decided":
            break
    assert outcome.reason == "decided"
    assert said(run) == said(whole) == given(run)


@pytest.mark.exhaustive
def test_the_question_is_on_disk_before_the_first_request(tmp_path: Path, suite: Path) -> None:
    run, there = tmp_path / "run", []

    def look(provider: Any, folder: Path) -> Any:
        there.append((folder / QUESTION / "000000.json").exists())
        raise RunError("far enough")

    with pytest.raises(RunError, match="far enough"):
        go(asking(tmp_path, suite, agents=("knuth", "random"), served=True), run, launch=look)
    assert there == [True]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("decide", "names"),
    [
        ("margin = 16", "`margin` has changed (0.15 before, 0.16 now)"),
        ('margin = 15\npairs = "best"', "`asked` has changed (all before, best now)"),
        ("margin = 15\nprecision = 5", "`precision` has changed"),
        ('margin = 15\nscope = "this suite"', "`scope` has changed (such instances before, this suite once now)"),
    ],
)
def test_another_question_after_scores_are_known_is_refused(
    tmp_path: Path, suite: Path, decide: str, names: str
) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite), run, limit=2)
    with pytest.raises(RunError) as refused:
        go(asking(tmp_path, suite, decide), run)
    assert names in str(refused.value)
    assert "in a run of its own (--name)" in str(refused.value)
    # The run itself goes on as it was.
    assert go(asking(tmp_path, suite), run).reason == "decided"


def test_a_question_that_joins_a_played_run_is_refused(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite, None), run, limit=2)
    with pytest.raises(RunError, match="it was not asked anything before they were played"):
        go(asking(tmp_path, suite), run)
    assert not (run / QUESTION).exists()


def test_a_question_may_change_before_anything_is_known(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"

    def no_start(provider: Any, folder: Path) -> Any:
        raise RunError("not yet")

    for decide in ("margin = 15", "margin = 20"):
        with pytest.raises(RunError, match="not yet"):
            go(asking(tmp_path, suite, decide, agents=("knuth", "random"), served=True), run, launch=no_start)
    outcome, _ = go_served(asking(tmp_path, suite, "margin = 20", agents=("knuth", "random"), served=True), run)
    assert outcome.reason == "decided"
    assert asked_of(run).frozen.margin == 0.2


@pytest.mark.exhaustive
def test_an_agent_that_joins_changes_the_question(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite, agents=("knuth", "random")), run)
    with pytest.raises(RunError, match=r"`(agents|pairs)` has changed"):
        go(asking(tmp_path, suite), run)


def test_scores_without_a_lower_bound_count_from_0(tmp_path: Path, suite: Path) -> None:
    assert ENVIRONMENTS["scheduling"].score_range[0] == -math.inf
    sweep = asking(tmp_path, suite)
    assert sweep.sweep.decide is not None
    assert freeze_question(sweep.manifest, sweep.sweep.decide).scores == (0.0, 1.0)


@pytest.mark.exhaustive
def test_who_is_the_best_spares_the_others_early(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    outcome = go(asking(tmp_path, suite, 'margin = 15\npairs = "best"'), run)
    assert outcome.reason == "decided"
    asked = asked_of(run)
    assert asked.best == ("knuth", "oracle")
    assert "The best are equal within 15.0 points: knuth, oracle." in words(outcome)
    assert played(run)["random"] < played(run)["oracle"]


def test_a_baseline_is_compared_with_each_other_agent_alone(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite, 'margin = 15\npairs = "baseline:random"'), run)
    assert {pair: word for pair, (word, _) in said(run).items()} == {
        ("random", "knuth"): "above",
        ("random", "oracle"): "above",
    }


@pytest.mark.exhaustive
def test_agents_that_nothing_is_asked_of_play_everything(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    outcome = go(asking(tmp_path, suite, 'margin = 15\npairs = [["knuth", "random"]]'), run)
    assert outcome.reason == "decided"
    counts = played(run)
    assert counts["oracle"] == INSTANCES
    assert max(counts["knuth"], counts["random"]) < INSTANCES


@pytest.mark.exhaustive
def test_a_precision_ends_an_agent_alone(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    decide = "margin = 15\npairs = []\nprecision = 25"
    outcome = go(asking(tmp_path, suite, decide, agents=("random",)), run)
    assert outcome.reason == "decided"
    (answer,) = asked_of(run).answers
    assert answer.answer == "known"
    assert answer.high - answer.low <= 0.5
    assert "random: known to ±25.0 points" in words(outcome)


@pytest.mark.exhaustive
def test_what_cannot_be_decided_ends_complete_and_says_so(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    outcome = go(asking(tmp_path, suite, "margin = 0.5", agents=("knuth", "oracle")), run)
    assert (outcome.reason, outcome.remaining) == ("complete", 0)
    assert "knuth and oracle: undecided" in words(outcome)
    assert outcome.question is not None
    assert not outcome.question["decided"]


@pytest.mark.exhaustive
def test_replicates_of_a_suite_are_counted_in_whole_rounds(tmp_path: Path, suite: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_bytes(b"".join(suite.read_bytes().splitlines(keepends=True)[:5]))
    run = tmp_path / "run"
    decide = "margin = 15"
    first = go(asking(tmp_path, few, decide, agents=("knuth", "random"), before="replicates = 2"), run)
    assert first.reason == "complete"
    # More replicates extend the run, and its question goes on.
    # Where all is played before anybody has looked, it ends complete, and its last look answers.
    outcome = go(asking(tmp_path, few, decide, agents=("knuth", "random"), before="replicates = 60"), run)
    assert outcome.reason in ("decided", "complete")
    ((_, at),) = said(run).values()
    assert at % 5 == 0
    assert verify(run) == []


@pytest.mark.exhaustive
def test_the_money_of_those_who_left_pays_for_open_questions(tmp_path: Path, suite: Path) -> None:
    """Under a budget, too: what dismissed agents would have cost does not hold others back."""
    run = tmp_path / "run"
    outcome, _ = go_served(
        asking(tmp_path, suite, before='budget_usd = "5"', agents=("knuth", "random"), served=True), run
    )
    assert outcome.reason == "decided"
    assert outcome.spared > 0
    assert outcome.spared_cost > 0
    per_episode = outcome.spent / outcome.ended
    assert outcome.spared_cost == pytest.approx(outcome.spared * per_episode, rel=0.7)
    assert outcome.to_json()["spared_usd"] == outcome.spared_cost / 1e12


def test_nobody_plays_on_for_what_cannot_be_answered(tmp_path: Path, suite: Path) -> None:
    """A lane ends at once: those that are compared with it alone stop as soon as they are compared with each other."""
    run = tmp_path / "run"
    outcome, _ = go_served(
        asking(tmp_path, suite, agents=("knuth", "random", "nobody"), served=True, before='budget_usd = "5"'), run
    )
    assert said(run)["knuth", "random"][0] == "below"
    assert said(run)["knuth", "nobody"][0] == "undecided"
    (left,) = events(run, "dismissed")
    assert left["in_vain"] == ["knuth", "random"]
    assert max(played(run).values()) < INSTANCES
    # What remains is remaining: it is no answer that has spared it.
    assert (outcome.reason, outcome.spared, outcome.remaining) == ("lane", 0, 3 * INSTANCES - played(run).total())
    assert "knuth, random: played no further, since what is open is about agents that are played" in words(outcome)


@pytest.mark.exhaustive
def test_nobody_plays_on_beside_an_agent_whose_own_budget_is_used_up(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    one = asking(tmp_path, suite, "margin = 0.5", agents=("knuth", "random"), served=True, before='budget_usd = "50"')
    agents = [
        replace(agent, budget=PicoUsd(2 * 10**11) if agent.name == "random" else None) for agent in one.sweep.agents
    ]
    outcome, _ = go_served(replace(one, sweep=replace(one.sweep, agents=tuple(agents))), run)
    assert outcome.reason == "budget"
    (left,) = events(run, "dismissed")
    assert left["in_vain"] == ["knuth"]
    counts = played(run)
    assert 0 < counts["random"] <= counts["knuth"] <= counts["random"] + asked_of(run).frozen.ahead + 8


def test_an_answer_that_does_not_follow_from_the_log_is_found(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite), run)
    path = sorted((run / ANSWERS).iterdir())[0]
    told = orjson.loads(path.read_bytes())
    told["answers"][0]["draws"] += 1
    path.write_bytes(orjson.dumps(told))
    (finding,) = verify(run)
    assert finding.segment == ANSWERS
    assert "does not follow from the log" in str(finding)


@pytest.mark.exhaustive
def test_a_question_of_another_run_is_found(tmp_path: Path, suite: Path) -> None:
    run = tmp_path / "run"
    go(asking(tmp_path, suite), run)
    path = run / QUESTION / "000000.json"
    told = orjson.loads(path.read_bytes())
    told["agents"].append("nobody")
    path.write_bytes(orjson.dumps(told))
    (finding,) = verify(run)
    assert "The question names 'nobody'" in str(finding)


@pytest.mark.exhaustive
def test_several_processes_give_the_same_answers(tmp_path: Path, suite: Path) -> None:
    alone, run = tmp_path / "alone", tmp_path / "spread"
    one = asking(tmp_path, suite)
    go(one, alone)
    outcome = go(replace(one, sweep=replace(one.sweep, workers=2)), run)
    assert outcome.reason == "decided"
    assert said(run) == said(alone) == given(run)
    assert verify(run) == []


def test_an_answer_that_the_disk_refuses_stops_the_run_and_nobody_is_dismissed(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def refuse(folder: Path, given: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(question, "write_given", refuse)
        outcome = go(asking(tmp_path, suite), run)
    assert outcome.reason == "storage"
    assert "the disk is full" in words(outcome)
    assert events(run, "dismissed") == []
    assert read_given(run) == []
    assert go(asking(tmp_path, suite), run).exit_code == 0
    assert said(run) == given(run)
