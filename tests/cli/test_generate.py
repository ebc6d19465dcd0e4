"""`generate`: a catalogue of the user's own, and a file that is streamed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalkit.envs.costbench.domain.catalogue import Catalogue, Dimension, Graph, GraphTool, Link, Task, TaskChain, Words
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from tests.conftest import PROJECT
from tests.support.command_line import Call, tree


def own_catalogue(folder: Path) -> Path:
    """A domain of the user's own: travel, with another name and another word for a value."""
    text = (files("evalkit.envs.costbench") / "catalogues" / "travel.toml").read_text(encoding="utf-8")
    path = folder / "mine.toml"
    path.write_text(text.replace('name = "travel"', 'name = "mine"').replace("coffee_shop", "tea_house"))
    return path


def test_a_catalogue_of_ones_own_is_taken_by_its_path_and_goes_with_the_suite(call: Call, here: Path) -> None:
    path = own_catalogue(here)
    said = call(
        "suites",
        "generate",
        "costbench",
        "--catalogue",
        path,
        "--task",
        "dining",
        "--instances",
        "3",
        "--out",
        "s.jsonl",
    )
    assert said.code == 0, said.err
    path.unlink()  # the suite holds what it needs of it
    lines = [json.loads(line) for line in (here / "s.jsonl").read_text().splitlines()]
    assert {line["catalogue"]["name"] for line in lines} == {"mine"}
    assert "tea_house" in lines[0]["catalogue"]["tasks"]["dining"]["test"]["category"]
    (here / "own.toml").write_text('[[agents]]\npolicy = "oracle"\n[[suites]]\nname = "s.jsonl"\n')
    assert call("run", "own.toml", "--json").code == 0
    asked = ("--for", "requirement", "--model", "simulated/clerk", "--name", "write")
    assert call("tools", "queries", "ask", "s.jsonl", *asked).code == 0
    errand = json.loads((here / "instances/queries/write.jsonl").read_text().splitlines()[0])
    assert "tea house" in errand["values"]["options"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no such file"),
        ("name = ", "not valid TOML"),
        ('name = "mine"', "own.toml"),
        ("\xff", "own.toml"),
    ],
)
def test_a_file_that_is_no_catalogue_is_refused(call: Call, here: Path, text: str | None, words: str) -> None:
    if text is not None:
        (here / "own.toml").write_text(text, encoding="latin-1")
    before = tree(here)
    said = call("suites", "generate", "costbench", "--catalogue=own.toml", "--out", "new/s.jsonl")
    assert said.code == 2
    assert words in said.message
    assert tree(here) == before
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("The catalogue", Catalogue),
        ("A dimension", Dimension),
        ("The chain", TaskChain),
        ("A tool of the chain", Link),
        ("A task", Task),
        ("A graph", Graph),
        ("A tool of a graph", GraphTool),
        ("The words", Words),
    ],
)
def test_the_document_names_every_field_of_a_catalogue_and_no_other(title: str, kind: type[msgspec.Struct]) -> None:
    text = (PROJECT / "docs" / "queries.md").read_text()
    section = text.partition(f"### {title}\n")[2].partition("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(kind.__struct_fields__)


def test_only_environments_that_have_catalogues_take_a_file(call: Call, here: Path) -> None:
    said = call("suites", "generate", "scheduling", "--catalogue", own_catalogue(here), "--out", "s.jsonl")
    assert said.code == 2
    assert "scheduling has no parameter '--catalogue'" in said.message


def test_errands_are_not_generated(call: Call, here: Path) -> None:
    said = call("suites", "generate", "errand", "--out", "s.jsonl")
    assert said.code == 2
    assert "evalkit tools judge RUN" in said.message
    assert tree(here) == {}


def test_help_lists_the_environments_that_can_be_generated(call: Call) -> None:
    listed = call("suites", "generate", "--help").out
    assert all(f"parameters of {name}:" in listed for name in ("scheduling", "procurement", "pricing", "costbench"))
    assert "parameters of errand" not in listed


def test_a_suite_is_written_as_it_is_made_and_appears_whole(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def lines(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
        for place in range(count):
            if place == 2 and seed == 1:
                raise UsageError("the third cannot be made.")
            yield {"id": str(place), "text": "x" * 1000}
            aside = here / ".s.jsonl.tmp"
            seen.append(aside.stat().st_size if aside.exists() else 0)
            assert not (here / "s.jsonl").exists()

    env = replace(ENVIRONMENTS["scheduling"], generate=lines)
    monkeypatch.setattr("evalkit.cli.make.generate.ENVIRONMENTS", {"scheduling": env})
    assert call("suites", "generate", "scheduling", "--instances", "4", "--seed", "1", "--out", "s.jsonl").code == 2
    assert tree(here) == {}
    seen.clear()
    assert call("suites", "generate", "scheduling", "--instances", "4", "--out", "s.jsonl").code == 0
    assert len((here / "s.jsonl").read_text().splitlines()) == 4
    assert sorted(set(seen)) == seen, "each line is on its way before the next is made"
    assert list(tree(here)) == ["s.jsonl"]


def test_what_was_replaced_by_the_next_seed_is_told(call: Call, here: Path) -> None:
    asked = ("pricing", "--generator", "reference", "--products", "1", "--cost-high", "10", "--instances", "3")
    said = call("suites", "generate", *asked, "--out", "s.jsonl")
    assert (
        "Replaced by the next seed, since next to nothing can be reached: 4 instances (seed-0, seed-1, seed-3, "
        in said.out
    )
    shown = call("suites", "describe", "s.jsonl").out
    for name in ("cycle_least", "alpha_high", "group_odds", "customers", "outside"):
        assert name in shown


def test_progress_is_told_and_what_is_not_proven(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
        for place in range(count):
            yield {"id": f"i{place}", "optimum": {"proven": place != 1}}

    monkeypatch.setattr("evalkit.cli.make.generate.SHOW_EVERY_S", 0.0)
    monkeypatch.setattr(
        "evalkit.cli.make.generate.ENVIRONMENTS", {"procurement": replace(ENVIRONMENTS["procurement"], generate=lines)}
    )
    said = call("suites", "generate", "procurement", "--instances", "3", "--out", "s.jsonl")
    assert said.code == 0
    assert "The optimum is not proven for 1 of them: i1." in said.out
    assert "2 of 3 instances" in said.err
