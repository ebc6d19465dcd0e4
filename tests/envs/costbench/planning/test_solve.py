import numpy as np
import pytest

from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning import solve
from tests.envs.costbench.planning.test_search import check_against_oracle
from tests.support.greedy_paths import greedy_path

TASKS = ("location", "transportation", "dining")


def chain_world(length: int, task: str = "dining", whole: bool = False) -> World:
    return make_world(shipped("travel"), task, length, whole)


def drawn_terms(world: World, draws: np.random.Generator, spread: int, banned: float) -> Terms:
    """Costs near the reference's; a small spread makes ties."""
    tools = (*world.tools, *world.foreign)
    costs = tuple(10 * tool.size + int(draws.integers(0, spread)) for tool in tools)
    return Terms(costs, frozenset(i for i in range(len(world.tools)) if draws.random() < banned))


def drawn_state(world: World, draws: np.random.Generator) -> int:
    """Any set of the types that tools give, on top of those at the start."""
    return world.start | sum(
        world.tools[i].gives for i in range(world.length) if draws.random() < (0.4 if i < world.length - 1 else 0.03)
    )


@pytest.mark.exhaustive(but=12)
@pytest.mark.parametrize("length", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("spread", [1, 3, 1000])
@pytest.mark.parametrize("task", TASKS)
def test_chains_have_the_plans_that_networkx_finds(length: int, spread: int, task: str) -> None:
    draws = np.random.default_rng(length * 10_000 + spread)
    found = []
    for i in range(12):
        world = chain_world(length, task, whole=i % 3 == 0)
        state = world.start if i % 2 else drawn_state(world, draws)
        found.append(check_against_oracle(world, drawn_terms(world, draws, spread, banned=0.15 * (i % 4)), state))
    assert max(found) > 1 or spread == 1000


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("length", [3, 5, 8])
def test_where_all_ways_cost_as_much_all_are_found(length: int, whole: bool) -> None:
    world = chain_world(length, whole=whole)
    terms = Terms(tuple(10 * tool.size for tool in (*world.tools, *world.foreign)))
    number = 2 ** (length - 1) - (not whole)
    paths = solve.optimal_paths(world, terms, world.start)
    assert solve.optimum(world, terms, world.start) == 10 * length
    assert len(paths) == len(set(paths)) == number
    assert list(paths) == sorted(paths, key=lambda path: (len(path), path))
    assert solve.optimal_path(world, terms, world.start) == paths[0]
    assert len(paths[0]) == (1 if whole else 2)


def test_the_longest_chain_is_solved_however_many_its_ways() -> None:
    world = chain_world(40, whole=True)
    terms = Terms(tuple(10 * tool.size for tool in (*world.tools, *world.foreign)))
    paths = solve.optimal_paths(world, terms, world.start, most=50)
    # One call, then two, by the place of the first: the shorter it is, the earlier it stands.
    names = [[world.tools[place].size for place in path] for path in paths]
    assert names[:41] == [[40], *([i, 40 - i] for i in range(1, 40)), [1, 1, 38]]


def test_a_plan_may_begin_wherever_an_earlier_call_led() -> None:
    world = chain_world(5)
    costs = [100 * tool.size for tool in (*world.tools, *world.foreign)]
    terms = Terms(tuple(costs))
    third = world.start | world.tools[2].gives  # given by a composite: what the first two give is not held
    assert solve.optimum(world, terms, third) == 200
    closed = Terms(terms.costs, frozenset(i for i, tool in enumerate(world.tools) if tool.first == 3))
    assert solve.optimum(world, closed, third) == 500  # begins anew
    assert solve.optimal_path(world, closed, third) == (0, world.place["Dining_Search_to_Final_4Steps"])
    assert not solve.call_is_optimal(world, closed, third, 3)


def test_the_goal_held_leaves_nothing_to_do() -> None:
    world = chain_world(5)
    terms = Terms(tuple(10 for _ in (*world.tools, *world.foreign)))
    state = world.start | world.goal
    assert solve.optimum(world, terms, state) == 0
    assert solve.optimal_paths(world, terms, state) == ((),)
    assert solve.reference_path(world, terms, state) == ()
    assert not any(solve.call_is_optimal(world, terms, state, place) for place in range(len(world.tools)))
    assert greedy_path(world, terms, state, None, 20) == ()


def test_without_a_last_tool_the_goal_is_out_of_reach() -> None:
    world = chain_world(4)
    off = frozenset(i for i, tool in enumerate(world.tools) if tool.last == 3)
    terms = Terms(tuple(10 for _ in (*world.tools, *world.foreign)), off)
    assert solve.optimum(world, terms, world.start) is None
    assert solve.optimal_path(world, terms, world.start) is None
    assert solve.reference_path(world, terms, world.start) is None
    assert solve.optimal_paths(world, terms, world.start) == ()


def greedy_by_names(world: World, terms: Terms, state: int, last: int | None, most: int) -> list[int]:
    """The rule word by word: sets of type names, the shares as floats, the first of the best."""
    held = {name for name in world.types if world.bit[name] & state}
    given = None if last is None else world.tools[last].output
    path: list[int] = []
    while world.goal_type not in held and len(path) < most:
        fits = [
            (terms.costs[i] / 100 / len(tool.components), i)
            for i, tool in enumerate(world.tools)
            if i not in terms.off and held.issuperset(tool.inputs) and (given is None or given in tool.inputs)
        ]
        if not fits:
            break
        choice = min(fits)[1]
        path.append(choice)
        given = world.tools[choice].output
        held.add(given)
    return path


@pytest.mark.parametrize("length", [3, 5, 8])
@pytest.mark.parametrize("spread", [1, 3, 1000])
def test_the_greedy_plan_is_that_of_the_rule(length: int, spread: int) -> None:
    draws = np.random.default_rng(length * 77 + spread)
    for i in range(60):
        world = chain_world(length, TASKS[i % 3], whole=i % 2 == 0)
        terms = drawn_terms(world, draws, spread, banned=0.1 * (i % 4))
        state, last = drawn_state(world, draws), None
        if i % 5 == 0:
            last = int(draws.integers(len(world.tools)))
            state |= world.tools[last].gives if i % 10 == 0 else 0
        most = int(draws.integers(1, 9))
        expected = greedy_by_names(world, terms, state, last, most)
        assert list(greedy_path(world, terms, state, last, most)) == expected


def test_equal_shares_go_to_the_tool_offered_first() -> None:
    world = chain_world(5)
    terms = Terms(tuple(100 * tool.size for tool in (*world.tools, *world.foreign)))
    assert greedy_path(world, terms, world.start, None, 20) == (0, 1, 2, 3, 4)
    assert greedy_path(world, terms, world.start, None, 2) == (0, 1)
    assert greedy_path(world, terms, world.start | world.tools[1].gives, 1, 20) == (2, 3, 4)
