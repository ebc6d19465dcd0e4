"""Google's SDK against the simulated provider: whole episodes over generateContent, also streamed, and its errors."""

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

genai = pytest.importorskip("google.genai", reason=WHY)
from google.genai import errors, types  # noqa: E402

CHECKED_SDK = {"gemini": "google-genai"}
"""For the table in docs/provider-details.md."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated({"key": KEY, "rpm": 1_000_000}) as url:
        yield url.removesuffix(BASE_PATH)


def opened(url: str, key: str = KEY, retry: Any = None) -> Any:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url, retry_options=retry))


def whole(client: Any, **fields: Any) -> Any:
    return client.models.generate_content(**fields)


def streamed(client: Any, **fields: Any) -> Any:
    """The chunks as one response: the last, with the parts of all."""
    chunks = list(client.models.generate_content_stream(**fields))
    done = chunks[-1]
    done.candidates[0].content.parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    return done


class Contents:
    """A chat of generateContent."""

    def __init__(self, client: Any, model: str, send: Callable[..., Any] = whole) -> None:
        self.client, self.model, self.send = client, model, send
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
        done = self.send(self.client, model=self.model, contents=self.chat, config=config)
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


@pytest.mark.parametrize("send", [whole, streamed])
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, send: Any
) -> None:
    with opened(url) as client:
        hold(env, parameters, name, lambda: Contents(client, name, send))


def said(done: Any) -> tuple[Any, ...]:
    """Id, thoughts, text, calls, signatures, finish and usage of a response."""
    candidate = done.candidates[0]
    parts = candidate.content.parts
    thoughts, text = (
        "".join(part.text or "" for part in parts if bool(part.thought) == kind) for kind in (True, False)
    )
    calls = [part.function_call for part in parts if part.function_call]
    signatures = [part.thought_signature for part in parts if part.thought_signature]
    return done.response_id, thoughts, text, calls, signatures, candidate.finish_reason, done.usage_metadata


# Its SDK takes a comment for data: the real provider sends none.
@pytest.mark.parametrize("fault", [fault for fault in STREAM_FORMS if fault != "stream_comments"])
def test_a_stream_says_what_the_same_request_gets_whole(fault: str) -> None:
    functions = [tool["function"] for tool in TOOLS]
    declared = [
        types.FunctionDeclaration(name=one["name"], parameters_json_schema=one["parameters"]) for one in functions
    ]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=declared)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        http_options=types.HttpOptions(headers={"X-Client-Request-Id": "e/1/0"}),
    )
    fields = {"model": "knuth", "contents": "Begin.", "config": config}
    with (
        simulated({"reasoning": 60, "stream_tokens": 2, **fault_of(fault)}) as url,
        opened(url.removesuffix(BASE_PATH)) as client,
    ):
        expected, got = said(whole(client, **fields)), said(streamed(client, **fields))
    assert expected[1]
    assert (len(expected[3]), len(expected[4])) == (3, 1)
    assert got == expected


def test_an_error_in_a_stream_is_the_sdks_own() -> None:
    with (
        simulated({"fault_stream_error": 1}) as url,
        opened(url.removesuffix(BASE_PATH)) as client,
        pytest.raises(errors.ServerError, match="The server had an error"),
    ):
        list(client.models.generate_content_stream(model="knuth", contents="Begin."))


def say(client: Any, model: str = "knuth") -> Any:
    return client.models.generate_content(model=model, contents="Begin.")


def test_what_is_wrong_raises_the_sdks_own_error(url: str) -> None:
    with opened(url, "wrong") as client, pytest.raises(errors.ClientError) as wrong_key:
        say(client)
    assert (wrong_key.value.code, wrong_key.value.status) == (400, "INVALID_ARGUMENT")
    with opened(url) as client, pytest.raises(errors.ClientError) as unknown:
        say(client, "gpt-9")
    assert (unknown.value.code, unknown.value.status) == (404, "NOT_FOUND")


def test_a_rate_limit_raises_and_is_tried_again() -> None:
    # The SDK waits by its own schedule: it does not read what the error's details ask for.
    with simulated({"rpm": 30, "burst": "0.5s"}) as url:
        with opened(url.removesuffix(BASE_PATH)) as client:
            say(client)
            with pytest.raises(errors.ClientError) as limited:
                until_refused(lambda: say(client))
        (retry,) = (one for one in limited.value.details["error"]["details"] if one["@type"].endswith("RetryInfo"))
        assert float(retry["retryDelay"].removesuffix("s")) <= 2.0
        patient = types.HttpRetryOptions(attempts=16, initial_delay=0.2, max_delay=0.4)
        with opened(url.removesuffix(BASE_PATH), retry=patient) as client:
            assert say(client).response_id
