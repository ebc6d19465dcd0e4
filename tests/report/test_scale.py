"""What a report costs a step: no more in a long run than in a shorter one, and less the second time. It is counted:
seconds and megabytes are the bench's to promise (`bench/results.py`)."""

from dataclasses import replace
from pathlib import Path

from bench.replicas import SWEEP, write_replicas
from evalkit.report.report import report
from evalkit.spec.model import AgentSpec
from tests.support.growth import MOST, WIDER, units
from tests.support.work import modules_reached

STEPS = 100


def test_a_report_keeps_to_its_work_a_step(tmp_path: Path) -> None:
    sweep = replace(SWEEP, agents=(AgentSpec(name="greedy", policy="greedy"), AgentSpec(name="knuth", policy="knuth")))
    once, part, long = (tmp_path / name for name in ("once", "part", "long"))
    write_replicas(once, 1, sweep, instances=1)
    few = write_replicas(part, STEPS, sweep, instances=1)
    many = write_replicas(long, STEPS * WIDER, sweep, instances=1)
    reached = modules_reached(lambda: report(once))  # what is done once is done now
    before, after, again = (units(report, run, reached) for run in (part, long, long))
    assert after / many < MOST / WIDER * before / few
    assert again < after
