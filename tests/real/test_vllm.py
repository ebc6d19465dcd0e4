"""vLLM with a model of random weights plays whole runs: calls by its grammar and without, streamed and whole.

It is not installed here: `VLLM=/path/to/vllm python -m pytest -m real tests/real` names one, also one for a machine
without a GPU.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.real.playing import ALL, await_tokens, outcomes
from tests.real.serving import counted, evalkit, free_port, lab, shipped, steps, vllm
from tests.support.command_line import finish, start

pytestmark = pytest.mark.real

CHECKED_SERVER = {"vllm": "vLLM"}
"""For the table in docs/provider-details.md."""
AGENT = """
[[agents]]
name = "{choice}"
provider = "vllm"
model = "random"
max_tokens = 96
tool_choice = "{choice}"
"""


def sweep(*choices: str) -> str:
    """Agents with these tool choices on all environments."""
    return "width = 4\n" + "".join(AGENT.format(choice=choice) for choice in choices) + ALL


def test_all_environments_are_played_streamed_and_in_one_piece_with_the_servers_own_counts(tmp_path: Path) -> None:
    written = read = 0
    with vllm(tmp_path) as url:
        for stream in ("off", "on"):
            folder = tmp_path / stream
            lab(folder, "vllm", shipped("vllm", url, stream), sweep("required", "auto"))
            said = evalkit(folder, "run", "sweep.toml", "--dir", "run")
            assert said.code == 0, said
            rows, counts = steps(folder / "run"), counted(url)
            written, read = (
                written + sum(row["tokens_out"] for row in rows),
                read + sum(row["tokens_in"] for row in rows),
            )
            assert (written, read) == (counts["generation_tokens"], counts["prompt_tokens"])
            assert evalkit(folder, "verify", "run").code == 0
            assert outcomes([row for row in rows if row["agent"] == "required"]), "no call came about"


def test_a_run_outlives_kills_of_itself_and_of_the_server(tmp_path: Path) -> None:
    port = free_port()
    lab(tmp_path, "vllm", shipped("vllm", f"http://127.0.0.1:{port}/v1", "on"), sweep("required"))
    run = ("run", "sweep.toml", "--dir", "run")
    with vllm(tmp_path, port=port) as url:
        playing = start(tmp_path, *run)
        await_tokens(playing, url, "generation_tokens", 400)
        os.kill(playing.pid, signal.SIGKILL)
        finish(playing)
        stored = len(steps(tmp_path / "run"))
        assert stored > 0
        before = counted(url)["generation_tokens"]
        playing = start(tmp_path, *run)
        await_tokens(playing, url, "generation_tokens", before + 400)
    # The server is gone, with requests in flight.
    with vllm(tmp_path, port=port):
        said = finish(playing)
    assert said.code == 0, said
    assert len(steps(tmp_path / "run")) > stored
    assert evalkit(tmp_path, "verify", "run").code == 0
