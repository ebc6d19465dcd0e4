"""What a request is and what it can cost are known without a loop, a lane, a budget or a connection."""

from dataclasses import replace

import orjson
import pytest

from evalkit.client.ask import Question
from evalkit.client.request import RequestTemplate, request_template
from evalkit.dialogue import Message, Sampling, Tool, ToolCall
from evalkit.money import FREE, Price
from evalkit.spec.model import Limits, Model, Provider
from evalkit.wire.dialect import MALFORMED_ARGUMENTS, Quirks
from evalkit.wire.table import DIALECTS

PRICE = Price(input=10, output=100, cached_read=1, cached_write=10)
TOOL = Tool(name="f", description="", parameters={"type": "object"})


def template(dialect: str = "openai_chat", *, cache_key: bool = False, quirks: Quirks | None = None) -> RequestTemplate:
    provider = Provider(name="acme", dialect=dialect, key_env="ACME_KEY", cache_key=cache_key)
    model = Model(name="m", price=PRICE, limits=Limits(), quirks=quirks or Quirks())
    return request_template("a", provider=provider, model=model, sampling=Sampling(max_tokens=50), price=PRICE)


def question(asked: RequestTemplate, text: str = "hello", episode: str = "e0") -> Question:
    parts: list[bytes] = []
    asked.join(parts, [Message(role="user", text=text)])
    return Question(episode=episode, step=3, seed=99, tools=asked.encode_tools((TOOL,)), messages=parts)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_is_bounded_by_its_bytes_and_what_it_may_be_answered_with(dialect: str) -> None:
    asked = template(dialect)
    body = asked.body(question(asked))
    assert orjson.loads(body)
    most_input = len(body) + DIALECTS[dialect].overhead_tokens
    assert asked.worst_case(question(asked)) == asked.bound(len(body)) == most_input * 10 + 50 * 100


def test_a_longer_chat_has_a_higher_bound_and_a_free_model_none() -> None:
    asked = template()
    long, short = asked.worst_case(question(asked, "hello" * 9)), asked.worst_case(question(asked))
    assert long - short == 8 * len("hello") * 10
    assert replace(asked, price=FREE).worst_case(question(asked)) == 0


def test_asking_for_a_bound_changes_no_later_request() -> None:
    asked = template()
    before = asked.body(question(asked))
    asked.worst_case(Question(episode="e1", step=0, seed=1, tools=b"[]", messages=[], choice="none"))
    assert asked.body(question(asked)) == before == template().body(question(template()))


def test_a_request_names_its_episode_only_where_the_provider_wants_it() -> None:
    asked = template(cache_key=True)
    key = asked.dialect.cache_key
    assert orjson.loads(asked.body(question(asked, episode="abc")))[key] == "abc"
    assert key not in orjson.loads(template().body(question(asked, episode="abc")))
    silent = template("anthropic_messages", cache_key=True)
    assert silent.dialect.cache_key == ""
    assert silent.body(question(silent)) == template("anthropic_messages").body(question(silent))


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_calls_go_back_as_they_were_written_or_as_objects_where_servers_parse_them(dialect: str) -> None:
    cut = [Message(role="assistant", calls=(ToolCall(id="a", name="f", arguments='{"k": "cu'),))]
    sent = []
    for asked in (template(dialect), template(dialect, quirks=Quirks(refuses=frozenset({MALFORMED_ARGUMENTS})))):
        parts: list[bytes] = []
        asked.join(parts, cut)
        sent.append(orjson.loads(parts[0]))
    found = [one.get("arguments") or one["tool_calls"][0]["function"]["arguments"] for one in sent]
    assert found == ['{"k": "cu', '{"_raw":"{\\"k\\": \\"cu"}']


def test_calls_among_kept_items_go_back_as_objects_too() -> None:
    thought = {"type": "reasoning", "encrypted_content": "g", "summary": []}
    calls = [
        {"type": "function_call", "call_id": name, "name": "f", "arguments": text}
        for name, text in (("a", '{"k": "cu'), ("b", '{"k": 1}'))
    ]
    value = {"output": [thought, *calls], "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
    reply = DIALECTS["openai_responses"].read(value)
    assert reply.opaque
    message = Message(role="assistant", text=reply.text, calls=reply.calls, opaque=reply.opaque)
    for refuses, cut in ((set[str](), '{"k": "cu'), ({MALFORMED_ARGUMENTS}, '{"_raw":"{\\"k\\": \\"cu"}')):
        parts: list[bytes] = []
        template("openai_responses", quirks=Quirks(refuses=frozenset(refuses))).join(parts, [message])
        assert orjson.loads(b"[%b]" % parts[0]) == [thought, {**calls[0], "arguments": cut}, calls[1]]
