"""What the policies decide, in a world in other words. `test_playing_costbench.py` plays them on the environment."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Request, Sampling
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.costbench import playing as module
from evalkit.policy.costbench.playing import ChatState, cheapest, greedy, planner, random, read_chat, replanner
from evalkit.policy.costbench.policies import MISTAKES
from evalkit.policy.noisy import Moment, noisy
from evalkit.policy.table import served
from evalkit.seeds import Stream
from tests.policy.chatting import chat as scheduling_chat
from tests.policy.workshop import ASKED, SYSTEM, Machine, Workshop, play, repriced, shop

# Positions 0..3. Cheapest: 0_1, 2_3 (20.00). Cheapest a step: 0_0 (5.00), then 1_3 (5.10 a step), together 20.30.
SPANS = ((0, 0, 500), (1, 1, 600), (2, 2, 800), (3, 3, 900), (0, 1, 1010), (2, 3, 990), (1, 3, 1530))


def names(shop: Workshop) -> list[str]:
    return [name for name, _ in shop.called]


def test_greedy_takes_what_is_cheapest_a_step_and_answers() -> None:
    one = shop(*SPANS)
    replies = play(one, greedy)
    assert names(one) == ["make_0_0", "make_1_3"]
    assert replies[0].text == "Next: make_0_0 gives Part0."
    assert (replies[-1].text, replies[-1].calls) == ("<answer> <Box0031> </answer>", ())
    assert one.given == [
        {"Finish": "polished_and_bright", "Place": "<PlaceNumber0012>", "Date": "<Date0007>"},
        {"Part0": "<Box0031>", "Date": "<Date0007>"},
    ]


def test_greedy_needs_what_was_gained_last_and_takes_the_first_of_equals() -> None:
    # make_0_1 would be cheaper a step than make_1_1, but goes on from nothing that was gained.
    one = shop((0, 0, 100), (1, 1, 500), (2, 2, 300), (3, 3, 300), (0, 1, 400), (2, 3, 600))
    play(one, greedy)
    assert names(one) == ["make_0_0", "make_1_1", "make_2_2", "make_3_3"]


@pytest.mark.parametrize("policy", [planner, replanner])
def test_a_planner_takes_the_cheapest_way_and_says_so(policy: PolicyFn) -> None:
    one = shop(*SPANS)
    replies = play(one, policy)
    assert names(one) == ["make_0_1", "make_2_3"]
    assert replies[0].text == "Plan: make_0_1 -> make_2_3\nNext: make_0_1 gives Part1."
    # Followed, a plan is not stated again; made anew, it is.
    assert replies[1].text.startswith("Plan") == (policy is replanner)
    assert replies[-1].text == "<answer> <Box0031> </answer>"


def test_of_equally_cheap_plans_fewer_calls_then_the_first_in_the_list_count() -> None:
    one = shop((0, 0, 500), (1, 1, 500), (2, 2, 500), (3, 3, 500), (1, 2, 1000), (0, 1, 1000), (2, 3, 1000))
    play(one, replanner)
    assert names(one) == ["make_0_1", "make_2_3"]
    one = shop((0, 0, 500), (1, 1, 500), (2, 2, 500), (1, 2, 1000), (0, 1, 1000), length=3)
    play(one, replanner)
    assert names(one) == ["make_0_0", "make_1_2"]


def dearer(there: Workshop) -> str:
    there.machines = repriced(there.machines, make_2_3=5000)
    return ""


def test_only_the_replanner_hears_of_new_costs() -> None:
    for policy, after in ((planner, ["make_2_3"]), (replanner, ["make_2_2", "make_3_3"])):
        one = shop(*SPANS)
        one.happens = {1: dearer}
        play(one, policy)
        assert names(one) == ["make_0_1", *after]


def test_a_planner_plans_anew_where_its_tool_vanished_or_was_refused_or_the_wishes_changed() -> None:
    def vanish(there: Workshop) -> str:
        there.machines = tuple(machine for machine in there.machines if machine.name != "make_2_3")
        return ""

    gone, refused, changed = shop(*SPANS), shop(*SPANS), shop(*SPANS)
    gone.happens = {1: vanish}
    refused.broken = {"make_2_3"}
    changed.happens = {1: lambda there: "Rather painted, at <Place0044>."}
    replies = [play(one, planner) for one in (gone, refused, changed)]
    assert names(gone) == ["make_0_1", "make_2_2", "make_3_3"]
    assert names(refused) == ["make_0_1", "make_2_3", "make_2_2", "make_3_3"]
    assert names(changed) == ["make_0_1", "make_0_1", "make_2_3"]
    assert changed.given[1] == {"Finish": "painted", "Place": "<Place0044>", "Date": "<Date0007>"}
    assert [[reply.text.startswith("Plan: ") for reply in each] for each in replies] == [
        [True, True, False, False],
        [True, False, True, False, False],
        [True, True, False, False],
    ]
    assert all(each[-1].text == "<answer> <Box0031> </answer>" for each in replies)


def test_after_a_refusal_other_ways_are_tried_first_and_then_it_again() -> None:
    one = shop((0, 0, 500), (1, 1, 600), (0, 1, 1000), length=2)
    one.failing = {"make_0_1": 1}
    play(one, replanner)
    assert names(one) == ["make_0_1", "make_0_0", "make_1_1"]
    one = shop((0, 0, 500), (1, 1, 600), length=2)
    one.failing = {"make_0_0": 3}
    replies = play(one, replanner)
    assert names(one) == ["make_0_0"] * 4 + ["make_1_1"]
    assert replies[-1].text.startswith("<answer>")


def test_greedy_gives_up_where_its_only_way_failed_twice() -> None:
    one = shop(*SPANS)
    one.broken = {"make_1_3", "make_1_1"}
    replies = play(one, greedy)
    assert names(one) == ["make_0_0", "make_1_3", "make_1_1", "make_1_3", "make_1_1"]
    assert (replies[-1].text, replies[-1].calls) == ("No tool leads on from here.", ())


def test_random_tries_every_tool_that_is_open_and_stops_at_the_goal() -> None:
    firsts = set()
    for seed in range(60):
        one = shop(*SPANS)
        replies = play(one, random, seed=seed, most=200)
        firsts.add(one.called[0][0])
        assert all(worked for _, worked in one.called)
        assert replies[-1].text == "<answer> <Box0031> </answer>"
        assert len([name for name, _ in one.called if name in ("make_3_3", "make_2_3", "make_1_3")]) == 1
    assert firsts == {"make_0_0", "make_0_1"}


def asking(machines: tuple[Machine, ...]) -> Request:
    messages = (Message(role="system", text=SYSTEM), Message(role="user", text=ASKED))
    tools = Workshop(machines=machines, held=set()).tools()
    return Request(messages=messages, tools=tools, sampling=Sampling(), seed=1)


TYPES = ("Date", "Place", "A", "B", "C", "D", "Chair")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Machine, ...]:
    count = draw(st.integers(2, 7))
    found = []
    for i in range(count):
        inputs = draw(st.lists(st.sampled_from(TYPES[:-1]), min_size=1, max_size=3, unique=True))
        output = "Chair" if i == 0 else draw(st.sampled_from(TYPES[2:]))
        found.append(Machine(name=f"m{i}", inputs=tuple(inputs), output=output, cents=draw(st.integers(1, 9))))
    return tuple(found)


def best_of_all(chat: ChatState) -> tuple[int, int, tuple[int, ...]] | None:
    """By trying every sequence of tools."""
    found = None
    tools = chat.offers.tools
    for size in range(1, len(tools) + 1):
        for path in itertools.permutations(range(len(tools)), size):
            held = set(chat.held)
            for place in path:
                if not tools[place].need <= held or chat.goal in held:
                    break
                held.add(tools[place].output)
            else:
                key = sum(chat.offers.cents[place] for place in path), size, path
                if chat.goal in held and (found is None or key < found):
                    found = key
    return found


@given(graphs())
def test_in_graphs_too_the_cheapest_plan_is_found(machines: tuple[Machine, ...]) -> None:
    chat = read_chat(asking(machines))
    assert chat is not None
    if chat.goal != "Chair" or chat.done:
        return
    best = best_of_all(chat)
    assert [tool.place for tool in cheapest(chat)] == list(best[2] if best else ())


def test_a_graph_with_too_many_states_gets_a_plan_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    # Twelve parts that each can be made in two ways, and a chair that needs all of them.
    parts = [Machine(name=f"p{i}{k}", inputs=("Date",), output=f"P{i}", cents=3 - k) for i in range(12) for k in (0, 1)]
    join = Machine(name="join", inputs=tuple(f"P{i}" for i in range(12)), output="Chair", cents=1)
    monkeypatch.setattr(module, "MOST_STATES", 50)
    one = Workshop(machines=(*parts, join), held={"Date"})
    play(one, replanner)
    assert sorted(names(one)) == sorted([f"p{i}1" for i in range(12)] + ["join"])


def test_where_there_is_no_way_a_policy_says_so() -> None:
    machines = (Machine(name="a", inputs=("Wood",), output="Chair", cents=1), *shop((0, 0, 1)).machines)
    stuck = (*machines, Machine(name="b", inputs=("Plank",), output="Wood", cents=1))
    for policy in (replanner, planner):
        reply = policy(asking((*stuck, Machine(name="c", inputs=("Wood",), output="Plank", cents=1))), Stream(1))
        assert (reply.text, reply.calls) == ("No tool leads on from here.", ())


def test_an_environment_is_recognised_by_its_tools() -> None:
    request = asking(shop(*SPANS).machines)
    for name in ("random", "greedy", "planner", "replanner", "noisy"):
        assert served(name)(request, Stream(3)).calls[0].name.startswith("make_")
    assert served("random")(scheduling_chat({}), Stream(1)).calls[0].name == "get_worker_ids"
    for name, wanted in (("greedy", scheduling_chat({})), ("knuth", request)):
        reply = served(name)(wanted, Stream(1))
        assert not reply.calls
        assert "None of the tools offered" in reply.text


def test_every_mistake_is_one_and_no_two_are_the_same() -> None:
    request = asking(shop(*SPANS).machines)
    messages = list(request.messages)
    first = replanner(request, Stream(1))
    messages += [first.message(), Message(role="tool", call_id="call_0", text="<Box0031>")]
    second = Request(messages=tuple(messages), tools=request.tools, sampling=Sampling(), seed=1)
    good = replanner(second, Stream(1))
    for one, spared in ((request, {"_repeated", "_extra_call"}), (second, {"_bad_value", "_extra_call"})):
        good = replanner(one, Stream(1))
        found = [(made.__name__, made(Moment(request=one, good=good, draws=Stream(4)))) for _, made in MISTAKES]
        assert {name for name, reply in found if reply == good} == spared
        texts = [repr(reply) for _, reply in found if reply != good]
        assert len(set(texts)) == len(texts)


def test_the_goal_does_not_keep_noisy_from_calling() -> None:
    one = shop(*SPANS)
    replies = play(one, replanner)
    messages = [Message(role="system", text=SYSTEM), Message(role="user", text=ASKED)]
    for i, reply in enumerate(replies[:-1]):
        messages += [reply.message(), Message(role="tool", call_id=f"call_{i}", text="<Box0031>")]
    request = Request(messages=tuple(messages), tools=one.tools(), sampling=Sampling(), seed=1)
    replay = noisy(replanner, MISTAKES)
    found = [replay(request, Stream(seed)) for seed in range(200)]
    assert any(reply.calls and reply.calls[0].name.startswith("make_") for reply in found)
    assert sum(reply.text == "<answer> <Box0031> </answer>" for reply in found) > 100


def test_noisy_makes_progress_through_its_mistakes() -> None:
    reached = 0
    for seed in range(100):
        one = shop(*SPANS)
        replies = play(one, noisy(replanner, MISTAKES), seed=seed)
        reached += replies[-1].text == "<answer> <Box0031> </answer>"
    assert reached > 70


def test_no_mistake_is_larger_than_it_says() -> None:
    request = asking(shop(*SPANS).machines)
    sizes = []
    for seed in range(20):
        moment = Moment(request=request, good=replanner(request, Stream(1)), draws=Stream(seed))
        sizes += [size(mistake(moment)) for _, mistake in MISTAKES]
    assert 100_000 < max(sizes) < 101_000


def size(reply: Reply) -> int:
    return len(json.dumps([call.arguments for call in reply.calls]))
