"""What readers say of a run that asks something: intervals that hold at all looks, and no test of one look."""

import json
from pathlib import Path

import msgspec
import pytest

from evalkit.cli.question_words import counted, open_lines, question_lines
from evalkit.engine import question
from evalkit.engine.status import read_status
from evalkit.frozen.manifests import read_manifest
from evalkit.frozen.void import Void, add_voids
from evalkit.report.report import LEANS, answers_table, report
from evalkit.results.answers import RunQuestion
from evalkit.results.asked import read_question
from evalkit.results.derived import read_afresh, read_run
from tests.support.command_line import Call, caller
from tests.support.question_runs import asking, many
from tests.support.sweep_runs import go


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(question, "BETWEEN_LOOKS", 0.0)  # else it is over before it has looked twice
        assert go(asking(folder, many(folder / "many.jsonl")), folder / "run").reason == "decided"
    return folder / "run"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


def asked(run: Path) -> RunQuestion:
    found = read_question(run, read_manifest(run), read_run(run)[2])
    assert found is not None
    return found


def test_the_table_of_answers_follows_the_scores(run: Path) -> None:
    made = report(run)
    scores, answers, *_ = made.tables
    assert (scores.name, answers.name) == ("scores", "answers")
    assert LEANS in scores.notes
    rows = {(row["first"], row["second"]): row for row in answers.rows}
    assert rows["knuth", "random"]["answer"] == "knuth better"
    assert rows["random", "oracle"]["answer"] == "oracle better"
    assert rows["knuth", "oracle"]["answer"] == "equal"
    for answer in asked(run).answers:
        row = rows[answer.subject[0], answer.subject[1]]
        assert row["interval"] == (100 * answer.low, 100 * answer.high)
        assert row["interval"][0] <= row["estimate"] <= row["interval"][1]
        assert row["answered_with"] == answer.at <= row["draws"]
    assert any("biased away from 0" in note for note in answers.notes)


def test_the_log_alone_gives_the_answers_that_the_run_gave(run: Path) -> None:
    afresh = read_question(run, read_manifest(run), read_afresh(run))
    assert afresh is not None
    assert afresh.answers == asked(run).answers


def test_a_comparison_within_such_a_run_holds_at_every_look(run: Path, call: Call) -> None:
    said = call("compare", str(run), "--agents", "knuth", "oracle", "--json")
    assert said.code == 0, said.err
    tables = json.loads(said.out)["tables"]
    assert {row["test"] for row in tables["compare_details"]["rows"]} <= {"betting", "no difference"}
    # What has no interval at every look is judged by signs at every look.
    ps = {row["measure"]: row["p"] for row in tables["compare"]["rows"]}
    assert {row["signs_p"] in (None, ps[row["measure"]]) for row in tables["compare_details"]["rows"]} == {True}
    assert any("no valid test of one look" in note for note in tables["compare"]["notes"])


def test_status_tells_what_was_known_at_the_last_look(run: Path, call: Call) -> None:
    status = read_status(run)
    assert status.question is not None
    assert status.question["decided"]
    assert {tuple(one["about"]): one["answer"] for one in status.question["answers"]} == {
        answer.subject: answer.answer for answer in asked(run).answers
    }
    words = call("status", str(run)).out
    assert "every question answered" in words
    assert "3 of 3 questions answered:" in words
    assert "knuth is better than random by" in words
    assert json.loads(call("status", str(run), "--json").out)["question"]["decided"]


def test_status_reads_no_question_that_somebody_broke(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    lines = (copy / "events.jsonl").read_bytes().splitlines()
    last = json.loads(lines[-1])
    last["question"]["answers"][0].pop("words")
    (copy / "events.jsonl").write_bytes(b"\n".join([*lines[:-1], json.dumps(last).encode()]) + b"\n")
    assert read_status(copy).question is None


def test_excluded_episodes_go_on_counting_and_are_told(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    before = asked(copy).answers
    key = next(one for one in read_afresh(copy) if one.agent == "random")
    add_voids(
        copy,
        [
            Void(
                episode=key.id,
                agent=key.agent,
                suite=key.suite,
                instance=key.instance,
                replicate=key.replicate,
                undo=False,
                reason="it looked bad",
                by="somebody",
                at=0.0,
            )
        ],
    )
    assert asked(copy).answers == before
    assert any("1 episode was counted in the answers" in note for note in report(copy).table("answers").notes)


def test_a_search_for_the_best_tells_what_it_promises_and_no_pair(run: Path) -> None:
    manifest, frozen = read_manifest(run), asked(run).frozen
    best = RunQuestion(manifest, msgspec.structs.replace(frozen, asked="best"))
    best.add_all(read_run(run)[2])
    best.look()
    assert best.best is not None
    assert "random" not in best.best
    assert not any("is better than" in line for line in best.words())
    table = answers_table(best, [], [], [])
    assert {row["first"]: row["answer"] for row in table.rows}["random"] == "not the best"
    assert best.words()[0] in table.notes
    said = list(question_lines(best.to_json(), 3))
    assert not any("is better than" in line for line in said)
    assert f"  {best.words()[0]}" in said


def test_an_answer_says_which_scores_were_cut_and_what_the_mean_is_without(run: Path) -> None:
    found = asked(run)
    kept = next(one for one in found.answers if one.subject == ("knuth", "oracle"))
    assert found.cut_words(kept) == ""
    cut = RunQuestion(read_manifest(run), found.frozen)
    for agent, scores in found._scores.items():
        cut._scores[agent] = [one if agent != "random" or one is None else one - 5.0 for one in scores]
    cut.look()
    answer = next(one for one in cut.answers if one.subject == ("knuth", "random"))
    first, second = (cut._scores[agent][: answer.draws] for agent in answer.subject)
    mean = sum(one for one in second if one is not None) - sum(one for one in first if one is not None)
    words = f"{answer.draws} scores cut to the range from 0.0 to 100.0; uncut, random less knuth is"
    assert cut.cut_words(answer) == f"{words} {100 * mean / answer.draws:.1f}."
    assert any(words in line for line in cut.words())
    assert any(words in note for note in answers_table(cut, [], [], []).notes)


def test_lines_for_people_name_what_is_open_first_by_how_far_it_is() -> None:
    assert counted(None) == ""
    assert list(open_lines(None, 3)) == list(question_lines(None, 3)) == []
    answers = [
        {
            "about": ["a", "b"],
            "open": True,
            "draws": 9,
            "low": -0.5,
            "high": 0.5,
            "words": "wide.",
            "answered_at": None,
        },
        {
            "about": ["a", "c"],
            "open": True,
            "draws": 9,
            "low": -0.1,
            "high": 0.2,
            "words": "close.",
            "answered_at": None,
        },
        {"about": ["b", "c"], "open": True, "draws": 0, "low": -1.0, "high": 1.0, "words": "new.", "answered_at": None},
        {"about": ["c", "d"], "open": False, "draws": 30, "low": 0, "high": 0.2, "words": "done.", "answered_at": 20},
    ]
    told = {"answers": answers, "best": None}
    assert counted(told) == "1 of 4 questions answered"
    assert list(open_lines(told, 2)) == ["close. 9 draws", "wide. 9 draws"]
    assert list(open_lines(told, 1)) == ["close. 9 draws", "and 1 more open questions"]
    assert next(iter(question_lines(told, 1))) == "1 of 4 questions answered:"
    assert "  done. Answered with 20 draws." in list(question_lines(told, 1))
