"""llama.cpp's server with a model of random weights plays whole runs: tools by its grammar, streamed and whole."""

import os
import signal
from pathlib import Path

import pytest

from tests.real.playing import ALL, COSTBENCH, MARKETS, await_tokens, outcomes
from tests.real.serving import counted, evalkit, free_port, lab, llama_cpp, shipped, steps
from tests.support.command_line import finish, start

pytestmark = pytest.mark.real

CHECKED_SERVER = {"llamacpp": "llama.cpp's server"}
"""For the table in docs/provider-details.md."""
SWEEP = """
width = 4
[[agents]]
name = "noise"
provider = "llamacpp"
model = "random"
max_tokens = 64
tool_choice = "required"
"""


def test_all_environments_are_played_streamed_and_in_one_piece_with_the_servers_own_counts(tmp_path: Path) -> None:
    found = {}
    for stream in ("off", "on"):
        folder = tmp_path / stream
        folder.mkdir()
        # One at a time and nothing cached: then the server writes the same at the same seeds.
        with llama_cpp(folder / "log", "--parallel", "1", "--no-cache-prompt") as url:
            lab(
                folder,
                "llamacpp",
                shipped("llamacpp", url, stream),
                (SWEEP + ALL).replace("width = 4", "width = 1"),
            )
            said = evalkit(folder, "run", "sweep.toml", "--dir", "run")
            assert said.code == 0, said
            counts = counted(url)
        rows = found[stream] = steps(folder / "run")
        assert sum(row["tokens_out"] for row in rows) == counts["tokens_predicted"]
        assert sum(row["tokens_in"] for row in rows) == counts["prompt_tokens"]
        assert evalkit(folder, "verify", "run").code == 0
    assert found["on"] == found["off"]
    # Most calls are cut off, and their chats go on; how many are not, rounding on other processors may decide.
    assert {"length"} <= {row["finish"] for row in found["on"]} <= {"length", "tool_calls"}
    assert outcomes(found["on"]) > {"ok"}


def test_a_run_outlives_kills_of_itself_and_of_the_server(tmp_path: Path) -> None:
    port = free_port()
    lab(tmp_path, "llamacpp", shipped("llamacpp", f"http://127.0.0.1:{port}/v1"), SWEEP + ALL)
    run = ("run", "sweep.toml", "--dir", "run")
    with llama_cpp(tmp_path / "first.log", port=port) as url:
        playing = start(tmp_path, *run)
        await_tokens(playing, url, "tokens_predicted", 400)
        os.kill(playing.pid, signal.SIGKILL)
        finish(playing)
        stored = len(steps(tmp_path / "run"))
        assert stored > 0
        before = counted(url)["tokens_predicted"]
        playing = start(tmp_path, *run)
        await_tokens(playing, url, "tokens_predicted", before + 400)
    # The server is gone, with requests in flight.
    with llama_cpp(tmp_path / "second.log", port=port):
        said = finish(playing)
    assert said.code == 0, said
    assert len(steps(tmp_path / "run")) > stored
    assert evalkit(tmp_path, "verify", "run").code == 0


def test_a_prompt_that_does_not_fit_ends_its_episode_and_nothing_else(tmp_path: Path) -> None:
    with llama_cpp(tmp_path / "log", "--ctx-size", "8192") as url:
        suites = COSTBENCH + MARKETS.format(name="pricing")
        lab(tmp_path, "llamacpp", shipped("llamacpp", url), SWEEP + suites)
        said = evalkit(tmp_path, "run", "sweep.toml", "--dir", "run")
    assert said.code == 0, said
    assert {row["ending"] for row in steps(tmp_path / "run")} == {"", "complete", "context_length"}
