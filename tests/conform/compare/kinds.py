"""All kinds of golden files: how a file is recognised by its name, and what checks one of its cases.

A plain table, read from the top: the first pattern that fits decides.
"""

from fnmatch import fnmatchcase
from pathlib import Path

from tests.conform.compare import (
    costbench_aggregates,
    costbench_blocking,
    costbench_costs,
    costbench_metrics,
    costbench_paths,
    heuristic,
    litmus,
    parsing,
    pricing,
    procurement,
    procurement_optima,
    scheduling,
    walks,
)
from tests.conform.compare.goldens import Checker, GoldenKind, GoldenVerdict, Row, out_of_scope


def kind_of(name: str) -> GoldenKind | None:
    """The kind a file's name belongs to, or None."""
    return next((kind for kind in KINDS if any(fnmatchcase(name, pattern) for pattern in kind.patterns)), None)


def _outside(reason: str) -> Checker:
    def check(row: Row, data: Path | None) -> GoldenVerdict:
        del row, data
        return out_of_scope(reason)

    return check


def _kind(name: str, check: Checker, *patterns: str) -> GoldenKind:
    return GoldenKind(name=name, patterns=patterns or (f"{name}*.json*",), check=check)


_CONVERSIONS = _outside("the reference's conversions to provider formats; evalkit has dialects of its own")

KINDS: tuple[GoldenKind, ...] = (
    _kind("scheduling_instances", scheduling.instances),
    _kind("scheduling_matchings", scheduling.matchings),
    _kind("scheduling_feedback_streams", walks.feedback_streams),
    _kind("scheduling_forced_walk", walks.forced_walk),
    _kind("scheduling_baselines", scheduling.baselines),
    _kind(
        "scheduling_heuristic", heuristic.heuristic, "scheduling_heuristic*.json*", "own_scheduling_heuristic*.json*"
    ),
    _kind("score_replays", walks.score_replays),
    _kind("parse_dict", parsing.parse_dict),
    _kind("procurement_instances", procurement.instances),
    _kind("procurement_plans", procurement.plans),
    _kind(
        "procurement_opt_exact",
        procurement_optima.exact,
        "procurement_opt_exact*.json*",
        "procurement_opt_own*.json*",
    ),
    _kind("procurement_opt_gurobi", procurement_optima.gurobi),
    _kind("procurement_opt_budget_sensitivity", procurement_optima.sensitivity),
    _kind("paper_appendix_anchor", procurement_optima.anchor),
    _kind("pricing_instances", pricing.instances),
    _kind("pricing_vectors", pricing.vectors),
    _kind("pricing_opt", pricing.optima),
    _kind("pricing_upper_bounds", pricing.hints),
    _kind("costs", costbench_costs.costs, "costs_seed*.jsonl", "costs_variants*.jsonl"),
    _kind("paths", costbench_paths.paths, "paths_seed*.jsonl"),
    _kind("blocking", costbench_blocking.blocking, "blocking_*.jsonl"),
    GoldenKind(
        name="metrics_aggregate",
        patterns=("metrics_aggregate*.json",),
        check=costbench_aggregates.aggregates,
        beside=costbench_aggregates.ROWS,
    ),
    _kind("metrics", costbench_metrics.metrics, "metrics_*.json*"),
    _kind("greedy_table", costbench_paths.greedy_table),
    _kind("tie_stats", costbench_paths.tie_stats),
    _kind("gt_change_aned", costbench_blocking.gt_change),
    _kind("provider_conversions", _CONVERSIONS),
    _kind("litmus_efficiency_equality", litmus.plans),
    _kind("litmus_collusion", litmus.prices),
    _kind("litmus_patience", litmus.rates),
)
