"""What a release is made by, as far as it can be read: the workflow, the version, templates, the threat model."""

import importlib.util
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest

from evalkit.version import __version__
from tests.test_repository import PROJECT

yaml = pytest.importorskip("yaml")

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROJECT / name).read_text())
    return found


def release() -> dict[str, Any]:
    return dict(read(".github/workflows/release.yml")["jobs"])


def ran(job: str) -> str:
    return "\n".join(step.get("run", "") for step in release()[job]["steps"])


def test_the_version_has_one_place() -> None:
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "evalkit/version.py"
    assert re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', (PROJECT / "evalkit/version.py").read_text(), re.MULTILINE)
    assert read("CITATION.cff")["version"] == __version__


def test_a_release_builds_tries_every_python_and_publishes_without_a_token() -> None:
    jobs = release()
    assert [job.get("needs") for job in jobs.values()] == [None, "build", "try", "publish"]
    assert '= "v$(' in ran("build")
    assert "hatchling build -t wheel -t sdist" in ran("build")
    classifiers = PYPROJECT["project"]["classifiers"]
    supported = [one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert jobs["try"]["strategy"]["matrix"]["python"] == supported
    assert "evalkit verify" in ran("try")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "release"
    assert jobs["announce"]["permissions"] == {"contents": "write"}
    assert "cyclonedx-py" in ran("build")
    text = (PROJECT / ".github/workflows/release.yml").read_text()
    assert "secrets." not in text


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_are_given_no_more_than_they_need(file: Any) -> None:
    found = yaml.safe_load(file.read_text())
    assert found["permissions"]["contents"] == "read"
    for job in found["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
    # `on` is a boolean of YAML 1.1.
    assert "pull_request_target" not in (found.get("on") or found[True])


@pytest.mark.skipif(
    importlib.util.find_spec("actionlint") is None and shutil.which("actionlint") is None, reason="no actionlint"
)
def test_actionlint_finds_nothing() -> None:
    command = shutil.which("actionlint") or "actionlint"
    done = subprocess.run([command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.stdout == ""


def test_dependencies_of_workflows_are_kept_new() -> None:
    assert "github-actions" in {one["package-ecosystem"] for one in read(".github/dependabot.yml")["updates"]}


def test_the_site_is_built_as_here() -> None:
    assert "make docs" in read(".readthedocs.yaml")["build"]["commands"]


def test_templates_ask_for_what_is_needed() -> None:
    bug = read(".github/ISSUE_TEMPLATE/bug.yml")
    assert {one["id"] for one in bug["body"] if "id" in one} == {"what", "version", "sweep", "verify"}
    template = (PROJECT / ".github/pull_request_template.md").read_text()
    for path, anchor in re.findall(r"\]\(\.\./([\w.]+)#([\w-]+)\)", template):
        heads = re.findall(r"^#+ (.+)$", (PROJECT / path).read_text(), re.MULTILINE)
        assert anchor in {head.lower().replace(" ", "-") for head in heads}


def test_the_threat_model_names_who_may_be_hostile() -> None:
    text = (PROJECT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| (a [\w -]+|another [\w ]+)[|,]", text, re.MULTILINE)
    for who in ("model", "provider", "suite", "archive", "plug-in", "browser", "another user"):
        assert any(who in row for row in rows), who
