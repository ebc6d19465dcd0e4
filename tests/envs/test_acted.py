"""What each environment calls a valid action: it opens a lane, and reaches no digest."""

from typing import Any

import pytest

from evalkit.dialogue import Reply, Request, Sampling, ToolCall
from evalkit.envs.replay import advance, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.replies import encode_reply
from evalkit.spec.model import SuiteUse
from evalkit.spec.suites import expand
from tests.support.episode_loop import Agent, kit, policy

PLAYED = [
    ("costbench/basic", "greedy"),
    ("pricing/basic", "random"),
    ("procurement/basic", "random"),
    ("scheduling/basic", "random"),
]


def acted(suite: str, agent: Agent) -> list[bool]:
    """Whether each of the first replies to an instance of a suite was a valid action."""
    instances = next(expand(SuiteUse(name=suite)))[2]
    assert isinstance(instances, list)
    one = instances[0]
    env: Any = ENVIRONMENTS[one.environment]
    position = begin(env, one.instance, kit(env.name))
    found: list[Any] = []
    while not position.ending and len(found) < 20:
        sampling = Sampling(max_tokens=env.defaults.max_tokens)
        request = Request(messages=tuple(position.messages), tools=position.tools, sampling=sampling, seed=len(found))
        reply = agent(request)
        found.append(advance(env, position, reply, encode_reply(reply)).acted)
    return found


@pytest.mark.parametrize(("suite", "name"), PLAYED)
def test_a_policy_soon_acts(suite: str, name: str) -> None:
    assert any(acted(suite, policy(name)))


@pytest.mark.parametrize("suite", [suite for suite, _ in PLAYED])
def test_talk_and_calls_of_what_is_not_there_are_no_actions(suite: str) -> None:
    for calls in ((), (ToolCall(id="1", name="fly", arguments="{}"),)):
        reply = Reply(text="Well.", calls=calls)
        assert not any(acted(suite, lambda _, said=reply: said))  # type: ignore[misc]
