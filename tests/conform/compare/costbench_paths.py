"""Golden cases of CostBench about plans: the ground truth's, the greedy one, and tables over all queries.

Tables are recomputed from the reference's own queries, with its settings. What a table says about the reference's plans
we can only say about ours, which the rows of the kind `paths` show to be the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.instances.costs import query_seed, reference_costs
from evalkit.envs.costbench.planning.solve import float_cost, optimal_paths, reference_path
from evalkit.envs.costbench.score import edit_distance, normalised
from tests.conform.compare.costbench_costs import LEAST_LENGTH
from tests.conform.compare.goldens import GoldenVerdict, Row, differing, judged, out_of_scope
from tests.support.greedy_paths import greedy_path

LOW, HIGH, NOISE, STEPS = 15, 25, 0.1, 20
"""The reference's settings: range of atomic costs, noise, and calls at most."""
QUERIES = Path("costbench/test/queries.json")
"""In the folder of the reference's data set."""
SEEDS = (42, 1000, 2000, 3000)
LENGTHS = range(3, 9)
"""What the table of ties is about."""
MOST_PATHS = 1 << LENGTHS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan, and what the reference says it costs."""

    path: tuple[int, ...]
    names: tuple[str, ...]
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """One query's plans under the reference's settings."""

    truth: Plan
    greedy: Plan
    equal: tuple[tuple[int, ...], ...]
    """All plans of the ground truth's cost in cents."""
    floats: tuple[float, ...]
    """What the reference's sum makes of each of them."""
    sizes: tuple[int, ...]
    """By place: how many atomic tools a tool stands for."""

    @property
    def edit(self) -> int:
        """How far the greedy plan is from the ground truth."""
        return edit_distance(self.greedy.names, self.truth.names)

    @property
    def normalised(self) -> float:
        """That over the longer one's length."""
        return normalised(self.greedy.names, self.truth.names)

    @property
    def exact(self) -> bool:
        """Whether both plans are the same."""
        return self.greedy.path == self.truth.path


@lru_cache(maxsize=1 << 14)
def solved(task: str, length: int, draw_seed: int) -> Solved:
    """The plans of one query. The seed is the query's own, of which its costs are drawn."""
    world = make_world(shipped("travel"), task, length, whole=False)
    # Half of the costs are those of tools that nobody is shown; they decide nothing but ties.
    terms = Terms(tuple(reference_costs(world, draw_seed, LOW, HIGH, NOISE, foreign=False)))
    if len(optimal_paths(world, terms, world.start, 2)) > 1:
        terms = Terms(tuple(reference_costs(world, draw_seed, LOW, HIGH, NOISE)))
    truth = reference_path(world, terms, world.start)
    assert truth is not None
    equal = optimal_paths(world, terms, world.start, MOST_PATHS)
    return Solved(
        truth=_plan(world, terms, truth),
        greedy=_plan(world, terms, greedy_path(world, terms, world.start, None, STEPS)),
        equal=equal,
        floats=tuple(float_cost(terms, path) for path in equal),
        sizes=tuple(tool.size for tool in world.tools),
    )


def _plan(world: World, terms: Terms, path: tuple[int, ...]) -> Plan:
    return Plan(path=path, names=tuple(world.tools[i].name for i in path), cost=float_cost(terms, path))


def paths(row: Row, data: Path | None) -> GoldenVerdict:
    """Both plans of one query, tool by tool, their costs bit for bit, and how far they are apart."""
    del data
    found = solved(row["task"], row["task_length"], row["tool_creation_seed"])
    ours = {
        **row,
        "refinement_level": row["task_length"] - LEAST_LENGTH,
        "gt_path": found.truth.names,
        "gt_cost": found.truth.cost,
        "greedy_path": found.greedy.names,
        "greedy_cost": found.greedy.cost,
        "greedy_edit": found.edit,
        "greedy_ned": found.normalised,
        "greedy_em": int(found.exact),
    }
    return judged(row, ours)


