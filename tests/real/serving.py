"""Servers that nobody here wrote, as child processes that reach nothing beyond this machine."""

import json
import os
import re
import socket
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from evalkit.store.reading.reader import scan
from tests.real.building import LITELLM, MODEL, SERVER, TEMPLATE, VLLM, missing
from tests.real.tiny_model import write_model
from tests.support.command_line import Said, finish, start
from tests.support.patience import PATIENCE_S

PROVIDERS = Path(__file__).resolve().parent.parent.parent / "providers"
KEY = "sk-" + "0123456789abcdef" * 4


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def llama_cpp(log: Path, *flags: str, port: int = 0) -> Iterator[str]:
    """llama.cpp's server with the model of random weights; gives its base URL. Skips where it is not built."""
    if why := missing(SERVER):
        pytest.skip(why)
    port = port or free_port()
    command = [
        str(SERVER),
        "--model",
        str(MODEL),
        "--port",
        str(port),
        "--jinja",
        "--chat-template-file",
        str(TEMPLATE),
    ]
    few = ["--threads", "1", "--parallel", "4", "--ctx-size", "65536", "--cache-ram", "0", "--metrics", "--offline"]
    with _child([*command, *few, *flags], log, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def vllm(folder: Path, *flags: str, port: int = 0) -> Iterator[str]:
    """vLLM with the tiny model, as "random"; gives its base URL. Skips where it is not installed."""
    if why := missing(VLLM):
        pytest.skip(why)
    port, model = port or free_port(), folder / "model"
    if not model.exists():
        write_model(model)
    command = [str(VLLM), "serve", str(model), "--served-model-name", "random", "--host", "127.0.0.1"]
    calls = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    few = ["--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "4"]
    # Without a GPU, vLLM 0.32 ends ("CPU Generator does not use offset") where it reads a prompt with a seed in parts.
    whole = ["--max-model-len", "32768", "--max-num-batched-tokens", "131072"]
    with _child([*command, *calls, *few, *whole, *flags], folder / "vllm.log", f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def litellm(folder: Path, models: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """LiteLLM's proxy in front of the models of other servers, by name; gives its base URL. Skips where it is not
    installed."""
    if why := missing(LITELLM):
        pytest.skip(why)
    listed = [{"model_name": name, "litellm_params": dict(model)} for name, model in models.items()]
    config, port = folder / "config.yaml", free_port()
    config.write_text(json.dumps({"model_list": listed, "litellm_settings": {"telemetry": False}}))  # JSON is YAML
    command = [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with _child(command, folder / "litellm.log", f"http://127.0.0.1:{port}/health/liveliness"):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def _child(command: Sequence[str], log: Path, health: str) -> Iterator[None]:
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    own = {"NO_PROXY": "127.0.0.1", "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    own |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    own |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with log.open("ab") as said:
        child = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**inherited, **nowhere, **own},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        _await_ready(child, health, log)
        yield
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _await_ready(child: subprocess.Popen[bytes], health: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and child.poll() is None:
        with suppress(urllib.error.URLError, OSError):
            get(health)  # 503 while the model is loaded
            return
        time.sleep(0.2)
    pytest.fail(f"{health} did not answer: {log.read_text(errors='replace')[-2000:]}")


def get(url: str) -> str:
    """A page of a server here. Raises URLError where there is none, or not yet."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as page:
        text: str = page.read().decode()
    return text


def counted(url: str) -> dict[str, int]:
    """What the server itself has counted since it began."""
    page = get(url.replace("/v1", "/metrics"))
    totals = re.findall(r"^(?:llamacpp|vllm):(\w+)_total(?:\{[^}]*\})? (\S+)$", page, re.MULTILINE)
    return {name: int(float(n)) for name, n in totals}


def shipped(provider: str, url: str, stream: str = "off") -> str:
    """The provider's file that evalkit comes with, at another address."""
    text = (PROVIDERS / f"{provider}.toml").read_text()
    return f'stream = "{stream}"\n' + text.replace(tomllib.loads(text)["url"], url)


def lab(folder: Path, provider: str, file: str, sweep: str) -> None:
    """A sweep and its provider in a folder of their own."""
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    (folder / "providers" / f"{provider}.toml").write_text(file)
    (folder / "sweep.toml").write_text(sweep)


def evalkit(folder: Path, *words: str) -> Said:
    """A command in a process of its own, to its end."""
    return finish(start(folder, *words))


def steps(run: Path) -> list[dict[str, Any]]:
    """What the log of a run says of its steps, without what differs between two that are the same: times and ids."""
    wanted = ("agent", "instance", "episode", "step", "facts", "ending", "finish", "tokens_in", "tokens_out")
    rows: list[dict[str, Any]] = scan(run, wanted).to_pylist()
    return sorted(rows, key=lambda row: (*(row[name] for name in wanted[:3]), row["step"]))
