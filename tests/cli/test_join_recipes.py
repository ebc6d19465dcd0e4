"""The recipes for clusters as they are shipped: their syntax, the fields that they set, and the commands in them."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.main import parse
from evalkit.engine.machines.tcp import client_context, server_context

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
    "Service": {
        "apiVersion": "v1",
        "kind": str,
        "metadata": NAMED,
        "spec": {"selector": {"app": str}, "ports": [{"port": int}]},
    },
    "Job": {
        "apiVersion": "batch/v1",
        "kind": str,
        "metadata": NAMED,
        "spec": {
            "parallelism": int,
            "completions": int,
            "backoffLimit": int,
            "template": {"metadata": {"labels": {"app": str}}, "spec": POD},
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


def test_the_kubernetes_recipe_sets_fields_that_there_are_and_starts_commands_that_there_are() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with moto, in the extra `dev`")
    service, *jobs = yaml.safe_load_all((RECIPES / "join-kubernetes.yaml").read_text())
    for one in (service, *jobs):
        fits(one, FIELDS[one["kind"]], one["kind"])
    pods = {job["metadata"]["name"]: job["spec"]["template"] for job in jobs}
    coordinator, workers = (pods[f"evalkit-{name}"]["spec"] for name in ("coordinator", "workers"))
    assert service["spec"]["selector"] == pods["evalkit-coordinator"]["metadata"]["labels"]
    for pod in (coordinator, workers):
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    run, join = (parse(pod["containers"][0]["args"]) for pod in (coordinator, workers))
    assert (run.module, run.on, run.dir) == ("run", "join", join.place)
    port = run.listen.rpartition(":")[2]
    assert join.coordinator == f"{service['metadata']['name']}:{port}"
    assert [service["spec"]["ports"][0]["port"], coordinator["containers"][0]["ports"][0]["containerPort"]] == [
        int(port)
    ] * 2
    most = next(job["spec"]["parallelism"] for job in jobs if "parallelism" in job["spec"]) * int(join.workers)
    assert int(run.workers) == most


def test_the_slurm_recipe_starts_a_coordinator_and_workers_that_trust_it(tmp_path: Path) -> None:
    """Each task as Slurm starts it, with an `evalkit` that only notes its arguments."""
    script = RECIPES / "join-slurm.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    (tmp_path / "bin").mkdir()
    noted = tmp_path / "bin" / "evalkit"
    noted.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > "$HOME/$SLURM_ARRAY_TASK_ID.txt"\n')
    noted.chmod(0o755)
    calls = []
    for task in ("0", "3"):
        env = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "SLURM_ARRAY_JOB_ID": "17",
            "SLURM_ARRAY_TASK_ID": task,
            "SLURM_CPUS_PER_TASK": "4",
        }
        done = subprocess.run(
            ["bash", script, "runs/mine.toml", "/shared/runs/mine"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        calls.append(parse((tmp_path / f"{task}.txt").read_text().split()))
    run, join = calls
    assert (run.module, run.on, run.dir, run.sweep) == ("run", "join", "/shared/runs/mine", "runs/mine.toml")
    assert (join.module, join.place, join.workers) == ("join", "/shared/runs/mine", "4")
    assert join.authority == run.certificate
    server_context(Path(run.certificate), Path(run.certificate_key))
    client_context(Path(join.authority))
    assert Path(run.certificate).parent.stat().st_mode & 0o077 == 0


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