def greedy_table(row: Row, data: Path | None) -> GoldenVerdict:
    """The paper's row of the greedy policy, and the same figures for every seed and length that the table has."""
    queries = _queries(data)
    if queries is None:
        return _NO_DATA
    said = row["settings"]
    main = _figures(queries, said["global_seed"], said["refinement_level"] + LEAST_LENGTH)
    rounded = {
        "cost_gap": round(main["cost_gap"], 3),
        "AED": round(main["AED"], 3),
        "ANED_pct": round(100 * main["ANED"], 2),
        "EMR_pct": round(100 * main["EMR"], 2),
    }
    ours = {
        **row,
        "paper_row": rounded,
        "recomputed_row": {**rounded, "EM_count": main["EM_count"], "n": main["n"]},
        "reproduced": True,
        "settings": {
            **said,
            "min_atomic_cost": LOW,
            "max_atomic_cost": HIGH,
            "noise_std": NOISE,
            "ban_longest_tool": True,
            "max_tool_steps": STEPS,
            "queries": len(queries),
        },
        "all_rows": [_figures(queries, line["seed"], line["task_length"]) for line in row["all_rows"]],
    }
    return judged(row, ours)


def tie_stats(row: Row, data: Path | None) -> GoldenVerdict:
    """By length: how many queries have several plans of one cost, and which rule finds the reference's."""
    queries = _queries(data)
    if queries is None:
        return _NO_DATA
    unknown = [key for key in row if not key.isdigit() or int(key) not in LENGTHS]
    if unknown:
        return differing(f"the reference has no chains of length {unknown[0]}")
    return judged(row, {key: _ties(queries, int(key)) for key in row})


_NO_DATA = out_of_scope("needs the reference's queries: --data")


@lru_cache(maxsize=4)
def _read(path: Path) -> tuple[tuple[str, str], ...]:
    with path.open(encoding="utf-8") as file:
        return tuple((query["query_id"], query["task"]) for query in json.load(file))


def _queries(data: Path | None) -> Sequence[tuple[str, str]] | None:
    """(id, task) of the reference's test queries; None: they are not there."""
    return _read(data / QUERIES) if data is not None and (data / QUERIES).is_file() else None


def _all(queries: Sequence[tuple[str, str]], seed: int, length: int) -> list[Solved]:
    return [solved(task, length, query_seed(seed, name)) for name, task in queries]


def _figures(queries: Sequence[tuple[str, str]], seed: int, length: int) -> dict[str, Any]:
    found = _all(queries, seed, length)
    n = len(found)
    greedy, truth = _mean([one.greedy.cost for one in found]), _mean([one.truth.cost for one in found])
    exact = sum(one.exact for one in found)
    return {
        "seed": seed,
        "refinement_level": length - LEAST_LENGTH,
        "task_length": length,
        "n": n,
        "avg_greedy_cost": greedy,
        "avg_gt_cost": truth,
        "cost_gap": greedy - truth,
        "avg_delta_atomic": _mean([(one.greedy.cost - one.truth.cost) / ((LOW + HIGH) / 2) for one in found]),
        "cost_ratio": greedy / truth,
        "mean_per_query_ratio": _mean([one.greedy.cost / one.truth.cost for one in found]),
        "AED": _mean([one.edit for one in found]),
        "ANED": _mean([one.normalised for one in found]),
        "EM_count": exact,
        "EMR": exact / n,
    }


def _mean(values: Sequence[float]) -> float:
    # Added from the left, as the reference's Python does: later ones' `sum` corrects what floats lose.
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def _ties(queries: Sequence[tuple[str, str]], length: int) -> Mapping[str, int]:
    found = [one for seed in SEEDS for one in _all(queries, seed, length)]
    same_size = [one for one in found if len(_best(one)) > 1]
    return {
        "rows": len(found),
        "decimal_ties": sum(len(one.equal) > 1 for one in found),
        "exact_ties": sum(one.floats.count(min(one.floats)) > 1 for one in found),
        "same_len_ties": len(same_size),
        "heap_mismatch": 0,  # ours are the heap's by construction
        "simple_mismatch": sum(_smallest_first(one) != one.truth.path for one in same_size),
        "longer_than_needed": sum(len(one.truth.path) > min(map(len, one.equal)) for one in found),
        "greedy_is_cooptimal": sum(one.greedy.path in one.equal for one in found),
        "greedy_em": sum(one.exact for one in found),
        "path_mismatch": sum(one.truth.path not in _best(one) for one in found),
    }


def _best(one: Solved) -> list[tuple[int, ...]]:
    """The plans among which neither the float cost nor the number of calls decides."""
    least = min(zip(one.floats, map(len, one.equal), strict=True))
    return [path for cost, path in zip(one.floats, one.equal, strict=True) if (cost, len(path)) == least]


def _smallest_first(one: Solved) -> tuple[int, ...]:
    return min(_best(one), key=lambda path: [one.sizes[place] for place in path])
