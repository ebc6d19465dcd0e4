"""What the policies read of a chat, whatever its wording. `test_playing.py` plays them on the environment."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Request
from evalkit.policy.conversation import answer
from evalkit.policy.scheduling.policies import knuth, random, read_history, repair
from tests.policy.chatting import ACTION, TOOLS, chat, submitted

IDS = {"get_worker_ids": "{'worker_ids': ['W1', 'W2', 'W3']}", "get_task_ids": "T1, T2 and T3"}

PLAIN = """Attempt 0:
Assignment proposed: {'W1': 'T1', 'W2': 'T2', 'W3': 'T3'}
\t(1) Worker W1 had T1 while W2 had T2; W1 likes T2 more, and T2 is better off with W1 than with W2.

Attempt 1:
Assignment proposed: {'W1': 'T2', 'W2': 'T1', 'W3': 'T3'}
\t(1) Worker W1 had T2 while W3 had T3; W1 likes T3 more, and T3 is better off with W1 than with W3.
\t(2) Worker W2 had T1 while W1 had T2; W2 likes T2 more, and T2 is better off with W2 than with W1.
"""
WORDINGS = [
    PLAIN,
    str({"previous_attempts_data": PLAIN}),
    str({"previous_attempts_data": PLAIN.replace(";", "; it's so:")}),
    json.dumps({"previous_attempts_data": PLAIN}),
    PLAIN.replace("(1)", "1.").replace("(2)", "2.").replace("Worker ", "Problem: ").replace("'", '"'),
    PLAIN + "\nAttempt 2:\nNothing was submitted.\n",
]


def knuths(request: Request) -> Reply:
    return answer("knuth", knuth, request)


@pytest.mark.parametrize("text", WORDINGS)
def test_the_last_attempt_and_its_problems_are_read_from_any_wording(text: str) -> None:
    assert read_history(text) == ({"W1": "T2", "W2": "T1", "W3": "T3"}, [("W1", "T3"), ("W2", "T2")])


def test_a_line_that_contradicts_the_assignment_is_no_problem() -> None:
    text = "{'W1': 'T1', 'W2': 'T2'}\n(1) W1 has T2 and W2 has T1.\n(2) W1 has T1.\n(3) W1 has T1, W1 has T1."
    text += "\n(4) W2 T2 W1 T1"
    assert read_history(text)[1] == [("W2", "T1")]


@pytest.mark.parametrize(
    "text", ["", "{}", "{'previous_attempts_data': ''}", "Attempt 0: {'W1': ", "no attempts { yet }", "{" * 5000, "\\"]
)
def test_a_history_without_an_assignment_gives_none(text: str) -> None:
    assert read_history(text) == ({}, [])


@given(st.text(max_size=300))
def test_reading_a_history_never_fails(text: str) -> None:
    assignment, problems = read_history(text + "{'W1': 'T1', 'W2': 'T2'}" + text)
    assert all(worker in assignment and task in assignment.values() for worker, task in problems)


def test_a_repair_swaps_two_tasks_and_nothing_else() -> None:
    assert repair({"W1": "T1", "W2": "T2", "W3": "T3"}, "W3", "T1") == {"W1": "T3", "W2": "T2", "W3": "T1"}


def test_a_chat_begins_with_all_questions_in_one_reply() -> None:
    reply = knuths(chat({}))
    assert [call.name for call in reply.calls] == ["get_worker_ids", "get_task_ids", "get_previous_attempts_data"]
    assert [call.id for call in reply.calls] == ["call_0", "call_1", "call_2"]
    assert reply.finish == "tool_calls"
    assert [call.name for call in answer("random", random, chat({})).calls] == ["get_worker_ids", "get_task_ids"]


def test_where_parallel_calls_are_off_one_question_is_asked_at_a_time() -> None:
    first = knuths(chat({}, parallel_calls=False))
    second = knuths(chat({"get_worker_ids": "['W1']"}, parallel_calls=False))
    assert [[call.name for call in reply.calls] for reply in (first, second)] == [["get_worker_ids"], ["get_task_ids"]]


def test_the_first_assignment_is_the_identity_in_listed_order() -> None:
    reply = knuths(chat({**IDS, "get_previous_attempts_data": "{'previous_attempts_data': ''}"}))
    assert submitted(reply) == {"W1": "T1", "W2": "T2", "W3": "T3"}
    assert reply.calls[0].id == "call_3"


@pytest.mark.parametrize("text", WORDINGS)
def test_each_reported_problem_is_repaired_equally_often(text: str) -> None:
    found = Counter(
        str(submitted(knuths(chat({**IDS, "get_previous_attempts_data": text}, seed=seed)))) for seed in range(400)
    )
    expected = [str({"W1": "T3", "W2": "T1", "W3": "T2"}), str({"W1": "T1", "W2": "T2", "W3": "T3"})]
    assert set(found) == set(expected)
    # Four standard deviations of a fair coin.
    assert abs(found[expected[0]] - 200) <= 40


def test_an_attempt_without_readable_problems_is_submitted_again() -> None:
    text = "Attempt 0:\n{'W1': 'T3', 'W2': 'T2', 'W3': 'T1'}\nSomething is wrong with it, but guess what.\n"
    reply = knuths(chat({**IDS, "get_previous_attempts_data": text}))
    assert submitted(reply) == {"W1": "T3", "W2": "T2", "W3": "T1"}


def test_where_no_attempt_can_be_read_a_random_assignment_is_submitted() -> None:
    replies = [
        submitted(knuths(chat({**IDS, "get_previous_attempts_data": "Attempt 0: {W1 -> T1}"}, seed=seed)))
        for seed in range(60)
    ]
    assert len({str(reply) for reply in replies}) == 6
    assert all(sorted(reply.values()) == ["T1", "T2", "T3"] for reply in replies)


def test_random_submits_every_assignment_equally_often() -> None:
    found = Counter(str(submitted(answer("random", random, chat(IDS, seed=seed)))) for seed in range(1200))
    assert len(found) == 6
    # Five standard deviations of a binomial with p = 1/6.
    assert all(abs(count - 200) <= 65 for count in found.values())


def test_where_only_the_action_is_offered_it_is_taken_without_knowing_anything() -> None:
    assert submitted(knuths(chat({}, tools=(ACTION,)))) == {}


def test_an_action_that_takes_an_object_gets_one() -> None:
    properties = {"plan": {"type": "object"}}
    tools = (*TOOLS[:-1], replace(ACTION, parameters={"properties": properties}))
    (call,) = answer("random", random, chat(IDS, tools=tools)).calls
    assert sorted(json.loads(call.arguments)["plan"]) == ["W1", "W2", "W3"]


def test_replies_depend_on_the_request_alone() -> None:
    request = chat({**IDS, "get_previous_attempts_data": PLAIN}, seed=5)
    assert knuths(request) == knuths(request)


def test_what_was_asked_in_vain_is_asked_again() -> None:
    request = chat({**IDS, "get_previous_attempts_data": "Nothing was done: the arguments must be a JSON object."})
    (user, assistant, *told) = request.messages
    spoiled = (*assistant.calls[:2], replace(assistant.calls[2], arguments="null"))
    again = knuths(replace(request, messages=(user, replace(assistant, calls=spoiled), *told)))
    assert [(call.id, call.name) for call in again.calls] == [("call_3", "get_previous_attempts_data")]


def test_a_history_that_is_refused_the_second_time_is_still_known() -> None:
    request = chat({**IDS, "get_previous_attempts_data": PLAIN})
    (user, assistant, *told) = request.messages
    twice = replace(assistant.calls[2], id="call_9")
    refused = Message(role="tool", call_id="call_9", text="See above.")
    assistant = replace(assistant, calls=(*assistant.calls, twice))
    changed = replace(request, messages=(user, assistant, *told, refused))
    assert submitted(knuths(changed)) == submitted(knuths(request))
