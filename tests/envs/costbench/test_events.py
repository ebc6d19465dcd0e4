"""Courses: turns, scenarios, and the segmented ground truth, replayed in the terms that really hold."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.envs.costbench.domain.catalogue import Graph, GraphTool
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms
from evalkit.envs.costbench.events import (
    Course,
    agent_blocks,
    course_of,
    oracle_eligible,
    query_after,
    terms_after,
    terms_of,
    world_of,
)
from evalkit.envs.costbench.instances.blocks import ON_CALL
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import KINDS
from evalkit.envs.costbench.planning.solve import optimum
from tests.support.costbench_lines import bare_instance, bare_query

TASKS = ("location", "transportation", "accommodation", "attraction", "dining", "shopping")


@st.composite
def instances(draw: st.DrawFn, /, **given_fields: Any) -> PlanningProblem:
    fields: dict[str, Any] = {
        "task": draw(st.sampled_from(TASKS)),
        "length": draw(st.integers(3, 8)),
        "query": bare_query(draw(st.integers(1, 1000))),
        "generator": draw(st.sampled_from(["native", "reference"])),
        "seed": draw(st.integers(0, 99)),
        "block": draw(st.sampled_from([*KINDS, "mixed"])),
        "blocks": draw(st.integers(1, 6)),
        "noise": draw(st.sampled_from([0.1, 5.0])),
    }
    return bare_instance(**{**fields, **given_fields})


def replayed(one: PlanningProblem, course: Course) -> tuple[int, int]:
    """Play the path turn by turn in the terms that hold; (events met, state). Asserts that every call can be made."""
    world = world_of(one)
    state, met, banned = world.start, 0, set[str]()
    for turn, (name, cents) in enumerate(zip(course.path, course.costs, strict=True), 1):
        place, terms = world.place[name], terms_after(one, met)
        tool = world.tools[place]
        assert name not in banned
        assert place not in terms.off
        assert not tool.need & ~state
        assert terms.costs[place] == cents
        event = course.events[met] if met < len(course.events) else None
        kind = event.kind if event is not None and event.at == turn else ""
        if kind not in ON_CALL:
            assert not tool.gives & state
            state |= tool.gives
        if kind == "ban_tool":
            banned.add(name)
        if kind == "preference_change":
            state = world.start
        met += bool(kind)
    return met, state


@given(instances())
def test_the_segmented_path_can_be_played_in_the_real_terms(one: PlanningProblem) -> None:
    course = course_of(one)
    met, state = replayed(one, course)
    assert state & world_of(one).goal
    assert course.planned == one.blocks
    assert [event.at for event in course.events] == sorted({event.at for event in course.events})
    if course.complete:
        assert met == len(course.events) == one.blocks
        assert len(course.scenarios) == one.blocks + 1
        assert all(scenario.path for scenario in course.scenarios)
    else:
        assert not oracle_eligible(one)
        assert len(course.scenarios) <= one.blocks + 1


@given(instances())
def test_a_course_follows_from_the_instance_alone(one: PlanningProblem) -> None:
    course, again = course_of(one), course_of(replace(one))
    assert course is not again
    assert course_of(one) is course
    assert _told(course) == _told(again)


def _told(course: Course) -> Any:
    events = [(event.at, event.kind, event.costs, event.hidden, event.query) for event in course.events]
    scenarios = [(scenario.query, scenario.path, scenario.costs) for scenario in course.scenarios]
    return events, scenarios, course.path, course.costs, course.planned, course.complete


@given(instances(block=st.none()).map(lambda one: replace(one, block="none", blocks=0)))
def test_without_blocks_the_course_is_the_static_plan(one: PlanningProblem) -> None:
    course = course_of(one)
    assert course.events == ()
    assert (course.planned, course.complete) == (0, True)
    assert course.path == course.scenarios[0].path
    assert sum(course.costs) == optimum(world_of(one), terms_of(one), world_of(one).start)
    assert oracle_eligible(one)


@given(instances())
def test_triggers_follow_the_papers_rule(one: PlanningProblem) -> None:
    course = course_of(one)
    turn = 0
    for i, event in enumerate(course.events):
        length = len(course.scenarios[i].path)
        turn += max(1, 0 if length == 1 else length // (one.blocks - i + 1))
        assert event.at == turn


@given(instances())
def test_terms_and_wishes_after_events(one: PlanningProblem) -> None:
    course, world = course_of(one), world_of(one)
    terms, wanted = terms_of(one), one.query
    for fired, event in enumerate(course.events, 1):
        before = terms
        terms = terms_after(one, fired)
        assert (terms.costs != before.costs) == (event.kind == "cost_change")
        if event.kind == "remove_tools":
            assert {tool.size for i, tool in enumerate(world.tools) if i in terms.off} <= {event.hidden}
            assert all(i in terms.off for i, tool in enumerate(world.tools) if tool.size == event.hidden)
        else:
            assert terms.off == before.off
        if event.query is not None:
            wanted = event.query
        assert query_after(one, fired) is wanted
    assert terms_after(one, 0) == terms_of(one)
    assert terms_after(one, len(course.events)) is terms_after(one, len(course.events))


@given(instances(block="ban_tool"))
def test_bans_within_the_bound_leave_a_way(one: PlanningProblem) -> None:
    one = replace(one, blocks=min(one.blocks, one.length - 2))
    course = course_of(one)
    # Only a ban that is due on a plan of a single call can end a course: the reference's own limit.
    if not course.complete:
        spent = sum(event.at <= len(course.path) for event in course.events)
        assert len(course.scenarios) == spent + 1
        assert spent < one.blocks
    assert replayed(one, course)[1] & world_of(one).goal


@given(st.integers(3, 8), st.sampled_from(TASKS), st.data())
def test_no_bans_of_an_agent_within_the_bound_make_the_goal_unreachable(n: int, task: str, data: st.DataObject) -> None:
    one = bare_instance(length=n, task=task)
    world, terms = world_of(one), terms_of(one)
    places = st.integers(0, len(world.tools) - 1)
    off = data.draw(st.sets(places, min_size=n - 2, max_size=n - 2))
    assert optimum(world, Terms(terms.costs, frozenset(off)), world.start) is not None
    # One more ban is one too many: whatever begins at the first position.
    first = frozenset(i for i, tool in enumerate(world.tools) if tool.first == 0)
    assert len(first) == n - 1
    assert optimum(world, Terms(terms.costs, first), world.start) is None


def test_bans_and_removed_tools_together_break_the_bound() -> None:
    # The paper's bound of N - 2 = 3 bans is about bans alone.
    world, terms = world_of(bare_instance()), terms_of(bare_instance())
    pairs = frozenset(i for i, tool in enumerate(world.tools) if tool.size == 2)
    least = next(
        count
        for count in range(4)
        for bans in combinations(range(len(world.tools)), count)
        if optimum(world, Terms(terms.costs, pairs.union(bans)), world.start) is None
    )
    assert least == 2


@given(instances(block="mixed", length=3))
def test_events_that_leave_no_way_do_not_exist(one: PlanningProblem) -> None:
    course = course_of(one)
    assert replayed(one, course)[1] & world_of(one).goal
    assert len(course.events) in (len(course.scenarios) - 1, len(course.scenarios))


def test_bans_that_leave_no_way_end_the_course() -> None:
    one = bare_instance(length=3, block="ban_tool", blocks=6)
    course = course_of(one)
    assert not course.complete
    assert len(course.events) < 6
    assert replayed(one, course)[1] & world_of(one).goal


def test_blocks_behind_the_goal_end_the_course_without_a_crash() -> None:
    found = [
        bare_instance(block="cost_change", blocks=6, query=bare_query(i), generator="reference") for i in range(1, 40)
    ]
    ended = [one for one in found if not course_of(one).complete]
    assert len(ended) > 20
    for one in ended:
        course = course_of(one)
        assert not course.scenarios[-1].path
        # The block that finds nothing left to plan is the last that exists; slower agents meet it.
        assert len(course.events) in (len(course.scenarios), one.blocks)


@given(instances(failures=0.4))
def test_failing_calls_are_paid_and_made_again(one: PlanningProblem) -> None:
    course = course_of(one)
    met, state = replayed(one, course)
    assert state & world_of(one).goal
    failing = {event.at for event in course.events if event.kind == "tool_failure"}
    reached = {turn for turn in failing if turn <= len(course.path)}
    assert course.planned == one.blocks + len(reached)
    for turn in reached:
        following = next((event for event in course.events if event.at == turn + 1), None)
        if following is None and turn < len(course.path):
            assert course.path[turn] == course.path[turn - 1]
    assert met == sum(event.at <= len(course.path) for event in course.events)


def test_where_every_call_fails_nobody_is_eligible() -> None:
    one = bare_instance(failures=1.0, steps=6)
    course = course_of(one)
    static = course_of(replace(one, failures=0.0))
    assert course.path == static.path[:1] * 6 + static.path
    assert course.planned == 6
    assert not oracle_eligible(one)
    assert oracle_eligible(replace(one, steps=20, failures=0.0))


def test_a_schedule_happens_at_its_turns() -> None:
    schedule: tuple[Mapping[str, Any], ...] = (
        {"at": 2, "kind": "preference_change"},
        {"at": 1, "kind": "tool_failure"},
        {"at": 3, "kind": "ban_tool"},
        {"at": 9, "kind": "preference_change"},
        {"at": 19, "kind": "cost_change", "seed": 5},
    )
    one = bare_instance(length=8, schedule=schedule)
    course = course_of(one)
    assert [(event.at, event.kind) for event in course.events] == [
        (1, "tool_failure"),
        (2, "preference_change"),
        (3, "ban_tool"),
        (9, "preference_change"),
        (19, "cost_change"),
    ]
    assert len(course.path) < 9
    assert course.planned == 3
    assert course.complete
    assert [scenario.query.number for scenario in course.scenarios] == [1, 1, 900, 900]
    assert query_after(one, 5).number == 901
    assert course.path[0] == course.path[1] == course.path[2]
    assert replayed(one, course)[0] == 3
    assert oracle_eligible(one)


def test_a_change_at_the_last_call_of_all_changes_nothing() -> None:
    static = course_of(bare_instance())
    last = len(static.path)
    for kind in ("cost_change", "remove_tools"):
        course = course_of(bare_instance(schedule=({"at": last, "kind": kind},)))
        assert (course.path, course.planned, course.complete) == (static.path, 0, True)
        assert len(course.events) == 1
    again = course_of(bare_instance(schedule=({"at": last, "kind": "preference_change"},)))
    assert again.path == static.path * 2
    assert (again.planned, again.complete) == (1, True)


def test_a_schedule_may_ban_the_last_call() -> None:
    last = len(course_of(bare_instance()).path)
    one = bare_instance(schedule=({"at": last, "kind": "ban_tool"},))
    course = course_of(one)
    assert (course.planned, course.complete) == (1, True)
    assert replayed(one, course)[1] & world_of(one).goal


def test_costs_of_a_schedule_change_what_they_name() -> None:
    world = world_of(bare_instance())
    tool = world.tools[3]
    schedule = (
        {"at": 1, "kind": "cost_change", "seed": 5},
        {"at": 2, "kind": "cost_change", "costs": {tool.name: 1}},
        {"at": 3, "kind": "cost_change", "costs": {tool.name: 2}, "seed": 5},
    )
    one = bare_instance(schedule=schedule)
    drawn, named, both = (terms_after(one, fired).costs for fired in (1, 2, 3))
    assert drawn != terms_after(one, 0).costs
    assert named == (*drawn[:3], 1, *drawn[4:])
    assert both == (*drawn[:3], 2, *drawn[4:])


def test_what_comes_too_late_does_not_count() -> None:
    assert agent_blocks([], 5) == 0
    assert agent_blocks([(1, "cost_change"), (3, "cost_change")], 5) == 2
    assert agent_blocks([(1, "remove_tools"), (4, "remove_tools")], 5) == 1
    assert agent_blocks([(4, "preference_change"), (5, "preference_change")], 5) == 0
    assert agent_blocks([(4, "ban_tool"), (5, "tool_failure")], 5) == 2


def graph_world(tools: Sequence[GraphTool]) -> PlanningProblem:
    base = shipped("travel")
    graph = Graph(start=("A",), goal="Z", tools=tuple(tools))
    catalogue = msgspec.structs.replace(
        base, tasks={"dining": msgspec.structs.replace(base.tasks["dining"], graph=graph)}
    )
    return bare_instance(catalogue=catalogue, catalogue_name="")


def _tool(name: str, inputs: str, output: str, *components: str) -> GraphTool:
    return GraphTool(name=name, inputs=tuple(inputs), output=output, text="", components=components)


def test_blocks_in_a_graph() -> None:
    one = graph_world(
        [
            _tool("left", "A", "B"),
            _tool("right", "A", "C"),
            _tool("join", "BC", "D"),
            _tool("end", "D", "Z"),
            _tool("both", "A", "D", "left", "right", "join"),
            _tool("short", "BC", "Z", "join", "end"),
        ]
    )
    for kind in KINDS:
        blocked = replace(one, block=kind, blocks=1)
        course = course_of(blocked)
        assert course.complete
        assert len(course.events) == 1
        assert replayed(blocked, course)[1] & world_of(blocked).goal
    # The only way on is banned: the course ends before it and says so.
    alone = graph_world([_tool("step", "A", "B"), _tool("end", "B", "Z")])
    ended = course_of(replace(alone, schedule=({"at": 2, "kind": "ban_tool"},)))
    assert (ended.complete, ended.events, ended.path) == (False, (), ("step", "end"))


def test_a_goal_out_of_reach_from_the_start() -> None:
    course = course_of(graph_world([_tool("step", "A", "B"), _tool("end", "C", "Z"), _tool("c", "Z", "C")]))
    assert (course.complete, course.path, course.planned) == (False, (), 0)
    assert course.scenarios[0].path == ()


def test_worlds_are_shared_between_instances() -> None:
    assert world_of(bare_instance()) is world_of(bare_instance(seed=7))
