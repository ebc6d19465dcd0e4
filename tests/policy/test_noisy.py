import json
import math

from evalkit.policy.conversation import answer
from evalkit.policy.noisy import Moment, after_action, noisy, partial, several
from evalkit.policy.scheduling import policies as module
from evalkit.policy.scheduling.policies import MISTAKES, knuth
from evalkit.seeds import Stream
from tests.policy.chatting import chat, submitted

READY = {"get_worker_ids": "['W1', 'W2', 'W3']", "get_task_ids": "['T1', 'T2', 'T3']", "get_previous_attempts_data": ""}


def test_most_replies_are_as_good_as_those_it_spoils() -> None:
    request = [chat(READY, seed=seed) for seed in range(600)]
    same = sum(answer("noisy", noisy(knuth, MISTAKES), one) == answer("noisy", knuth, one) for one in request)
    left = 1 - math.fsum(probability for probability, _ in MISTAKES)
    # Five standard deviations of a binomial.
    assert abs(same - 600 * left) < 5 * (600 * left * (1 - left)) ** 0.5
    assert left > 0.5


def test_every_mistake_differs_from_the_good_reply_and_from_the_others() -> None:
    names = {id(one): name for name, one in vars(module).items()}
    for answers in ({}, READY):
        request = chat(answers)
        good = knuth(request, Stream(1))
        found = []
        for _, mistake in MISTAKES:
            reply = mistake(Moment(request=request, good=good, draws=Stream(4)))
            found.append((names.get(id(mistake), mistake.__name__), reply))
        spoiled = [name for name, reply in found if reply == good]
        # A question has no mapping to damage; an action has.
        assert (
            not spoiled
            if answers
            else set(spoiled)
            <= {"partial", "_duplicate", "_unknown_ids", "wrong_type", "_unparseable", "huge", "_bomb"}
        )
        texts = [repr(reply) for _, reply in found if reply != good]
        assert len(set(texts)) == len(texts)


def test_a_damaged_action_is_damaged_as_its_name_says() -> None:
    request = chat(READY)
    moment = Moment(request=request, good=knuth(request, Stream(1)), draws=Stream(2))
    whole = {"W1": "T1", "W2": "T2", "W3": "T3"}
    assert len(submitted(partial(moment))) == 2
    assert submitted(module._duplicate(moment)) == {**whole, "W1": "T3"}
    assert submitted(module._unknown_ids(moment)) == {**whole, "X99": "Y99"}
    assert [call.name for call in several(moment).calls] == ["submit_assignment"] * 2
    assert len({call.id for call in after_action(moment).calls}) == 3


def test_no_mistake_is_larger_than_it_says() -> None:
    request = chat(READY)
    sizes = []
    for seed in range(20):
        moment = Moment(request=request, good=knuth(request, Stream(1)), draws=Stream(seed))
        sizes += [len(json.dumps([call.arguments for call in mistake(moment).calls])) for _, mistake in MISTAKES]
    assert 100_000 < max(sizes) < 101_000
