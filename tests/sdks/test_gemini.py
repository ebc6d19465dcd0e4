"""Google's SDK against the simulated provider: whole episodes over generateContent, and its errors."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from evalkit.dialogue import Message, Reply, Request, ToolCall
from evalkit.envs.environment import Environment
from evalkit.serve.launch import simulated
from evalkit.serve.provider import BASE_PATH
from tests.sdks.holding import EPISODES, KEY, WHY, hold

genai = pytest.importorskip("google.genai", reason=WHY)
from google.genai import errors, types  # noqa: E402


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated({"key": KEY, "rpm": 1_000_000}) as url:
        yield url.removesuffix(BASE_PATH)


def opened(url: str, key: str = KEY, retry: Any = None) -> Any:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, retry_options=retry))


class Contents:
    """A chat of generateContent."""

    def __init__(self, client: Any, model: str) -> None:
        self.client, self.model = client, model
        self.system: list[str] = []
        self.chat: list[types.Content] = []

    def hear(self, messages: Sequence[Message]) -> None:
        parts = []
        for one in messages:
            if one.role == "system":
                self.system.append(one.text)
            elif one.role == "tool":
                given = types.FunctionResponse(id=one.call_id, name=one.name, response={"output": one.text})
                parts.append(types.Part(function_response=given))
            else:
                parts.append(types.Part.from_text(text=one.text))
        self.chat.append(types.Content(role="user", parts=parts))

    def ask(self, request: Request, headers: dict[str, str]) -> Reply:
        declared = [
            types.FunctionDeclaration(
                name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters)
            )
            for tool in request.tools
        ]
        config = types.GenerateContentConfig(
            system_instruction=self.system,
            tools=[types.Tool(function_declarations=declared)],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            max_output_tokens=request.sampling.max_tokens,
            http_options=types.HttpOptions(headers=headers),
        )
        done = self.client.models.generate_content(model=self.model, contents=self.chat, config=config)
        assert done.response_id
        assert done.usage_metadata.total_token_count > done.usage_metadata.prompt_token_count
        candidate = done.candidates[0]
        assert candidate.finish_reason == types.FinishReason.STOP
        self.chat.append(candidate.content)
        calls = tuple(
            ToolCall(id=one.id or f"call_{place}", name=one.name, arguments=json.dumps(one.args))
            for place, one in enumerate(done.function_calls or ())
        )
        text = "".join(part.text or "" for part in candidate.content.parts)
        return Reply(text=text, calls=calls, finish="tool_calls" if calls else "stop")


@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str
) -> None:
    with opened(url) as client:
        hold(env, parameters, name, lambda: Contents(client, name))


def say(client: Any, model: str = "knuth") -> Any:
    return client.models.generate_content(model=model, contents="Begin.")


def test_what_is_wrong_raises_the_sdks_own_error(url: str) -> None:
    with opened(url, "wrong") as client, pytest.raises(errors.ClientError) as wrong_key:
        say(client)
    assert (wrong_key.value.code, wrong_key.value.status) == (400, "INVALID_ARGUMENT")
    with opened(url) as client:
        with pytest.raises(errors.ClientError) as unknown:
            say(client, "gpt-9")
        assert {card.name for card in client.models.list()} >= {"models/knuth", "models/random"}
        assert client.models.get(model="knuth").name == "models/knuth"
    assert (unknown.value.code, unknown.value.status) == (404, "NOT_FOUND")


def test_a_rate_limit_raises_and_is_tried_again() -> None:
    # The SDK waits by its own schedule: it does not read what the error's details ask for.
    with simulated({"rpm": 120, "burst": "0.5s"}) as url:
        with opened(url.removesuffix(BASE_PATH)) as client:
            say(client)
            with pytest.raises(errors.ClientError) as limited:
                say(client)
        (retry,) = (one for one in limited.value.details["error"]["details"] if one["@type"].endswith("RetryInfo"))
        assert float(retry["retryDelay"].removesuffix("s")) <= 0.5
        patient = types.HttpRetryOptions(attempts=8, initial_delay=0.2, max_delay=0.4)
        with opened(url.removesuffix(BASE_PATH), retry=patient) as client:
            assert say(client).response_id
