"""What publishes evalkit, read: the workflows, and what a forge and a host of documents look for."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema.cli import main as check
from click.testing import CliRunner

import evalkit
from tests.test_repository import PROJECT, PYPROJECT

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {
    "CITATION.cff": "vendor.citation-file-format",
    ".readthedocs.yaml": "vendor.readthedocs",
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    ".github/ISSUE_TEMPLATE/bug.yml": "vendor.github-issue-forms",
    ".github/ISSUE_TEMPLATE/idea.yml": "vendor.github-issue-forms",
    "docs/recipes/nightly.yml": "vendor.github-workflows",
    **{path.relative_to(PROJECT).as_posix(): "vendor.github-workflows" for path in WORKFLOWS},
}


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((PROJECT / ".github" / "workflows" / f"{name}.yml").read_text())
    return read


def steps(job: dict[str, Any]) -> str:
    """All that a job runs or uses."""
    return "\n".join(str(step.get("run", step.get("uses", ""))) for step in job["steps"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_has_the_shape_that_its_reader_expects(name: str) -> None:
    words = ["--builtin-schema", SCHEMAS[name], "--default-filetype", "yaml", str(PROJECT / name)]
    done = CliRunner().invoke(check, words)
    assert done.exit_code == 0, done.output


def test_every_supported_python_installs_the_wheel_before_it_is_published() -> None:
    jobs = workflow("release")["jobs"]
    words = "Programming Language :: Python :: "
    supported = [one.removeprefix(words) for one in PYPROJECT["project"]["classifiers"] if one.startswith(words)]
    assert jobs["installed"]["strategy"]["matrix"]["python"] == supported
    needed = {name: job.get("needs") for name, job in jobs.items()}
    assert needed == {"build": None, "installed": "build", "publish": "installed", "announce": "publish"}


def test_only_the_job_that_publishes_may_prove_who_it_is_and_nothing_holds_a_token() -> None:
    release = workflow("release")
    assert release["permissions"] == {}
    rights = {name: job["permissions"] for name, job in release["jobs"].items()}
    assert [name for name, right in rights.items() if "id-token" in right] == ["publish"]
    assert [name for name, right in rights.items() if "write" in right.values()] == ["publish", "announce"]
    for path in WORKFLOWS:
        assert "secrets." not in path.read_text(), path.name
    # What may prove who it is executes nothing of the repository's, and publishes what was tried.
    assert "actions/checkout" not in steps(release["jobs"]["publish"])
    assert "sbom.cdx.json" in steps(release["jobs"]["announce"])


def test_every_job_ends() -> None:
    for path in WORKFLOWS:
        jobs = workflow(path.stem)["jobs"]
        assert all(job["timeout-minutes"] <= 90 for job in jobs.values()), path.name


def test_the_version_is_stated_once() -> None:
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == evalkit.__version__
    text = steps(workflow("release")["jobs"]["build"])
    (pattern,) = re.findall(r"s/(.+)/\\1/p", text)
    source = (PROJECT / "evalkit" / "version.py").read_text()
    found = re.findall(pattern.replace(r"\(", "(").replace(r"\)", ")"), source, re.MULTILINE)
    assert found == [evalkit.__version__]


def test_the_changelog_s_section_is_what_a_release_says(tmp_path: Path) -> None:
    import subprocess

    (line,) = [line for line in steps(workflow("release")["jobs"]["announce"]).splitlines() if line.startswith("awk ")]
    script = line.replace("notes.md", str(tmp_path / "notes.md"))
    subprocess.run(
        ["sh", "-c", script],
        cwd=PROJECT,
        env={"GITHUB_REF_NAME": f"v{evalkit.__version__}", "PATH": "/usr/bin:/bin"},
        check=True,
    )
    notes = (tmp_path / "notes.md").read_text()
    assert notes.strip()
    assert "## [" not in notes
    assert notes.strip() in (PROJECT / "CHANGELOG.md").read_text()
