"""What a report costs a step: the bench's promise for 1,000,000 steps, held by 50,000 with room for a busy machine."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.replicas import SWEEP, write_replicas
from evalkit.spec.model import AgentSpec

STEPS = 50_000
MOST_US_A_STEP = 2 * 20.0
"""CPU: 20 s for 1,000,000 steps."""
MOST_BYTES_A_STEP = 2_000
"""Of memory: 2 GB for 1,000,000 steps."""

# The first report, of a run with the same cells, imports and compiles; what the long one takes beyond is its length.
MEASURE = """
import resource, sys, time
from pathlib import Path
from evalkit.report.report import report

report(Path(sys.argv[1]))
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
ended = report(Path(sys.argv[2])).ended
spent, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
again = report(Path(sys.argv[2])).ended
print(ended, again, spent, time.process_time() - began, after - before)
"""


def test_a_report_keeps_to_its_cost_a_step(tmp_path: Path) -> None:
    agents = tuple(AgentSpec(name=name, policy=name) for name in ("replanner", "greedy", "knuth", "random"))
    sweep = replace(SWEEP, agents=agents)
    write_replicas(tmp_path / "short", 1, sweep, instances=3)
    steps = write_replicas(tmp_path / "long", STEPS, sweep, instances=3)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "short"), str(tmp_path / "long")]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ended, again, first_s, again_s, memory = map(float, words)
    assert steps >= STEPS
    assert ended == again > 100
    assert first_s / steps * 1e6 < MOST_US_A_STEP
    assert again_s < first_s
    assert memory * (1 if sys.platform == "darwin" else 1024) / steps < MOST_BYTES_A_STEP
