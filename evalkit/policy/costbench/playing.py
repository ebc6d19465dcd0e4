"""Baselines for CostBench: the cheapest next call, a plan made once, a plan made again in every turn, and chance.

Source: CostBench, B.2 (greedy), and the specification, sections 6.1 to 6.3; the planners are ours. All of them decide
from the conversation alone (`offers.py`, `reading.py`). Costs are compared in whole cents; of equally cheap plans the
one with fewer calls is taken, then the one whose tools come first in the list.

A tool whose call failed, although nothing was wrong with the call, may be banned or may have failed for once; nothing
that every wording must hold tells which. So plans avoid it as long as there is another way, and greedy tries it once
more only where nothing else is left.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import PolicyFn, calling
from evalkit.policy.costbench.offers import Offer, read_tools
from evalkit.policy.costbench.reading import ChatState, closest, read_chat, says
from evalkit.seeds import Stream

MOST_STATES = 20_000
"""Sets of types that are looked at for an exact plan; where there are more, the plan is good but need not be best."""

_MOST_REFUSALS = 2
"""So many failures of one tool, and greedy takes it for banned."""

Key = tuple[int, int, int, tuple[int, ...]]
"""How good a plan is, least first: refusals, cents, calls, and the places of its tools."""

_NO_CALLS: Key = (0, 0, 0, ())


def plays(request: Request) -> bool:
    """Whether the tools offered are CostBench's: each of them states a cost and an output type."""
    return read_tools(request) is not None


def _player(move: Callable[[ChatState, Stream], tuple[Offer, Sequence[str]] | None]) -> PolicyFn:
    """A policy from its choice of a tool, with the plan to be stated beside the call; None: it sees no way on."""

    def reply(request: Request, draws: Stream) -> Reply:
        chat = read_chat(request)
        if chat is None:
            return Reply(text="I cannot read a cost and an output type of every tool.")
        if chat.done:
            return calling(request, [], f"<answer> {chat.ids[chat.goal]} </answer>")
        chosen = move(chat, draws)
        if chosen is None:
            return calling(request, [], "No tool leads on from here.")
        return call(request, chat, *chosen)

    return reply


def call(request: Request, chat: ChatState, tool: Offer, plan: Sequence[str] = ()) -> Reply:
    """The reply that calls a tool with the user's wishes and the ids that are held."""
    return calling(request, [(tool.name, json.dumps(arguments(chat, tool)))], says(plan, tool.name, tool.output))


def arguments(chat: ChatState, tool: Offer) -> dict[str, str]:
    """By input type: the listed value that the user's words come closest to, or the id held (empty: none is)."""
    return {
        name: closest(chat.wishes, tool.values[name]) if name in tool.values else chat.ids.get(name, "")
        for name in tool.inputs
    }


