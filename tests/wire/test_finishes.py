"""A reply that its provider broke off is a failed attempt, whatever stands beside; what a model does is its reply."""

from collections.abc import Mapping
from typing import Any

import orjson

from evalkit.wire.http import HttpResponse, Verdict, counts_as_billed
from evalkit.wire.table import DIALECTS
from tests.support.each_case import check_each
from tests.support.streaming import assembled, response_of, sse, streamed


def choice(finish: object, text: str | None = "", **more: Any) -> Mapping[str, Any]:
    """A body of Chat Completions. `text` None: without a message."""
    message = {} if text is None else {"message": {"role": "assistant", "content": text}}
    return {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, **message, "finish_reason": finish, **more}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 7},
    }


def response(status: str, **more: Any) -> Mapping[str, Any]:
    return {"id": "r", "model": "m", "status": status, "output": [], **more}


def message(reason: str | None) -> Mapping[str, Any]:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "I was ab"}],
        "stop_reason": reason,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }


def candidate(reason: str, *parts: Any) -> Mapping[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]}


def judged(dialect: str, value: object) -> Verdict:
    return DIALECTS[dialect].understand(HttpResponse(status=200, headers={}, body=orjson.dumps(value)))[0]


LOST = {"message": "Upstream has gone.", "code": 502}
FAILED: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "an error beside stop": ("openai_chat", choice("stop", error=LOST), "server_error"),
    "an error beside null": ("openai_chat", choice(None, "I was ab", error=LOST), "server_error"),
    "an error beside length": ("openai_chat", choice("length", error=LOST), "server_error"),
    "an error without a message": ("openai_chat", choice(None, None, error=LOST), "server_error"),
    "an error as text": ("openai_chat", choice("stop", error="Upstream has gone."), "server_error"),
    "an error in the message": (
        "openai_chat",
        {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "", "error": LOST}}]},
        "server_error",
    ),
    "an error at the top": ("openai_chat", {**choice("stop"), "error": LOST}, "server_error"),
    "a busy one": ("openai_chat", choice("stop", error={"code": 429, "message": "Busy."}), "rate_limit"),
    "error": ("openai_chat", choice("error", "I was ab"), "server_error"),
    "abort": ("openai_chat", choice("abort", "I was ab"), "server_error"),
    "aborted": ("openai_chat", choice("aborted"), "server_error"),
    "cancelled": ("openai_chat", choice("cancelled"), "server_error"),
    "network_error": ("openai_chat", choice("network_error"), "server_error"),
    "engine_overloaded": ("openai_chat", choice("engine_overloaded"), "overload"),
    "TIMEOUT": ("openai_chat", choice("TIMEOUT"), "server_error"),
    "insufficient_system_resource": ("openai_chat", choice("insufficient_system_resource"), "server_error"),
    "an object": ("openai_chat", choice({"type": "abort", "message": "Gone", "status_code": 503}), "overload"),
    "a failed response": ("openai_responses", response("failed", error=LOST), "server_error"),
    "a failed response of few words": ("openai_responses", response("failed"), "server_error"),
    "a cancelled response": ("openai_responses", response("cancelled"), "server_error"),
    "a response that is not there": ("openai_responses", response("in_progress"), "server_error"),
    "a response that a server broke off": (
        "openai_responses",
        response("incomplete", incomplete_details={"reason": "server_error"}),
        "server_error",
    ),
    "an error in place of a message": (
        "anthropic_messages",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "overload",
    ),
    "a message that was broken off": ("anthropic_messages", message("network_error"), "server_error"),
    "OTHER": ("gemini", candidate("OTHER"), "server_error"),
    "MALFORMED_RESPONSE": ("gemini", candidate("MALFORMED_RESPONSE"), "server_error"),
    "an error with its code at the top": (
        "openai_chat",
        {"object": "error", "message": "The server is full.", "type": "ServiceUnavailable", "code": 503},
        "overload",
    ),
}


def test_a_reply_that_its_provider_broke_off_is_a_failed_attempt() -> None:
    def check(case: tuple[str, Mapping[str, Any], str]) -> None:
        dialect, value, kind = case
        verdict = judged(dialect, value)
        assert (verdict.action, verdict.kind) == ("retry", kind)
        assert verdict.message
        begun = "choices" in value or "candidates" in value or "status" in value or value.get("stop_reason")
        assert verdict.outcome == ("broken_off" if begun else {"overload": verdict.outcome}[kind])
        assert counts_as_billed(verdict.outcome, {}) == bool(begun)

    check_each(FAILED.items(), check)


