"""What a stranger meets first: the set-up, the documents, the wheel."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import msgspec
import pytest

import evalkit
from tests.conftest import LONGEST

PROJECT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())

# Split, so that this file does not name what it looks for.
MACHINE = re.compile("|".join(("/wo" + "rk/", "/ro" + "ot/", "/Us" + r"ers/\w", "/ho" + r"me/\w")))
REGISTRIES = re.compile("|".join(("python" + "hosted", "pypi" + r"\.org", "--index" + "-url", "--find" + "-links")))


def tracked() -> list[Path]:
    """The files git knows, or, where there is no git, those that lie here."""
    done = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, cwd=PROJECT, check=False)
    if done.returncode == 0:
        return [PROJECT / name for name in done.stdout.split("\0") if name and (PROJECT / name).is_file()]
    return [path for path in PROJECT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def texts(*suffixes: str) -> dict[str, str]:
    return {
        path.relative_to(PROJECT).as_posix(): path.read_text()
        for path in tracked()
        if not suffixes or path.suffix in suffixes
    }


LOCKS = {
    "requirements.lock": ("dev", "docs"),
    "requirements-others.lock": ("dev", "others", "inspect", "ray"),
}
"""Each lock, with the groups and extras that it covers beside the project's own dependencies."""


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_package_by_hash_and_names_no_place_to_fetch_from(name: str) -> None:
    lock = (PROJECT / name).read_text()
    assert not re.search(r"https?:|file:|git\+|^--", lock, re.MULTILINE)
    entries = [entry for entry in re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE) if entry.strip()]
    assert len(entries) > 40
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==[^ ]+ ", entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:80]


def test_what_make_installs_is_locked() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    (install,) = [line for line in makefile.splitlines() if "pip install" in line]
    assert install.startswith("INSTALL := ")
    installs = [line for line in makefile.splitlines() if "$(INSTALL)" in line]
    assert len(installs) == 2 * len(LOCKS)
    ways = ("--no-deps --require-hashes -r $(", "--no-deps --no-build-isolation")
    assert all(any(way in line for way in ways) for line in installs)
    written = re.findall(r"--output-file \$\((\w+)\)", makefile)
    assert [re.search(rf"^{one} := (.+)$", makefile, re.MULTILINE)[1] for one in written] == [*LOCKS]  # type: ignore[index]


def test_make_says_what_it_sets_up_before_it_does() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "run"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    (said,) = [number for number, line in enumerate(lines) if line.startswith('echo "Setting up .venv, once: ')]
    assert all(number > said for number, line in enumerate(lines) if " -m venv " in line or " pip install " in line)
    words = subprocess.run(["sh", "-c", lines[said]], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    packages = [
        line for line in (PROJECT / next(iter(LOCKS))).read_text().splitlines() if re.match(r"[a-z0-9].*==", line)
    ]
    assert f"once: {len(packages)} packages are " in words
    assert "about a minute" in "".join(lines[said:])


def test_actions_are_pinned_by_digest() -> None:
    used = {
        (name, one)
        for name, text in texts(".yml", ".yaml", ".md").items()
        for one in re.findall(r"^\s*(?:- )?uses: *(.+)$", text, re.MULTILINE)
    }
    assert used
    pinned = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [one for one in sorted(used) if not pinned.fullmatch(one[1]) and not one[1].startswith("./")] == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_covers_every_dependency_of_the_project(name: str) -> None:
    lock = (PROJECT / name).read_text()
    locked = set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    project = PYPROJECT["project"]
    named = project["optional-dependencies"] | PYPROJECT["dependency-groups"]
    extras = [one for name_of in LOCKS[name] for one in named[name_of]]
    wanted = project["dependencies"] + extras + PYPROJECT["build-system"]["requires"]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert names - locked == set()


def test_the_changelog_lists_what_the_stated_version_changes() -> None:
    heads = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d{2}-\d{2})?$", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[:2] == ["Unreleased", evalkit.__version__]


