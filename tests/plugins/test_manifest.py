"""What packages bring to a run stands in its manifest, is asked for at resume, and may come in another version."""

import json
from pathlib import Path

import pytest

from evalkit import plugins
from evalkit.cli.main import main
from evalkit.frozen.manifests import read_manifest
from tests.support.plugin_packages import ENVIRONMENT, put

SWEEP = """
[[agents]]
policy = "random"
[[suites]]
name = "one.jsonl"
"""


@pytest.fixture
def games(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one game whose texts lie beside it, a suite of one instance, and a sweep."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl").write_text(
        json.dumps({"id": "i0", "environment": "haggling", "value": 5, "family": "f"}) + "\n"
    )
    (tmp_path / "mine.toml").write_text(SWEEP)
    folder = site / "their_games"
    folder.mkdir()
    text = ENVIRONMENT.format(name="haggling", version=1)
    (folder / "__init__.py").write_text(
        text.replace("name=", "texts=replace(GUESSING.texts, standard='their_games:texts.toml'), name=")
    )
    (folder / "texts.toml").write_text('[haggling]\nsystem = "Guess."\n')
    installed(site, "1.0")
    return site


def installed(site: Path, version: str) -> None:
    for old in site.glob("*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    if version:
        put(site, "their-games", version, {"environments": {"haggling": "their_games:RECORD"}}, {})
    plugins._scanned.cache_clear()


def test_a_run_says_what_packages_brought_to_it(games: Path) -> None:
    assert main(["run", "mine.toml"]) == 0
    (line,) = read_manifest(Path("runs/mine")).plugins
    assert (line.entry, line.package, line.version) == ("evalkit.environments:haggling", "their-games", "1.0")
    assert (line.group, line.name) == ("environments", "haggling")
    (file,) = Path("runs/mine/manifest").iterdir()
    assert json.loads(file.read_text())["plugins"] == [
        {"entry": "evalkit.environments:haggling", "package": "their-games", "version": "1.0"}
    ]
    assert main(["run", "mine.toml"]) == 0
    assert len(list(Path("runs/mine/manifest").iterdir())) == 1


def test_a_run_of_evalkit_alone_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(SWEEP.replace("one.jsonl", "scheduling/basic") + 'instances = ["seed-0"]\n')
    assert main(["run", "mine.toml", "--limit", "1"]) in (0, 3)
    (file,) = Path("runs/mine/manifest").iterdir()
    assert json.loads(file.read_text())["plugins"] == []
    assert read_manifest(Path("runs/mine")).plugins == ()


def test_what_is_absent_at_resume_is_asked_for_and_nothing_changes(
    games: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "mine.toml"]) == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*"))
    installed(games, "")
    capsys.readouterr()
    assert main(["run", "mine.toml"]) == 2
    said = capsys.readouterr().err
    assert "uses evalkit.environments:haggling, which came from their-games 1.0" in said
    assert "pip install their-games==1.0" in said
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*")) == before


def test_another_version_is_a_mark_and_the_run_goes_on(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mine.toml"]) == 0
    installed(games, "1.1")
    Path("mine.toml").write_text("replicates = 2\n" + SWEEP)
    capsys.readouterr()
    assert main(["run", "mine.toml"]) == 0
    assert "was their-games 1.0 when the run was last played, and is now their-games 1.1" in capsys.readouterr().err
    assert [one.version for one in read_manifest(Path("runs/mine")).plugins] == ["1.0", "1.1"]
    assert main(["verify", "runs/mine"]) == 0
    capsys.readouterr()
    assert main(["report", "runs/mine", "--markdown"]) == 0
    assert "played with their-games 1.0, then their-games 1.1" in capsys.readouterr().out
    assert main(["run", "mine.toml"]) == 0
    assert "when the run was last played" not in capsys.readouterr().err


def test_a_run_can_be_read_where_its_environment_is_not_installed(
    games: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "mine.toml"]) == 0
    capsys.readouterr()
    query = ["sql", "runs/mine", "select instance, score from episodes", "--json"]
    assert main(query) == 0
    known = capsys.readouterr().out
    installed(games, "")
    assert main(query) == 0
    assert capsys.readouterr().out == known
    assert main(["report", "runs/mine"]) == 0
    assert "haggling" not in capsys.readouterr().err
    for file in Path("runs/mine/derived").iterdir():
        file.unlink()
    assert main(["report", "runs/mine"]) == 2
    said = capsys.readouterr().err
    assert "'haggling' is not installed" in said
    assert "pip install their-games==1.0" in said


@pytest.mark.parametrize("command", [["verify", "runs/mine"], ["show", "runs/mine", "random:one.jsonl:i0:0"]])
def test_what_replays_episodes_says_how_to_install_an_environment(
    games: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main(["run", "mine.toml"]) == 0
    assert main(command) == 0
    installed(games, "")
    capsys.readouterr()
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "uses the environment 'haggling', which is not installed" in said
    assert "pip install their-games==1.0" in said
