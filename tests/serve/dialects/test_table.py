"""What each dialect's real provider does beyond its wire format."""

from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson
import pytest

from evalkit.serve.dialects.table import SERVED_DIALECTS, base_urls
from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.serve.provider import handle, open_simulator
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from tests.serve.asking import spoken

NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, UTC).timestamp()


def asked(dialect: str, count: int = 1, **options: object) -> ServedOutcome:
    """What becomes of the last of so many requests, a quarter second after noon."""
    simulator = open_simulator(options_from(options), 5.0, NOON)
    return [handle(simulator, spoken(dialect, request_id=f"e/{i}/0"), 5.0) for i in range(count)][-1]


def got(path: str, **headers: str) -> tuple[int, Any]:
    """Status and page, where two models are served and a key is wanted."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    options = options_from({"models": ["knuth", "noisy"], "key": "sk-1"})
    outcome = handle(open_simulator(options, 0.0), Arrival(method="GET", path=path, headers=given), 0.0)
    return outcome.status, orjson.loads(outcome.body)


def test_every_dialect_is_served() -> None:
    assert {name: one.dialect for name, one in SERVED_DIALECTS.items()} == dict(DIALECTS)


def test_a_path_names_its_model_or_leaves_it_to_the_body() -> None:
    plain = SERVED_DIALECTS["openai_chat"]
    named = replace(plain, dialect=replace(plain.dialect, path="/models/{model}:ask"))
    assert (plain.model_of("/chat/completions"), plain.model_of("/models/m:ask")) == ("", None)
    assert named.model_of("/models/a%2Fb%20c:ask") == "a/b c"
    for path in ("/models/:ask", "/models/a/b:ask", "/models/m:tell", "/chat/completions"):
        assert named.model_of(path) is None


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_openai_says_its_limits_as_spans(dialect: str) -> None:
    headers = asked(dialect, rpm=120, tpm=60_000, itpm=1_000_000).headers
    assert {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}.keys() == {
        f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
    }
    assert headers["x-ratelimit-limit-requests"] == "120"
    assert headers["x-ratelimit-remaining-requests"] == "119"
    assert headers["x-ratelimit-reset-requests"] == "500ms"
    assert headers["x-request-id"].startswith("req_")


def test_anthropic_says_its_limits_as_moments() -> None:
    headers = asked("anthropic_messages", rpm=30, itpm=60_000, otpm=6_000).headers
    kinds = ("requests", "tokens", "input-tokens", "output-tokens")
    for kind in kinds:
        assert {f"anthropic-ratelimit-{kind}-{what}" for what in ("limit", "remaining", "reset")} <= headers.keys()
    assert not [name for name in headers if name.startswith("x-")]
    assert headers["anthropic-ratelimit-requests-remaining"] == "29"
    # Two seconds after noon and a quarter, rounded up; the response's own moment is rounded down.
    assert headers["anthropic-ratelimit-requests-reset"] == "2026-01-02T12:00:03Z"
    assert headers["date"] == "Fri, 02 Jan 2026 12:00:00 GMT"
    limits = {kind: int(headers[f"anthropic-ratelimit-{kind}-limit"]) for kind in kinds}
    assert limits == {"requests": 30, "tokens": 66_000, "input-tokens": 60_000, "output-tokens": 6_000}
    assert headers["request-id"].startswith("req_")


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_what_it_says_of_its_limits_is_what_the_client_reads(dialect: str) -> None:
    requests, tokens = DIALECTS[dialect].allowances(asked(dialect, rpm=120, tpm=60_000).headers)
    assert requests is not None
    assert tokens is not None
    assert (requests.limit, requests.remaining) == (120, 119)
    assert 0.5 <= requests.reset_s <= 2.0
    assert tokens.limit == 60_000


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if not name.startswith("gemini")])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_refusal_asks_to_wait_in_either_form(dialect: str, form: str) -> None:
    # Every 20 seconds one: the second must wait 20.
    outcome = asked(dialect, 2, rpm=3, burst="1s", retry_after_form=form)
    said = outcome.headers["retry-after"]
    assert outcome.status == 429
    if form == "seconds":
        assert (said, outcome.headers["retry-after-ms"]) == ("20", "20000")
    else:
        assert parsedate_to_datetime(said).timestamp() == NOON + 20.75
        assert "retry-after-ms" not in outcome.headers
    verdict = DIALECTS[dialect].judge(HttpResponse(status=429, headers=outcome.headers, body=outcome.body))
    assert verdict.wait_s is not None
    assert 20 <= verdict.wait_s <= 21


@pytest.mark.parametrize("dialect", ["gemini", "gemini_vertex"])
def test_gemini_asks_to_wait_in_the_errors_details(dialect: str) -> None:
    outcome = asked(dialect, 2, rpm=3, burst="1s")
    error = orjson.loads(outcome.body)["error"]
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s"}
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert retry in error["details"]
    assert set(outcome.headers) == {"content-type"}
    verdict = DIALECTS[dialect].judge(HttpResponse(status=429, headers=outcome.headers, body=outcome.body))
    assert verdict.wait_s == 20


@pytest.mark.parametrize(
    ("dialect", "start"),
    [
        ("openai_chat", "chatcmpl-"),
        ("openai_responses", "resp_"),
        ("anthropic_messages", "msg_01"),
        ("gemini", ""),
        ("anthropic_bedrock", "msg_01"),
    ],
)
def test_replies_have_ids_in_their_providers_style(dialect: str, start: str) -> None:
    found = {DIALECTS[dialect].decode(asked(dialect, count).body).response_id for count in (1, 2, 3)}
    assert len(found) == 3
    assert all(one.startswith(start) and 20 < len(one) < 60 for one in found)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_wrong_key_is_refused_as_the_provider_does_it(dialect: str) -> None:
    simulator = open_simulator(options_from({"key": "sk-1"}), 0.0)
    right, wrong, none = (handle(simulator, spoken(dialect, key=key), 0.0) for key in ("sk-1", "sk-2", ""))
    assert (right.status, wrong.status, none.status) == (
        200,
        *[{"gemini": 400, "anthropic_bedrock": 403}.get(dialect, 401)] * 2,
    )
    response = HttpResponse(status=wrong.status, headers=wrong.headers, body=wrong.body)
    assert DIALECTS[dialect].judge(response).kind == "bad_key"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_unknown_model_is_judged_as_one(dialect: str) -> None:
    outcome = handle(open_simulator(options_from({}), 0.0), spoken(dialect, model="gpt-9"), 0.0)
    response = HttpResponse(status=outcome.status, headers=outcome.headers, body=outcome.body)
    assert (outcome.status, DIALECTS[dialect].judge(response).kind) == (404, "unknown_model")


def test_models_are_listed_at_each_providers_path_in_its_shape() -> None:
    status, page = got("/v1/models", authorization="Bearer sk-1")
    assert (status, page["object"], [card["id"] for card in page["data"]]) == (200, "list", ["knuth", "noisy"])
    status, page = got("/v1/models", x_api_key="sk-1", anthropic_version="2023-06-01")
    assert (status, page["has_more"], page["first_id"], page["last_id"]) == (200, False, "knuth", "noisy")
    status, page = got("/v1/models/noisy", x_api_key="sk-1", anthropic_version="2023-06-01")
    assert (status, page["type"], page["id"]) == (200, "model", "noisy")
    status, page = got("/v1beta/models", x_goog_api_key="sk-1")
    assert (status, [card["name"] for card in page["models"]]) == (200, ["models/knuth", "models/noisy"])
    status, page = got("/v1beta/models/knuth", x_goog_api_key="sk-1")
    assert (status, page["name"]) == (200, "models/knuth")
    assert got("/v1beta/models/knuth:streamGenerateContent", x_goog_api_key="sk-1")[0] == 405


def test_lists_want_the_key_and_errors_are_in_the_dialect_of_who_asks() -> None:
    assert got("/v1/models")[0] == 401
    status, page = got("/v1/models/gpt-9", x_api_key="sk-1", anthropic_version="2023-06-01")
    assert (status, page["type"]) == (404, "error")
    status, page = got("/v1beta/models/gpt-9", x_goog_api_key="sk-1")
    assert (status, page["error"]["status"]) == (404, "NOT_FOUND")
    assert got("/v1/model")[0] == 404


def test_base_urls_name_every_dialect() -> None:
    lines = base_urls("http://h:1")
    assert [line.split()[0] for line in lines] == list(DIALECTS)
    assert lines[0].endswith("http://h:1/v1")
    assert "http://h:1/v1beta" in lines[list(DIALECTS).index("gemini")]


@pytest.mark.parametrize(
    ("version", "temperature", "status"),
    [
        ("2023-06-01", 0.5, 200),
        ("2026-10-21", None, 200),
        ("2026-10-21", 0.5, 400),
        ("2024-01-01", None, 400),
        ("", None, 400),
    ],
)
def test_anthropics_requests_name_a_version_and_the_newest_takes_no_sampling_fields(
    version: str, temperature: float | None, status: int
) -> None:
    plain = spoken("anthropic_messages")
    body = orjson.loads(plain.body) | ({} if temperature is None else {"temperature": temperature})
    headers = {"authorization": "Bearer sk-1", "anthropic-version": version}
    asked = Arrival(method="POST", path=plain.path, headers=headers, body=orjson.dumps(body))
    outcome = handle(open_simulator(options_from({"key": "sk-1"}), 0.0), asked, 0.0)
    assert outcome.status == status


@pytest.mark.parametrize(
    ("dialect", "change", "says"),
    [
        ("anthropic_bedrock", {"anthropic_version": "vertex-2023-10-16"}, "must be 'bedrock-2023-05-31'"),
        ("anthropic_bedrock", {"model": "knuth"}, "model: extra inputs"),
        ("anthropic_bedrock", {"stream": True}, "stream: extra inputs"),
        ("anthropic_vertex", {"anthropic_version": None}, "must be 'vertex-2023-10-16'"),
        ("anthropic_messages", {"anthropic_version": "2023-06-01"}, "anthropic_version: extra inputs"),
    ],
)
def test_clouds_want_the_version_in_the_body_and_the_model_in_the_path(
    dialect: str, change: dict[str, Any], says: str
) -> None:
    plain = spoken(dialect)
    body = orjson.dumps({**orjson.loads(plain.body), **change})
    outcome = handle(open_simulator(options_from({}), 0.0), replace(plain, body=body), 0.0)
    assert (outcome.status, says in outcome.body.decode()) == (400, True)
