"""A person plays: every reply is in the log, and who comes back goes on."""

import io
import json
from pathlib import Path

import pytest

import evalkit
from evalkit.api.games import Instance
from evalkit.cli.main import main
from evalkit.dialogue import Reply

ADDRESS = "anna:scheduling/basic:seed-3:0"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str, instance: str = "seed-3") -> int:
    """The exit code of a session in which these lines are typed; then the input ends."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return main(["play", "scheduling/basic", "--instance", instance, "--agent", "anna"])


def best(instance: Instance) -> list[str]:
    """What knuth does, as somebody would type it."""
    replies = [reply for reply in evalkit.play("knuth", instance).replies if reply is not None]
    return [f"{call.name} {call.arguments}" for reply in replies for call in reply.calls]


def test_an_episode_that_is_left_is_gone_on_with_to_its_end(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (instance,) = evalkit.suite("scheduling/basic", instances=["seed-3"])
    lines = best(instance)
    half = len(lines) // 2
    assert typed(monkeypatch, *lines[:half], "quit") == 3
    assert f"waits at step {half}" in capsys.readouterr().out
    assert len(evalkit.load("human").episode(ADDRESS).replies) == half
    assert typed(monkeypatch, *lines[half:]) == 0
    said = capsys.readouterr().out
    assert "Score so far: " in said
    assert "The episode has ended (stable). Score 1.000, solved." in said
    run = evalkit.load("human")
    episode, game = run.episode(ADDRESS), evalkit.game(instance)
    for reply in episode.replies:
        assert isinstance(reply, Reply)
        game.reply(reply)
    assert episode.reproduced
    assert (episode.score, episode.ending, episode.cost_usd) == (game.score(), "stable", 0)
    assert run.sql("select marks from agents where name = 'anna'").to_pylist() == [{"marks": ["not metered"]}]
    assert main(["verify", "runs/human"]) == 0
    # An ended episode is not begun again, and nothing is lost by asking.
    assert typed(monkeypatch, "quit") == 2
    assert "has ended. Choose another" in capsys.readouterr().err
    assert len(evalkit.load("human").episode(ADDRESS).replies) == len(episode.replies)


def test_arguments_are_asked_for_and_what_is_typed_is_a_reply_or_help(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["?write_notes", "99", "write_notes", "[bold]mine\x1b[2J", "say \ud800 hello", "read_notes", "0", "1"]
    assert typed(monkeypatch, *lines) == 3
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said
    assert "[bold]mine" in said
    replies = [reply for reply in evalkit.load("human").episode(ADDRESS).replies if reply is not None]
    calls = [(call.name, json.loads(call.arguments)) for reply in replies for call in reply.calls]
    assert calls[0] == ("write_notes", {"notes": "[bold]mine\x1b[2J"})
    assert calls[1] == ("read_notes", {"attempt_number": 0})
    assert replies[1].text == "\ufffd hello"


@pytest.mark.exhaustive
def test_of_a_litmus_test_nothing_is_called_solved(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evalkit.cli.play.play.is_litmus", lambda environment: environment == "scheduling")
    (instance,) = evalkit.suite("scheduling/basic", instances=["seed-3"])
    assert typed(monkeypatch, *best(instance)) == 0
    said = capsys.readouterr().out
    assert "(between its two ends)" in said
    assert "Score 1.000." in said
    assert "optimum" not in said


def test_wrong_words_change_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(monkeypatch, instance="seed-99") == 2
    assert "seed-99" in capsys.readouterr().err
    assert main(["play", "scheduling/nothing"]) == 2
    assert "scheduling/nothing" in capsys.readouterr().err
    assert not (here / "runs" / "human" / "manifest").exists() or evalkit.load("human").ended == 0


def test_a_run_does_not_play_who_plays_from_outside(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"name": "x", "agents": [{"policy": "human"}, {"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    with pytest.raises(evalkit.UsageError, match="evalkit play"):
        evalkit.run(spec)
    assert not (here / "runs" / "x").exists()
    assert evalkit.plan(spec).to_json()
    assert evalkit.run(spec, only={"agent": ["knuth"]}).ended == 12


def test_an_episode_that_nobody_plays_on_is_ended_as_quit(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(monkeypatch, "get_worker_ids", "get_task_ids", "quit") == 3
    capsys.readouterr()
    assert main(["mcp", "end", "human", ADDRESS]) == 0
    assert f"{ADDRESS} has ended as `quit`" in capsys.readouterr().out
    run = evalkit.load("human")
    episode = run.episode(ADDRESS)
    assert (episode.ending, len(episode.facts), episode.replies[-1]) == ("quit", 2, None)
    (instance,) = evalkit.suite("scheduling/basic", instances=["seed-3"])
    game = evalkit.game(instance)
    for reply in episode.replies[:-1]:
        assert reply is not None
        game.reply(reply)
    assert episode.score is not None
    assert (episode.score.value, episode.score.solved) == (game.score().value, False)
    assert run.ended == 1
    assert "The agent ended the episode." in str(episode)
    assert main(["verify", "runs/human"]) == 0
    # One that was never begun is ended likewise; an ended one is said to have ended, and goes on for nobody.
    assert main(["mcp", "end", "runs/human", "anna:scheduling/basic:seed-0:0"]) == 0
    capsys.readouterr()
    assert main(["mcp", "end", "human", ADDRESS]) == 2
    assert "has ended" in capsys.readouterr().err
    assert typed(monkeypatch, "get_worker_ids") == 2
    assert evalkit.load("human").ended == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["end"], "write `evalkit mcp end RUN EPISODE`"),
        (["end", "quick"], "write `evalkit mcp end RUN EPISODE`"),
        (["end", "nowhere", ADDRESS], "no run 'nowhere'"),
        (["end", "quick", "knuth:scheduling/basic:seed-0:0"], "is played from outside"),
        (["scheduling/basic", "more"], "'more' is too much"),
    ],
)
def test_only_an_episode_from_outside_is_ended(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    suites = [{"name": "scheduling/basic", "instances": ["seed-0"]}]
    evalkit.run({"name": "quick", "agents": [{"policy": "knuth"}], "suites": suites})
    assert main(["mcp", *words]) == 2
    assert said in capsys.readouterr().err
