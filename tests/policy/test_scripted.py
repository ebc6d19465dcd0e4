import re
from typing import Any

import pytest

from evalkit.dialogue import Message, Request, Sampling
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.policy.table import (
    GENERAL,
    check_policy,
    find_policy,
    player,
    policies_of,
    read_script,
    scripted,
    served,
    served_names,
)
from evalkit.seeds import Stream

SCRIPT: list[str | dict[str, Any]] = [
    "Let me think.",
    {"text": "Now.", "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "{not json"}]},
    {"text": "Cut", "finish": "length"},
]


def after(replies: int) -> Request:
    said = [Message(role="assistant", text="..."), Message(role="user", text="Go on.")] * replies
    return Request(messages=(Message(role="user", text="Begin."), *said), tools=(), sampling=Sampling(), seed=0)


def test_entries_are_answered_in_order_and_begin_again_behind_the_last() -> None:
    replies = [scripted(SCRIPT)(after(n), Stream(0)) for n in range(4)]
    assert [reply.text for reply in replies] == ["Let me think.", "Now.", "Cut", "Let me think."]
    assert [reply.finish for reply in replies] == ["stop", "tool_calls", "length", "stop"]
    assert [(call.id, call.name, call.arguments) for call in replies[1].calls] == [
        ("call_0", "a", '{"x": 1}'),
        ("call_1", "b", "{not json"),
    ]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("[", "script: not valid JSON"),
        ("[" * 100_000, "script: not valid JSON"),
        ('"hello"', "script: expected a list of replies, got str"),
        ("[]", "script: expected at least one reply"),
        ("[7]", "script[1]: expected a string or an object, got int"),
        ('["a", {"txt": "b"}]', "script[2]: unknown key 'txt'. Did you mean 'text'?"),
        ('[{"text": 7}]', "script[1]: `text` and `finish` must be strings"),
        ('[{"calls": "a"}]', "script[1].calls: expected a list of calls"),
        ('[{"calls": ["a"]}]', "script[1].calls[1]: expected an object"),
        ('[{"calls": [{"arguments": {}}]}]', "script[1].calls[1].name: expected the tool's name"),
        (
            '[{"calls": [{"name": "a", "args": {}}]}]',
            "script[1].calls[1]: unknown key 'args'. Did you mean 'arguments'?",
        ),
    ],
)
def test_a_wrong_script_is_named_with_its_place(script: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        read_script(script)


def test_the_table_says_what_each_policy_needs() -> None:
    for table in (GENERAL, *map(policies_of, ENVIRONMENTS)):
        for policy in table.values():
            assert [policy.reply, policy.oracle, policy.script, policy.outside].count(None) == 3
            assert policy.recognises is None or policy.acts_with
    assert player("scripted", "", script='["Hi."]')(after(0), Stream(0)).text == "Hi."
    with pytest.raises(UsageError, match=r"no policy 'knut'. Did you mean 'knuth'\?"):
        check_policy("knut")


def test_a_policy_is_found_by_its_name_and_environment() -> None:
    own, other = find_policy("random", "pricing"), find_policy("random", "scheduling")
    assert own is not None
    assert own is not other
    assert find_policy("random", "errand") is find_policy("random", "unheard_of") is GENERAL["random"]
    assert find_policy("knuth", "pricing") is None
    with pytest.raises(UsageError, match="The policy 'knuth' does not play pricing"):
        player("knuth", "pricing")
    assert "knuth" in served_names()
    assert "oracle" not in served_names()


def test_without_a_tool_it_knows_a_policy_says_so_and_calls_nothing() -> None:
    reply = served("knuth")(after(0), Stream(0))
    assert not reply.calls
    assert "submit_assignment" in reply.text
