"""`evalkit tools plugins` says of each entry what is wrong with it; `evalkit new --plugin` refuses what it must."""

import json
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.cli.play.new import project_files
from tests.support.plugin_packages import put, put_environment

POLICY = "from evalkit.policy.conversation import Policy\nP = Policy(help='does it'{more})\n"


def problems(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """By group and name: what the command finds wrong. Asserts that its exit code says so."""
    capsys.readouterr()
    code = main(["tools", "plugins", "--json"])
    found = json.loads(capsys.readouterr().out)["plugins"]
    assert code == any(one["problems"] for one in found)
    return {f"{one['group']}:{one['name']}": " ".join(one["problems"]) for one in found}


def test_each_problem_is_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(site, "broken", "1", {"environments": {"sleeping": "broken_games:X"}}, {"broken_games": "1 / 0"})
    put_environment(site, "thief", "pricing")
    put_environment(site, "wordless", "wordless_game")
    put(
        site,
        "mixed",
        "2",
        {
            "policies": {
                "knuth": "mixed:P",
                "random@scheduling": "mixed:P",
                "mine@nowhere": "mixed:P",
                "none": "mixed:NONE",
                "fine@pricing": "mixed:P",
            },
            "dialects": {"gemini": "mixed:P"},
            "prompts": {"bad": "mixed:BAD"},
            "suites": {"empty": "mixed:FOLDER", "wrong": "mixed:WRONG"},
            "agents": {"best": "mixed:P"},
            "promps": {"typo": "mixed:P"},
        },
        {
            "mixed": POLICY.format(more=", reply=lambda request, draws: None")
            + "NONE = Policy(help='nothing')\n"
            + "from pathlib import Path\nHERE = Path(__file__).parent\n"
            + "BAD, FOLDER, WRONG = HERE / 'bad.toml', HERE / 'empty', HERE / 'wrong'\n"
        },
    )
    (site / "bad.toml").write_text('[scheduling]\nsystm = "x"\n')
    (site / "empty").mkdir()
    (site / "wrong").mkdir()
    (site / "wrong" / "one.jsonl").write_text('{"id": "a", "environment": "nowhere"}\n')
    found = problems(capsys)
    for entry, words in {
        "environments:sleeping": "broken 1 (evalkit.environments:sleeping = broken_games:X) cannot be imported: Zero",
        "environments:pricing": "The name 'pricing' belongs to evalkit",
        "environments:wordless_game": "lacks system",
        "policies:knuth": "The name 'knuth' belongs to a policy of evalkit",
        "policies:random@scheduling": "The name 'random' belongs to a policy of evalkit",
        "policies:mine@nowhere": "It plays an unknown environment 'nowhere'",
        "policies:none": "Exactly one of `reply`, `oracle` and `script` must be set, not 0",
        "dialects:gemini": "expected a value of Dialect",
        "prompts:bad": "unknown text. Did you mean 'system'",
        "suites:empty": "has no suites",
        "suites:wrong": "there is no environment 'nowhere'",
        "agents:best": "is not an agent: declare the function with `@evalkit.agent(version=1)`",
        "promps:typo": "There is no group evalkit.promps. Did you mean 'prompts'",
    }.items():
        assert words in found[entry], entry
    assert found["policies:fine@pricing"] == ""
    assert main(["tools", "plugins"]) == 1
    assert "    wrong: broken 1 (evalkit.environments:sleeping" in capsys.readouterr().out


def test_two_that_claim_a_name_are_both_told(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_environment(site, "a-games", "haggling")
    put_environment(site, "b-games", "haggling")
    assert main(["tools", "plugins"]) == 1
    said = capsys.readouterr().out
    assert "b-games also uses this name: write 'a-games:haggling', or uninstall one." in said
    assert "a-games also uses this name: write 'b-games:haggling', or uninstall one." in said


def test_where_nothing_is_installed_it_says_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert problems(capsys) == {}
    assert main(["tools", "plugins"]) == 0
    assert "No plug-in is installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("held", "held is not empty; nothing was written"),
        ("file", "file is a file; nothing was written"),
        ("evalkit-pricing", "evalkit already has an environment 'pricing'"),
        ("9lives", "'9lives' is not a valid name"),
        ("evalkit-class", "'class' is not a valid name"),
        ("Größe", "is not a valid name"),
    ],
)
def test_a_project_is_not_written_over_anything_or_under_an_odd_name(
    folder: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("held").mkdir()
    Path("held/note.txt").write_text("mine")
    Path("file").write_text("mine")
    before = sorted(Path().rglob("*"))
    assert main(["new", "--plugin", folder]) == 2
    assert words in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


def test_a_project_is_named_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evalkit-double-auctions").mkdir()
    monkeypatch.chdir(tmp_path / "evalkit-double-auctions")
    assert main(["new", "--plugin", "."]) == 0
    written = {path.as_posix() for path in Path().rglob("*") if path.is_file()}
    assert written == set(project_files("double_auctions"))
    assert "evalkit_double_auctions/suites/basic.jsonl" in written
    text = Path("pyproject.toml").read_text()
    assert 'name = "evalkit-double-auctions"' in text
    assert '"random@double_auctions" = "evalkit_double_auctions.policies:RANDOM"' in text
    assert not any("@name@" in Path(name).read_text() or "@package@" in Path(name).read_text() for name in written)


@pytest.mark.parametrize("words", [["new"], ["new", "a.toml", "--plugin", "b"]])
def test_a_sweep_or_a_project_and_not_both(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "name either a sweep's FILE, or --plugin and a folder" in capsys.readouterr().err
