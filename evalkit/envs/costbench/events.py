"""When blocks happen, what they change, and the plans of the ground truth with them.

All of it is known before the first turn. Turns come from the lengths of the ground truth's plans, and the ground truth
plans by itself, with bans on its own tools, whatever an agent does. Source: specification, sections 5.2 to 5.5; section
3.2 and B.4 of the paper. Ours: schedules, failing calls, and what happens if the reference would crash (below).

The reference loses an episode if a ban is due on a plan of one call, or if a block is due two blocks after the ground
truth has reached the goal. Here the course ends before the first and after the second: later events do not exist, and
the course is not complete, so no metric counts the episode. It also ends before an event that would leave the ground
truth no way to the goal. Up to N - 2 bans alone never do that (B.5 of the paper); together with removed tools (in
`mixed` blocks) two can at N = 5.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.instances.blocks import (
    ON_CALL,
    TOOL_FAILURE,
    Block,
    failing_turns,
    planned_blocks,
)
from evalkit.envs.costbench.instances.costs import costs_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.planning.solve import optimal_path, reference_path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """Something that happens at a known turn."""

    at: int
    """The assistant's turn, from 1. No two events have the same."""
    kind: str
    """One of `EVENT_KINDS`."""
    costs: tuple[int, ...] = ()
    """Of a cost change: the new costs in cents, by place."""
    hidden: int = 0
    """Of removed tools: composites of this size are gone, and those removed before are back."""
    query: Query | None = None
    """Of a preference change: what is wanted from now on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """The ground truth's plan after an event (the first one: at the start)."""

    query: Query
    """What is wanted now."""
    path: tuple[str, ...]
    """Names of the tools still to be called; empty: the goal is held already."""
    costs: tuple[int, ...]
    """Cents of each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """The course of an episode without mistakes, and the events that happen to every agent."""

    events: tuple[Event, ...]
    """By turn. A schedule's events and failing calls may lie after the end of the ground truth."""
    scenarios: tuple[Scenario, ...]
    """The start and one for each event that the ground truth meets, in order; of a block that is due when nothing is
    left to plan there is none."""
    path: tuple[str, ...]
    """The segmented ground truth: names of all its calls, banned and failed ones among them."""
    costs: tuple[int, ...]
    """Cents of each."""
    planned: int
    """How many blocks an agent must go through to be comparable: the instance's, or of a schedule those that the
    ground truth meets; and the failing calls that it meets."""
    complete: bool
    """Whether the ground truth met all of them and had something left to plan after the last one."""


def world_of(instance: PlanningProblem) -> World:
    """The world in which an instance is played."""
    return make_world(instance.catalogue, instance.task, instance.length, instance.whole, instance.longest)


def terms_of(instance: PlanningProblem) -> Terms:
    """Costs before any event."""
    return Terms(costs_of(instance, world_of(instance)))


@lru_cache(maxsize=4096)
def course_of(instance: PlanningProblem) -> Course:
    """Events, scenarios and segmented ground truth of an instance: a function of the instance alone.

    Raises UsageError if there are too few alternatives for its preference changes.
    """
    walk = _TruthWalk(instance)
    walk.go()
    return walk.course()


@lru_cache(maxsize=4096)
def terms_after(instance: PlanningProblem, fired: int) -> Terms:
    """Costs and hidden tools when the first `fired` events have happened; what an agent made banned is not in it."""
    terms = terms_of(instance)
    world = world_of(instance)
    for event in course_of(instance).events[:fired]:
        terms = _changed(world, terms, event)
    return terms


def query_after(instance: PlanningProblem, fired: int) -> Query:
    """What is wanted when the first `fired` events have happened."""
    changes = [event.query for event in course_of(instance).events[:fired] if event.query is not None]
    return changes[-1] if changes else instance.query


def agent_blocks(fired: Sequence[tuple[int, str]], final_steps: int) -> int:
    """How many blocks an agent went through, from (turn, kind) of those that happened in an episode of `final_steps`.

    `final_steps` counts all assistant messages, the answer too. An event after a call counts only if another turn with
    a call could follow, and one more after that. An event in place of a call always counts. Source: specification,
    section 5.5.
    """
    return sum(kind in ON_CALL or turn + 1 < final_steps for turn, kind in fired)


def oracle_eligible(instance: PlanningProblem) -> bool:
    """Whether an agent that follows the ground truth is comparable: a set of instances that depends on no agent."""
    course = course_of(instance)
    calls = len(course.path)
    met = [(event.at, event.kind) for event in course.events if event.at <= calls]
    return course.complete and calls < instance.steps and agent_blocks(met, calls + 1) >= course.planned


def _changed(world: World, terms: Terms, event: Event) -> Terms:
    """Terms without bans after an event."""
    if event.kind == "cost_change":
        return Terms(event.costs, terms.off)
    if event.kind == "remove_tools":
        return Terms(terms.costs, _of_size(world, event.hidden))
    return terms


def _of_size(world: World, size: int) -> frozenset[int]:
    return frozenset(i for i, tool in enumerate((*world.tools, *world.foreign)) if tool.size == size > 1)


