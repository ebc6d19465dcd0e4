"""The action of this repository: its steps, as far as a shell can take them, with evalkit and a recorded `gh`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.question_runs import many
from tests.test_repository import PROJECT

yaml = pytest.importorskip("yaml")

SWEEP = """
[gate]
margin = 10
[[agents]]
name = "old"
policy = "oracle"
[[agents]]
name = "new"
policy = "{}"
[[suites]]
name = "many.jsonl"
"""
GH = r"""#!/bin/sh
printf '%s\n' "$*" >> "$GH_LOG"
case "$*" in
*--paginate*) cat "$GH_OLD" ;;
*POST*) echo 77 > "$GH_OLD" ;;
esac
"""
PYTHON = r"""#!/bin/sh
mkdir -p "$3/bin"
cat > "$3/bin/pip" <<'END'
#!/bin/sh
echo "$*" >> "$GH_LOG"
END
cat > "$3/bin/evalkit" <<'END'
#!/bin/sh
PYTHONPATH="{project}" exec "{python}" -m evalkit "$@"
END
chmod +x "$3/bin/pip" "$3/bin/evalkit"
"""


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((PROJECT / "action.yml").read_text())
    return found


class Runner:
    """A runner of one job in a folder, and what an event has brought it."""

    def __init__(self, home: Path, *, event: str = "pull_request") -> None:
        self.home, self.event = home, event
        self.outputs: dict[str, dict[str, str]] = {}
        for name in ("temp", "bin"):
            (home / name).mkdir()
        (home / "gh-old").touch()
        self.log = home / "gh.log"
        self.log.touch()
        for name, text in (("gh", GH), ("python3", PYTHON.format(project=PROJECT, python=sys.executable))):
            (home / "bin" / name).write_text(text)
            (home / "bin" / name).chmod(0o755)

    def value(self, text: str, inputs: dict[str, str]) -> str:
        """A text with its expressions: those that the action uses."""

        def one(match: re.Match[str]) -> str:
            name = match[1].strip()
            if name.startswith("inputs."):
                return inputs[name.removeprefix("inputs.")]
            if name.startswith("steps."):
                _, step, _, output = name.split(".")
                return self.outputs.get(step, {}).get(output, "")
            return {
                "github.repository": "me/mine",
                "github.event.pull_request.number": "12",
                "github.token": "a-token",
                "runner.temp": str(self.home / "temp"),
            }[name]

        return re.sub(r"\$\{\{([^}]*)\}\}", one, text)

    def wanted(self, condition: str, inputs: dict[str, str]) -> bool:
        """Whether a step's `if` holds: `and`s of comparisons, and `always()`."""
        names = {f"inputs.{key}": value for key, value in inputs.items()} | {"github.event_name": self.event}
        for part in condition.split("&&") if condition else ():
            if part.strip() != "always()":
                left, right = part.split("==")
                if names[left.strip()] != right.strip().strip("'"):
                    return False
        return True

    def play(self, **given: str) -> int:
        """All steps; the code of the last that fails, as a job ends."""
        found = action()
        inputs = {name: given.get(name, one.get("default", "")) for name, one in found["inputs"].items()}
        code = 0
        for step in found["runs"]["steps"]:
            failed = code and "always()" not in step.get("if", "")
            if failed or "run" not in step or not self.wanted(step.get("if", ""), inputs):
                continue
            output = self.home / "output"
            output.write_text("")
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=self.home,
                env={
                    "PATH": f"{self.home / 'bin'}:/usr/bin:/bin",
                    "HOME": str(self.home),
                    "RUNNER_TEMP": str(self.home / "temp"),
                    "GITHUB_OUTPUT": str(output),
                    "GITHUB_STEP_SUMMARY": str(self.home / "summary.md"),
                    "GH_LOG": str(self.log),
                    "GH_OLD": str(self.home / "gh-old"),
                    **{name: self.value(text, inputs) for name, text in step.get("env", {}).items()},
                },
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            code = done.returncode or code
            lines = (line.partition("=") for line in output.read_text().splitlines())
            self.outputs[step.get("id", step["name"])] = {name: value for name, _, value in lines}
        return code


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    many(tmp_path / "many.jsonl", 120)
    return Runner(tmp_path)


