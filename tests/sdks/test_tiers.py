"""The official SDKs send the fields by which evalkit's bodies name a tier, and read the tier that a reply names."""

import inspect
import operator
from typing import Any

import orjson
import pytest

from evalkit.client.request import geo_of, naming
from evalkit.money import STANDARD
from evalkit.serve.formats import BASE_PATH
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.wire.table import DIALECTS
from tests.provider.serving import simulated
from tests.sdks.holding import KEY, WHY


def fields(provider: str, model: str, tier: str) -> dict[str, Any]:
    """What evalkit's bodies say of the tier."""
    known = read_provider(provider)
    dialect, found = DIALECTS[known.dialect], find_model(known, model)
    named: dict[str, Any] = orjson.loads(naming(b'{"x":1}', dialect, known.service_tiers[tier], geo_of(known, found)))
    del named["x"]
    return named


@pytest.mark.parametrize(("tier", "served"), [("flex", "flex"), (STANDARD, "default"), ("priority", "priority")])
def test_openais_names_and_reads_tiers(tier: str, served: str) -> None:
    openai = pytest.importorskip("openai", reason=WHY)
    named = fields("openai", "gpt-5", tier)
    with simulated({"key": KEY}) as url, openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        chat = client.chat.completions.create(model="knuth", messages=[{"role": "user", "content": "Begin."}], **named)
        response = client.responses.create(model="knuth", input="Begin.", **named)
        pieces = client.chat.completions.create(
            model="knuth", messages=[{"role": "user", "content": "Begin."}], stream=True, **named
        )
        streamed = {piece.service_tier for piece in pieces}
    assert (chat.service_tier, response.service_tier, streamed) == (served, served, {served})


def test_anthropics_names_the_tier_and_the_place_and_reads_both() -> None:
    anthropic = pytest.importorskip("anthropic", reason=WHY)
    named = fields("anthropic", "claude-opus-5-5", STANDARD)
    assert named == {"service_tier": "standard_only", "inference_geo": "global"}
    with (
        simulated({"key": KEY}) as url,
        anthropic.Anthropic(base_url=url.removesuffix(BASE_PATH), api_key=KEY, max_retries=0) as client,
    ):
        asked = [{"role": "user", "content": "Begin."}]
        message = client.messages.create(model="knuth", max_tokens=100, messages=asked, **named)
    assert (message.usage.service_tier, message.usage.inference_geo) == ("standard", "global")


@pytest.mark.parametrize("tier", ["flex", STANDARD, "priority"])
def test_googles_names_tiers_in_the_field_that_evalkit_sends(tier: str) -> None:
    genai = pytest.importorskip("google.genai", reason=WHY)
    named = fields("google", "gemini-3.8-flash", tier)
    config = genai.types.GenerateContentConfig(service_tier=tier)
    with simulated({"key": KEY}) as url:
        options = genai.types.HttpOptions(base_url=url.removesuffix(BASE_PATH))
        client = genai.Client(api_key=KEY, http_options=options)
        response = client.models.generate_content(model="knuth", contents="Begin.", config=config)
    assert named == {"serviceTier": tier}
    said = orjson.loads(response.usage_metadata.model_dump_json(by_alias=True))
    assert said.get("serviceTier") in (None, tier)  # a version of the SDK may not read it yet


def test_openais_takes_the_field_by_which_a_cache_lasts() -> None:
    openai = pytest.importorskip("openai", reason=WHY)
    for name, resource in (("openai", "chat.completions"), ("openai-responses", "responses")):
        dialect = DIALECTS[read_provider(name).dialect]
        field = orjson.loads(dialect.caches["24h"].ask(b'{"x":1}'))
        del field["x"]
        create = inspect.signature(operator.attrgetter(f"{resource}.create")(openai.OpenAI(api_key=KEY)))
        assert field == {"prompt_cache_retention": "24h"}
        assert '"24h"' in str(create.parameters["prompt_cache_retention"].annotation).replace("'", '"')


def test_anthropics_names_the_hour_of_a_cache_and_reads_what_was_kept_for_it() -> None:
    anthropic = pytest.importorskip("anthropic", reason=WHY)
    assert anthropic.types.CacheControlEphemeralParam.__annotations__.keys() >= {"type", "ttl"}
    usage = anthropic.types.CacheCreation(ephemeral_1h_input_tokens=3, ephemeral_5m_input_tokens=4)
    assert (usage.ephemeral_1h_input_tokens, usage.ephemeral_5m_input_tokens) == (3, 4)
