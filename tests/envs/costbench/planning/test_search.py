"""Graph worlds, and the oracle of all exact plans: states as sets of type names, in networkx."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import msgspec
import networkx as nx
import numpy as np
import pytest

from evalkit.envs.costbench.domain.catalogue import Graph, GraphTool, Task
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning import search, solve
from evalkit.errors import UsageError
from tests.support.each_case import check_each
from tests.support.greedy_paths import greedy_path

Places = tuple[int, ...]


def graph_world(tools: Sequence[tuple[str, str]], start: Sequence[str] = ("S",)) -> World:
    """`("A B", "C")`: a tool that needs A and B and gives C. The goal is G."""
    made = tuple(
        GraphTool(name=f"t{i}", inputs=tuple(needs.split()), output=gives, text="")
        for i, (needs, gives) in enumerate(tools)
    )
    task = Task(about="something", test={}, graph=Graph(start=tuple(start), goal="G", tools=made))
    return make_world(msgspec.structs.replace(shipped("travel"), tasks={"toy": task}), "toy", 3, whole=True)


class Oracle:
    """Every cheapest plan from a state, by networkx over sets of type names."""

    def __init__(self, world: World, terms: Terms, state: int) -> None:
        self.start = frozenset(name for name in world.types if world.bit[name] & state)
        self.graph = nx.MultiDiGraph()
        self.graph.add_node(self.start)
        todo = [self.start]
        while todo:
            held = todo.pop()
            if world.goal_type in held:
                self.graph.add_edge(held, "end", weight=0)
                continue
            for place, tool in enumerate(world.tools):
                after = held | {tool.output}
                if place not in terms.off and held.issuperset(tool.inputs) and after != held:
                    if after not in self.graph:
                        todo.append(after)
                    self.graph.add_edge(held, after, key=place, weight=terms.costs[place])
        self.far = {}
        if "end" in self.graph:
            self.far = nx.single_source_dijkstra_path_length(self.graph.reverse(copy=False), "end")
        self.optimum = self.far.get(self.start)

    def paths(self) -> list[Places]:
        """All of them: fewest calls first, then by places."""
        return sorted(self._from(self.start), key=lambda path: (len(path), path)) if self.far else []

    def _from(self, held: object) -> Iterator[Places]:
        if held not in self.far:
            return
        for _, after, place, data in self.graph.out_edges(held, keys=True, data=True):
            if after == "end":
                yield ()
            elif after in self.far and data["weight"] + self.far[after] == self.far[held]:
                for rest in self._from(after):
                    yield (place, *rest)


def check_against_oracle(world: World, terms: Terms, state: int) -> int:
    """Compare all functions at one state; how many cheapest plans there are."""
    oracle = Oracle(world, terms, state)
    paths = oracle.paths()
    assert solve.optimum(world, terms, state) == oracle.optimum
    assert list(solve.optimal_paths(world, terms, state, 10**6)) == paths
    assert list(solve.optimal_paths(world, terms, state, 2)) == paths[:2]
    assert solve.optimal_path(world, terms, state) == (paths[0] if paths else None)
    first = {path[0] for path in paths if path}
    for place in range(len(world.tools)):
        assert solve.call_is_optimal(world, terms, state, place) == (place in first)
    return len(paths)


def random_graph(draws: np.random.Generator) -> World:
    types = ["S", "A", "B", "C", "D", "E", "G"]
    tools = []
    for i in range(draws.integers(6, 14)):
        gives = i + 1 if i < 6 else int(draws.integers(1, 7))  # nothing that no tool gives
        needs = draws.choice([i for i in range(7) if i != gives], draws.integers(1, 3), replace=False)
        tools.append((" ".join(types[i] for i in sorted(needs)), types[gives]))
    return graph_world(tools, ("S",) if draws.random() < 0.7 else ("S", "B"))


def test_random_graphs_have_the_plans_that_networkx_finds() -> None:
    check_each([(f"of seed {seed}", seed) for seed in range(150)], check_random_graph)


def check_random_graph(seed: int) -> None:
    draws = np.random.default_rng(seed)
    world = random_graph(draws)
    for _ in range(3):
        costs = tuple(int(cost) for cost in draws.integers(1, 4, len(world.tools)))
        off = frozenset(int(i) for i in np.flatnonzero(draws.random(len(world.tools)) < 0.1))
        state = world.start | (int(draws.integers(0, 1 << len(world.types))) if draws.random() < 0.5 else 0)
        check_against_oracle(world, Terms(costs, off), state)


def test_orders_of_independent_calls_are_different_plans() -> None:
    world = graph_world([("S", "A"), ("S", "B"), ("S", "C"), ("A B C", "G"), ("S", "X")])
    terms = Terms((5, 6, 7, 8, 1))
    assert solve.optimum(world, terms, world.start) == 26
    assert list(solve.optimal_paths(world, terms, world.start)) == [(*order, 3) for order in permutations(range(3))]
    assert solve.call_is_optimal(world, terms, world.start, 2)
    assert not solve.call_is_optimal(world, terms, world.start, 4)  # gives nothing that the goal needs
    assert not solve.call_is_optimal(world, terms, world.start, 3)  # needs what is not there


def test_fewer_calls_come_first_and_then_the_order_of_the_tools() -> None:
    world = graph_world([("S", "A"), ("A", "G"), ("S", "B"), ("B", "G"), ("S", "G")])
    assert solve.optimal_paths(world, Terms((1, 1, 1, 1, 2)), world.start) == ((4,), (0, 1), (2, 3))
    assert solve.optimal_path(world, Terms((1, 1, 1, 1, 3)), world.start) == (0, 1)


def test_what_is_held_needs_no_call_and_what_is_off_cannot_help() -> None:
    world = graph_world([("S", "A"), ("A", "G")])
    goal, unreachable = world.start | world.goal, Terms((1, 1), frozenset({1}))
    assert solve.optimum(world, Terms((1, 1)), goal) == 0
    assert solve.optimal_paths(world, Terms((1, 1)), goal) == ((),)
    assert solve.optimum(world, unreachable, world.start) is None
    assert solve.optimal_path(world, unreachable, world.start) is None
    assert solve.reference_path(world, unreachable, world.start) is None
    assert solve.optimal_paths(world, unreachable, world.start) == ()
    assert not solve.call_is_optimal(world, unreachable, world.start, 0)


def test_the_greedy_plan_of_a_graph_uses_what_the_last_call_gave() -> None:
    world = graph_world([("S", "A"), ("S", "B"), ("A", "C"), ("B C", "G"), ("A", "G")])
    # Free to choose: the cheapest first. Then B alone leads nowhere.
    assert greedy_path(world, Terms((3, 2, 1, 1, 9)), world.start, None, 20) == (1,)
    assert greedy_path(world, Terms((2, 3, 1, 1, 9)), world.start, None, 20) == (0, 2)
    assert greedy_path(world, Terms((2, 3, 1, 1, 1), frozenset({2})), world.start, None, 20) == (0, 4)
    assert greedy_path(world, Terms((2, 3, 1, 1, 9)), world.start | world.bit["B"], None, 20) == (0, 2, 3)
    assert greedy_path(world, Terms((1, 1, 1, 1, 1)), world.start, 0, 20) == ()  # what it gave is not held
    assert greedy_path(world, Terms((1, 1, 1, 1, 1)), world.start | world.goal, None, 20) == ()


def test_a_graph_with_too_many_states_is_refused_with_their_number() -> None:
    names = [f"A{i}" for i in range(16)]
    world = graph_world([*(("S", name) for name in names), (" ".join(names), "G")])
    with pytest.raises(UsageError, match=r"'toy'.*at least 20001 states.*limited to 20000.*merge"):
        search.check_size(world)
    with pytest.raises(UsageError, match="at least 20001 states"):
        solve.optimum(world, Terms((1,) * 17), world.start)
    search.check_size(world, most=1 << 17)
    search.check_size(make_world(shipped("travel"), "dining", 40, whole=True), most=1)


def test_types_that_lead_nowhere_make_no_states() -> None:
    world = graph_world([*(("S", f"A{i}") for i in range(40)), ("S", "B"), ("B", "G")])
    search.check_size(world, most=3)
    terms = Terms((1,) * 42)
    assert solve.optimal_paths(world, terms, world.start | world.bit["A7"]) == ((40, 41),)
