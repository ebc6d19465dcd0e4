import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.wire.dialect import Dialect
from evalkit.wire.gemini import GEMINI
from evalkit.wire.http import Failure, HttpResponse, Verdict
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.table import DIALECTS
from evalkit.wire.verdicts import describe, judge, read_wait_s
from tests.provider.dialects import SERVED_DIALECTS


def judged(status: int, body: str = "", failure: Failure = "", **headers: str) -> Verdict:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return OPENAI_CHAT.judge(HttpResponse(status=status, headers=names, body=body.encode(), failure=failure))


def error(message: str = "", code: str = "", kind: str = "") -> str:
    return json.dumps({"error": {"message": message, "code": code, "type": kind}})


@pytest.mark.parametrize(
    ("status", "body", "action", "kind"),
    [
        (200, "whatever", "accept", "ok"),
        (201, "", "accept", "ok"),
        (302, "", "end_lane", "redirect"),
        (400, error("no such field", "unknown_parameter"), "end_episode", "bad_request"),
        (400, error("too long", "context_length_exceeded"), "end_episode", "context_length"),
        (400, '{"message":"This model\'s maximum context length is 8 tokens"}', "end_episode", "context_length"),
        (400, '{"detail":"the prompt is too long"}', "end_episode", "context_length"),
        (413, error("request exceeds the available context size"), "end_episode", "context_length"),
        (400, error("filtered", "content_filter"), "end_episode", "content_filter"),
        (400, error("see the content management policy"), "end_episode", "content_filter"),
        (403, error("input was flagged"), "end_episode", "content_filter"),
        (400, error("the limit", "billing_hard_limit_reached"), "end_lane", "no_credit"),
        (400, error("foo is not a valid model ID"), "end_lane", "unknown_model"),
        (400, error("Invalid model name passed in model=nope", "400"), "end_lane", "unknown_model"),
        (400, error("No connected db.", kind="no_db_connection"), "end_lane", "bad_key"),
        (401, error("Incorrect API key"), "end_lane", "bad_key"),
        (402, "", "end_lane", "no_credit"),
        (403, error("forbidden"), "end_lane", "bad_key"),
        (404, error("gone", "model_not_found"), "end_lane", "unknown_model"),
        (405, "", "end_lane", "not_supported"),
        (407, "<html>", "end_lane", "proxy"),
        (408, "", "retry", "server_error"),
        (409, "", "retry", "server_error"),
        (413, "", "end_episode", "bad_request"),
        (422, '{"detail":[{"loc":["body"],"msg":"bad"}]}', "end_episode", "bad_request"),
        (429, error("slow down", "rate_limit_exceeded"), "retry", "rate_limit"),
        (429, error("pay", kind="insufficient_quota"), "end_lane", "no_credit"),
        (429, "<html>", "retry", "rate_limit"),
        (500, error("boom"), "retry", "server_error"),
        (501, "", "end_lane", "not_supported"),
        (503, "", "retry", "overload"),
        (529, error(kind="overloaded_error"), "retry", "overload"),
    ],
)
def test_a_status_has_its_verdict(status: int, body: str, action: str, kind: str) -> None:
    verdict = judged(status, body)
    assert (verdict.action, verdict.kind, verdict.billable) == (action, kind, status in (408, 500))


@pytest.mark.parametrize(
    ("failure", "status", "action", "kind", "billable"),
    [
        ("connect", 0, "retry", "connect", False),
        ("reset", 0, "retry", "reset", True),
        ("timeout", 0, "retry", "timeout", True),
        ("timeout", 200, "retry", "timeout", True),
        ("truncated", 200, "retry", "truncated", True),
        ("oversize", 200, "retry", "oversize", True),
        ("tls", 0, "end_lane", "tls", False),
        ("truncated", 401, "end_lane", "bad_key", False),
        ("truncated", 500, "retry", "server_error", True),
        ("connect", 407, "end_lane", "proxy", False),
        ("", 0, "retry", "reset", True),
    ],
)
def test_a_failure_has_its_verdict(failure: Failure, status: int, action: str, kind: str, billable: bool) -> None:
    verdict = judged(status, "", failure)
    assert (verdict.action, verdict.kind, verdict.billable) == (action, kind, billable)


@given(
    st.integers(0, 999),
    st.sampled_from(["", "reset", "timeout", "truncated", "oversize", "tls", "connect"]),
    st.binary(max_size=80)
    | st.just(b'{"error":5}')
    | st.just(b'{"error":{"message":[1],"code":7}}')
    | st.just(b'{"error":{"status":[],"details":[{"violations":[{"quotaId":5}],"retryDelay":{}}]}}')
    | st.just(b"[1]"),
)
def test_there_is_a_verdict_on_everything(status: int, failure: Failure, body: bytes) -> None:
    verdict = OPENAI_CHAT.judge(HttpResponse(status=status, headers={}, body=body, failure=failure))
    assert verdict.action in ("accept", "retry", "end_episode", "end_lane")
    assert verdict.kind
    assert verdict.action == "accept" or verdict.message
    # Of status 200 too: an error in a reply's place is one.
    error = body.startswith(b'{"error":{')
    assert (verdict.action == "accept") == (200 <= status < 300 and not failure and not error)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "999999999"}, 86_400.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
    ],
)
def test_the_wait_a_server_asks_for_is_read_without_a_clock(headers: dict[str, str], wait_s: float | None) -> None:
    assert read_wait_s(headers) == wait_s