def test_every_package_that_evalkit_asks_for_has_the_distributions_name() -> None:
    """The name of the import is that of another project's distribution."""
    name = PYPROJECT["project"]["name"]
    asked = {
        (path, found)
        for path, text in texts(".md", ".py", ".toml", ".in").items()
        for found in re.findall(
            r"pip install '?(evalkit(?:-econ)?)\b(?!-)|^dependencies = \[\"(evalkit[\w-]*)", text, re.MULTILINE
        )
    }
    assert len(asked) > 4
    assert [path for path, found in asked if name not in found] == []


def test_the_image_is_made_of_what_is_here_and_has_a_python_that_is_supported() -> None:
    recipe, kept = ((PROJECT / name).read_text() for name in ("Containerfile", ".dockerignore"))
    bases = set(re.findall(r"^FROM python:(\d\.\d+)-slim", recipe, re.MULTILINE))
    assert len(bases) == 1
    assert f"Programming Language :: Python :: {bases.pop()}" in PYPROJECT["project"]["classifiers"]
    copied = {one for line in re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE) for one in line.split()}
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    carried = {*wheel["packages"], *(Path(one).parts[0] for one in wheel["force-include"])}
    assert copied >= {"pyproject.toml", "README.md", "LICENSE"} | carried
    assert [one for one in copied if not (PROJECT / one).exists() or f"!{one}" not in kept] == []


def test_there_are_few_targets_extras_and_locks() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert len(phony.group(1).split()) <= 16
    assert len(PYPROJECT["project"]["optional-dependencies"]) <= 11  # figures as files: 84 MB
    assert {path.name for path in tracked() if path.suffix == ".lock"} == {*LOCKS, "llama_cpp.lock"}


def test_the_files_that_begin_first_exist() -> None:
    gone = [start for start in LONGEST if not [*(PROJECT / "tests").glob(f"{start.removesuffix('/')}*")]]
    assert gone == []


