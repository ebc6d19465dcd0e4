"""OpenAI's SDK against the simulated provider: whole episodes over Chat Completions and Responses, whole and streamed,
and its errors."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from evalkit.dialogue import Message, Reply, Request, ToolCall
from evalkit.envs.environment import Environment
from tests.provider.serving import simulated
from tests.sdks.holding import EPISODES, KEY, STREAM_FORMS, WHY, fault_of, hold, until_refused
from tests.serve.asking import TOOLS

openai = pytest.importorskip("openai", reason=WHY)
from openai.lib.streaming.chat import ChatCompletionStreamState  # noqa: E402
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageFunctionToolCall  # noqa: E402
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall  # noqa: E402

CHECKED_SDK = {"openai_chat": "openai", "openai_responses": "openai"}
"""For the table in docs/provider-details.md."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated({"key": KEY, "rpm": 1_000_000}) as url:
        yield url


def whole_completion(client: Any, **fields: Any) -> Any:
    return client.chat.completions.create(**fields)


def streamed_completion(client: Any, **fields: Any) -> Any:
    """From chunks, as the SDK joins them."""
    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields):
        state.handle_chunk(chunk)
    return state.get_final_completion()


def whole_response(client: Any, **fields: Any) -> Any:
    return client.responses.create(**fields)


def streamed_response(client: Any, **fields: Any) -> Any:
    """As the SDK joins a stream's deltas; and as its last event says it."""
    with client.responses.stream(**fields) as stream:
        *_, last = stream
        joined = stream.get_final_response()
    assert last.type == "response.completed"
    assert last.response.output == joined.output
    return joined


class Completions:
    """A chat of Chat Completions."""

    def __init__(self, client: Any, model: str, send: Callable[..., Any]) -> None:
        self.client, self.model, self.send = client, model, send
        self.chat: list[Any] = []

    def hear(self, messages: Sequence[Message]) -> None:
        for one in messages:
            answers = {"tool_call_id": one.call_id} if one.role == "tool" else {}
            self.chat.append({"role": one.role, "content": one.text, **answers})

    def ask(self, request: Request, headers: dict[str, str]) -> Reply:
        tools: list[ChatCompletionFunctionToolParam] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in request.tools
        ]
        done = self.send(
            self.client,
            model=self.model,
            messages=self.chat,
            tools=tools,
            max_completion_tokens=request.sampling.max_tokens,
            extra_headers=headers,
        )
        assert done.id.startswith("chatcmpl-")
        assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
        message = done.choices[0].message
        self.chat.append(message)
        calls = []
        for call in message.tool_calls or ():
            assert isinstance(call, ChatCompletionMessageFunctionToolCall)
            calls.append(ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments))
        assert done.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        return Reply(text=message.content or "", calls=tuple(calls), finish=done.choices[0].finish_reason)


class Responses:
    """A chat of Responses, whose items are kept here."""

    def __init__(self, client: Any, model: str, send: Callable[..., Any]) -> None:
        self.client, self.model, self.send = client, model, send
        self.chat: list[Any] = []

    def hear(self, messages: Sequence[Message]) -> None:
        for one in messages:
            if one.role == "tool":
                self.chat.append({"type": "function_call_output", "call_id": one.call_id, "output": one.text})
            else:
                self.chat.append({"role": one.role, "content": one.text})

    def ask(self, request: Request, headers: dict[str, str]) -> Reply:
        tools: list[FunctionToolParam] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
        done = self.send(
            self.client,
            model=self.model,
            input=self.chat,
            tools=tools,
            max_output_tokens=request.sampling.max_tokens,
            store=False,
            extra_headers=headers,
        )
        assert done.id.startswith("resp_")
        assert done.status == "completed"
        assert done.usage.output_tokens > 0
        self.chat += done.output
        calls = tuple(
            ToolCall(id=one.call_id, name=one.name, arguments=one.arguments)
            for one in done.output
            if isinstance(one, ResponseFunctionToolCall)
        )
        return Reply(text=done.output_text, calls=calls, finish="tool_calls" if calls else "stop")


