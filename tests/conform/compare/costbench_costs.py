"""Golden cases of CostBench that are about costs alone: the tables of one query's own tools."""

from pathlib import Path

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import make_world
from evalkit.envs.costbench.instances.costs import query_seed, reference_costs
from tests.conform.compare.goldens import GoldenVerdict, Row, differing, judged

DEFAULTS = {"min_atomic_cost": 15, "max_atomic_cost": 25, "noise_std": 0.1, "ban_longest_tool": True}
"""The reference's settings, where a row names none."""

LEAST_LENGTH = 3
"""Of a chain without refinement steps."""


def costs(row: Row, data: Path | None) -> GoldenVerdict:
    """The costs of all tools that are offered, bit for bit and in the order they are offered.

    The query's seed is recomputed where the row says the global one; the others are drawn with the seed they record.
    """
    del data
    said = {**DEFAULTS, **{key: row[key] for key in DEFAULTS if key in row}}
    seed = row["tool_creation_seed"]
    if "global_seed" in row:
        seed = query_seed(row["global_seed"], row["query_id"])
    world = make_world(shipped("travel"), row["task"], row["task_length"], whole=not said["ban_longest_tool"])
    low, high, noise = said["min_atomic_cost"], said["max_atomic_cost"], said["noise_std"]
    cents = reference_costs(world, seed, low, high, noise, foreign=False)
    ours = {
        **row,
        "refinement_level": row["task_length"] - LEAST_LENGTH,
        "tool_creation_seed": seed,
        "costs": {tool.name: cost / 100 for tool, cost in zip(world.tools, cents, strict=True)},
    }
    if list(row["costs"]) != list(ours["costs"]):
        return differing(f"costs: golden lists {list(row['costs'])}, ours {list(ours['costs'])}")
    return judged(row, ours)