@dataclass(slots=True)
class _TruthWalk:
    """The ground truth on its way, turn by turn: a call a turn, as long as there is one to make."""

    instance: PlanningProblem
    world: World = field(init=False)
    terms: Terms = field(init=False)
    """Without bans."""
    banned: frozenset[int] = frozenset()
    query: Query = field(init=False)
    state: int = field(init=False)
    plan: tuple[int, ...] = ()
    """What is left to call."""
    failing: frozenset[int] = field(init=False)
    """Turns whose call fails, where no other event has that turn."""
    path: list[int] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """Without failing calls."""
    scenarios: list[Scenario] = field(default_factory=list)
    planned: int = 0
    """Blocks, failing calls not among them."""
    failed: int = 0
    """Failing calls met."""
    complete: bool = True

    def __post_init__(self) -> None:
        self.world, self.terms, self.query = world_of(self.instance), terms_of(self.instance), self.instance.query
        self.state = self.world.start
        self.failing = frozenset(failing_turns(self.instance))

    def go(self) -> None:
        """From the start to the goal."""
        plan = self._plan_from(self.terms, self.banned, self.state)
        self.plan = plan or ()
        self._note()
        if plan is None:
            self.complete = False
            return
        blocks = planned_blocks(self.instance, self.world)
        if self.instance.schedule:
            self._follow(blocks)
        else:
            self._trigger(blocks)
        self._call_until(None)

    def course(self) -> Course:
        """What was found on the way."""
        turns = {event.at for event in self.events}
        events = [*self.events, *(Event(at=turn, kind=TOOL_FAILURE) for turn in self.failing - turns)]
        return Course(
            events=tuple(sorted(events, key=lambda event: event.at)),
            scenarios=tuple(self.scenarios),
            path=_names(self.world, self.path),
            costs=tuple(self.costs),
            planned=self.planned + self.failed,
            complete=self.complete,
        )

    def _trigger(self, blocks: Sequence[Block]) -> None:
        """Planned blocks: each block's turn follows from the plan after the one before (B.4 of the paper)."""
        self.planned = len(blocks)
        turn = 0
        for i, block in enumerate(blocks):
            length = len(self.plan)
            turn += max(1, 0 if length == 1 else length // (len(blocks) - i + 1))
            if not length:
                # The block still comes for agents that are slower; after it no plan is left to give a turn.
                self.events.append(self._event(block, turn))
                self.complete = False
                return
            self._call_until(turn)
            if block.kind == "ban_tool" and len(self.plan) == 1:
                self.complete = False
                return
            if not self._meet(self._event(block, turn)):
                self.complete = False
                return
        self.complete = bool(self.plan)

    def _follow(self, blocks: Sequence[Block]) -> None:
        """A schedule's blocks; those after the end of the ground truth happen to agents that take longer."""
        turn = 0
        for block in blocks:
            turn = max(block.at, turn + 1)
            self._call_until(turn)
            event = self._event(block, turn)
            if len(self.plan) == 1 and block.kind in ("cost_change", "remove_tools"):
                # With the goal reached in this very turn, nothing is left that it could change.
                self._call()
            if not self.plan:
                self.terms = _changed(self.world, self.terms, event)
                self.events.append(event)
            elif self._meet(event):
                self.planned += 1
            else:
                self.complete = False
                return

    def _call_until(self, turn: int | None) -> None:
        """Make the calls of all turns before `turn`; None: to the end of the plan."""
        while self.plan and (turn is None or len(self.path) + 1 < turn):
            if len(self.path) + 1 in self.failing:
                self._pay(self.plan[0])
                self._note()
                self.failed += 1
            else:
                self._call()

    def _pay(self, index: int) -> None:
        self.path.append(index)
        self.costs.append(self.terms.costs[index])

    def _call(self) -> None:
        self._pay(self.plan[0])
        self.state |= self.world.tools[self.plan[0]].gives
        self.plan = self.plan[1:]

    def _meet(self, event: Event) -> bool:
        """The turn of an event. False, and nothing has happened, if it would leave no way to the goal."""
        called, banned, terms, state = self.plan[0], self.banned, self.terms, self.state
        if event.kind == "ban_tool":
            banned |= {called}
        elif event.kind != TOOL_FAILURE:
            terms = _changed(self.world, terms, event)
            state = self.world.start if event.query is not None else state | self.world.tools[called].gives
        plan: tuple[int, ...] | None = self.plan
        if event.kind != TOOL_FAILURE:
            plan = self._plan_from(terms, banned, state)
        if plan is None:
            return False
        self._pay(called)
        self.banned, self.terms, self.state, self.plan = banned, terms, state, plan
        self.query = event.query or self.query
        self._note()
        self.events.append(event)
        return True

    def _plan_from(self, terms: Terms, banned: frozenset[int], state: int) -> tuple[int, ...] | None:
        """The ground truth's plan from a state; None: the goal cannot be reached."""
        # Which of several cheapest plans is the truth: the reference's choice for its instances, our rule for ours.
        planned = reference_path if self.instance.generator == "reference" else optimal_path
        return planned(self.world, Terms(terms.costs, terms.off | banned), state)

    def _note(self) -> None:
        costs = tuple(self.terms.costs[index] for index in self.plan)
        self.scenarios.append(Scenario(query=self.query, path=_names(self.world, self.plan), costs=costs))

    def _event(self, block: Block, turn: int) -> Event:
        """A block as what happens at a turn."""
        if block.kind == "cost_change":
            return Event(at=turn, kind=block.kind, costs=tuple(self._new_costs(block)))
        if block.kind == "preference_change":
            return Event(at=turn, kind=block.kind, query=self.instance.alternatives[block.alternative])
        return Event(at=turn, kind=block.kind, hidden=block.size)

    def _new_costs(self, block: Block) -> Iterator[int]:
        costs = self.terms.costs
        if block.seed is not None:
            costs = costs_of(self.instance, self.world, block.seed)
        costs_by_index = {self.world.place[name]: cents for name, cents in block.costs.items()}
        for index, cents in enumerate(costs):
            yield costs_by_index.get(index, cents)


def _names(world: World, path: Iterable[int]) -> tuple[str, ...]:
    return tuple(world.tools[index].name for index in path)