def test_every_make_target_the_documents_name_exists() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    steps = {f".ci/{name}": (PROJECT / ".ci" / name).read_text() for name in ("run", "full", "steps")}
    documents = texts(".md", ".yaml") | steps
    named = {
        (name, target)
        for name, text in documents.items()
        for target in re.findall(r"(?:^ *|`)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {"run", "test", "check"} <= {target for _, target in named}
    assert {(name, target) for name, target in named if target not in targets} == set()


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    broken = [
        (name, link)
        for name, text in texts(".md").items()
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        if not (PROJECT / name).parent.joinpath(link).exists()
    ]
    assert broken == []


def test_the_page_about_shared_helpers_names_each() -> None:
    folder = PROJECT / "tests" / "support"
    named = re.findall(r"^\| `(\w+\.py)`", (folder / "README.md").read_text(), re.MULTILINE)
    assert named == sorted(path.name for path in folder.glob("*.py"))


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        (name, hit.group())
        for name, text in texts("", ".py", ".md", ".toml", ".yaml", ".lock", ".json").items()
        for hit in [MACHINE.search(text) or REGISTRIES.search(text.replace("--no-emit-", ""))]
        if hit and name != "Makefile"
    ]
    assert found == []
    assert not MACHINE.search((PROJECT / "Makefile").read_text())


def test_the_sweeps_document_names_every_key_of_a_spec_and_no_other() -> None:
    from evalkit.spec.catalogue import LaneFile
    from evalkit.spec.sweep import AgentFile, SuiteTable, SweepFile

    text = (PROJECT / "docs" / "sweeps.md").read_text()
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    tables: tuple[tuple[str, type[msgspec.Struct]], ...] = (
        ("The sweep", SweepFile),
        ("An agent", AgentFile),
        ("A suite", SuiteTable),
    )
    for title, record in tables:
        rows = [row.split("|")[1] for row in sections[title].splitlines() if row.startswith("| `")]
        named = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        assert named == set(record.__struct_fields__), title
    assert set(re.findall(r"`(\w+)`", sections["Limits"])) == set(LaneFile.__struct_fields__)


def table_rows(document: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, backquotes taken off; the head is left out."""
    text = (PROJECT / "docs" / document).read_text()
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, title
    lines = [line for line in section[1].splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("title", "name"), [("Columns of `steps/`", "STEPS"), ("Columns of `ledger/`", "LEDGER")])
def test_the_run_directorys_document_lists_the_columns_as_they_are(title: str, name: str) -> None:
    from evalkit.store.files import schema

    columns = [[field.name, str(field.type), field.metadata[b"unit"].decode()] for field in getattr(schema, name)]
    assert [row[:3] for row in table_rows("run-directory.md", title)] == columns


def test_the_prompt_packs_document_lists_every_text_with_its_fields() -> None:
    from evalkit.envs.table import ENVIRONMENTS

    for name, environment in ENVIRONMENTS.items():
        rows = table_rows("prompt-packs.md", f"Texts of {name}")
        listed = {key: frozenset(re.findall(r"\{(\w+)\}", fields)) for key, fields in rows}
        assert listed == dict(environment.texts.all)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling, which `make setup` installs")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", str(PROJECT), "--no-deps", "--no-build-isolation", "-q", "-w"]
    subprocess.run([*command, str(out)], check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_carries_the_code_and_what_it_needs_to_work_anywhere(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "evalkit/py.typed",
        "evalkit/money.py",
        "evalkit_verifiers/__init__.py",
        "evalkit/_shipped/providers/README.md",
    } <= names
    template = "evalkit/plugin_project/"
    assert {f"{template}pyproject.toml.in", f"{template}package/suites/basic.jsonl.in"} <= names
    assert {f"evalkit/_shipped/runs/{name}.toml" for name in ("quickstart", "baselines", "nightly")} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "runs/"))]


def test_an_installed_wheel_finds_what_it_carries(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    script = "from evalkit.shipped import find, folders; print(find('runs', 'quickstart.toml')); print(folders('runs'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    first = done.stdout.splitlines()[0]
    assert first == str(tmp_path / "site" / "evalkit" / "_shipped" / "runs" / "quickstart.toml")


def test_the_page_about_costbench_names_every_parameter_and_event() -> None:
    from evalkit.envs.costbench.instances.line import PARAMETERS
    from evalkit.envs.costbench.instances.parameters import KINDS

    text = (PROJECT / "docs" / "costbench.md").read_text()
    missing = [name for name in (*PARAMETERS, *KINDS, "mixed") if f"`{name}`" not in text]
    assert missing == []


def test_the_page_about_sweeps_names_every_policy() -> None:
    from evalkit.policy.table import policy_names

    text = (PROJECT / "docs" / "sweeps.md").read_text()
    assert [name for name in policy_names() if f"`{name}`" not in text] == []


def test_the_page_about_econagentbench_names_its_tables_and_suites() -> None:
    text = (PROJECT / "docs" / "econagentbench.md").read_text()
    sources = "".join(path.read_text() for path in (PROJECT / "evalkit" / "report").rglob("*.py"))
    tables = sorted(set(re.findall(r'"(econ_[a-z_]+)"', sources)))
    assert len(tables) > 5
    assert [name for name in tables if f"`{name}`" not in text] == []
    levels = {path.stem for path in (PROJECT / "instances").glob("p*/*.jsonl")}
    assert [name for name in levels if name not in text] == []


BENCHMARKS = sorted(
    ".".join(path.relative_to(PROJECT / "bench").with_suffix("").parts) for path in (PROJECT / "bench").rglob("*.py")
)
LOAD_EACH = """
import json, sys, traceback
from importlib import import_module
flaws = {}
for name in sys.argv[1:]:
    try:
        import_module(f"bench.{name}")
    except BaseException:
        flaws[name] = traceback.format_exc()
    for loaded in [one for one in sys.modules if one.startswith("bench.")]:
        del sys.modules[loaded]  # each is loaded as if it were the only one
print(json.dumps(flaws))
"""


@pytest.fixture(scope="module")
def flaws() -> dict[str, str]:
    """By benchmark that cannot be loaded: why. One process for all: their libraries take most of the time."""
    command = [sys.executable, "-c", LOAD_EACH, *BENCHMARKS]
    found: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=PROJECT).stdout)
    return found


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_loads(name: str, flaws: dict[str, str]) -> None:
    assert name not in flaws, flaws[name]
