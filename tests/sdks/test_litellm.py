"""evalkit's own client against a LiteLLM proxy, which many put before their providers; here it answers by itself. And
LiteLLM's client against the simulated provider's streams."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalkit.store.reading.reader import scan
from tests.provider.serving import simulated
from tests.sdks.holding import WHY
from tests.serve.asking import TOOLS
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go

# Looked for and not imported: when it is, it asks the network for prices.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason=WHY)

CHECKED_SERVER = {"openai_chat": "LiteLLM's proxy"}
"""For the table in docs/provider-details.md."""
READY_WITHIN_S = 600.0
KEY = "sk-" + "0123456789abcdef" * 4
ASSIGNMENT = {f"W{i}": f"T{i}" for i in range(1, 11)}
CALL = {"name": "submit_assignment", "arguments": json.dumps({"assignment": str(ASSIGNMENT)})}
USAGE = {"prompt_tokens": 300, "completion_tokens": 40, "total_tokens": 340}
"""What the proxy says of every reply."""
PROVIDER = """
dialect = "openai_chat"
url = "{url}"
key_env = "LITELLM_MASTER_KEY"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
SWEEP = """
[[agents]]
name = "mocked"
provider = "litellm"
model = "always"
[[agents]]
name = "here"
policy = "scripted"
[agents.params]
replies = [{{ calls = [{{ name = "submit_assignment", arguments = {{ assignment = "{assignment}" }} }}] }}]
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-1", "seed-2"]
vary = {{ periods = [4] }}
"""
"""The same replies from the proxy and from a policy in this process."""


@dataclass(frozen=True)
class Proxy:
    url: str
    log: Path


def config() -> str:
    """The proxy's configuration: one model that submits the same assignment in every turn. JSON is YAML."""
    message = {"role": "assistant", "content": None}
    calls = [{"id": "call_1", "type": "function", "function": CALL}]
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {**message, "tool_calls": calls}}
    mocked = {"id": "mocked-1", "object": "chat.completion", "model": "always", "choices": [choice], "usage": USAGE}
    model = {"model": "openai/always", "api_key": "none", "mock_response": mocked}
    models = [{"model_name": "always", "litellm_params": model}]
    return json.dumps({"model_list": models, "litellm_settings": {"telemetry": False}})


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A LiteLLM proxy as a child process that cannot reach anything beyond this machine."""
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "config.yaml").write_text(config())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    environment = {
        **{name: value for name, value in os.environ.items() if name.lower() not in ("http_proxy", "https_proxy")},
        **nowhere,
        "NO_PROXY": "127.0.0.1",
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    # Its program stands beside this interpreter.
    program = [str(Path(sys.executable).parent / "litellm"), "--config", "config.yaml"]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [*program, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        await_ready(child, f"http://127.0.0.1:{port}/health/liveliness", folder / "log")
        yield Proxy(f"http://127.0.0.1:{port}/v1", folder / "log")
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def await_ready(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with opener.open(url, timeout=5) as page:
                page.read()
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"the proxy was not ready within {READY_WITHIN_S:g} s: {log.read_text()[-2000:]}")


@pytest.fixture
def lab(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose provider `litellm` is the proxy."""
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "litellm.toml").write_text(PROVIDER.format(url=proxy.url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_MASTER_KEY", KEY)
    return tmp_path


def test_whole_episodes_are_held_through_the_proxy_and_score_as_the_same_replies_do_here(
    lab: Path, proxy: Proxy
) -> None:
    sweep = resolved(lab, SWEEP.format(assignment=ASSIGNMENT))
    outcome = go(sweep, lab / "run")
    assert (outcome.exit_code, outcome.remaining, outcome.messages) == (0, 0, ())
    assert outcome.ended == outcome.episodes == 6
    rows = scan(lab / "run", ("agent", "instance", "step", "facts", "ending", "tokens_in", "tokens_out")).to_pylist()
    facts = {
        agent: {(row["instance"], row["step"]): row["facts"] for row in rows if row["agent"] == agent}
        for agent in ("mocked", "here")
    }
    assert facts["mocked"] == facts["here"]
    assert len(facts["mocked"]) == 3 * 4
    paid = [row for row in rows if row["agent"] == "mocked"]
    assert {(row["tokens_in"], row["tokens_out"]) for row in paid} == {(300, 40)}
    assert proxy.log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 200') == len(paid)
    assert outcome.spent == len(paid) * (300 + 4 * 40) * 10**6


ASKS = """
import json, sys, litellm
url, tools = sys.argv[1], json.loads(sys.argv[2])
asked = dict(model="openai/knuth", api_base=url, api_key="none", messages=[{"role": "user", "content": "Begin."}],
             tools=tools, extra_headers={"X-Client-Request-Id": "e/1/0"})
whole = litellm.completion(**asked)
chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **asked))
for one in (whole, litellm.stream_chunk_builder(chunks)):
    (choice,) = one.choices
    message, usage = choice.message, one.usage
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
    counted = [usage.prompt_tokens, usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens]
    print(json.dumps([message.reasoning_content, message.content, calls, choice.finish_reason, counted]))
"""
"""A program: what the same request gets whole, and streamed, a line each."""


def test_litellm_reads_the_simulated_providers_streams() -> None:
    with simulated({"reasoning": 60, "stream_tokens": 2}) as url:
        done = subprocess.run(
            [sys.executable, "-c", ASKS, url, json.dumps(TOOLS)],
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            capture_output=True,
            text=True,
            timeout=READY_WITHIN_S,
            check=True,
        )
    whole, streamed = (line for line in done.stdout.splitlines() if line.startswith("["))
    assert streamed == whole
    thoughts, _, calls, finish, counted = json.loads(whole)
    assert (bool(thoughts), len(calls), finish, counted[2]) == (True, 3, "tool_calls", 60)
