"""What `import evalkit` gives: light, complete, never shadowed."""

import contextlib
import importlib
import pickle
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import evalkit
from evalkit.integrations import MissingLibraryError

PROJECT = Path(__file__).resolve().parent.parent.parent


def python(script: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    return done.stdout


def test_importing_loads_nothing_but_itself() -> None:
    loaded = python("import sys; before = set(sys.modules); import evalkit; print(*sorted(set(sys.modules) - before))")
    own = [name for name in loaded.split() if name.partition(".")[0] == "evalkit"]
    assert own == ["evalkit"]
    assert not {"numpy", "msgspec", "orjson", "asyncio", "dataclasses"} & set(loaded.split())


def test_no_submodule_shadows_a_name() -> None:
    submodules = [one.name for one in pkgutil.walk_packages(evalkit.__path__, "evalkit.") if "__main__" not in one.name]
    assert len(submodules) > 300
    before = {name: getattr(evalkit, name) for name in evalkit.__all__}
    for name in submodules:
        with contextlib.suppress(MissingLibraryError):  # an integration whose library is not installed here
            importlib.import_module(name)
    assert {name: getattr(evalkit, name) for name in evalkit.__all__} == before
    assert not set(evalkit.__all__) & {name.split(".")[1] for name in submodules}


@pytest.mark.exhaustive
def test_names_come_whatever_was_imported_before() -> None:
    script = "import evalkit.engine.sweep, evalkit.envs.table\nimport evalkit\n"
    script += "print(*(type(getattr(evalkit, name)).__name__ for name in evalkit.__all__))"
    assert "module" not in python(script).split()


def test_the_list_of_names_is_what_there_is() -> None:
    assert sorted(evalkit.__all__) == evalkit.__all__
    assert set(evalkit.__all__) <= set(dir(evalkit))
    places = [name for names in evalkit._PLACES.values() for name in names]
    assert sorted(places) == evalkit.__all__
    for place, names in evalkit._PLACES.items():
        for name in names:
            assert getattr(evalkit, name) is getattr(importlib.import_module(place), name)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'evalkit' has no attribute 'sweep'"):
        getattr(evalkit, "sweep")  # noqa: B009
    with pytest.raises(ImportError):
        from evalkit import nonsense  # type: ignore[attr-defined]  # noqa: F401


def test_help_begins_with_the_guide_and_has_every_name() -> None:
    text = pydoc.render_doc(evalkit, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert text.index("What there is:") < text.index("CLASSES") < text.index("FUNCTIONS")
    for name in evalkit.__all__:
        assert name in text, name


def test_values_are_picklable_and_equal_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"name": "a", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    run = evalkit.run(spec)
    instance = evalkit.suite("scheduling/basic", instances=["seed-0"], vary={"k": [2]})[0]
    episode = run.episode("knuth:scheduling/basic:seed-0:0")
    turn = evalkit.game(instance).reply("hello")
    for value in (run, instance, episode, episode.score, turn, evalkit.plan(spec), evalkit.Reply(text="a")):
        assert pickle.loads(pickle.dumps(value)) == value
    assert hash(pickle.loads(pickle.dumps(instance))) == hash(instance)


@pytest.mark.exhaustive
def test_type_checkers_know_what_there_is_and_what_there_is_not(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(
        "import evalkit\n"
        "reveal_type(evalkit.run('quickstart').spent_usd)\n"
        "reveal_type(evalkit.game(evalkit.suite('pricing/basic')[0]).reply('a').ending)\n"
        "reveal_type(evalkit.play('knuth', evalkit.suite('pricing/basic')[0]).score)\n"
        "evalkit.nonsense\n"
        "evalkit.run(3)\n"
        "evalkit.run('quickstart', widht=3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT).stdout
    notes = [line.partition(" note: ")[2] for line in said.splitlines() if " note: Revealed" in line]
    assert [note.partition('"')[2].rstrip('"') for note in notes] == [
        *("decimal.Decimal", "str", "evalkit.envs.environment.Score | None"),
    ]
    errors = [line for line in said.splitlines() if " error: " in line]
    assert len(errors) == 3, said
    assert "nonsense" in errors[0]
    assert 'type "int"' in errors[1]
    assert "widht" in errors[2]
