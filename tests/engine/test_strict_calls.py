"""A server that parses the arguments of earlier calls, as those of open models do, and models that write others."""

import asyncio
from pathlib import Path

import pytest

from evalkit.client import retry
from evalkit.client.lanes import health, lane
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.playing.sweeps import run_sweep
from evalkit.shipped import folders
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.provider.serving import serving
from tests.support.small_sweeps import resolved

SWEEP = """
[[agents]]
name = "noisy"
provider = "{provider}"
model = "noisy"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [6] }}
"""


FREE = 'usd_per_mtok = { input = "0", output = "0", source = "made up, 2026-11-21" }\n'


@pytest.fixture(autouse=True)
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds in place of minutes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retry, "FIRST_S", 0.01)
    monkeypatch.setattr(health, "FIRST_PROBE_S", 0.02)
    for module in (health, lane):
        monkeypatch.setattr(module, "GIVE_UP_S", 0.2)


def played(folder: Path, provider: str, file: str) -> tuple[RunOutcome, Double]:
    """The sweep, played by a provider of that file, whose address stands in place of `127.0.0.1:PORT`."""

    async def both() -> tuple[RunOutcome, Double]:
        async with serving(options_from({"strict_calls": True})) as (url, simulator):
            (folder / "providers").mkdir()
            (folder / "providers" / f"{provider}.toml").write_text(file.replace("{url}", url))
            sweep = resolved(folder, SWEEP.format(provider=provider))
            return await run_sweep(sweep, RunOptions(directory=folder / "run"), lambda view: None), simulator

    return asyncio.run(both())


@pytest.mark.parametrize("provider", ["llamacpp", "ollama", "sglang", "vllm"])
def test_servers_of_ones_own_are_sent_no_arguments_that_they_fail_at(provider: str, tmp_path: Path) -> None:
    shipped = next(path for folder in folders("providers") if (path := folder / f"{provider}.toml").is_file())
    lines = ['url = "{url}"' if line.startswith("url = ") else line for line in shipped.read_text().splitlines()]
    outcome, simulator = played(tmp_path, provider, "\n".join(lines))
    assert (outcome.exit_code, outcome.ended, outcome.messages) == (0, 2, ())
    assert simulator.totals.by_outcome == {"ok": simulator.totals.requests}


def test_sent_as_the_model_wrote_them_they_end_the_lane(tmp_path: Path) -> None:
    file = 'dialect = "openai_chat"\nurl = "{url}"\n' + FREE
    outcome, simulator = played(tmp_path, "other", file)
    assert simulator.totals.by_outcome["server_error"] > 0
    assert outcome.exit_code != 0
    (said,) = outcome.messages
    assert """write `refuses = ["malformed_arguments"]` for 'noisy' into the file of provider 'other'.""" in said
