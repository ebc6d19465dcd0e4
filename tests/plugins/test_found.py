"""How packages' entries are found: late, one by one, and never in place of evalkit's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.entrypoints import init_all

from evalkit import plugins
from evalkit.cli.main import main
from evalkit.compiled import keep_here
from evalkit.envs.table import ENVIRONMENTS, OWN_ENVIRONMENTS, named
from evalkit.errors import RunError, UsageError
from evalkit.plugins import plain_name
from evalkit.spec.agent_code import find_agent
from evalkit.spec.packs import packs, read_pack
from evalkit.spec.suites import find_suite, suite_folders
from evalkit.wire.table import DIALECTS
from tests.support.plugin_packages import ENVIRONMENT, put, put_environment

PROJECT = Path(__file__).resolve().parent.parent.parent


def test_a_name_is_found_and_only_its_entry_is_imported(site: Path) -> None:
    put_environment(site, "their-games", "haggling", module="their_haggling")
    put(site, "broken-games", "2.0", {"environments": {"sleeping": "broken_games:X"}}, {"broken_games": "1 / 0"})
    assert "haggling" in ENVIRONMENTS
    assert "sleeping" in ENVIRONMENTS
    assert ENVIRONMENTS["haggling"].name == "haggling"
    assert ENVIRONMENTS["haggling"] is ENVIRONMENTS["haggling"]
    assert "broken_games" not in sys.modules
    assert list(ENVIRONMENTS) == [*OWN_ENVIRONMENTS, "haggling", "sleeping"]
    with pytest.raises(RunError, match=r"no environment 'none'.*haggling"):
        ENVIRONMENTS["none"]


@pytest.mark.parametrize(
    ("module", "value", "cause"),
    [
        ("1 / 0", "theirs:RECORD", "ZeroDivisionError: division by zero"),
        ("import nowhere_at_all", "theirs:RECORD", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def (", "theirs:RECORD", "SyntaxError"),
        ("", "theirs:RECORD", "AttributeError: module 'theirs' has no attribute 'RECORD'"),
        ("", "elsewhere.theirs:RECORD", "ModuleNotFoundError"),
        ("", "no entry at all", "AttributeError"),
    ],
)
def test_an_import_that_fails_names_package_version_entry_and_cause(
    site: Path, module: str, value: str, cause: str
) -> None:
    put(site, "their-games", "0.3", {"environments": {"haggling": value}}, {"theirs": module})
    with pytest.raises(UsageError) as told:
        ENVIRONMENTS["haggling"]
    assert "their-games 0.3 (evalkit.environments:haggling = " in str(told.value)
    assert cause in str(told.value)


def test_what_is_no_such_record_or_has_another_name_is_refused(site: Path) -> None:
    put(site, "a-games", "1", {"environments": {"haggling": "a_games:RECORD"}}, {"a_games": "RECORD = 'a text'"})
    put_environment(site, "b-games", "other")
    put(site, "c-games", "1", {"environments": {"third": "b_games:RECORD"}}, {})
    with pytest.raises(UsageError, match=r"a-games 1 .*expected a value of Environment, got 'a text'"):
        ENVIRONMENTS["haggling"]
    with pytest.raises(UsageError, match="its record is named 'other'"):
        ENVIRONMENTS["third"]


def test_a_name_of_our_own_cannot_be_taken(site: Path) -> None:
    put_environment(site, "their-games", "pricing")
    assert ENVIRONMENTS["pricing"] is OWN_ENVIRONMENTS["pricing"]
    assert "their-games:pricing" not in ENVIRONMENTS
    assert list(ENVIRONMENTS) == list(OWN_ENVIRONMENTS)


def test_a_name_that_two_packages_claim_stands_for_neither(site: Path) -> None:
    put_environment(site, "a-games", "haggling", "1.0")
    put_environment(site, "b_games", "haggling", "2.0")
    with pytest.raises(UsageError) as told:
        ENVIRONMENTS["haggling"]
    assert "a-games 1.0" in str(told.value)
    assert "Write 'a-games:haggling' or 'b_games:haggling'" in str(told.value)
    with pytest.raises(UsageError, match="is in 2 packages"):
        "haggling" in ENVIRONMENTS  # noqa: B015
    one, other = ENVIRONMENTS["a-games:haggling"], ENVIRONMENTS["B-Games:haggling"]
    assert one.load is other.load
    assert (one.name, other.name) == ("a-games:haggling", "B-Games:haggling")
    assert "c-games:haggling" not in ENVIRONMENTS
    assert set(ENVIRONMENTS) - set(OWN_ENVIRONMENTS) == {"a-games:haggling", "b_games:haggling"}


def test_the_first_of_a_package_on_the_path_is_the_one(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_environment(site, "a-games", "haggling", "1.0")
    put_environment(tmp_path / "newer", "A_Games", "haggling", "2.0", module="newer_games")
    monkeypatch.syspath_prepend(str(tmp_path / "newer"))
    found = plugins.find("environments", "haggling")
    assert found is not None
    assert found.version == "2.0"


def test_our_own_names_read_no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: tuple[str, ...]) -> tuple[plugins.Plugin, ...]:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(plugins, "_scanned", refuse)
    for table, names in (
        (ENVIRONMENTS, OWN_ENVIRONMENTS),
        (DIALECTS, ("openai_chat", "gemini")),
        (packs(), ("standard", "explicit")),
        (suite_folders(), ("scheduling",)),
    ):
        for name in names:
            assert name in table
            assert table[name]
    assert read_pack("standard", "scheduling").name == "standard"


def test_nothing_is_read_before_a_command_needs_it() -> None:
    call = "import runpy; sys.argv = ['evalkit', '--help']; runpy.run_module('evalkit', run_name='__main__')"
    script = f"import sys\ntry:\n    import evalkit, evalkit.plugins\n    {call}\nexcept SystemExit:\n    pass\n"
    script += "print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout.splitlines()[-1] == "False"


def test_what_others_declare_badly_is_no_matter_of_ours(site: Path) -> None:
    put_environment(site, "a-games", "haggling")
    (site / "odd-1.dist-info").mkdir()
    (site / "odd-1.dist-info" / "METADATA").write_text("Name: odd\nVersion: 1\n")
    (site / "odd-1.dist-info" / "entry_points.txt").write_text("[pytest11]\nno equals sign\n")
    assert "haggling" in ENVIRONMENTS


def test_a_group_that_there_is_not_is_known_as_such(site: Path) -> None:
    put(site, "a-games", "1", {"judges": {"best": "a_games:best"}}, {})
    assert [one.entry for one in plugins.strangers()] == ["evalkit.judges:best"]


def test_texts_of_a_package_are_a_pack_by_name(site: Path) -> None:
    folder = site / "terse_texts"
    folder.mkdir()
    (folder / "terse.toml").write_text('[scheduling]\nsystem = "Match them."\n')
    (folder / "__init__.py").write_text(
        "from importlib.resources import files\nPACK = files('terse_texts') / 'terse.toml'"
    )
    value = "terse_texts:PACK"
    put(site, "terse-texts", "1.1", {"prompts": {"terse": value, "standard": value}}, {})
    pack = read_pack("terse", "scheduling")
    assert (pack.name, pack.texts["system"]) == ("terse", "Match them.")
    assert pack.texts.keys() == read_pack("standard", "scheduling").texts.keys()
    assert read_pack("terse", "pricing").name == "standard"
    assert read_pack("standard", "scheduling").texts["system"] != "Match them."
    with pytest.raises(UsageError, match=r"no prompt pack 'ters'. Did you mean 'terse'"):
        read_pack("ters", "scheduling")


def test_suites_of_a_package_come_after_the_users_and_ours(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = site / "more_suites"
    (folder / "deep").mkdir(parents=True)
    (folder / "tiny.jsonl").write_text("{}\n")
    (folder / "deep" / "one.jsonl").write_text("{}\n")
    value = "more_suites:FOLDER"
    (folder / "__init__.py").write_text("from importlib.resources import files\nFOLDER = files('more_suites')")
    put(site, "more-suites", "1", {"suites": {"more": value, "scheduling": value}}, {})
    assert find_suite("more/tiny") == folder / "tiny.jsonl"
    assert find_suite("more/deep/one") == folder / "deep" / "one.jsonl"
    with pytest.raises(UsageError, match=r"no suite 'more/tinny'.*Did you mean 'more/tiny'"):
        find_suite("more/tinny")
    with pytest.raises(UsageError, match=r"There is no instances/scheduling/tiny.jsonl"):
        find_suite("scheduling/tiny")
    (tmp_path / "instances" / "more").mkdir(parents=True)
    (tmp_path / "instances" / "more" / "tiny.jsonl").write_text("{}\n")
    assert find_suite("more/tiny").resolve() == tmp_path / "instances" / "more" / "tiny.jsonl"


POLICY = "from evalkit.policy.conversation import Policy\nP = Policy(help='x', reply=lambda request, draws: None)\n"
ENTRY = "[evalkit.environments]\nhaggling = haggling_games:RECORD\n"
ABOUT = b"Metadata-Version: 2.1\nName: haggling-games\nVersion: 1\n"


def put_files(site: Path, folder: str, about: bytes | None, entries: bytes) -> None:
    (site / folder).mkdir()
    if about is not None:
        (site / folder / "METADATA").write_bytes(about)
    (site / folder / "entry_points.txt").write_bytes(entries)


@pytest.mark.parametrize(
    ("about", "entries", "why"),
    [
        (ABOUT, b"[console_scripts]\ncaf\xe9 = a:b\n" + ENTRY.encode(), "entry_points.txt: 'utf-8' codec can't decode"),
        (ABOUT, ENTRY.encode() + b"no entry\n[other\nno entry\n", "[evalkit.environments]: 'no entry' is not `name ="),
        (b"Metadata-Version: 2.1\nVersion: 1\n", ENTRY.encode(), "METADATA states no name"),
        (b"Name: caf\xe9\n\xff\xfe\x00", ENTRY.encode(), "METADATA states no name"),
        (None, ENTRY.encode(), "METADATA states no name"),
    ],
)
def test_a_damaged_package_is_told_and_hides_neither_others_nor_what_is_legible_in_it(
    site: Path, about: bytes | None, entries: bytes, why: str
) -> None:
    put_environment(site, "sound-games", "auction", module="sound_games")
    (site / "haggling_games.py").write_text(ENVIRONMENT.format(name="haggling", version=1))
    put_files(site, "haggling_games-1.dist-info", about, entries)
    assert list(ENVIRONMENTS) == [*OWN_ENVIRONMENTS, "auction", "haggling"]
    assert ENVIRONMENTS["haggling"].name == "haggling"
    found = plugins.find("environments", "haggling")
    assert found is not None
    assert (plain_name(found.package), found.version) == ("haggling-games", "1")
    (unread,) = plugins.unread()
    assert why in unread.why
    assert unread.brings


@pytest.mark.parametrize(
    ("about", "entries", "told"),
    [
        (ABOUT, b"[console_scripts]\ncaf\xe9 = a:b\n", True),
        (ABOUT, b"[console_scripts\nno entry\n", False),
        (b"", b"[console_scripts]\na = a:b\n", False),
        (b"\xff\xfe\x00", b"[console_scripts]\na = a:b\n", False),
    ],
)
def test_a_damaged_package_that_brings_nothing_changes_nothing(
    site: Path, about: bytes, entries: bytes, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    put(site, "sound", "1", {"policies": {"fine@pricing": "sound:P"}}, {"sound": POLICY})
    put_files(site, "haggling_games-1.dist-info", about, entries)
    assert [plugin.name for plugin in plugins.installed("policies")] == ["fine@pricing"]
    assert main(["tools", "plugins"]) == 0
    said = capsys.readouterr().out
    assert ("could not be read: haggling-games: entry_points.txt: 'utf-8' codec" in said) == told
    assert ("No entry for evalkit is legible in it." in said) == told
    assert main(["tools", "plugins", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["unread"]) == told


@pytest.mark.parametrize(
    "flaw", ["SystemExit('gone')", "GeneratorExit('gone')", "type('Odd', (BaseException,), {})('gone')"]
)
def test_a_module_that_leaves_as_it_is_imported_is_told_and_ends_nothing(
    site: Path, flaw: str, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = ("environments", "agents", "suites", "prompts")
    put(site, "leaving", "1", {group: {"gone": "leaving:X"} for group in groups}, {"leaving": f"raise {flaw}"})
    for load in (
        lambda: ENVIRONMENTS["gone"],
        lambda: find_agent("gone", {}, "test"),
        lambda: find_agent("leaving:X", {}, "test"),
        lambda: named("gone", "report", "leaving:X", str),
        lambda: read_pack("gone", "pricing"),
    ):
        with pytest.raises(UsageError, match=r"cannot be imported: .*: gone"):
            load()
    assert main(["suites"]) == 0
    said = capsys.readouterr()
    assert "scheduling/basic" in said.out
    assert "leaving 1 (evalkit.suites:gone = leaving:X) cannot be imported" in said.err
    assert main(["tools", "prompts", "list"]) == 0
    assert main(["tools", "plugins"]) == 1
    assert capsys.readouterr().out.count("wrong: leaving 1") == len(groups)


def test_ctrl_c_while_a_module_is_imported_is_no_fault_of_it(site: Path) -> None:
    put(site, "slow", "1", {"environments": {"slow": "slow:X"}}, {"slow": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt):
        ENVIRONMENTS["slow"]


def test_kernels_do_not_read_what_other_packages_declare(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_files(site, "other-1.dist-info", ABOUT, b"[console_scripts]\ncaf\xe9 = a:b\n")
    monkeypatch.setattr("numba.core.entrypoints._already_initialized", False)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    keep_here()
    init_all()  # type: ignore[no-untyped-call]


def test_help_has_the_parameters_of_the_generator_that_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_environment(site, "sound-games", "auction", module="sound_games")
    for name, there in (("auction", ENVIRONMENTS["auction"]), ("pricing", ENVIRONMENTS["pricing"])):
        with pytest.raises(SystemExit):
            main(["suites", "generate", "--out", "x.jsonl", name, "--help"])
        said = capsys.readouterr().out
        assert said.count("\nparameters of ") == 1
        assert f"\nparameters of {name}:" in said
        for parameter in there.parameters:
            assert parameter == "seed" or f"\n  --{parameter.replace('_', '-')} " in said
