"""Bad input: one message that names the place and the nearest valid name, exit code 2, nothing written."""

import socket
from pathlib import Path

import pytest

from tests.support.command_line import LAB, Call, tree
from tests.support.each_case import check_each

SUITE = '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0"]\n'
AGENT = '[[agents]]\npolicy = "knuth"\n'
MODEL = '[[agents]]\nprovider = "openai"\nmodel = "{model}"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("sweep.toml", "agents")),
        ("agents = 3\n" + SUITE, ("sweep.toml", "agents")),
        ("width = \n", ("sweep.toml", "line 1")),
        ("replicate = 2\n" + AGENT + SUITE, ("sweep.toml", "replicate", "'replicates'")),
        ('replicates = "2"\n' + AGENT + SUITE, ("sweep.toml", "replicates", "a whole number, got a string")),
        ("replicates = 0\n" + AGENT + SUITE, ("sweep.toml", "replicates", "1 to")),
        ('budget_usd = "five"\n' + AGENT + SUITE, ("sweep.toml", "budget_usd", "'five'")),
        ("budget_usd = -1\n" + AGENT + SUITE, ("sweep.toml", "budget_usd")),
        ('deadline = "soon"\n' + AGENT + SUITE, ("sweep.toml", "deadline", "90s")),
        (AGENT + 'colour = "red"\n' + SUITE, ("sweep.toml", "agents[1]", "colour")),
        ('[[agents]]\npolicy = "knut"\n' + SUITE, ("sweep.toml", "agents[1]", "'knut'", "'knuth'")),
        ('[[agents]]\nprovider = "openai"\n' + SUITE, ("sweep.toml", "agents[1]", "`model`")),
        (AGENT + AGENT + SUITE, ("sweep.toml", "agents", "'knuth'", "names must be unique")),
        ('[[agents]]\nprovider = "opnai"\nmodel = "gpt-5"\n' + SUITE, ("'opnai'", "'openai'")),
        (MODEL.format(model="gpt-55") + SUITE, ("gpt-55", "'gpt-5.5'")),
        (AGENT + '[[suites]]\nname = "scheduling/basik"\n', ("scheduling/basik", "scheduling/basic")),
        (AGENT + SUITE.replace("seed-0", "seed-00"), ("seed-00", "'seed-0'")),
        (AGENT + SUITE + "vary = { perods = [1] }\n", ("perods", "'periods'")),
        (AGENT + SUITE + "vary = { periods = [0] }\n", ("periods", "0")),
        (AGENT + SUITE + 'vary = { periods = ["two"] }\n', ("periods", "'two'")),
        (AGENT + 'prompts = "standart"\n' + SUITE, ("standart", "'standard'")),
        (AGENT + 'prompts = "my.toml"\n' + SUITE, ("my.toml",)),
        (AGENT + SUITE + '[limits."openai/gpt-5"]\nin_flight = 1\n', ("sweep.toml", "limits", "openai/gpt-5")),
        ('name = "../out"\n' + AGENT + SUITE, ("sweep.toml", "name", "'../out'")),
    ],
)
def test_a_bad_spec_is_refused(call: Call, here: Path, text: str, words: tuple[str, ...]) -> None:
    (here / "sweep.toml").write_text(text)
    before = tree(here)
    for argv in (["run", "sweep.toml"], ["plan", "sweep.toml"]):
        said = call(*argv)
        assert said.code == 2
        assert all(word in said.message for word in words), said.message
    assert tree(here) == before
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "quikstart"], ("Did you mean 'quickstart'",)),
        (["run", "runs/none.toml"], ("runs/none.toml", "evalkit new")),
        (["run", "mine.toml", "--only", "agnt=knuth"], ("--only", "'agnt=knuth'", "agent=NAME")),
        (["run", "mine.toml", "--only", "agent=knut"], ("--only", "'knut'", "'knuth'")),
        (["run", "mine.toml", "--only", "suite=scheduling/basic?"], ("--only", "'scheduling/basic'")),
        (["run", "mine.toml", "--only", "agent"], ("--only", "'agent'")),
        (["run", "mine.toml", "--budget", "much"], ("--budget", "'much'")),
        (["run", "mine.toml", "--budget", "-3"], ("--budget",)),
        (["run", "mine.toml", "--budget", "nan"], ("--budget",)),
        (["run", "mine.toml", "--deadline", "5 parsecs"], ("--deadline", "15m")),
        (["run", "mine.toml", "--set", "width=0"], ("width", "1 to")),
        (["run", "mine.toml", "--limit", "0"], ("--limit", "at least 1")),
        (["run", "mine.toml", "--name", "../../elsewhere"], ("--name", "'../../elsewhere'")),
        (["run", "mine.toml", "--name", "a/b"], ("--name", "'a/b'")),
        (["plan", "mine.toml", "--only", "agent=knut"], ("--only", "'knuth'")),
        (["status", "none"], ("'none'",)),
        (["report", "."], ("it has no manifest", "evalkit run")),
        (["show", ".", "x"], ("it has no manifest",)),
        (["verify", "."], ("it has no manifest",)),
        (["providers", "opnai"], ("'openai'",)),
        (["new", "mine.toml"], ("mine.toml", "exists")),
        (["new", "mine"], ("mine", ".toml")),
    ],
)
def test_a_bad_option_is_refused(call: Call, spec: Path, argv: list[str], words: tuple[str, ...]) -> None:
    before = tree(spec.parent)
    said = call(*argv)
    assert said.code == 2
    assert all(word in said.message for word in words), said.message
    assert tree(spec.parent) == before
    assert not (spec.parent / "runs").exists()


