"""Anthropic's SDK against the simulated provider: whole episodes over Messages, streamed and not, and its errors."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from evalkit.dialogue import Message, Reply, Request, ToolCall
from evalkit.envs.environment import Environment
from evalkit.serve.formats import BASE_PATH
from tests.provider.serving import simulated
from tests.sdks.holding import EPISODES, KEY, STREAM_FORMS, WHY, fault_of, hold, until_refused
from tests.serve.asking import TOOLS

anthropic = pytest.importorskip("anthropic", reason=WHY)
from anthropic.types import MessageParam, TextBlock, ToolParam, ToolUseBlock  # noqa: E402

CHECKED_SDK = {"anthropic_messages": "anthropic"}
"""For the table in docs/provider-details.md."""

_FINISHES = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


@pytest.fixture
def url() -> Iterator[str]:
    """Of a server of the test's own: what another episode wrote to the cache would be found."""
    with simulated({"key": KEY, "rpm": 1_000_000, "cache": "5m"}) as url:
        yield url.removesuffix(BASE_PATH)


def whole(client: Any, **fields: Any) -> Any:
    return client.messages.create(**fields)


def streamed(client: Any, **fields: Any) -> Any:
    """As the SDK joins a stream's deltas."""
    with client.messages.stream(**fields) as stream:
        return stream.get_final_message()


class Messages:
    """A chat of Messages."""

    def __init__(self, client: Any, model: str, send: Callable[..., Any] = whole) -> None:
        self.client, self.model, self.send = client, model, send
        self.system: list[dict[str, str]] = []
        self.chat: list[MessageParam] = []
        self.tools: list[ToolParam] = []
        self.cached = 0

    def hear(self, messages: Sequence[Message]) -> None:
        blocks: list[Any] = []
        for one in messages:
            if one.role == "system":
                self.system.append({"type": "text", "text": one.text})
            elif one.role == "tool":
                blocks.append({"type": "tool_result", "tool_use_id": one.call_id, "content": one.text})
            else:
                blocks.append({"type": "text", "text": one.text})
        self.chat.append({"role": "user", "content": blocks})

    def ask(self, request: Request, headers: dict[str, str]) -> Reply:
        tools: list[ToolParam] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {"type": "object", **tool.parameters},
            }
            for tool in request.tools
        ]
        done = self.send(
            self.client,
            model=self.model,
            system=self.system,
            messages=self.chat,
            tools=tools,
            max_tokens=request.sampling.max_tokens,
            cache_control={"type": "ephemeral"},
            extra_headers=headers,
        )
        assert done.id.startswith("msg_01")
        assert done.usage.output_tokens > 0
        read, written = done.usage.cache_read_input_tokens, done.usage.cache_creation_input_tokens
        if tools == self.tools:
            # What was written up to the last turn is read in this one.
            assert read == self.cached
        self.tools, self.cached = tools, read + written
        self.chat.append({"role": "assistant", "content": done.content})
        text = "".join(one.text for one in done.content if isinstance(one, TextBlock))
        calls = tuple(
            ToolCall(id=one.id, name=one.name, arguments=json.dumps(one.input))
            for one in done.content
            if isinstance(one, ToolUseBlock)
        )
        return Reply(text=text, calls=calls, finish=_FINISHES[done.stop_reason])


@pytest.mark.parametrize("send", [whole, streamed])
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, send: Any
) -> None:
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        hold(env, parameters, name, lambda: Messages(client, name, send))


@pytest.mark.parametrize("fault", STREAM_FORMS)
def test_a_stream_says_what_the_same_request_gets_whole(fault: str) -> None:
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in TOOLS]
    with (
        simulated({"reasoning": 60, "stream_tokens": 2, "cache": "5m", **fault_of(fault)}) as url,
        anthropic.Anthropic(base_url=url.removesuffix(BASE_PATH), api_key=KEY, max_retries=0) as client,
    ):
        fields = {
            "model": "knuth",
            "max_tokens": 1000,
            "messages": [{"role": "user", "content": "Begin."}],
            "tools": tools,
            "extra_headers": {"X-Client-Request-Id": "e/1/0"},
        }
        expected, got = whole(client, **fields), streamed(client, **fields)
    assert [block.type for block in expected.content] == ["thinking", *["tool_use"] * 3]
    assert got.to_dict() == {**expected.to_dict(), "stop_details": None}


def test_an_error_in_a_stream_is_the_sdks_own() -> None:
    with (
        simulated({"fault_stream_error": 1}) as url,
        anthropic.Anthropic(base_url=url.removesuffix(BASE_PATH), api_key=KEY, max_retries=0) as client,
        pytest.raises(anthropic.APIStatusError, match="The server had an error"),
    ):
        list(say(client, stream=True))


def say(client: Any, model: str = "knuth", **more: Any) -> Any:
    return client.messages.create(model=model, messages=[{"role": "user", "content": "Begin."}], max_tokens=100, **more)


def test_what_is_wrong_raises_the_sdks_own_error(url: str) -> None:
    with (
        anthropic.Anthropic(base_url=url, api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError) as wrong_key,
    ):
        say(client)
    assert wrong_key.value.request_id.startswith("req_")
    with (
        anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client,
        pytest.raises(anthropic.NotFoundError, match="gpt-9"),
    ):
        say(client, "gpt-9")


def test_a_rate_limit_raises_and_its_wait_is_honoured() -> None:
    # One request every 3 s: longer than the SDK would wait by itself.
    with simulated({"rpm": 20, "burst": "1s"}) as url:
        host = url.removesuffix(BASE_PATH)
        with anthropic.Anthropic(base_url=host, api_key=KEY, max_retries=0) as client:
            say(client)
            with pytest.raises(anthropic.RateLimitError) as limited:
                until_refused(lambda: say(client))
        assert limited.value.response.headers["anthropic-ratelimit-requests-limit"] == "20"
        with anthropic.Anthropic(base_url=host, api_key=KEY, max_retries=1) as client:
            assert say(client).id.startswith("msg_01")
