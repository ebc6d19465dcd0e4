"""What models are asked about CostBench."""

from evalkit.report.costbench.planning_queries import is_blocked_line
from evalkit.tasks.costbench.asking import apply_answers, query_lines
from evalkit.tasks.costbench.queries import import_queries, raw_queries
from evalkit.tasks.record import Queries, Tasks

TASKS = Tasks(
    queries=Queries(read=import_queries, raw=raw_queries, errands=query_lines, apply=apply_answers),
    judged=lambda line: not is_blocked_line(line),
    judged_are="costbench episode without events",
)
