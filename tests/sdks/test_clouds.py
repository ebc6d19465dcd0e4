"""Anthropic's and Google's SDKs, as they speak to clouds, against the simulated provider."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from evalkit.envs.environment import Environment
from evalkit.serve.formats import BASE_PATH
from evalkit.wire.table import BEDROCK_VERSION, VERTEX_VERSION
from tests.provider.serving import simulated
from tests.sdks.holding import EPISODES, KEY, WHY, hold

anthropic = pytest.importorskip("anthropic", reason=WHY)
genai = pytest.importorskip("google.genai", reason=WHY)
from google.genai import errors, types  # noqa: E402
from google.oauth2.credentials import Credentials  # noqa: E402

from tests.sdks import test_anthropic, test_gemini  # noqa: E402

CHECKED_SDK = {"anthropic_bedrock": "anthropic", "anthropic_vertex": "anthropic", "gemini_vertex": "google-genai"}
"""For the table in docs/provider-details.md."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulated({"key": KEY, "rpm": 1_000_000}) as url:
        yield url.removesuffix(BASE_PATH)


def claude(cloud: str, url: str, key: str = KEY) -> Any:
    """The SDK's client of a cloud. It names the newest version of the API unless the body says another."""
    if cloud == "bedrock":
        client = anthropic.AnthropicBedrock(api_key=key, aws_region="us-east-1", base_url=url, max_retries=0)
        version = BEDROCK_VERSION
    else:
        client = anthropic.AnthropicVertex(
            access_token=key, project_id="simulated", region="global", base_url=f"{url}/v1", max_retries=0
        )
        version = VERTEX_VERSION
    messages = {
        name: partial(getattr(client.messages, name), extra_body={"anthropic_version": version})
        for name in ("create", "stream")
    }
    return SimpleNamespace(messages=SimpleNamespace(**messages))


def gemini(url: str, key: str = KEY) -> Any:
    return genai.Client(
        vertexai=True,
        project="simulated",
        location="global",
        credentials=Credentials(token=key),
        http_options=types.HttpOptions(base_url=url),
    )


@pytest.mark.parametrize(
    ("cloud", "send"),
    [("bedrock", test_anthropic.whole), ("vertex", test_anthropic.whole), ("vertex", test_anthropic.streamed)],
)
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_with_claude_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, cloud: str, send: Any
) -> None:
    client = claude(cloud, url)
    hold(env, parameters, name, lambda: test_anthropic.Messages(client, name, send))


@pytest.mark.parametrize("send", [test_gemini.whole, test_gemini.streamed])
@pytest.mark.parametrize(("env", "parameters", "name"), EPISODES)
def test_an_episode_with_gemini_is_the_one_the_policy_plays(
    url: str, env: Environment[Any, Any], parameters: dict[str, Any], name: str, send: Any
) -> None:
    with gemini(url) as client:
        hold(env, parameters, name, lambda: test_gemini.Contents(client, name, send))


def test_what_is_wrong_raises_the_sdks_own_error(url: str) -> None:
    with pytest.raises(anthropic.PermissionDeniedError):
        test_anthropic.say(claude("bedrock", url, "wrong"))
    with pytest.raises(anthropic.AuthenticationError):
        test_anthropic.say(claude("vertex", url, "wrong"))
    for cloud in ("bedrock", "vertex"):
        with pytest.raises(anthropic.NotFoundError, match="gpt-9"):
            test_anthropic.say(claude(cloud, url), "gpt-9")
    with gemini(url, "wrong") as client, pytest.raises(errors.ClientError) as wrong_key:
        client.models.generate_content(model="knuth", contents="Begin.")
    assert (wrong_key.value.code, wrong_key.value.status) == (401, "UNAUTHENTICATED")
