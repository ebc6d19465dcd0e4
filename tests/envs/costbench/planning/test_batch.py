import numpy as np
import pytest

from evalkit.envs.costbench.domain.world import Terms, World
from evalkit.envs.costbench.planning import solve
from evalkit.envs.costbench.planning.batch import Plans, cheapest, greedy, held_positions, span_costs
from evalkit.envs.costbench.planning.chain_loops import UNAVAILABLE
from tests.envs.costbench.planning.test_solve import TASKS, chain_world, drawn_state, drawn_terms
from tests.support.compiled_loops import printed


def ends(world: World, path: tuple[int, ...] | None, begin: int) -> list[int]:
    """A path as the batch writes it."""
    found = [begin] if path is None or not path else [world.tools[path[0]].first]
    found += [world.tools[place].last + 1 for place in path or ()]
    return found + [-1] * (world.length + 1 - len(found))


def drawn_cases(length: int, spread: int, number: int) -> list[tuple[World, Terms, int]]:
    draws = np.random.default_rng(length * 1000 + spread)
    found = []
    for i in range(number):
        world = chain_world(length, TASKS[i % 3], whole=i % 2 == 0)
        state = world.start if i % 3 == 0 else drawn_state(world, draws)
        found.append((world, drawn_terms(world, draws, spread, banned=0.12 * (i % 4)), state))
    return found


def stacked(cases: list[tuple[World, Terms, int]]) -> tuple[np.ndarray, np.ndarray]:
    costs = np.stack([span_costs(world, terms) for world, terms, _ in cases])
    return costs, np.array([held_positions(world, state) for world, _, state in cases])


def same(one: Plans, other: Plans) -> bool:
    return bool(
        (one.costs == other.costs).all() and (one.number == other.number).all() and (one.path == other.path).all()
    )


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("length", [3, 5, 8, 12])
@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_both_paths_find_the_plans_of_single_solves(length: int, spread: int) -> None:
    cases = drawn_cases(length, spread, 60)
    found = cheapest(*stacked(cases), compiled=True)
    assert same(found, cheapest(*stacked(cases), compiled=False))
    for k, (world, terms, state) in enumerate(cases):
        optimum = solve.optimum(world, terms, state)
        assert found.costs[k] == (-1 if optimum is None else optimum)
        assert found.number[k] == solve.count_optimal(world, terms, state)
        begin = length if state & world.goal else -1
        assert found.path[k].tolist() == ends(world, solve.optimal_path(world, terms, state), begin)


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("length", [3, 5, 8, 12])
@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_both_paths_play_greedily_as_single_plays_do(length: int, spread: int) -> None:
    cases = drawn_cases(length, spread, 60)
    found = greedy(*stacked(cases), compiled=True)
    assert same(found, greedy(*stacked(cases), compiled=False))
    for k, (world, terms, state) in enumerate(cases):
        path = solve.greedy_path(world, terms, state, None, 20)
        reached = bool(state & world.goal) or (bool(path) and world.tools[path[-1]].last == length - 1)
        assert found.costs[k] == (sum(terms.costs[place] for place in path) if reached else -1)
        assert found.number[k] == reached
        begin = length if state & world.goal else -1
        assert found.path[k].tolist() == ends(world, path, begin)


@pytest.mark.parametrize("compiled", [True, False])
def test_shares_are_compared_as_floats_where_they_are_equal(compiled: bool) -> None:
    # 0.05 / 1 and 0.15 / 3 are one share and two floats: the longer tool's is smaller.
    assert 15 / 100 / 3 < 5 / 100 / 1
    costs = np.full((1, 3, 3), 1000)
    costs[0, 0] = [5, 1000, 15]
    assert greedy(costs, np.array([1]), compiled).path.tolist() == [[0, 3, -1, -1]]
    costs[0, 0] = [16, 1000, 48]
    assert greedy(costs, np.array([1]), compiled).path.tolist()[0][:2] == [0, 1]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_longest_chain_of_equal_costs_is_counted_exactly(compiled: bool) -> None:
    world = chain_world(40, whole=True)
    terms = Terms(tuple(10 * tool.size for tool in (*world.tools, *world.foreign)))
    found = cheapest(span_costs(world, terms)[None], np.array([1]), compiled)
    assert (found.costs[0], found.number[0]) == (400, 2**39)
    assert found.path[0, :3].tolist() == [0, 40, -1]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("run", [cheapest, greedy])
def test_what_makes_no_sense_is_refused(run, compiled: bool) -> None:  # type: ignore[no-untyped-def]
    fine, held = np.full((2, 3, 3), 5), np.array([1, 2])
    with pytest.raises(ValueError, match="shape"):
        run(fine[0], held, compiled)
    with pytest.raises(ValueError, match="shape"):
        run(fine, held[:1], compiled)
    with pytest.raises(ValueError, match="1 to 40 positions"):
        run(np.ones((1, 41, 41)), np.array([1]), compiled)
    for wrong in (0, -1, 16):
        with pytest.raises(ValueError, match=r"position 0\.\.3"):
            run(fine, np.array([1, wrong]), compiled)
    with pytest.raises(ValueError, match="at least 1 cent"):
        run(np.zeros((2, 3, 3)), held, compiled)
    lower = fine * np.triu(np.ones((3, 3), np.int64))  # what stands below the diagonal is no tool
    assert (run(lower, held, compiled).costs > 0).all()
    nothing = run(np.full((1, 3, 3), UNAVAILABLE), np.array([3]), compiled)
    assert nothing.costs.tolist() == [-1]
    assert nothing.number.tolist() == [0]
    assert run(fine[:0], held[:0], compiled).path.shape == (0, 4)


@pytest.mark.exhaustive
def test_a_small_job_does_not_load_numba_and_a_big_one_does() -> None:
    script = (
        "import sys\n"
        "import numpy as np\n"
        "from evalkit.envs.costbench.planning.batch import greedy\n"
        "for m in (10, 200_000):\n"
        "    found = greedy(np.full((m, 4, 4), 10), np.ones(m))\n"
        "    print(found.costs.min(), 'numba' in sys.modules)\n"
    )
    assert printed(script) == ["10", "False", "10", "True"]