def _greedy(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    del draws
    tools = [
        tool
        for tool in chat.open()
        if (not chat.last or chat.last in tool.need) and chat.refusals.get(tool.name, 0) < _MOST_REFUSALS
    ]
    # The reference divides floats, and some of its ties are broken by how they round.
    best = min(
        tools,
        key=lambda tool: (chat.refusals.get(tool.name, 0), chat.offers.cents[tool.place] / 100 / tool.size, tool.place),
        default=None,
    )
    return None if best is None else (best, ())


def _planner(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    following = chat.offers.by_name.get(chat.plan[0]) if chat.plan else None
    if following is not None and following.need <= chat.held:
        return following, ()
    return _replanner(chat, draws)


def _replanner(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    del draws
    plan = cheapest(chat)
    return (plan[0], [tool.name for tool in plan]) if plan else None


def _random(chat: ChatState, draws: Stream) -> tuple[Offer, Sequence[str]] | None:
    tools = chat.open()
    return (tools[draws.below(len(tools))], ()) if tools else None


greedy = _player(_greedy)
"""In every turn the open tool with the lowest cost for each atomic tool it stands for, among those that need what was
gained last (specification, section 6.2); what was gained last is forgotten only when the user changes the wishes."""

planner = _player(_planner)
"""Plans at first, says so, and follows that plan whatever changes; plans again only when it cannot continue: a call was
refused, a tool vanished, or the user changed the wishes."""

replanner = _player(_replanner)
"""Plans in every turn from what is held, with the tools and costs offered then."""

random = _player(_random)
"""In every turn any tool whose inputs are held, until the goal is."""


def cheapest(chat: ChatState) -> tuple[Offer, ...]:
    """The cheapest calls from what is held to the goal, in order; empty: there is no way, or nothing is to be done.

    Where every tool lacks at most one input, as in a chain, the way goes from type to type; otherwise states are sets
    of types.
    """
    tools = chat.offers.tools
    lacking = {tool.place: tool.need - chat.held for tool in tools if tool.output not in chat.held}
    indices = _from_type_to_type(chat, lacking)
    if indices and any(len(lacks) > 1 for lacks in lacking.values()):
        indices = _from_set_to_set(chat, lacking) or indices
    return tuple(tools[index] for index in indices)


def _longer(chat: ChatState, key: Key, index: int) -> Key:
    """The key of a plan with one more call."""
    refusals, cents, calls, path = key
    if chat.refusals:
        refusals += chat.refusals.get(chat.offers.tools[index].name, 0)
    return refusals, cents + chat.offers.cents[index], calls + 1, (*path, index)


def _from_type_to_type(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Dijkstra's search over types. A tool that lacks several is reached by all their ways joined, which is exact
    unless ways could share calls."""
    tools = chat.offers.tools
    reached: dict[str, Key] = {}
    waiting: dict[str, list[int]] = {}
    heap: list[Key] = []
    for index, lacks in lacking.items():
        if not lacks:
            heap.append(_longer(chat, _NO_CALLS, index))
        for name in lacks:
            waiting.setdefault(name, []).append(index)
    heapify(heap)
    while heap:
        key = heappop(heap)
        output = tools[key[3][-1]].output
        if output in reached:
            continue
        if output == chat.goal:
            return key[3]
        reached[output] = key
        for index in waiting.get(output, ()):
            lacks = lacking[index]
            if len(lacks) == 1 or reached.keys() >= lacks:
                before = key if len(lacks) == 1 else _joined(chat, [reached[name] for name in sorted(lacks)])
                heappush(heap, _longer(chat, before, index))
    return ()


def _joined(chat: ChatState, keys: Sequence[Key]) -> Key:
    """The key of several plans' calls, each made once."""
    joined = _NO_CALLS
    for index in dict.fromkeys(index for key in keys for index in key[3]):
        joined = _longer(chat, joined, index)
    return joined


def _from_set_to_set(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> tuple[int, ...]:
    """Dijkstra's search over the sets of types gained; empty if it would look at more than `MOST_STATES`."""
    tools = chat.offers.tools
    useful = _useful(chat, lacking)
    heap: list[tuple[Key, frozenset[str]]] = [(_NO_CALLS, frozenset())]
    seen: set[frozenset[str]] = set()
    while heap and len(seen) < MOST_STATES:
        key, gained = heappop(heap)
        if gained in seen:
            continue
        if chat.goal in gained:
            return key[3]
        seen.add(gained)
        for index in useful:
            if tools[index].output not in gained and lacking[index] <= gained:
                after = gained | {tools[index].output}
                if after not in seen:
                    heappush(heap, (_longer(chat, key, index), after))
    return ()


def _useful(chat: ChatState, lacking: Mapping[int, frozenset[str]]) -> list[int]:
    """Indices of the tools that may have a part in reaching the goal."""
    tools = chat.offers.tools
    wanted, left = {chat.goal}, [chat.goal]
    indices = []
    while left:
        output = left.pop()
        for index, lacks in lacking.items():
            if tools[index].output == output:
                indices.append(index)
                left += lacks - wanted
                wanted |= lacks
    return sorted(indices)