def test_a_missing_key_is_named_by_its_variable(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (here / "sweep.toml").write_text(MODEL.format(model="gpt-5") + SUITE)
    said = call("run", "sweep.toml")
    assert said.code == 2
    assert "OPENAI_API_KEY" in said.message
    assert sorted(tree(here)) == ["sweep.toml"]
    assert call("plan", "sweep.toml").code == 0  # which needs no key


def test_a_model_without_a_price_is_refused(call: Call, here: Path) -> None:
    (here / "providers").mkdir()
    (here / "providers" / "lab.toml").write_text(
        LAB.format(url="http://127.0.0.1:9/v1", more="[models.knuth]").partition("[usd_per_mtok]")[0]
    )
    text = '[[agents]]\nprovider = "lab"\nmodel = "knuth"\n' + SUITE
    (here / "sweep.toml").write_text(text)
    said = call("run", "sweep.toml")
    assert said.code == 2
    assert "providers/lab.toml" in said.message
    assert "of a server of your own it is 0" in said.message


def test_a_foreign_directory_is_left_alone(call: Call, spec: Path) -> None:
    folder = spec.parent / "thesis"
    folder.mkdir()
    (folder / "chapter1.txt").write_text("years of work")
    before = tree(spec.parent)
    for options in ([], ["--repair"], ["--retry", "stable"]):
        said = call("run", "mine.toml", "--dir", folder, *options)
        assert said.code == 2
        assert "thesis" in said.message
        assert "--dir" in said.message
    said = call("run", "mine.toml", "--dir", folder / "chapter1.txt")
    assert said.code == 2
    assert "is a file" in said.message
    assert tree(spec.parent) == before


def test_a_changed_agent_is_a_conflict_and_changes_nothing(call: Call, spec: Path) -> None:
    assert call("run", "mine.toml").code == 0
    before = tree(spec.parent / "runs")
    spec.write_text(spec.read_text().replace('policy = "random"', 'name = "random"\npolicy = "noisy"'))
    said = call("run", "mine.toml")
    assert said.code == 2
    assert "'random'" in said.message
    assert "--name" in said.message
    assert tree(spec.parent / "runs") == before


def test_a_provider_that_cannot_listen_is_refused(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = call("simulate", "--port", str(taken.getsockname()[1]))
    assert said.code == 2
    assert "cannot listen" in said.message


LONG = "n" * 300
TOO_LONG: dict[str, tuple[str, ...]] = {
    "a run": ("report", LONG),
    "a spec": ("plan", f"{LONG}.toml"),
    "a run's name": ("run", "mine.toml", "--name", LONG),
    "a run's directory": ("run", "mine.toml", "--dir", f"runs/{LONG}"),
    "a path": ("status", "/".join(["a" * 200] * 25)),
    "a new spec": ("new", f"{LONG}.toml"),
    "a suite": ("suites", "describe", LONG),
    "a provider": ("providers", LONG),
    "a side": ("compare", LONG, LONG),
    "a name in letters of two bytes": ("report", "ä" * 150),
}


def test_a_name_that_no_file_may_have_is_refused_in_a_sentence(call: Call, spec: Path, here: Path) -> None:
    def check(words: tuple[str, ...]) -> None:
        said = call(*words)
        assert said.code == 2
        assert "A name has at most 255 bytes, a path 4,095. Choose a shorter one." in said.message

    check_each(TOO_LONG.items(), check)
    for key, other in {"name": "scheduling/basic", "policy": "knuth"}.items():
        (here / "long.toml").write_text(spec.read_text().replace(f'{key} = "{other}"', f'{key} = "{LONG}"', 1))
        assert call("plan", "long.toml").code == 2
        assert call("plan", "long.toml").message
