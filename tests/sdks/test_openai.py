"""OpenAI's SDK against the simulated provider: whole episodes over Chat Completions and Responses, and its errors."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from evalkit.dialogue import Message, Reply, Request, ToolCall
from evalkit.envs.environment import Environment
from evalkit.serve.launch import simulated
from tests.sdks.holding import EPISODES, KEY, WHY, hold

openai = pytest.importorskip("openai", reason=WHY)
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageFunctionToolCall  # noqa: E402
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall  # noqa: E402


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated({"key": KEY, "rpm": 1_000_000}) as url:
        yield url


class Completions:
    """A chat of Chat Completions."""

    def __init__(self, client: Any, model: str) -> None:
        self.client, self.model = client, model
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
        done = self.client.chat.completions.create(
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

    def __init__(self, client: Any, model: str) -> None:
        self.client, self.model = client, model
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
        done = self.client.responses.create(
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


@pytest.mark.parametrize("api", [Completions, Responses], ids=["chat-completions", "responses"])
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, api: Any
) -> None:
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        hold(env, parameters, name, lambda: api(client, name))


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
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            say(client, api, "gpt-9")
        assert {card.id for card in client.models.list()} >= {"knuth", "random"}
        assert client.models.retrieve("knuth").id == "knuth"
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_rate_limit_raises_and_its_wait_is_honoured(form: str) -> None:
    # One request every 1.2 s: longer than the SDK would wait by itself.
    with simulated({"rpm": 50, "burst": "1s", "retry_after_form": form}) as url:
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            say(client, "responses")
            with pytest.raises(openai.RateLimitError) as limited:
                say(client, "responses")
        assert limited.value.response.headers["x-ratelimit-limit-requests"] == "50"
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=1) as client:
            assert say(client, "responses").id.startswith("resp_")
