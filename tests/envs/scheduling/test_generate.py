import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.scheduling.instance import (
    ALIKE,
    DIFFICULTIES,
    FAMILIES,
    Family,
    Gaps,
    family_of_seed,
    native_market,
    reference_market,
)
from evalkit.envs.scheduling.market import SchedulingMarket


def preferences(market: SchedulingMarket) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Both sides' lists, best first, by id."""
    by_worker, by_task = np.argsort(market.worker_rank, axis=1), np.argsort(market.task_rank_t, axis=0).T
    return (
        {worker: [market.tasks[t] for t in row] for worker, row in zip(market.workers, by_worker, strict=True)},
        {task: [market.workers[w] for w in row] for task, row in zip(market.tasks, by_task, strict=True)},
    )


def test_golden_instances_are_made_bit_for_bit_and_leave_the_generator_where_it_was(shared: Path) -> None:
    rows = (shared / "goldens/econagentbench/scheduling_instances.jsonl").read_text().splitlines()
    assert len(rows) >= 24
    for case in map(json.loads, rows):
        gaps = FAMILIES[family_of_seed(case["seed"])]
        assert ((gaps.worker or None), (gaps.task or None)) == (case["score_gap_worker"], case["score_gap_task"])
        assert DIFFICULTIES[case["difficulty"].lower()] == (case["n"], case["feedback_k"])
        market, random_state = reference_market(case["n"], case["seed"], gaps)
        assert preferences(market) == (case["worker_prefs"], case["task_prefs"])
        assert RandomStateStream(random_state).double() == case["rng_probe_next_double"]


def test_the_families_of_the_reference_s_seeds_are_three_each_and_begin_again() -> None:
    assert [family_of_seed(seed) for seed in range(12)] == [family for family in FAMILIES for _ in range(3)]
    assert family_of_seed(14) == family_of_seed(2)


@given(st.integers(1, 12), st.integers(0, 2**63 - 1), st.sampled_from(list(FAMILIES)))
def test_native_markets_repeat_and_have_their_family_s_shape(n: int, seed: int, family: Family) -> None:
    gaps = FAMILIES[family]
    market = native_market(n, seed, gaps)
    assert market.digest == native_market(n, seed, gaps).digest
    by_worker, by_task = preferences(market)
    alike = len({tuple(row) for row in by_task.values()}) == 1
    assert alike or gaps.worker != ALIKE
    assert all(sorted(row) == sorted(market.tasks) for row in by_worker.values())
    assert all(sorted(row) == sorted(market.workers) for row in by_task.values())


def test_native_markets_differ_by_seed_and_family() -> None:
    digests = {native_market(8, seed, gaps).digest for seed in range(20) for gaps in FAMILIES.values()}
    assert len(digests) == 80


@pytest.mark.parametrize("generator", ["reference", "native"])
def test_a_wider_gap_makes_workers_agree_more(generator: str) -> None:
    def spread(gap: float) -> float:
        """Variance of the tasks' mean ranks: 0 if nobody agrees, large if all do."""
        found = []
        for seed in range(30):
            gaps = Gaps(worker=1.0, task=gap)
            market = reference_market(20, seed, gaps)[0] if generator == "reference" else native_market(20, seed, gaps)
            found.append(market.worker_rank.mean(axis=0).var())
        return float(np.mean(found))

    none, paper, wide, same = spread(1.0), spread(3.0), spread(30.0), spread(ALIKE)
    assert none < paper < wide < same
    assert same == pytest.approx((20**2 - 1) / 12)


def test_uniform_native_lists_are_uniform() -> None:
    firsts = np.zeros(5)
    for seed in range(400):
        firsts += (native_market(5, seed, FAMILIES["uniform"]).worker_rank == 0).sum(axis=0)
    # 2,000 first places over 5 tasks: sd of each count is 17.9
    assert abs(firsts - 400).max() < 80