@pytest.mark.parametrize(
    ("api", "send"),
    [
        pytest.param(Completions, whole_completion, id="chat-completions"),
        pytest.param(Completions, streamed_completion, id="chat-completions-streamed"),
        pytest.param(Responses, whole_response, id="responses"),
        pytest.param(Responses, streamed_response, id="responses-streamed"),
    ],
)
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, api: Any, send: Any
) -> None:
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        hold(env, parameters, name, lambda: api(client, name, send))


def said(done: Any) -> tuple[Any, ...]:
    """Id, thoughts, text, calls, finish and usage of a completion."""
    choice, usage = done.choices[0], done.usage
    calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    thoughts = choice.message.reasoning_content
    return done.id, done.model, thoughts, choice.message.content, calls, choice.finish_reason, usage


@pytest.mark.parametrize("fault", STREAM_FORMS)
def test_a_stream_says_what_the_same_request_gets_whole(fault: str) -> None:
    functions = [{**tool["function"], "strict": True} for tool in TOOLS]
    chat = {
        "model": "knuth",
        "messages": [{"role": "user", "content": "Begin."}],
        "tools": [{"type": "function", "function": function} for function in functions],
        "extra_headers": {"X-Client-Request-Id": "e/1/0"},
    }
    tools = [{"type": "function", **function} for function in functions]
    asked = {"model": "knuth", "input": "Begin.", "tools": tools, "extra_headers": chat["extra_headers"]}
    with (
        simulated({"reasoning": 60, "stream_tokens": 2, **fault_of(fault)}) as url,
        openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client,
    ):
        whole = whole_completion(client, **chat)
        assert said(whole)[2]
        assert len(said(whole)[4]) == 3
        assert said(streamed_completion(client, **chat)) == said(whole)
        with client.chat.completions.stream(stream_options={"include_usage": True}, **chat) as stream:
            assert said(stream.get_final_completion()) == said(whole)
        response = whole_response(client, **asked)
        streamed = streamed_response(client, **asked)
    assert [item.type for item in response.output] == ["reasoning", *["function_call"] * 3]
    assert streamed.to_dict() | {"output": []} == response.to_dict() | {"output": []}
    for ours, theirs in zip(streamed.output, response.output, strict=True):
        # What the SDK parses of the arguments is its own.
        assert {k: v for k, v in ours.to_dict().items() if k != "parsed_arguments"} == theirs.to_dict()


def test_an_error_in_a_stream_is_the_sdks_own() -> None:
    with simulated({"fault_stream_error": 1}) as url, openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        with pytest.raises(openai.APIError, match="The server had an error"):
            list(
                client.chat.completions.create(model="knuth", messages=[{"role": "user", "content": "x"}], stream=True)
            )
        *_, error, failed = client.responses.create(model="knuth", input="x", stream=True)
    assert (error.type, failed.type, failed.response.status) == ("error", "response.failed", "failed")
    assert failed.response.error.code == error.code == "server_error"


def say(client: Any, api: str, model: str = "knuth") -> Any:
    if api == "responses":
        return client.responses.create(model=model, input="Begin.")
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Begin."}])


@pytest.mark.parametrize("api", ["chat-completions", "responses"])
def test_what_is_wrong_raises_the_sdks_own_error(url: str, api: str) -> None:
    with (
        openai.OpenAI(base_url=url, api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as wrong_key,
    ):
        say(client, api)
    assert (wrong_key.value.code, wrong_key.value.status_code) == ("invalid_api_key", 401)
    assert wrong_key.value.request_id.startswith("req_")
    with (
        openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client,
        pytest.raises(openai.NotFoundError) as unknown,
    ):
        say(client, api, "gpt-9")
    assert unknown.value.code == "model_not_found"


def test_a_rate_limit_raises_and_its_wait_is_honoured() -> None:
    # One request every 3 s: longer than the SDK would wait by itself.
    with simulated({"rpm": 20, "burst": "1s"}) as url:
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            say(client, "responses")
            with pytest.raises(openai.RateLimitError) as limited:
                until_refused(lambda: say(client, "responses"))
        assert limited.value.response.headers["x-ratelimit-limit-requests"] == "20"
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=1) as client:
            assert say(client, "responses").id.startswith("resp_")
