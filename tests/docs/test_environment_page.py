"""The environment of docs/add-an-environment.md, a package outside evalkit: a policy and a model play it."""

import importlib
import json
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.cli.main import main
from evalkit.dialogue import Reply, Request, Sampling, Tool, ToolCall
from evalkit.envs import table
from evalkit.envs.environment import Kit, Pack
from evalkit.policy.table import find_policy, served, served_names
from evalkit.report.report import report
from evalkit.report.views import open_views
from evalkit.seeds import Stream
from evalkit.view.run_cache import RunCache
from tests.docs.blocks import PROJECT, blocks_of, commands
from tests.view.conftest import ask

PAGE = "docs/add-an-environment.md"
FILES = {block.file: block.text for block in blocks_of(PAGE) if block.file}
CALLS = [words for block in blocks_of(PAGE) if not block.language for words in commands(block.text)]
UNKNOWN_TO_US = '[[agents]]\nprovider = "openai"\nmodel = "gpt-5-mini"\n'


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.ModuleType]:
    """The page's package, as Python finds one that is installed."""
    place = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        if name.startswith("evalkit_offers/"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text)
    assert not place.is_relative_to(PROJECT)
    sys.path.insert(0, str(place))
    yield importlib.import_module("evalkit_offers")
    sys.path.remove(str(place))
    del sys.modules["evalkit_offers"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: types.ModuleType) -> Path:
    """A reader's folder: the line stands in the table, the sweeps in `runs/`, the suite is made."""
    monkeypatch.setitem(table._PLACES, "offers", (offers.__name__, "OFFERS"))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, text in FILES.items():
        if name.startswith("runs/"):
            (tmp_path / name).write_text(text)
    assert CALLS[0][0] == "generate"
    assert main(CALLS[0]) == 0
    return tmp_path


def test_the_environment_of_the_page_plays_to_a_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called = [words for words in CALLS if "offers" in words[1]][1:]
    assert [words[0] for words in called] == ["run", "report", "verify"]
    for words in called:
        assert main(words) == 0
    capsys.readouterr()
    assert main(["sql", "offers", "select instance, score, metrics['seen'] as seen from episodes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    lines = map(json.loads, (here / "instances" / "mine" / "offers.jsonl").read_text().splitlines())
    wanted = {line["id"]: min(line["offers"]) / line["offers"][2] for line in lines}
    assert {row["instance"]: row["score"] for row in rows} == pytest.approx(wanted)
    assert {row["seen"] for row in rows} == {3.0}


def test_its_own_policy_plays_it_and_can_be_a_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suites = (here / "runs" / "models.toml").read_text().partition("[[suites]]")[2]
    (here / "runs" / "own.toml").write_text(f'[[agents]]\npolicy = "patient"\n[[suites]]{suites}')
    assert main(["plan", "runs/own.toml"]) == 0
    assert main(["run", "runs/own.toml"]) == 0
    (cell,) = report(here / "runs" / "own").cells
    assert [one.metrics["seen"] for one in cell.episodes] == [5.0] * 20
    assert "patient" in served_names()
    assert find_policy("patient", "scheduling") is None
    tools = (Tool(name="take_offer", description="", parameters={}),)
    asked = Request(messages=(), tools=tools, sampling=Sampling(), seed=0)
    assert served("patient")(asked, Stream(0)).calls
    assert "take_offer" in served("patient")(replace(asked, tools=()), Stream(0)).text
    capsys.readouterr()


def test_a_model_plays_it_under_a_budget(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called = [words for words in CALLS if words[1] == "runs/models.toml"]
    assert [words[0] for words in called] == ["plan", "run"]
    for words in called:
        assert main(words) == 0
    run = here / "runs" / "models"
    assert main(["verify", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    (cell,) = report(run).cells
    overview, page = ask(RunCache([run]), "/run/models/", f"/run/models/episode/{cell.episodes[0].id}")
    assert (overview.status, page.status) == (200, 200)
    assert "The first offer is " in page.text
    assert main(["describe", "instances/mine/offers.jsonl"]) == 0
    tables = {one.name: one for one in report(run).tables}
    (row,) = tables["scores"].rows
    assert row["kind"] == "bounded"
    assert 0 < row["score"] <= 100
    assert row["episodes"] == 20
    assert any("0 = nothing taken" in note for note in tables["scores"].notes)
    assert "no_action" not in {column.key for column in tables["behaviour"].columns}
    (row,) = tables["offers"].rows
    (asked,) = open_views(run).sql(tables["offers"].query).to_pylist()
    assert asked == {**row, "seen": pytest.approx(row["seen"])}
    capsys.readouterr()


def test_a_model_that_no_policy_is_named_after_is_planned_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (here / "runs" / "models.toml").read_text()
    suites = text[text.index("[[suites]]") :]
    (here / "runs" / "far.toml").write_text(f'budget_usd = "1.00"\n{UNKNOWN_TO_US}{suites}')
    assert main(["plan", "runs/far.toml"]) == 0
    assert "random" in capsys.readouterr().out


@given(st.lists(st.lists(st.sampled_from(["next_offer", "take_offer", "steal", ""]), max_size=4), max_size=8))
def test_its_step_is_total(offers: types.ModuleType, names: list[list[str]]) -> None:
    env = offers.OFFERS
    instance = env.load(next(iter(env.generate({"sellers": 3}, 1, 0))))
    state = env.start(instance, Kit(pack=Pack(name="p", digest="d", texts={"system": "", "first": "{offer}"})))
    facts = []
    for reply in names:
        if env.ended(state):
            break
        calls = tuple(ToolCall(id=str(i), name=name, arguments="{") for i, name in enumerate(reply))
        state, seen = env.step(state, Reply(calls=calls))
        facts.append(seen.facts)
    assert 0 <= env.score(instance, facts).value <= 1


def test_the_line_for_the_table_is_one_of_its_kind() -> None:
    text = next(block.text for block in blocks_of(PAGE) if '"OFFERS"' in block.text and not block.language)
    match = re.fullmatch(r'"(\w+)": \("([\w.]+)", "(\w+)"\),\n', text)
    assert match
    assert match.groups() == ("offers", "evalkit_offers", "OFFERS")
