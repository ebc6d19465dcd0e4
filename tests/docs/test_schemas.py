"""The schemas that editors use: they are what the structs say, hold every TOML file of the repository, and refuse what
the parser refuses for its shape."""

import copy
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from docs.tools.schemas import FOLDER, schemas, text
from evalkit.cli.tools.schema import HELP
from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.spec.catalogue import ProviderFile
from evalkit.spec.packs import read_pack
from evalkit.spec.reading import check_record, plain_values
from evalkit.spec.sweep import _read, read_sweep
from tests.support.command_line import Call, caller
from tests.test_repository import PROJECT, tracked

KINDS = tuple(schemas())


def kind_of(path: Path) -> str:
    """What a TOML file of the repository is; empty: another thing."""
    name, folder = path.name, path.parent.name
    if "[[agents]]" in (written := path.read_text()):
        return "sweep"
    if folder == "providers":
        return "provider"
    if folder == "catalogues":
        return "catalogue"
    return "pack" if folder in ("prompts", "packs") or "texts" in name or f"[{min(OWN_ENVIRONMENTS)}" in written else ""


FILES = [(kind, path) for path in tracked() if path.suffix == ".toml" if (kind := kind_of(path))]


def flaws(kind: str, value: object) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schemas()[kind]).iter_errors(value)]


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_shipped_as_the_structs_say(kind: str) -> None:
    schema = schemas()[kind]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert (FOLDER / f"{kind}.json").read_text(encoding="utf-8") == text(schema), "run: make docs"


def test_every_file_of_the_repository_is_valid() -> None:
    assert {kind for kind, _ in FILES} == {*KINDS}
    assert len(FILES) > 50
    for kind, path in FILES:
        assert flaws(kind, tomllib.loads(path.read_text())) == [], path


def _sweep(value: dict[str, Any]) -> None:
    _read(plain_values(value, "x"), "x")


def _catalogue(value: dict[str, Any]) -> None:
    try:
        msgspec.convert(value, Catalogue)
    except msgspec.ValidationError as flaw:
        raise UsageError(str(flaw)) from flaw


PARSERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "sweep": _sweep,
    "provider": lambda value: check_record(value, ProviderFile, "x"),
    "catalogue": _catalogue,
}
"""What refuses a shape."""

OTHERS: tuple[Any, ...] = ("a word", 7, 2.5, True, [], ["a word"], {}, {"odd": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of each part of a value; lists by their first entry alone."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return made


def examples(kind: str) -> list[dict[str, Any]]:
    chosen = {
        "sweep": ["runs/nightly.toml", "examples/agents/sweep.toml"],
        "provider": ["providers/simulated.toml", "providers/openai.toml", "providers/vllm.toml"],
        "catalogue": ["evalkit/envs/costbench/catalogues/delivery.toml"],
    }
    found = [tomllib.loads((PROJECT / name).read_text()) for name in chosen[kind]]
    if kind == "sweep":
        found.append(
            {
                "agents": [{"provider": "openai", "model": "m", "effort": ["low", "high"], "tier": ["flex"]}],
                "suites": [{"name": "scheduling/basic", "vary": {"k": [1]}, "instances": ["seed-0"]}],
                "decide": {"pairs": [["a", "b"]], "margin": 2, "precision": 1.5},
                "gate": {"margin": 3, "margins": {"x": 1.0}, "dearer": 20, "broken": 0, "undecided": "fail"},
                "alerts": {"budget": 0.8},
                "machines": {"workers": "cores", "on": "ray"},
                "limits": {"openai": {"in_flight": 3, "tier": "flex"}},
                "budget_usd": 5,
                "deadline": "8h",
            }
        )
    return found


@pytest.mark.exhaustive(but=["sweep"])
@pytest.mark.parametrize("kind", PARSERS)
def test_what_the_parser_refuses_for_its_shape_is_refused(kind: str) -> None:
    validator, seen = jsonschema.Draft202012Validator(schemas()[kind]), 0
    for example in examples(kind):
        assert flaws(kind, example) == []
        tries = [put(example, path, other) for path in places(example) for other in OTHERS]
        tables = [path for path in places(example) if isinstance(_at(example, path), dict)]
        tries += [put(example, (*path, "no_such_key"), 1) for path in ((), *tables)]
        tries += [_without(example, path) for path in places(example) if isinstance(path[-1], str)]
        for value in tries:
            flaw = refused(kind, value)
            seen += bool(flaw)
            assert not (flaw and validator.is_valid(value)), (flaw, value)
    assert seen > 100


def refused(kind: str, value: dict[str, Any]) -> str:
    """Why the parser refuses a value; empty: it does not."""
    try:
        PARSERS[kind](value)
    except UsageError as flaw:
        return str(flaw)
    return ""


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    made = copy.deepcopy(value)
    del _at(made, path[:-1])[path[-1]]
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduling": {"sytem": "a text"}},
        {"scheduling": {"system": 3}},
        {"scheduling": {"tools": {"submit_assignment": {"description": ["a"]}}}},
        {"scheduling": "text"},
        {"pricing": {"reasoning": {"no_such": "x"}}},
    ],
)
def test_a_pack_that_is_refused_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    (environment,) = wrong
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(_toml(wrong)))
    with pytest.raises(UsageError):
        read_pack(str(path), environment)
    assert flaws("pack", wrong)


def _toml(tables: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield f"[{prefix}{key}]"
            yield from _toml(value, f"{prefix}{key}.")
        else:
            yield f"{key} = {json.dumps(value)}"


def test_keys_say_what_they_mean() -> None:
    sweep = schemas()["sweep"]
    agent = sweep["$defs"]["AgentFile"]["properties"]
    assert agent["budget_usd"]["description"].startswith("the most that")
    assert "](" not in json.dumps(sweep)
    for part in (sweep, sweep["$defs"]["AgentFile"], sweep["$defs"]["SuiteTable"]):
        assert [key for key, value in part["properties"].items() if "description" not in value] == []


def test_a_new_sweep_names_its_schema_which_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call: Call = caller(capsys)
    assert call("new", "runs/mine.toml").code == 0
    first = Path("runs/mine.toml").read_text().splitlines()[0]
    assert first == f"#:schema ./{HELP}/sweep.json"
    beside = Path("runs", first.partition("./")[2])
    assert beside.read_bytes() == (FOLDER / "sweep.json").read_bytes()
    assert json.loads(call("tools", "schema", "sweep").out) == json.loads(beside.read_bytes())
    assert call("tools", "schema", "swep").code == 2
    assert read_sweep(Path("runs/mine.toml")).name == "mine"
    assert call("new", "runs/other.toml").code == 0
