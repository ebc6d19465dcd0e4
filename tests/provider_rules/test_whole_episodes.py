"""Whole episodes of a model that makes every kind of mistake, with every shipped provider: none of its requests is
refused. Without sockets: a request's bytes are checked, a reply's bytes are read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import orjson
import pytest

import evalkit
from evalkit.client.ask import Question
from evalkit.client.request import RequestTemplate, request_template
from evalkit.dialogue import Reply, Sampling
from evalkit.money import FREE
from evalkit.spec.catalogue import find_model, provider_names, read_provider
from evalkit.wire.http import HttpResponse
from evalkit.wire.streams import ReplyStream
from evalkit.wire.unparsed import malformed_reply
from tests.provider_rules import models
from tests.provider_rules.models import JSON, Said, mistakes
from tests.provider_rules.rules import RULES, Refused
from tests.support.each_case import check_each

Events = Callable[[JSON], Iterator[JSON | str]]
SUITES = ("scheduling/basic", "pricing/basic", "procurement/basic", "costbench/extreme")
MOST_STEPS = 500
MISTRALS = [(provider, "mistralai/Ministral-8B") for provider in ("vllm", "sglang", "llamacpp", "ollama", "openrouter")]
"""Providers of many makers' models, of which Mistral's have rules of their own."""


UNPARSED: dict[str, tuple[int, JSON]] = {
    "groq": (400, {"error": {"code": "tool_use_failed", "message": "no", "failed_generation": '{"name": "a b", "x'}}),
    "vllm": (400, {"error": {"message": "Invalid JSON: EOF while parsing a string", "type": "BadRequestError"}}),
    "ollama": (500, {"error": {"message": "error parsing tool call: raw='{\"k', err=unexpected end of JSON input"}}),
}
"""How some refuse what their own model wrote; here as often as it is drawn."""


@cache
def instance_of(suite: str) -> Any:
    """The first, of CostBench the first whose user changes their mind."""
    found = evalkit.suite(suite)
    events = (getattr(getattr(one, "instance", one), "events", ()) for one in found)
    kinds = [{event.kind for event in of} for of in events]
    return found[next((at for at, kind in enumerate(kinds) if "preference_change" in kind), 0)]


@dataclass
class Provider:
    """A server that enforces its rules, and has the model that errs behind it."""

    name: str
    asked: RequestTemplate
    streamed: bool
    wrote: list[JSON] = field(default_factory=list)
    """In this chat."""

    def answer(self, body: bytes, said: Said) -> HttpResponse:
        dialect = self.asked.dialect.name
        RULES[dialect](self.name, self.asked.model.name, orjson.loads(body), self.wrote)
        if self.name in UNPARSED and len(self.wrote) == 3:
            failed = Said(calls=[("", "", "")])
            self.wrote.append(models.chat(failed, details=False))
            return HttpResponse(status=UNPARSED[self.name][0], headers={}, body=orjson.dumps(UNPARSED[self.name][1]))
        if dialect == "openai_chat":
            value = models.chat(said, details=self.name == "openrouter")
            events: Events = models.chat_events
        else:
            value, events = FORMS[dialect.partition("_")[0] if dialect != "openai_responses" else dialect](said)
        self.wrote.append(value)
        if not self.streamed:
            return HttpResponse(status=200, headers={}, body=orjson.dumps(value))
        form = self.asked.dialect.stream_form(self.asked.model.quirks)
        assert form is not None
        stream = ReplyStream(form, 10**6)
        stream.feed(models.stream(events(value)))
        came = stream.end()
        return HttpResponse(status=came.status, headers={}, body=came.body, failure=came.failure, detail=came.detail)


FORMS: dict[str, Callable[[Said], tuple[JSON, Events]]] = {
    "openai_responses": lambda said: (models.responses(said), models.responses_events),
    "anthropic": lambda said: (models.anthropic(said), models.anthropic_events),
    "gemini": lambda said: (models.gemini(said), models.gemini_events),
}


def play(provider: Provider, suite: str) -> int:
    """Play to the end; returns the steps."""
    game, asked = evalkit.game(instance_of(suite)), provider.asked
    parts: list[bytes] = []
    asked.join(parts, game.messages)
    for step in range(MOST_STEPS):
        tools = asked.encode_tools(tuple(game.tools))
        body = asked.body(Question(episode="ab", step=step, seed=step, tools=tools, messages=parts))
        response = provider.answer(body, mistakes(step, game.tools[0].name))
        verdict, reply, _ = asked.dialect.understand(response)
        if verdict.action == "draw_again":
            reply = malformed_reply(response.body)
        assert isinstance(reply, Reply), verdict
        turn = game.reply(reply)
        if game.ending:
            return step + 1
        if turn.new_chat:
            parts, provider.wrote = [], []
        asked.join(parts, game.messages if turn.new_chat else (reply.message(), *turn.messages))
    raise AssertionError("it never ends")


def provided(name: str, model: str, *, streamed: bool) -> Provider:
    file = read_provider(name)
    found = find_model(file, model or next(iter(file.models), "gpt-5-mini"))
    asked = request_template(
        "a", provider=file, model=found, sampling=Sampling(max_tokens=512), price=found.price or FREE
    )
    can = file.stream != "off" and asked.dialect.stream_form(found.quirks) is not None
    return Provider(name=name, asked=asked, streamed=streamed and can)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("turn", range(len(SUITES)))
def test_no_shipped_provider_refuses_what_its_model_wrote(turn: int) -> None:
    """In each turn every provider plays one suite; in all turns, all suites."""
    pairs = [(name, "") for name in provider_names()] + MISTRALS
    cases = [
        (f"{name} {model} {suite} {'streamed' if streamed else 'whole'}", (name, model, suite, streamed))
        for at, (name, model) in enumerate(pairs)
        for suite, streamed in [(SUITES[(at + turn) % len(SUITES)], bool((at // 2 + turn) % 2))]
    ]

    def check(case: tuple[str, str, str, bool]) -> None:
        name, model, suite, streamed = case
        assert play(provided(name, model, streamed=streamed), suite) >= 7

    check_each(cases, check)


@pytest.mark.parametrize(
    ("name", "model", "less", "words"),
    [
        ("mistral", "", {"after_results": "user"}, "Unexpected role 'user' after role 'tool'"),
        ("mistral", "", {"thinking_back": "calls"}, "'reasoning_content'} is unsupported"),
        ("mistral", "", {"refuses": frozenset()}, "of length 9"),
        ("vllm", "mistralai/Ministral-8B", {"after_results": "user"}, "Unexpected role 'user' after role 'tool'"),
        ("deepseek", "", {"thinking_back": "calls"}, "`reasoning_content` in the thinking mode must be passed back"),
        ("groq", "", {"thinking_back": "calls"}, "'reasoning_content'} is unsupported"),
        ("together", "", {"refuses": frozenset()}, "Expecting value"),
    ],
)
def test_without_a_line_of_its_file_a_provider_refuses(name: str, model: str, less: Any, words: str) -> None:
    provider = provided(name, model, streamed=False)
    model_asked = provider.asked.model
    provider.asked = replace(provider.asked, model=replace(model_asked, quirks=replace(model_asked.quirks, **less)))
    with pytest.raises(Refused, match=re.escape(words)):
        play(provider, "scheduling/basic")


def test_with_it_the_user_may_also_join_the_result() -> None:
    provider = provided("mistral", "", streamed=False)
    asked = provider.asked.model
    provider.asked = replace(provider.asked, model=replace(asked, quirks=replace(asked.quirks, after_results="joined")))
    assert play(provider, "scheduling/basic") > 7
