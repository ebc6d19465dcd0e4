"""What a report costs a step: no more in a long run than in a shorter one, in CPU time, and so much memory at most."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.replicas import SWEEP, write_replicas
from evalkit.spec.model import AgentSpec

STEPS = 50_000
SHARE = 4
"""The shorter run has a quarter of them. Seconds are the bench's to promise: machines differ."""
MOST_GROWTH = 2.0
"""CPU time a step beside the shorter run's: with a square it would be `SHARE`."""
MOST_BYTES_A_STEP = 2_000
"""Of memory: 2 GB for 1,000,000 steps."""

# The first report, of a run with the same cells, imports and compiles; what the long one takes beyond is its length.
MEASURE = """
import resource, sys, time
from pathlib import Path
from evalkit.report.report import report

def spent(run):
    began = time.process_time()
    ended = report(Path(run)).ended
    return ended, time.process_time() - began

spent(sys.argv[1])
_, part_s = spent(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ended, first_s = spent(sys.argv[3])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
again, again_s = spent(sys.argv[3])
print(ended, again, part_s, first_s, again_s, after - before)
"""


def test_a_report_keeps_to_its_cost_a_step(tmp_path: Path) -> None:
    agents = tuple(AgentSpec(name=name, policy=name) for name in ("replanner", "greedy", "knuth", "random"))
    sweep = replace(SWEEP, agents=agents)
    write_replicas(tmp_path / "short", 1, sweep, instances=3)
    part = write_replicas(tmp_path / "part", STEPS // SHARE, sweep, instances=3)
    steps = write_replicas(tmp_path / "long", STEPS, sweep, instances=3)
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in ("short", "part", "long"))]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ended, again, part_s, first_s, again_s, memory = map(float, words)
    assert steps >= STEPS
    assert ended == again > 100
    assert first_s / steps < MOST_GROWTH * part_s / part
    assert again_s < first_s
    assert memory * (1 if sys.platform == "darwin" else 1024) / steps < MOST_BYTES_A_STEP