def test_retry_after_comes_through_for_refusals_that_may_pass() -> None:
    assert judged(429, retry_after="3").wait_s == 3.0
    assert judged(503, retry_after="2").wait_s == 2.0
    assert judged(400, retry_after="3").wait_s is None


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "invalid_api_key", "bad_key"),
        (404, "model_not_found", "unknown_model"),
        (429, "rate_limit_exceeded", "rate_limit"),
        (500, "server_error", "server_error"),
        (529, "server_error", "overload"),
    ],
)
def test_every_dialect_reads_its_own_errors(dialect: Dialect, status: int, code: str, kind: str) -> None:
    body = SERVED_DIALECTS[dialect.name].encode_error(status, code, "in words")
    verdict = dialect.judge(HttpResponse(status=status, headers={}, body=body))
    assert (verdict.kind, verdict.message) == (kind, "in words")


def google(status: int, name: str, message: str = "in words", *details: object) -> HttpResponse:
    error = {"code": status, "message": message, "status": name, "details": list(details)}
    return HttpResponse(status=status, headers={}, body=json.dumps({"error": error}).encode())


def retry(delay: object) -> dict[str, object]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(*names: str) -> dict[str, object]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaMetric": "requests", "quotaId": name} for name in names],
    }


INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
A_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel"
A_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


@pytest.mark.parametrize(
    ("response", "action", "kind", "wait_s"),
    [
        (google(429, "RESOURCE_EXHAUSTED", "", quota(A_MINUTE), retry("34s")), "retry", "rate_limit", 34.0),
        (google(429, "RESOURCE_EXHAUSTED", "", retry("34.0748s")), "retry", "rate_limit", 34.0748),
        (google(429, "RESOURCE_EXHAUSTED", "", retry("999999999s")), "retry", "rate_limit", 86_400.0),
        (google(429, "RESOURCE_EXHAUSTED", "", retry("soon"), retry(5), 7), "retry", "rate_limit", None),
        (google(429, "RESOURCE_EXHAUSTED", "", {"violations": 5}, {"violations": [5]}), "retry", "rate_limit", None),
        (google(429, "RESOURCE_EXHAUSTED", "", quota(A_MINUTE, A_DAY), retry("34s")), "end_lane", "quota", None),
        (google(503, "UNAVAILABLE", "overloaded", retry("2s")), "retry", "overload", 2.0),
        (google(500, "INTERNAL"), "retry", "server_error", None),
        (google(504, "DEADLINE_EXCEEDED"), "retry", "server_error", None),
        (google(499, "CANCELLED"), "retry", "server_error", None),
        (google(400, "INVALID_ARGUMENT", "API key not valid.", INVALID_KEY), "end_lane", "bad_key", None),
        (google(400, "FAILED_PRECONDITION", "User location is not supported."), "end_lane", "bad_key", None),
        (google(403, "PERMISSION_DENIED"), "end_lane", "bad_key", None),
        (google(404, "NOT_FOUND", "models/x is not found"), "end_lane", "unknown_model", None),
        (google(400, "INVALID_ARGUMENT", "unexpected model name format"), "end_lane", "unknown_model", None),
        (
            google(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            "end_episode",
            "context_length",
            None,
        ),
        (google(400, "INVALID_ARGUMENT", "Unknown name", retry("3s")), "end_episode", "bad_request", None),
    ],
)
def test_errors_in_googles_form_are_judged_by_their_details(
    response: HttpResponse, action: str, kind: str, wait_s: float | None
) -> None:
    for body in (response.body, b"[" + response.body + b"]"):
        verdict = GEMINI.judge(replace(response, body=body))
        assert (verdict.action, verdict.kind, verdict.wait_s) == (action, kind, wait_s)


def test_a_header_outranks_the_body_about_the_wait() -> None:
    response = replace(google(429, "RESOURCE_EXHAUSTED", "", retry("34s")), headers={"retry-after": "3"})
    assert GEMINI.judge(response).wait_s == 3.0


def test_a_path_names_its_model_or_leaves_it_to_the_body() -> None:
    plain, named = OPENAI_CHAT, replace(OPENAI_CHAT, path="/models/{model}:ask")
    assert (plain.path_of("m"), named.path_of("a/b c")) == ("/chat/completions", "/models/a%2Fb%20c:ask")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "an empty body"),
        (b" \r\n", "an empty body"),
        (b"<!doctype html>\n<html><head><TITLE>\n Sign  in\n</title>", "an HTML page (Sign in)"),
        (b"<Error><Code>Denied</Code></Error>", "a page of markup (<Error><Code>Denied</Code></Error>)"),
        (b'{"choices"', 'text that is not JSON ({"choices")'),
        (b"upstream\nhas gone", "text that is not JSON (upstream has gone)"),
        (b'{"ok": true}', 'other JSON ({"ok": true})'),
        (b"x" * 10**7, f"text that is not JSON ({'x' * 160} ...)"),
    ],
    ids=["empty", "blank", "page", "markup", "cut", "text", "json", "huge"],
)
def test_what_is_no_reply_is_described(body: bytes, words: str) -> None:
    assert describe(body) == words


def test_a_page_as_an_error_is_named_by_its_title() -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>" + b"x" * 10_000
    said = judge(HttpResponse(status=502, headers={}, body=page))
    assert (said.action, said.kind, said.message) == ("retry", "server_error", "an HTML page (502 Bad Gateway)")


@pytest.mark.parametrize("depth", [1, 300, 1000, 1024, 5000])
@pytest.mark.parametrize("body", ["%s", '{"error":%s}', '{"error":{"message":%s}}', '{"error":{"code":%s}}'])
def test_an_error_nested_as_deeply_as_json_may_be_has_a_verdict(depth: int, body: str) -> None:
    """Python refuses to print a list of a thousand levels, which strict JSON reads."""
    said = (body % ("[" * depth + "]" * depth)).encode()
    verdict = judge(HttpResponse(status=500, headers={}, body=said))
    assert verdict.action == "retry"
    assert len(verdict.message) < 1000
