"""The recipes for Ray's clusters as they are shipped: their syntax, the fields they set, and the commands in them."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.main import parse
from evalkit.machines import on_ray
from tests.support.command_line import POLICIES, Call

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"

NAMED = {"name": str}
MOUNT = {"name": str, "mountPath": str}
CONTAINER = {
    **NAMED,
    "image": str,
    "command": [str],
    "args": [str],
    "envFrom": [{"secretRef": NAMED}],
    "ports": [{"containerPort": int}],
    "resources": {"requests": {"cpu": str}},
    "volumeMounts": [MOUNT],
}
POD = {
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "containers": [CONTAINER],
    "volumes": [
        {**NAMED, "configMap": NAMED, "secret": {"secretName": str, "items": [{"key": str, "path": str}]}},
    ],
}
FIELDS: dict[str, Any] = {
    "RayJob": {
        "apiVersion": "ray.io/v1",
        "kind": str,
        "metadata": NAMED,
        "spec": {
            "entrypoint": str,
            "backoffLimit": int,
            "shutdownAfterJobFinishes": bool,
            "rayClusterSpec": {
                "rayVersion": str,
                "headGroupSpec": {"rayStartParams": {"num-cpus": str}, "template": {"spec": POD}},
                "workerGroupSpecs": [
                    {
                        "groupName": str,
                        "replicas": int,
                        "minReplicas": int,
                        "maxReplicas": int,
                        "rayStartParams": {},
                        "template": {"spec": POD},
                    }
                ],
            },
        },
    },
}
"""By kind, the fields of Kubernetes's and KubeRay's API that the recipes use, and the types of their values there."""


def fits(value: Any, fields: Any, where: str) -> None:
    """Fail where a value has a field that is not known, or of another type."""
    if isinstance(fields, dict):
        assert isinstance(value, dict), where
        for name, inner in value.items():
            assert name in fields, f"{where}.{name}"
            fits(inner, fields[name], f"{where}.{name}")
    elif isinstance(fields, list):
        assert isinstance(value, list), where
        for number, inner in enumerate(value):
            fits(inner, fields[0], f"{where}[{number}]")
    elif isinstance(fields, type):
        assert isinstance(value, fields), where
    else:
        assert value == fields, where


def test_the_recipe_for_kuberay_sets_fields_that_there_are_and_has_room_for_its_workers() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with moto, in the extra `dev`")
    (job,) = yaml.safe_load_all((RECIPES / "ray-kubernetes.yaml").read_text())
    fits(job, FIELDS["RayJob"], "RayJob")
    program, *words = shlex.split(job["spec"]["entrypoint"])
    run, groups = parse(words), job["spec"]["rayClusterSpec"]
    assert (program, run.module, run.on, run.json) == ("evalkit", "run", "ray", True)
    head, (workers,) = groups["headGroupSpec"]["template"]["spec"], groups["workerGroupSpecs"]
    (container,) = head["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in head["volumes"]}
    assert run.sweep.startswith(f"{container['volumeMounts'][0]['mountPath']}/")
    (worker,) = workers["template"]["spec"]["containers"]
    assert worker["envFrom"] == container["envFrom"], "each node has the keys itself"
    assert int(run.workers) == workers["replicas"] * int(worker["resources"]["requests"]["cpu"])
    assert "runtimeEnv" not in (RECIPES / "ray-kubernetes.yaml").read_text()


def test_the_recipe_for_ray_submits_the_sweep_alone(tmp_path: Path) -> None:
    """With a `ray` that only notes its arguments, and what is in the folder that it is to copy."""
    script = RECIPES / "ray-submit.sh"
    (tmp_path / "bin").mkdir()
    noted = tmp_path / "bin" / "ray"
    noted.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$HOME/words.txt"\nls -A "$4" > "$HOME/files.txt"\n')
    noted.chmod(0o755)
    (tmp_path / "mine.toml").write_text("")
    (tmp_path / "keys.env").write_text("")
    env = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", script, tmp_path / "mine.toml", "s3://bucket/runs/mine", "64"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    job, submit, option, folder, dashes, program, *words = (tmp_path / "words.txt").read_text().split()
    assert (job, submit, option, dashes, program) == ("job", "submit", "--working-dir", "--", "evalkit")
    assert (tmp_path / "files.txt").read_text().split() == ["mine.toml"]
    assert not Path(folder).exists()
    run = parse(words)
    assert (run.module, run.sweep, run.dir, run.on, run.workers) == (
        "run",
        "mine.toml",
        "s3://bucket/runs/mine",
        "ray",
        "64",
    )


def test_the_recipe_for_slurm_starts_one_process_of_ray_a_node(tmp_path: Path) -> None:
    """With an `srun` that only notes its arguments."""
    script = RECIPES / "ray-slurm.sh"
    (tmp_path / "bin").mkdir()
    for name, does in (
        ("srun", 'printf "%s\\n" "$@" > "$HOME/words.txt"'),
        ("scontrol", "printf 'node-3\\nnode-4\\n'"),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    env = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_NODELIST": "node-[3-4]",
        "SLURM_NNODES": "2",
        "SLURM_CPUS_PER_TASK": "8",
    }
    done = subprocess.run(
        ["bash", script, "runs/mine.toml", "/shared/runs/mine"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "words.txt").read_text().split()
    ray, words = said[: said.index("--")], said[said.index("--") + 2 :]
    assert ray[:4] == ["--nodes=2", "--ntasks=2", "ray", "symmetric-run"]
    assert ray[4:] == ["--address", "node-3:6379", "--min-nodes", "2", "--num-cpus", "8"]
    run = parse(words)
    assert (run.module, run.sweep, run.dir, run.on, run.workers) == (
        "run",
        "runs/mine.toml",
        "/shared/runs/mine",
        "ray",
        "16",
    )


def test_ray_that_is_not_installed_or_a_remote_client_is_refused(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine.toml").write_text(POLICIES)
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    answer = call("run", "mine.toml", "--on", "ray")
    assert answer.code == 2
    assert "Ray is not installed: pip install 'evalkit-econ[ray]'" in answer.message
    monkeypatch.setattr(on_ray, "find_spec", lambda name: name)
    monkeypatch.setenv(on_ray.ADDRESS, "ray://head:10001")
    assert "RAY_ADDRESS: ray://head:10001 would tie the run" in call("run", "mine.toml", "--on", "ray").message
    assert not (here / "runs" / "mine").exists()
