"""Small sweeps as values, for tests of what happens to them."""

from pathlib import Path

from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.spec.sweep import read_sweep

TWO_POLICIES = """
replicates = 2
[[agents]]
policy = "knuth"
[[agents]]
policy = "random"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6", "seed-9"]
vary = { periods = [5] }
"""

COSTBENCH = """
[[agents]]
name = "replanner"
provider = "simulated"
model = "replanner"
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""


def resolved(tmp_path: Path, text: str = TWO_POLICIES, name: str = "mine") -> ResolvedSweep:
    """The sweep that a spec's text describes."""
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return resolve(read_sweep(path))
