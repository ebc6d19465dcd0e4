"""Whole runs through LiteLLM's proxy in front of the simulated provider and of llama.cpp's server; also streamed."""

from pathlib import Path
from typing import Any

import pytest

from tests.provider.serving import simulated
from tests.real.serving import KEY, counted, evalkit, lab, litellm, llama_cpp, steps
from tests.support.command_line import bill_lines

pytestmark = pytest.mark.real

PROVIDER = """
dialect = "openai_chat"
url = "{url}"
key_env = "LITELLM_MASTER_KEY"
stream = "{stream}"
usd_per_mtok = {{ input = "1", output = "4", source = "made up, 2026-11-21" }}
"""
SWEEP = """
width = 4
[[agents]]
name = "knuth"
provider = "litellm"
model = "knuth"
[[agents]]
name = "replanner"
provider = "litellm"
model = "replanner"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [4] }}
[[suites]]
name = "costbench/basic"
instances = ["dining-0004", "location-0000"]
"""


def test_runs_through_the_proxy_have_the_replies_and_the_usage_of_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", KEY)
    found: dict[str, list[dict[str, Any]]] = {}
    bill, billed = tmp_path / "bill.jsonl", 0
    with simulated({"bill": str(bill)}) as url:
        models = {
            name: {"model": f"openai/{name}", "api_base": url, "api_key": "none"} for name in ("knuth", "replanner")
        }
        with litellm(tmp_path, models) as proxy:
            for name, at, stream in (("beside", url, "off"), ("whole", proxy, "off"), ("streamed", proxy, "on")):
                folder = tmp_path / name
                lab(folder, "litellm", PROVIDER.format(url=at, stream=stream), SWEEP.format())
                said = evalkit(folder, "run", "sweep.toml", "--dir", "run")
                assert said.code == 0, said
                assert evalkit(folder, "verify", "run").code == 0
                found[name] = steps(folder / "run")
                # A proxy writes a body of its own, and the simulated provider counts its bytes.
                counted = [[row.pop("tokens_in"), row.pop("tokens_out")] for row in found[name]]
                lines = bill_lines(bill)[billed:]
                billed += len(lines)
                assert sorted(counted) == sorted([line["tokens_in"], line["tokens_out"]] for line in lines)
    assert found["whole"] == found["streamed"] == found["beside"]
    assert len(found["beside"]) > 20


LOCAL = """
[[agents]]
name = "noise"
provider = "litellm"
model = "random"
max_tokens = 40
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
vary = {{ periods = [2], queries = [4] }}
"""
STRICT = """
[models."*"]
refuses = ["malformed_arguments"]
"""


@pytest.mark.parametrize("stream", ["off", "on"])
def test_a_model_of_ones_own_plays_through_the_proxy(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", KEY)
    with llama_cpp(tmp_path / "log") as url:
        model = {"model": "openai/random", "api_base": url, "api_key": "none"}
        with litellm(tmp_path, {"random": model}) as proxy:
            lab(tmp_path, "litellm", PROVIDER.format(url=proxy, stream=stream) + STRICT, LOCAL.format())
            said = evalkit(tmp_path, "run", "sweep.toml", "--dir", "run")
        counts = counted(url)
    assert said.code == 0, said
    rows = steps(tmp_path / "run")
    assert {"length"} <= {row["finish"] for row in rows} <= {"length", "tool_calls"}
    assert sum(row["tokens_out"] for row in rows) == counts["tokens_predicted"]
