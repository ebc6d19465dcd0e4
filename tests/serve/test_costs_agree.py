"""What the simulated provider bills for cached prompts is what a run says it has spent, to the last pico-dollar."""

from pathlib import Path

import pytest

from evalkit.store.reading.reader import scan
from evalkit.wire.table import DIALECTS
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served

PROVIDER = """
dialect = "{dialect}"
[simulate]
[usd_per_mtok]
input = "3"
output = "15"
cached_read = "0.3"
cached_write = "3.75"
source = "made up, 2026-11-21"
"""

SWEEP = """
replicates = 3
[[agents]]
name = "replanner"
provider = "simulated"
model = "replanner"
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_spends_what_is_billed_where_prompts_are_cached(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "simulated.toml").write_text(PROVIDER.format(dialect=dialect))
    monkeypatch.chdir(tmp_path)
    simulate = {"cache": "1h", "price": "3:15:0.3:3.75", "fault_429": 0.2, "retry_after": "1ms"}
    outcome, simulator = go_served(resolved(tmp_path, SWEEP), tmp_path / "run", simulate)
    totals = simulator.totals
    assert (outcome.exit_code, outcome.remaining) == (0, 0)
    assert outcome.spent == totals.bill > 0
    rows = scan(tmp_path / "run", ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write")).to_pylist()
    sums = {name: sum(row[name] for row in rows) for name in rows[0]}
    assert (sums["tokens_in"], sums["tokens_out"]) == (totals.tokens_in, totals.tokens_out)
    assert sums["tokens_cached_read"] == totals.tokens_cached > 0
    assert sums["tokens_cached_write"] == totals.tokens_cache_write
    assert (totals.tokens_cache_write > 0) == dialect.startswith("anthropic")
