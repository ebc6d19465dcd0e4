"""Tiers: what requests name, what their bounds are, and what a cheap tier's refusals cost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest

from evalkit.client.client import ModelAsker
from evalkit.client.lanes.health import NO_ROOM
from evalkit.client.open import endpoint_of, open_transport, transport_of
from evalkit.client.request import RequestTemplate, request_template
from evalkit.client.retry import FLEX_TIMEOUT_S, MOST_AWAY_S, PATIENCE_S
from evalkit.dialogue import Sampling
from evalkit.errors import EpisodeUnavailable
from evalkit.money import Price
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.catalogue import find_model, read_provider
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from tests.client.test_client import COST, OK, PRICE, REPLY, Scene, Script, failed, played, refused

HALF, DOUBLE = (Price(input=n, output=10 * n, cached_read=n, cached_write=n) for n in (5, 20))
WORDS = {"standard": "default", "flex": "flex", "priority": "priority"}
FULL = refused(429, "Resource Unavailable")


def served(tier: str) -> HttpResponse:
    """A good reply that names its tier."""
    body = {**orjson.loads(SERVED_OPENAI_CHAT.encode_reply(REPLY)), "service_tier": tier}
    return HttpResponse(status=200, headers={}, body=orjson.dumps(body))


def scene(*responses: HttpResponse, tiers: Sequence[str] = ("flex",)) -> Scene:
    """A scene whose agent asks for these tiers."""
    own = Scene(*responses)
    prices = {"flex": HALF, "priority": DOUBLE}
    provider = replace(own.template.provider, service_tiers=WORDS)
    own.template = replace(own.template, tiers=tuple(tiers), tier_prices=prices, provider=provider)
    own.asker = ModelAsker(own.template, lane=own.lane, budget=own.budget, transport=own.script)
    return own


def asked(own: Scene) -> list[str]:
    """The tiers that requests named, in order."""
    return [orjson.loads(body)["service_tier"] for _, _, body in own.script.sent]


@pytest.mark.parametrize(
    ("tier", "named", "tier_found", "cost"),
    [
        ("flex", "flex", "flex", COST // 2),
        ("flex", "default", "standard", COST),
        ("flex", "auto", "", COST),
        ("flex", "", "", COST),
        ("standard", "default", "standard", COST),
        ("standard", "", "", COST),
        ("standard", "priority", "priority", 2 * COST),
        ("priority", "default", "standard", COST),
        ("priority", "", "", 2 * COST),
    ],
)
def test_a_reply_is_settled_at_the_tier_it_names_or_at_the_dearest(
    tier: str, named: str, tier_found: str, cost: int
) -> None:
    async def play() -> None:
        own = scene(served(named), tiers=(tier,))
        answer = await own.asker.ask(own.question)
        assert (answer.cost, answer.tier, answer.saved) == (cost, tier_found, COST - cost)
        assert own.budget.stats().spent == cost
        assert asked(own) == [WORDS[tier]]

    played(play)


def test_without_words_for_tiers_requests_name_none_and_replies_are_not_read() -> None:
    async def play() -> None:
        own = Scene(served("priority"))
        answer = await own.asker.ask(own.question)
        assert (answer.cost, answer.tier, answer.saved) == (COST, "", 0)
        assert "service_tier" not in orjson.loads(own.script.sent[0][2])

    played(play)


@pytest.mark.parametrize(
    ("tiers", "dearest"),
    [(("flex",), PRICE), (("standard",), PRICE), (("priority",), DOUBLE), (("flex", "priority"), DOUBLE)],
)
def test_the_bound_is_that_of_the_dearest_tier_that_may_serve(tiers: Sequence[str], dearest: Price) -> None:
    async def play() -> None:
        own = scene(OK, tiers=tiers)
        size = len(own.template.body(own.question)) + own.template.dialect.overhead_tokens
        assert own.bound == dearest.worst(input_tokens=size, output_tokens=50)

    played(play)


def test_a_cheap_tier_that_is_full_costs_nothing_and_is_asked_again_and_again() -> None:
    async def play() -> None:
        own = scene(*[FULL] * 100, served("flex"))
        answer = await own.asker.ask(own.question)
        times = [at for at, _, _ in own.script.sent]
        assert answer.attempts.split(",") == [NO_ROOM] * 100 + ["ok"]
        assert own.budget.stats().spent == answer.cost == COST // 2
        assert asked(own) == ["flex"] * 101
        assert times[-1] > 1800  # longer than a request may otherwise take
        assert max(after - before for before, after in pairwise(times)) <= 61
        stats = own.lane.stats()
        assert (stats.window, stats.trouble, stats.paused_s, stats.failures) == (10, "", 0, {NO_ROOM: 100})

    played(play)


def test_it_waits_as_long_as_the_tier_asks_and_no_other_request_waits_with_it() -> None:
    async def play() -> None:
        own = scene(refused(503, "overloaded", retry_after="40"), served("flex"))
        await own.asker.ask(own.question)
        assert own.script.sent[1][0] - own.script.sent[0][0] == pytest.approx(40.5)
        assert own.lane.stats().paused_s == 0

    played(play)


def test_a_rate_that_is_exceeded_is_the_lanes_business_whatever_the_tier() -> None:
    async def play() -> None:
        own = scene(refused(429, "Rate limit reached", "rate_limit_exceeded", retry_after="7"), served("flex"))
        answer = await own.asker.ask(own.question)
        assert answer.attempts == "rate_limit,ok"

    played(play)


def test_with_a_list_it_goes_down_once_waiting_is_no_longer_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        own = scene(served("default"), tiers=("flex", "standard"))

        async def send(body: bytes, request_id: str) -> HttpResponse:
            response = await Script.send(own.script, body, request_id)
            return FULL if orjson.loads(body)["service_tier"] == "flex" else response

        monkeypatch.setattr(own.script, "send", send)
        answer = await own.asker.ask(own.question)
        assert (answer.cost, answer.tier) == (COST, "standard")
        assert {*asked(own)[:-1]} == {"flex"}
        assert PATIENCE_S - 61 <= own.script.sent[-1][0] - own.script.sent[0][0] <= PATIENCE_S + 1

    played(play)


def test_without_a_next_tier_the_episode_is_left_for_a_later_run_in_the_end() -> None:
    async def play() -> None:
        own = scene(FULL)
        with pytest.raises(EpisodeUnavailable, match=r"the tier flex has had no room for 6\.0 h"):
            await own.asker.ask(own.question)
        assert own.script.sent[-1][0] >= MOST_AWAY_S
        assert own.budget.stats().spent == own.budget.stats().reserved == 0

    played(play)


def test_after_a_timeout_of_the_first_tier_the_next_is_asked() -> None:
    async def play() -> None:
        own = scene(failed("timeout"), served("default"), tiers=("flex", "standard"))
        answer = await own.asker.ask(own.question)
        assert asked(own) == ["flex", "default"]
        assert own.budget.stats().spent == own.disk.of("charge")[0].amount + answer.cost

    played(play)


def template(provider: str, model: str, tier: str) -> RequestTemplate:
    known = read_provider(provider)
    found = find_model(known, model)
    assert found.price is not None
    return request_template(
        "a",
        provider=known,
        model=found,
        sampling=Sampling(),
        price=found.price,
        tiers=(tier,),
        tier_prices=found.tiers,
    )


@pytest.mark.parametrize(
    ("provider", "model", "tier", "fields"),
    [
        ("openai", "gpt-5", "standard", {"service_tier": "default"}),
        ("openai", "gpt-5", "flex", {"service_tier": "flex"}),
        ("openai-responses", "gpt-6.1-sol", "priority", {"service_tier": "priority"}),
        ("azure", "gpt-5", "flex", {"service_tier": "flex"}),
        ("google", "gemini-3.8-flash", "standard", {"serviceTier": "standard"}),
        ("google", "gemini-3.8-flash", "flex", {"serviceTier": "flex"}),
        ("vertex", "gemini-3.5-flash", "flex", {}),
        ("openrouter", "openai/gpt-5.4", "flex", {"service_tier": "flex"}),
        ("groq", "openai/gpt-oss-120b", "standard", {"service_tier": "on_demand"}),
        ("anthropic", "claude-opus-5-5", "standard", {"service_tier": "standard_only", "inference_geo": "global"}),
        ("anthropic", "claude-haiku-4-5-20251001", "standard", {"service_tier": "standard_only"}),
        ("bedrock-mantle", "anthropic.claude-sonnet-5", "standard", {}),
        ("deepseek", "deepseek-v4-flash", "standard", {}),
        ("vllm", "any", "standard", {}),
    ],
)
def test_requests_name_their_tier_where_the_api_has_a_field(
    provider: str, model: str, tier: str, fields: dict[str, str]
) -> None:
    head = template(provider, model, tier).head(tier=tier)
    body = orjson.loads(head.partition(b"\n")[0] + (b"}}" if "generationConfig" in head.decode() else b"}"))
    assert {name: body[name] for name in body if name in ("service_tier", "serviceTier", "inference_geo")} == fields


def test_a_reply_made_in_one_country_alone_costs_a_tenth_more() -> None:
    own = template("anthropic", "claude-opus-5-5", "standard")
    (tier, (price,), known), (_, unsaid, _) = own.served("standard", "standard/us"), own.served("standard", "/us")
    assert (tier, known, price.input) == ("standard/us", True, own.price.input * 11 // 10)
    assert max(one.input for one in unsaid) == price.input
    assert own.served("standard", "standard")[1] == own.rates("standard") == (own.price,)
    here = replace(own, provider=replace(own.provider, inference_geo="us"))
    assert [price.input for price in here.rates("standard")] == [price.input, own.price.input]


def test_vertex_names_the_tier_in_headers_and_flex_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    provider = replace(read_provider("vertex"), credentials="", key_env="K")
    monkeypatch.setenv("K", "secret")

    async def play() -> None:
        async with open_transport(provider) as transport:
            flex = transport_of(transport, provider, "flex")
            assert transport_of(transport, provider, "standard") is transport
            assert flex._own["X-Vertex-AI-LLM-Shared-Request-Type"] == "flex"
            assert (transport._timeout_s, flex._timeout_s) == (provider.timeout_s, FLEX_TIMEOUT_S)
            assert flex._session is transport._session
            assert repr(endpoint_of(flex, provider, "m")) == repr(endpoint_of(transport, provider, "m"))

    asyncio.run(play())


@pytest.mark.parametrize(
    ("dialect", "value", "headers", "tier"),
    [
        ("openai_chat", {"service_tier": "flex"}, {}, "flex"),
        ("openai_chat", {"service_tier": None}, {}, ""),
        ("openai_chat", {"service_tier": 7}, {}, ""),
        ("anthropic_messages", {"usage": {"service_tier": "standard", "inference_geo": "global"}}, {}, "standard"),
        ("anthropic_messages", {"usage": {"service_tier": "standard", "inference_geo": "us"}}, {}, "standard/us"),
        ("anthropic_messages", {"usage": {"inference_geo": "not_available"}}, {}, ""),
        ("gemini", {"usageMetadata": {"serviceTier": "flex"}}, {}, "flex"),
        ("gemini", {}, {"x-gemini-service-tier": "flex"}, "flex"),
        ("gemini_vertex", {"usageMetadata": {"trafficType": "ON_DEMAND_FLEX"}}, {}, "ON_DEMAND_FLEX"),
    ],
)
def test_replies_say_which_tier_served_them(
    dialect: str, value: dict[str, object], headers: dict[str, str], tier: str
) -> None:
    bodies: dict[str, dict[str, object]] = {
        "openai_chat": {"choices": [{"message": {"content": "x"}}]},
        "anthropic_messages": {"content": [{"type": "text", "text": "x"}]},
    }
    plain = bodies.get(dialect, {"candidates": [{"content": {"parts": [{"text": "x"}]}}]})
    response = HttpResponse(status=200, headers=headers, body=orjson.dumps({**plain, **value}))
    _, reply, _ = DIALECTS[dialect].understand(response)
    assert reply is not None
    assert reply.tier == tier
