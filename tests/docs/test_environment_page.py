"""The environment of docs/add-an-environment.md, put where the page says, generates, plays, verifies and reports."""

import importlib.util
import json
import re
import shutil
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.cli.main import main
from evalkit.dialogue import Reply, ToolCall
from evalkit.env import table
from evalkit.env.environment import Kit, Pack
from evalkit.spec import packs
from tests.docs.blocks import blocks_of, commands

PAGE = "docs/add-an-environment.md"
FILES = {block.file: block.text for block in blocks_of(PAGE) if block.file}


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("env") / "offers_of_the_page.py"
    path.write_text(FILES["evalkit/env/offers.py"])
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module  # dataclasses and the report look it up
    found.loader.exec_module(module)
    return module


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offers: types.ModuleType) -> Path:
    prompts = shutil.copytree(packs._FOLDER, tmp_path / "prompts")
    with (prompts / "standard.toml").open("a") as file:
        file.write(FILES["evalkit/prompts/standard.toml"])
    monkeypatch.setattr(packs, "_FOLDER", prompts)
    monkeypatch.setitem(table._PLACES, "offers", (offers.__name__, "OFFERS"))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "offers.toml").write_text(FILES["runs/offers.toml"])
    return tmp_path


def test_the_environment_of_the_page_plays_to_a_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called = [words for block in blocks_of(PAGE) if not block.language for words in commands(block.text)]
    assert [words[0] for words in called] == ["generate", "run"]
    for words in called:
        assert main(words) == 0
    assert main(["verify", "runs/offers"]) == 0
    capsys.readouterr()
    assert main(["sql", "offers", "select instance, score, metrics['seen'] as seen from episodes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    lines = map(json.loads, (here / "instances" / "mine" / "offers.jsonl").read_text().splitlines())
    wanted = {line["id"]: min(line["offers"]) / line["offers"][2] for line in lines}
    assert {row["instance"]: row["score"] for row in rows} == pytest.approx(wanted)
    assert {row["seen"] for row in rows} == {3.0}


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
    name, module, record = re.fullmatch(r'"(\w+)": \("([\w.]+)", "(\w+)"\),\n', text).groups()  # type: ignore[union-attr]
    assert (name, record) == ("offers", "OFFERS")
    assert module.rpartition(".")[0] == table._PLACES["errand"][0].rpartition(".errand.")[0]
