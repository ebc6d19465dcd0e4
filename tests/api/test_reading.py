"""A run as a program reads it: as Arrow, pandas, episodes; what the command line says of it too."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import evalkit
from evalkit.cli.main import main
from evalkit.report.report import report
from evalkit.report.views import VIEWS
from tests.api.specs import KNUTH, policies
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> evalkit.Run:
    """A run of policies."""
    return evalkit.run(policies(replicates=2), directory=tmp_path_factory.mktemp("made") / "mine")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 0
    return capsys.readouterr().out


def test_a_run_has_the_numbers_that_commands_say(mine: evalkit.Run, capsys: pytest.CaptureFixture[str]) -> None:
    counts = json.loads(said(capsys, "report", str(mine.directory), "--json"))["run"]
    assert (mine.planned, mine.ended, mine.void) == (counts["planned"], counts["ended"], counts["void"])
    status = json.loads(said(capsys, "status", str(mine.directory), "--json"))
    assert int(mine.spent_usd * 10**12) == status["money"]["spent_pico_usd"]
    assert mine.reason == "complete"


@pytest.mark.exhaustive(but=1)
def test_episodes_of_it_are_replayed(mine: evalkit.Run) -> None:
    rows = mine.sql("select episode, ending, score, cost, steps, void from episodes order by episode").to_pylist()
    assert rows
    for row in rows[::3]:
        episode = mine.episode(row["episode"])
        assert (episode.id, episode.ending, len(episode.replies)) == (row["episode"], row["ending"], row["steps"])
        assert (None if episode.score is None else episode.score.value) == row["score"]
        assert int(episode.cost_usd * 10**12) == row["cost"]
        assert episode.reproduced
        assert str(episode).splitlines()[-1] == f"== ended: {row['ending']} =="


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_a_table(name: str, mine: evalkit.Run) -> None:
    found, queried = mine.table(name), mine.sql(f"select * from {name}")
    assert found.schema == queried.schema
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, queried.to_pylist()))  # views have no order


@pytest.mark.exhaustive
def test_every_table_of_the_report_is_one(mine: evalkit.Run) -> None:
    for table in report(mine.directory).tables:
        found = mine.table(f"report.{table.name}")
        assert isinstance(found, pa.Table)
        assert found.num_rows == len(table.rows)
        if table.name not in VIEWS:
            assert mine.table(table.name).equals(found)
        for column in table.columns:
            values = [row.get(column.key) for row in table.rows]
            if column.kind == "interval":
                got = list(zip(*(found[f"{column.key}_{end}"].to_pylist() for end in ("low", "high")), strict=True))
                assert got == [(None, None) if value is None else tuple(value) for value in values]
            elif column.kind == "counts":
                assert found[column.key].to_pylist(maps_as_pydicts="strict") == values
            else:
                assert found[column.key].to_pylist() == values
            key = f"{column.key}_low" if column.kind == "interval" else column.key
            assert found.schema.field(key).metadata[b"title"].decode() == column.title
        assert found.schema.metadata[b"title"].decode() == table.title


@pytest.mark.exhaustive
def test_tables_of_runs_with_money_and_intervals_are_typed(tmp_path: Path) -> None:
    go_served(resolved(tmp_path, served(replicates=2)), tmp_path / "paid")
    run = evalkit.load(tmp_path / "paid")
    assert run.spent_usd > 0
    for table in report(run.directory).tables:
        found = run.table(f"report.{table.name}")
        kinds = {column.key: column.kind for column in table.columns}
        for field in found.schema:
            kind = kinds.get(field.name, "interval")
            if field.name.startswith("axis:"):
                continue  # a parameter has its own type
            wanted = {"text": "string", "usd": "int64", "score": "double", "interval": "double", "percent": "double"}
            assert str(field.type) == wanted.get(kind, str(field.type)), (table.name, field.name)


def test_tables_become_frames_of_pandas(mine: evalkit.Run) -> None:
    frame = mine.table("episodes").to_pandas(maps_as_pydicts="strict")
    assert len(frame) == 8
    assert isinstance(frame.metrics[0], dict)
    assert frame.groupby("agent").score.mean().to_dict().keys() == {"knuth", "random"}


def test_an_episode_says_what_was_told_and_answered(mine: evalkit.Run) -> None:
    episode = mine.episode(KNUTH)
    assert (episode.agent, episode.environment, episode.instance, episode.replicate) == (
        *("knuth", "scheduling"),
        *("seed-0", 0),
    )
    assert len(episode.chats) == mine.sql(f"select periods from episodes where episode = '{episode.id}'")[0][0].as_py()
    assert sum(message.role == "assistant" for message in episode.messages) == len(episode.replies)
    assert episode.cost_usd == Decimal(0)
    assert mine.episode(episode.id[:10]) == episode
    for chat in episode.chats:
        assert chat[0].role == "system"


def test_a_plan_is_that_of_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {
        "name": "mine",
        "budget_usd": "2.00",
        "agents": [{"provider": "simulated", "model": "knuth"}, {"policy": "random"}],
        "suites": [{"name": "scheduling/basic", "instances": ["seed-0", "seed-3"], "vary": {"periods": [4]}}],
    }
    (here / "mine.toml").write_text(
        'budget_usd = "2.00"\n[[agents]]\nprovider = "simulated"\nmodel = "knuth"\n[[agents]]\npolicy = "random"\n'
        '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0", "seed-3"]\nvary = { periods = [4] }\n'
    )
    by_command = json.loads(said(capsys, "plan", "mine.toml", "--json"))
    assert json.loads(json.dumps(evalkit.plan(spec).to_json())) == by_command
    assert not (here / "runs").exists()
    part = json.loads(said(capsys, "plan", "mine.toml", "--only", "agent=random", "--json"))
    assert json.loads(json.dumps(evalkit.plan("mine.toml", only={"agent": ["random"]}).to_json())) == part
    evalkit.run(spec, limit=1)
    begun = json.loads(said(capsys, "plan", "mine.toml", "--json"))
    assert begun["ended"] == 2
    assert json.loads(json.dumps(evalkit.plan(spec).to_json())) == begun