def test_a_gate_that_fails_fails_the_job_and_comments_once(runner: Runner) -> None:
    (runner.home / "mine.toml").write_text(SWEEP.format("random"))
    assert runner.play(sweep="mine.toml", against="old", agents="\nnew=old\n", budget="3") == 4
    assert runner.outputs["play"] == {"verdict": "fail", "code": "4"}
    made = {path.name for path in (runner.home / "temp" / "evalkit-out").iterdir()}
    assert made == {"comment.md", "gate.xml", "gate.json", "gate.html", "gate.zip"}
    assert (runner.home / "summary.md").read_text().startswith("<!-- evalkit gate -->\n## ❌ evalkit gate: fail")
    calls = runner.log.read_text().splitlines()
    assert calls[0] == "install --quiet evalkit-econ"
    assert [call.split()[2] for call in calls[1:]] == ["repos/me/mine/issues/12/comments", "POST"]
    assert runner.play(sweep="mine.toml", against="old", agents="new=old") == 4
    assert "PATCH repos/me/mine/issues/comments/77" in runner.log.read_text().splitlines()[-1]


@pytest.mark.exhaustive
def test_a_gate_that_passes_says_so_and_a_push_gets_no_comment(runner: Runner) -> None:
    (runner.home / "mine.toml").write_text(SWEEP.format("knuth"))
    runner.event = "push"
    assert runner.play(sweep="mine.toml", against="old") == 0
    assert runner.outputs["play"]["verdict"] == "pass"
    assert "repos/" not in runner.log.read_text()


def test_what_cannot_start_ends_with_2_and_writes_no_comment(runner: Runner) -> None:
    (runner.home / "mine.toml").write_text(SWEEP.format("knuth"))
    assert runner.play(sweep="mine.toml", against="nobody; touch owned", margin="$(touch owned)") == 2
    assert not (runner.home / "owned").exists()
    assert not (runner.home / "summary.md").exists()
    assert runner.play(sweep="mine.toml", mode="never") == 2


@pytest.mark.exhaustive
def test_a_night_is_played_and_shown(runner: Runner) -> None:
    (runner.home / "mine.toml").write_text(
        '[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\nvary = { periods = [2] }\n'
    )
    assert runner.play(sweep="mine.toml", mode="nightly") == 0
    assert "knuth" in (runner.home / "summary.md").read_text()
    assert (runner.home / "temp" / "evalkit-out" / "nights.html").exists()


def test_no_input_stands_in_a_command_where_a_shell_would_obey_it() -> None:
    files = [PROJECT / "action.yml", *(PROJECT / ".github" / "workflows").glob("*.yml")]
    for file in files:
        found = yaml.safe_load(file.read_text())
        jobs = [found["runs"]] if "runs" in found else list(found["jobs"].values())
        for step in [step for job in jobs for step in job["steps"]]:
            assert "${{" not in step.get("run", ""), (file.name, step)


def test_this_repository_tries_its_own_action() -> None:
    workflow = yaml.safe_load((PROJECT / ".github" / "workflows" / "gate.yml").read_text())
    (step,) = [step for step in workflow["jobs"]["gate"]["steps"] if step.get("uses") == "./"]
    assert step["with"].keys() <= action()["inputs"].keys()
    assert (PROJECT / step["with"]["sweep"]).exists()


ISSUES = r"""#!/bin/sh
printf '%s\n' "$*" >> "$GH_LOG"
case "$*" in
*"issue list"*) cat "$GH_OLD" ;;
*"issue create"*) echo 5 > "$GH_OLD" ;;
esac
"""


def test_an_alarm_opens_one_issue_and_then_comments(runner: Runner) -> None:
    (runner.home / "bin" / "gh").write_text(ISSUES)
    environment = {
        "PATH": f"{runner.home / 'bin'}:/usr/bin:/bin",
        "GH_LOG": str(runner.log),
        "GH_OLD": str(runner.home / "gh-old"),
        "EVALKIT_SUMMARY": 'a on x: "71" against `97`; $(touch owned)',
        "EVALKIT_SWEEP": "nightly",
        "EVALKIT_RUN": "runs/nightly/nights/2026-11-21",
    }
    recipe = PROJECT / "docs" / "recipes" / "alarm_issue.sh"
    for _ in range(2):
        subprocess.run(["sh", str(recipe), "me/mine"], cwd=runner.home, env=environment, check=True, timeout=PATIENCE_S)
    text = runner.log.read_text()
    assert text.count("issue create") == 1
    assert text.count("issue comment 5 --repo me/mine") == 1
    assert text.count(environment["EVALKIT_SUMMARY"]) == 2
    assert not (runner.home / "owned").exists()


def test_the_recipe_for_another_ci_calls_what_there_is() -> None:
    from evalkit.cli.main import parse
    from tests.support.document_blocks import commands

    recipe = yaml.safe_load((PROJECT / "docs" / "recipes" / "gate.gitlab-ci.yml").read_text())["gate"]
    called = [words for line in (*recipe["script"], *recipe["after_script"]) for words in commands(line)]
    assert [parse(words).module for words in called] == ["gate", "report"]
    assert json.dumps(recipe["artifacts"]["reports"]) == '{"junit": "gate.xml"}'
