"""The example agents play a sweep; their money is in every figure, and `plain` is a model agent row for row."""

import shutil
from pathlib import Path

import pytest

import evalkit
from evalkit.cli.main import main
from evalkit.view.episode import period_page

pytestmark = pytest.mark.exhaustive

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "agents"


def test_the_examples_play_and_every_figure_counts_their_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    plan = evalkit.plan("sweep.toml").to_json()
    run = evalkit.run("sweep.toml")
    assert (run.reason, run.ended, run.planned) == ("complete", 7, 7)
    assert main(["verify", str(run.directory)]) == 0
    same = """
        select count(*) as steps, count(*) filter (m.reply = p.reply and m.facts = p.facts and m.turn = p.turn
            and m.request_digest = p.request_digest and m.step_digest = p.step_digest and m.ending = p.ending) as same
        from steps m full join steps p using (step) where m.agent = 'model' and p.agent = 'plain'"""
    (row,) = run.sql(same).to_pylist()
    assert row["steps"] == row["same"] > 0
    asked = run.sql("select agent, role, count(*) as n, sum(cost) as cost from asks group by all").to_pylist()
    paid = {
        name: sum(int(row["cost"]) for row in asked if row["agent"] == name) for name in {a["agent"] for a in asked}
    }
    drafts = {row["role"]: row["n"] for row in asked if row["agent"] == "best-of-3"}
    assert drafts["main"] == 3 * drafts["judge"]
    episodes = {row["agent"]: row["cost"] for row in run.sql("select agent, cost from episodes").to_pylist()}
    assert {name: episodes[name] for name in paid} == paid
    assert run.sql("select sum(cost) as cost from log").to_pylist()[0]["cost"] == sum(episodes.values())
    assert round(run.spent_usd * 10**12) == sum(episodes.values())
    _shows(run, capsys)
    asks = {row["agent"]: row["n"] for row in run.sql("select agent, count(*) as n from asks group by 1").to_pylist()}
    expected = {cell["agent"]: (cell["requests"], round(cell["usd"]["expected"] * 1e12)) for cell in plan["cells"]}
    assert {name: expected[name] for name in asks} == {name: (asks[name], paid[name]) for name in asks}
    capsys.readouterr()
    again = evalkit.run("sweep.toml")
    assert again.spent_usd == run.spent_usd


def _shows(run: evalkit.Run, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = (row["episode"] for row in run.sql("select episode from episodes where agent = 'best-of-3'").to_pylist())
    episode = run.episode(name)
    assert sum(ask.cost_usd for ask in episode.asks) == episode.cost_usd > 0
    assert len(episode.asks) == 4 * len(episode.replies)
    last = [(ask.step, ask.key, ask.n, ask.role, ask.refused) for ask in episode.asks[-4:]]
    step = len(episode.replies) - 1
    assert sorted(last[:3]) == [(step, f"draft-{number}", 0, "main", "") for number in range(3)]
    assert last[3] == (step, "", 0, "judge", "")
    assert episode.replies[step] in [ask.reply for ask in episode.asks[-4:-1]]
    capsys.readouterr()
    assert main(["show", str(run.directory), name]) == 0
    shown = capsys.readouterr().out
    assert shown.count("asks main (draft-1.0) · ") == shown.count("asks judge (main.0) · ") == len(episode.replies)
    assert "and acts on the reply" in shown
    (turn,) = period_page(run.directory, "run", name, 0).period.turns[:1]
    assert [part.kind for part in turn.parts[:4]] == ["ask"] * 4
    assert run.episode("model:" + episode_place(run)).asks == ()


def episode_place(run: evalkit.Run) -> str:
    (row,) = run.sql("select suite, instance, replicate from episodes where agent = 'model'").to_pylist()
    return f"{row['suite']}:{row['instance']}:{row['replicate']}"


MOODY = """
import random, evalkit
@evalkit.agent(version=1)
async def moody(seat):
    while not seat.ending:
        await seat.act(await seat.ask([*seat.messages, evalkit.Message(role="user", text=str(random.random()))]))
"""


def test_an_agent_that_does_not_repeat_itself_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "moody_agent.py").write_text(MOODY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings = ["--suite", "pricing/basic", "--policy", "random"]
    assert main(["tools", "check-agent", "moody_agent:moody", *settings]) == 1
    assert "Cut off behind the ask main.0 of step 0: it was left as diverged" in capsys.readouterr().out
    assert main(["tools", "check-agent", "patterns:best_of", "--suite", "scheduling/basic", "--policy", "knuth"]) == 0
    assert "asked nothing twice" in capsys.readouterr().out
    assert main(["tools", "check-agent", "patterns:worst_of", "--suite", "scheduling/basic"]) == 2
    assert "worst_of" in capsys.readouterr().err
