"""Playing CostBench by hand in tests: instances, episodes, replies with calls, and the right arguments of a call."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from evalkit.dialogue import Message, Reply
from evalkit.envs.costbench import step
from evalkit.envs.costbench.domain.catalogue import Catalogue, Graph, GraphTool, Task
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.ids import has_context, preference_number, preferences_at, show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.world import context_type
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.environment import Facts, Kit, Observation
from evalkit.spec.packs import read_pack
from tests.support.costbench_lines import bare_instance
from tests.support.period_episodes import replying

TIME = 904
PLACE = 17


@lru_cache(maxsize=1)
def standard_kit() -> Kit:
    """The kit with evalkit's own wording."""
    return Kit(pack=read_pack("standard", "costbench"))


def make_query(catalogue: Catalogue, task: str, *, split: str = "test", place: int = 27, name: str = "") -> Query:
    """A user's wishes: the combination at `place`, in ids of a time and, where a task has one, a context preference."""
    context = PLACE if has_context(catalogue, task) else None
    preferences = preferences_at(catalogue, task, split, place)
    given = dict.fromkeys(catalogue.constants, TIME)
    if context is not None:
        given[context_type(catalogue)] = context
    return Query(
        id=name or "<Query00001>",
        preferences=preferences,
        given=given,
        number=preference_number(catalogue, task, split, preferences, context),
        text=f"Something that suits wish {place}.",
    )


def make_instance(
    task: str = "dining", length: int = 5, catalogue: Catalogue | None = None, **said: Any
) -> PlanningProblem:
    """An instance; every field may be said otherwise."""
    catalogue = catalogue or shipped("travel")
    split = said.get("split", "test")
    fields: dict[str, Any] = {
        "catalogue": catalogue,
        "catalogue_name": catalogue.name,
        "task": task,
        "length": length,
        "query": make_query(catalogue, task, split=split),
        "generator": "reference",
        "alternatives": tuple(
            make_query(catalogue, task, split=split, place=place, name=f"<Query0090{place}>") for place in (3, 8, 9)
        ),
    }
    return bare_instance(**{**fields, **said})


@dataclass
class Episode:
    """One episode, its state moved by `say`."""

    instance: PlanningProblem
    kit: Kit = field(default_factory=standard_kit)
    facts: list[Facts] = field(default_factory=list)
    state: step.State = field(init=False)

    def __post_init__(self) -> None:
        self.state = step.start(self.instance, self.kit)

    def say(self, reply: Reply) -> Observation:
        self.state, seen = step.step(self.state, reply)
        self.facts.append(seen.facts)
        return seen

    def arguments(self, name: str, **other: object) -> dict[str, object]:
        """The right arguments of a call now, some of them said otherwise."""
        state, world = self.state, self.state.setup.world
        query, found = state.query, {}
        for kind in world.tools[world.place[name]].inputs:
            if kind in world.dimensions:
                found[kind] = query.preferences[world.dimensions[kind]]
            else:
                number = query.given.get(kind, query.number)
                found[kind] = show_id(world.labels[kind], number, state.setup.digits)
        return {**found, **other}

    def call(self, name: str, **other: object) -> Observation:
        """Call one tool with its right arguments, some of them said otherwise."""
        return self.say(replying((name, self.arguments(name, **other))))

    def raw(self, name: str, arguments: str) -> str:
        """What a call with this text for arguments is answered with."""
        return self.say(replying((name, arguments))).messages[0].text

    def answer(self) -> Observation:
        """Give the right answer."""
        world = self.state.setup.world
        goal = show_id(world.labels[world.goal_type], self.state.query.number, self.state.setup.digits)
        return self.say(Reply(text=f"<answer> {goal} </answer>"))

    def tools(self) -> list[str]:
        return [tool.name for tool in step.tools(self.state)]

    def opening(self) -> tuple[Message, ...]:
        return step.opening(self.state).messages

    @property
    def outcome(self) -> str:
        """The outcome of the last reply's first call."""
        outcome: str = self.facts[-1]["calls"][0]["outcome"]
        return outcome


@lru_cache(maxsize=1)
def travel_with_errand() -> Catalogue:
    """The travel catalogue and a task that is no chain: parcels are packed and weighed, in any order, then sent."""
    travel = shipped("travel")
    wishes = ("ParcelCategory", "ParcelTier", "ParcelStyle", "ParcelFeaturePackage")
    tools = (
        GraphTool(name="Weigh", inputs=wishes[:2], output="Weight", text="Weighs it."),
        GraphTool(name="Pack", inputs=wishes[2:], output="Box", text="Packs it."),
        GraphTool(name="Book", inputs=("TimeInfo",), output="Slot", text="Books a courier."),
        GraphTool(name="Send", inputs=("TimeInfo", "Box", "Weight", "Slot"), output="Receipt", text="Sends it."),
        GraphTool(
            name="Pack_and_Weigh",
            inputs=tuple(sorted(wishes)),
            output="Weight",
            text="Packs and weighs.",
            components=("Pack", "Weigh"),
        ),
        GraphTool(
            name="Book_and_Send",
            inputs=("Box", "TimeInfo", "Weight"),
            output="Receipt",
            text="Books and sends.",
            components=("Book", "Send"),
        ),
    )
    graph = Graph(start=("TimeInfo", *wishes), goal="Receipt", tools=tools, labels={"Receipt": "ParcelReceipt"})
    values: dict[str, tuple[str, ...]] = dict.fromkeys(travel.keys, ("one", "two"))
    parcel = Task(about="a parcel sent", test=values, graph=graph)
    return msgspec.structs.replace(travel, name="errand", tasks={**travel.tasks, "parcel": parcel})
