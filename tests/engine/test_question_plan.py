"""What `plan` says of a sweep that asks something."""

import math
from pathlib import Path

import pytest

from evalkit.engine.planning.answerable import SUPPOSED
from evalkit.engine.planning.planned import QuestionPlan
from evalkit.playing.planning import plan
from evalkit.stats.deciding import graded, reach
from tests.support.command_line import Call, caller
from tests.support.question_runs import many

SERVED = "".join(
    f'[[agents]]\nname = "{name}"\nprovider = "simulated"\nmodel = "{name}"\n' for name in ("knuth", "noisy", "random")
)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return caller(capsys)


def written(folder: Path, instances: int, decide: str = "margin = 5", *, before: str = "", more: str = "") -> Path:
    suite = many(folder / "many.jsonl", instances)
    path = folder / "ask.toml"
    path.write_text(f'{before}\n[decide]\n{decide}\n{SERVED}[[suites]]\nname = "{suite}"\n{more}')
    return path


def planned(path: Path) -> QuestionPlan:
    found = plan(path).question
    assert found is not None
    return found


def test_a_plan_says_when_differences_are_known_and_what_that_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 60)
    made = plan(path)
    question = made.question
    assert question is not None
    assert (question.parts, question.agents, question.draws) == (3, 3, 60)
    assert (question.seen, question.spread) == (False, 100 * SUPPOSED)
    of_all = sum(cell.one for cell in made.cells)
    for answer in question.answers:
        expected = reach(graded(answer.points / 100, SUPPOSED), margin=0.05, alpha=0.05 / 3)
        assert answer.half == math.ceil(expected.half / question.turn) * question.turn
        assert answer.usd_half == pytest.approx(answer.half * of_all)
    assert [answer.points for answer in question.answers] == [1.0, 2.0, 5.0, 10.0]
    assert question.answers[3].half < question.answers[2].half


def test_twelve_instances_cannot_decide(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 8)
    assert planned(path).least > 8
    said = call("plan", str(path))
    assert "Nothing can be decided with 8 instances" in said.out
    path = written(tmp_path, 12)
    said = call("plan", str(path))
    assert "10 points apart: cannot be decided with 12 instances" in said.out
    assert "  1 point apart: " in said.out
    assert "Answers are about instances like these, as if they were drawn from many" in said.out
    assert "No agent begins more than 32 instances beyond the slowest that it is still compared with" in said.out
    said = call("plan", str(written(tmp_path, 12, before="replicates = 3")))
    assert "Answers are about this suite alone, played again and again" in said.out
    said = call("plan", str(written(tmp_path, 12, 'scope = "this suite"')))
    assert "Answers are about this suite alone, each instance played once" in said.out
    assert "10 points apart: half of all runs know after 12" in said.out


def test_a_budget_is_told_in_instances(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 100, before='budget_usd = "0.5"')
    question = planned(path)
    assert question.affordable is not None
    assert 0 < question.affordable < 100
    assert f"The budget pays for about {math.floor(question.affordable)} instances" in call("plan", str(path)).out


@pytest.mark.exhaustive
def test_a_begun_run_tells_how_far_its_pairs_vary(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 60)
    assert call("run", str(path), "--limit", "20", "--json").code == 3
    question = planned(path)
    assert question.seen
    assert question.spread != 100 * SUPPOSED
    assert "as the run's pairs do so far" in call("plan", str(path)).out


def test_the_question_is_in_the_json_and_absent_without_one(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 60)
    values = plan(path).to_json()["question"]
    assert values["spread_is"] == "supposed"
    assert values["answers"][0]["draws_half"] > values["draws"]
    path.write_text(path.read_text().replace("[decide]\nmargin = 5\n", ""))
    assert "question" not in plan(path).to_json()
    assert "can be decided" not in call("plan", str(path)).out