def test_a_stream_that_tells_its_failure_in_its_choice_alone_is_broken_off() -> None:
    def stream(*choices: Mapping[str, Any]) -> bytes:
        events = [{"id": "c", "model": "m", "choices": [{"index": 0, **one}]} for one in choices]
        return sse([("", orjson.dumps(event)) for event in events] + [("", b"[DONE]")])

    text: Mapping[str, Any] = {"delta": {"content": "I was ab"}}
    cases = {
        "beside stop": stream(text, {"delta": {}, "finish_reason": "stop", "error": LOST}),
        "beside null": stream(text, {"delta": {}, "finish_reason": None, "error": LOST}),
        "error": stream(text, {"delta": {}, "finish_reason": "error", "error": LOST}),
        "network_error": stream(text, {"delta": {}, "finish_reason": "network_error"}),
    }

    def check(case: bytes) -> None:
        verdict, _, _ = DIALECTS["openai_chat"].understand(response_of(assembled("openai_chat", [case])))
        assert (verdict.action, verdict.kind, verdict.outcome) == ("retry", "server_error", "broken_off")

    check_each(cases.items(), check)


def test_an_error_in_an_older_form_before_a_stream_began_is_that_error() -> None:
    error = b'data: {"object":"error","message":"The server is full.","type":"ServiceUnavailable","code":503}\n\n'
    for end in (b"", b"data: [DONE]\n\n"):
        verdict, _, _ = DIALECTS["openai_chat"].understand(response_of(assembled("openai_chat", [error + end])))
        assert (verdict.action, verdict.kind, verdict.outcome) == ("retry", "overload", "503")
        assert verdict.message == "The server is full."


def test_a_filters_choice_without_a_message_is_the_filters_and_costs_what_it_states() -> None:
    null = {**choice("content_filter", None), "choices": [{"finish_reason": "content_filter", "message": None}]}
    chunk = {"choices": [{"index": 0, "finish_reason": "content_filter"}], "id": "c", "model": "m"}
    usage = choice("stop", None)["usage"]
    azure = {"choices": [], "prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": True}}}]}
    googles = [choice(word, None) for word in ("PROHIBITED_CONTENT", "RECITATION", "blocklist")]
    for value in (choice("content_filter", None), null, choice("sensitive", None), *googles, {**azure, "usage": usage}):
        verdict = judged("openai_chat", value)
        assert (verdict.action, verdict.kind, verdict.outcome) == ("end_episode", "content_filter", "filtered")
        assert verdict.usage is not None
        assert (verdict.usage.input, verdict.usage.output) == (30, 7)
    came = assembled("openai_chat", [sse([("", orjson.dumps(chunk)), ("", b"[DONE]")])])
    assert DIALECTS["openai_chat"].understand(response_of(came))[0].outcome == "filtered"


def test_what_a_model_does_is_its_reply() -> None:
    cases: dict[str, tuple[str, Mapping[str, Any], str]] = {
        "stop": ("openai_chat", choice("stop", "Hi."), "stop"),
        "no error": ("openai_chat", choice("stop", "Hi.", error=None), "stop"),
        "an empty error": ("openai_chat", choice("stop", "Hi.", error={"message": ""}), "stop"),
        "a filtered text": ("openai_chat", choice("content_filter", "Hi."), "content_filter"),
        "sensitive": ("openai_chat", choice("sensitive", "Hi."), "content_filter"),
        "a word of its own": ("openai_chat", choice("eos", "Hi."), "eos"),
        "speaks of it": ("openai_chat", choice("stop", 'Say "finish_reason":"error" and "error".'), "stop"),
        "incomplete": (
            "openai_responses",
            response("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
        ),
        "cut": (
            "openai_responses",
            response("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
        ),
        "a refusal": ("anthropic_messages", message("refusal"), "refusal"),
        "pause_turn": ("anthropic_messages", message("pause_turn"), "pause_turn"),
        "a malformed call": ("gemini", candidate("MALFORMED_FUNCTION_CALL"), "MALFORMED_FUNCTION_CALL"),
        "a malformed call, elsewhere": (
            "openai_chat",
            choice("function_call_filter: MALFORMED_FUNCTION_CALL", ""),
            "function_call_filter: MALFORMED_FUNCTION_CALL",
        ),
        "SAFETY": ("gemini", candidate("SAFETY"), "content_filter"),
        "OTHER, after a text": ("gemini", candidate("OTHER", {"text": "Hi."}), "OTHER"),
        "a blocked prompt": ("gemini", {"promptFeedback": {"blockReason": "OTHER"}}, "content_filter"),
    }

    def check(case: tuple[str, Mapping[str, Any], str]) -> None:
        dialect, value, finish = case
        verdict, reply, _ = DIALECTS[dialect].understand(HttpResponse(status=200, headers={}, body=orjson.dumps(value)))
        assert verdict.action == "accept"
        assert reply is not None
        assert reply.finish == finish

    check_each(cases.items(), check)


def test_a_streamed_body_is_judged_as_it_would_be_in_one_piece() -> None:
    value = message("network_error")
    came = assembled("anthropic_messages", [streamed("anthropic_messages", value)])
    verdict, _, _ = DIALECTS["anthropic_messages"].understand(response_of(came))
    assert (verdict.kind, verdict.outcome) == ("server_error", "broken_off")
