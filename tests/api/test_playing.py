"""`play`: one episode, the same as that of a sweep, and nothing is left of it."""

import asyncio
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import evalkit
from evalkit.serve.launch import simulated
from tests.api.specs import LAB, policies


@pytest.fixture(autouse=True)
def rooms(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    folder = tmp_path_factory.mktemp("rooms")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def instance(name: str = "seed-0") -> evalkit.Instance:
    return evalkit.suite("scheduling/basic", instances=[name], vary={"periods": [4]})[0]


def test_an_episode_is_that_of_a_sweep(here: Path, rooms: Path) -> None:
    run = evalkit.run(policies(replicates=3))
    for replicate in (0, 2):
        of_run = run.episode(f"random:scheduling/basic?periods=4:seed-3:{replicate}")
        alone = evalkit.play("random", instance("seed-3"), replicate=replicate)
        assert (alone.id, alone.chats, alone.facts, alone.score) == (
            *(of_run.id, of_run.chats, of_run.facts),
            of_run.score,
        )
        assert (alone.suite, alone.instance, alone.replicate, alone.agent) == (
            *("scheduling/basic?periods=4", "seed-3", replicate),
            "random",
        )
        assert str(alone).splitlines()[-1] == str(of_run).splitlines()[-1]
    assert [path.name for path in here.iterdir()] == ["runs"]
    assert list(rooms.iterdir()) == []


@pytest.mark.exhaustive
def test_a_model_plays_one_replicate_alone(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({"bill": str(here / "bill.jsonl")}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        first = evalkit.play("lab/knuth", instance(), replicate=3, budget_usd="1.00")
        bill = [json.loads(line) for line in (here / "bill.jsonl").read_text().splitlines()]
        assert len(bill) == len(first.replies) > 1
        assert int(first.cost_usd * 10**12) == sum(line["cost"] for line in bill)
        assert first.tokens_in > 0
        again = evalkit.play("main", instance(), models={"main": "lab/knuth"}, replicate=3)
        assert (again.agent, again.id, again.facts) == ("main", first.id, first.facts)
        other = evalkit.play("lab/knuth", instance(), params={"temperature": 0.5, "notes": False})
        assert other.id != first.id


def test_where_the_money_does_not_last_there_is_no_episode(here: Path, rooms: Path) -> None:
    (here / "providers").mkdir()
    with simulated({}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        with pytest.raises(evalkit.RunError, match=r"did not end \(budget\).*budget"):
            evalkit.play("lab/knuth", instance(), budget_usd="0.000001")
    assert list(rooms.iterdir()) == []


def test_where_the_model_is_not_there_that_is_said(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        with pytest.raises(evalkit.RunError, match=r"did not end \(lane\).*nobody"):
            evalkit.play("lab/nobody", instance())


def test_in_threads_and_loops_and_several_at_once() -> None:
    async def notebook() -> list[evalkit.Episode]:
        within = evalkit.play("knuth", instance())
        threads = (asyncio.to_thread(evalkit.play, "knuth", instance()) for _ in range(3))
        return [within, *await asyncio.gather(*threads)]

    with ThreadPoolExecutor(2) as pool:
        apart = list(pool.map(lambda _: evalkit.play("knuth", instance()), range(2)))
    found = [*apart, *asyncio.run(notebook())]
    assert len(found) == 6
    assert len({(one.id, one.facts == found[0].facts) for one in found}) == 1


def test_a_script_plays() -> None:
    episode = evalkit.play("scripted", instance(), params={"replies": ["I would rather talk."]})
    assert {reply.text for reply in episode.replies if reply} == {"I would rather talk."}
    assert episode.score is not None
    assert not episode.score.solved


def test_another_pack_is_read(here: Path) -> None:
    (here / "mine.toml").write_text('[scheduling]\nsystem = "Match them."\n')
    episode = evalkit.play("knuth", instance(), prompts="mine.toml")
    assert episode.messages[0].text == "Match them."
    assert evalkit.game(instance(), prompts="mine.toml").messages[0].text == "Match them."
