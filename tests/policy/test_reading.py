"""What is read of tools and results, in words of another pack."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Request, Sampling, Tool, ToolCall
from evalkit.policy.conversation import PolicyFn
from evalkit.policy.costbench.offers import read_tools
from evalkit.policy.costbench.playing import closest, greedy, read_chat, replanner, says
from tests.policy.workshop import ASKED, SYSTEM, VALUES, Machine, Workshop, chain, play, shop

SPANS = ((0, 0, 500), (1, 1, 500), (2, 2, 1000), (3, 3, 100), (0, 1, 990), (1, 3, 1234), (0, 3, 2000))


def asking(tools: tuple[Tool, ...], *messages: Message) -> Request:
    opening = (Message(role="system", text=SYSTEM), Message(role="user", text=ASKED))
    return Request(messages=(*opening, *messages), tools=tools, sampling=Sampling(), seed=1)


def said(name: str, arguments: str, text: str = "", call_id: str = "a") -> Message:
    return Message(role="assistant", text=text, calls=(ToolCall(id=call_id, name=name, arguments=arguments),))


def told(text: str, call_id: str = "a") -> Message:
    return Message(role="tool", call_id=call_id, text=text)


FIRST = '{"Finish": "painted", "Place": "<PlaceNumber0012>", "Date": "<Date0007>"}'


def test_costs_types_and_parts_are_read_from_any_wording() -> None:
    offers = read_tools(asking(shop(*SPANS).tools()))
    assert offers is not None
    assert list(offers.cents) == [500, 500, 1000, 100, 990, 1234, 2000]
    assert [tool.output for tool in offers.tools] == ["Part0", "Part1", "Part2", "Chair", "Part1", "Chair", "Chair"]
    assert [tool.size for tool in offers.tools] == [1, 1, 1, 1, 2, 3, 4]
    assert offers.by_name["make_1_3"].components == {"make_1_1", "make_2_2", "make_3_3"}
    assert offers.given == {"Finish", "Place", "Date"}
    assert offers.ends == ("Chair",)
    assert offers.tools[0].values == VALUES


@pytest.mark.parametrize(
    ("text", "cents", "output"),
    [
        ("This tool has a cost of 20.5 units. The output type of this tool is TravelDining.", 2050, "TravelDining"),
        ("Step 3 by cost-effectiveness (Step5 too). Costs 1. Output type: `A_L2_B`", 100, "A_L2_B"),
        ("— Cost: 7.5 €. Output type: T", 750, "T"),
        ("cost: $7.07, OUTPUT TYPE -> **X1**", 707, "X1"),
        ("Its output type is the type Foo; its cost, as of now, 12.30.", 1230, "type"),
    ],
)
def test_the_first_number_and_the_first_identifier_count(text: str, cents: int, output: str) -> None:
    tool = Tool(name="t", description=text, parameters={"properties": {"A": {}}, "required": ["A"]})
    offers = read_tools(asking((tool,)))
    assert offers is not None
    assert (offers.cents[0], offers.tools[0].output) == (cents, output)


@pytest.mark.parametrize("text", ["", "A cost of 3.", "The output type is X.", "cost of Step5. Output type X"])
def test_tools_that_state_no_cost_or_no_type_are_not_read(text: str) -> None:
    good = shop(*SPANS).tools()
    request = asking((*good, Tool(name="t", description=text, parameters={})))
    assert read_tools(request) is None
    assert read_chat(request) is None
    assert read_tools(asking(())) is None


def test_without_parts_a_size_is_how_many_finest_tools_are_between_inputs_and_output() -> None:
    plain = shop(*SPANS)
    plain.named_parts = False
    offers = read_tools(asking(plain.tools()))
    assert offers is not None
    assert [tool.size for tool in offers.tools] == [1, 1, 1, 1, 2, 3, 4]
    # Two branches that meet: the tool that does it all stands for three.
    machines = (
        Machine(name="all", inputs=("Date",), output="Chair", cents=5),
        Machine(name="legs", inputs=("Date",), output="Legs", cents=1),
        Machine(name="seat", inputs=("Date", "Place"), output="Seat", cents=1),
        Machine(name="join", inputs=("Legs", "Seat"), output="Chair", cents=1),
        Machine(name="mend", inputs=("Legs",), output="Legs", cents=1),
    )
    offers = read_tools(asking(Workshop(machines=machines, held=set()).tools()))
    assert offers is not None
    assert [tool.size for tool in offers.tools] == [3, 1, 1, 1, 1]


def test_of_several_types_that_nobody_needs_the_instructions_name_the_goal() -> None:
    machines = (
        Machine(name="a", inputs=("Date",), output="Lamp", cents=5),
        Machine(name="b", inputs=("Date",), output="Stool", cents=5),
        Machine(name="c", inputs=("Date",), output="Chair", cents=5),
    )
    request = asking(Workshop(machines=machines, held=set()).tools())
    chat = read_chat(request)
    assert chat is not None
    assert chat.goal == "Chair"
    silent = Request(messages=request.messages[1:], tools=request.tools, sampling=Sampling(), seed=1)
    chat = read_chat(silent)
    assert chat is not None
    assert chat.goal == "Lamp"


def test_what_is_held_comes_from_the_users_words_and_from_results() -> None:
    tools = shop(*SPANS).tools()
    chat = read_chat(asking(tools))
    assert chat is not None
    assert chat.held == {"Finish", "Place", "Date"}
    assert chat.ids == {"Place": "<PlaceNumber0012>", "Date": "<Date0007>"}
    chat = read_chat(asking(tools, said("make_0_0", FIRST), told("<Date0007> gave <Box0031>, at a cost of 5")))
    assert chat is not None
    assert (chat.ids["Part0"], chat.last, chat.gained, chat.done) == ("<Box0031>", "Part0", ["make_0_0"], False)
    assert [tool.name for tool in chat.open()] == ["make_0_0", "make_1_1", "make_0_1", "make_1_3", "make_0_3"]


@pytest.mark.parametrize(
    ("name", "arguments", "text", "refusals"),
    [
        ("make_0_0", FIRST, "[ERROR] Not today, <Date0007>.", {"make_0_0": 1}),
        ("make_0_0", FIRST, "It is being mended.", {"make_0_0": 1}),
        ("make_0_0", FIRST.replace("painted", "green"), "[ERROR] No green.", {}),
        ("make_0_0", FIRST.replace("0012", "0013"), "[ERROR] Where?", {}),
        ("make_0_0", FIRST[:-1], "[ERROR] Broken off.", {}),
        ("make_0_0", "[" * 100_000, "[ERROR] Too deep.", {}),
        ("make_0_0", "7", "[ERROR] Not an object.", {}),
        ("make_0_0", '{"Finish": ["painted"]}', "[ERROR] A list.", {}),
        ("make_1_1", '{"Part0": "", "Date": "<Date0007>"}', "[ERROR] You have no part.", {}),
        ("make_9_9", "{}", "[ERROR] What?", {}),
    ],
)
def test_a_refusal_counts_only_where_nothing_was_wrong_with_the_call(
    name: str, arguments: str, text: str, refusals: dict[str, int]
) -> None:
    chat = read_chat(asking(shop(*SPANS).tools(), said(name, arguments), told(text)))
    assert chat is not None
    assert (chat.refusals, chat.gained, chat.last) == (refusals, [], "")


def test_only_the_first_call_of_a_reply_counts() -> None:
    both = tuple(ToolCall(id=i, name="make_0_0", arguments=FIRST) for i in "ab")
    chat = read_chat(
        asking(
            shop(*SPANS).tools(),
            Message(role="assistant", calls=both),
            told("[ERROR] One at a time.", "b"),
            told("<Box0031>", "a"),
        )
    )
    assert chat is not None
    assert (chat.refusals, chat.gained) == ({}, ["make_0_0"])


def test_new_wishes_take_back_what_was_gained_and_keep_what_is_not_given_anew() -> None:
    done = (said("make_0_0", FIRST, "Plan: make_0_0 -> make_1_3"), told("<Box0031>"))
    refused = (said("make_1_3", '{"Part0": "<Box0031>", "Date": "<Date0007>"}'), told("[ERROR] Broken."))
    chat = read_chat(asking(shop(*SPANS).tools(), *done, *refused))
    assert chat is not None
    assert chat.plan == ()
    chat = read_chat(asking(shop(*SPANS).tools(), *done))
    assert chat is not None
    assert chat.plan == ("make_1_3",)
    again = Message(role="user", text="No: go to <Place0099>. Painted, please.")
    chat = read_chat(asking(shop(*SPANS).tools(), *done, *refused, again))
    assert chat is not None
    assert chat.held == {"Finish", "Place", "Date"}
    assert chat.ids == {"Place": "<Place0099>", "Date": "<Date0007>"}
    assert (chat.plan, chat.last, chat.gained, chat.wishes) == ((), "", [], again.text)
    assert chat.refusals == {"make_1_3": 1}


def test_what_a_vanished_tool_gave_is_known_from_our_words_or_from_the_result() -> None:
    left = tuple(machine for machine in chain(*SPANS, length=4) if machine.name != "make_0_1")
    tools = Workshop(machines=left, held=set()).tools()
    for spoken, result in ((says((), "make_0_1", "Part1"), "<Box0031>"), ("", "A Part1: <Box0031>, no Part0")):
        chat = read_chat(asking(tools, said("make_0_1", FIRST, spoken), told(result)))
        assert chat is not None
        assert (chat.last, chat.ids["Part1"], chat.gained) == ("Part1", "<Box0031>", ["make_0_1"])
    chat = read_chat(asking(tools, said("make_0_1", FIRST), told("<Box0031>")))
    assert chat is not None
    assert (chat.last, chat.held) == ("", {"Finish", "Place", "Date"})


@pytest.mark.parametrize("policy", [greedy, replanner])
def test_a_tool_may_vanish_after_it_was_called(policy: PolicyFn) -> None:
    one = shop((0, 0, 900), (1, 1, 900), (2, 2, 900), (3, 3, 900), (0, 1, 100))

    def vanish(there: Workshop) -> str:
        there.machines = tuple(machine for machine in there.machines if not machine.parts)
        return ""

    one.happens = {1: vanish}
    replies = play(one, policy)
    assert [name for name, _ in one.called] == ["make_0_1", "make_2_2", "make_3_3"]
    assert replies[-1].text == "<answer> <Box0031> </answer>"


def test_a_value_is_chosen_by_the_words_that_are_its_own() -> None:
    values = ("luxury_class", "business_class", "standard_class", "budget_class")
    assert closest("a standard class service would be ideal", values) == "standard_class"
    assert closest("we travel on a budget", values) == "budget_class"
    assert closest("any class", values) == "luxury_class"
    assert closest("many museums and a theme", ("historic_site", "museum_or_gallery")) == "museum_or_gallery"


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=50))
def test_reading_never_fails(result: str, arguments: str, description: str) -> None:
    tools = (*shop(*SPANS).tools(), Tool(name="x", description=f"cost 1 output type X {description}", parameters={}))
    request = asking(tools, said("make_0_0", arguments), told(result), Message(role="user", text=result))
    chat = read_chat(request)
    assert chat is not None
    assert chat.offers.given <= chat.held


def test_schemas_of_any_form_are_read() -> None:
    schemas: list[dict[str, Any]]
    schemas = [
        {},
        {"properties": 3},
        {"properties": {"A": {}}, "required": "A"},
        {"properties": {"A": True}},
        {"properties": {"A": {"enum": []}}},
    ]
    for schema in schemas:
        offers = read_tools(asking((Tool(name="x", description="cost 1, output type X", parameters=schema),)))
        assert offers is not None
        assert offers.tools[0].inputs in ((), ("A",))
        assert not offers.tools[0].values
