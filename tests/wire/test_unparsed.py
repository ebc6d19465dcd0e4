"""Which errors refuse what the model wrote, and the reply that they stand for."""

import orjson

from evalkit.dialogue import ToolCall
from evalkit.envs.arguments import Refusal, read_arguments
from evalkit.envs.costbench.repair import read_call
from evalkit.wire.http import HttpResponse
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.streams import ReplyStream
from evalkit.wire.unparsed import WORDINGS, malformed_reply
from evalkit.wire.verdicts import judge
from tests.support.each_case import check_each

PYDANTIC = (
    "1 validation error for list[function-wrap[__log_extra_fields__()]]\n  Invalid JSON: {} [type=json_invalid, "
    'input_value=\'[{{"name": "f", "param\', input_type=str]'
)
NOTHING: dict[str, object] = {}
SAID: dict[str, tuple[int, dict[str, object]]] = {
    "groq": (
        400,
        {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<function=f"},
    ),
    "cerebras": (
        400,
        {"message": "Failed to generate tool_calls. Exception: none", "failed_generation": '{"name": "f"'},
    ),
    "vllm": (400, {"message": PYDANTIC.format("EOF while parsing a string at line 1 column 21"), "code": 400}),
    "vllm, no JSON": (400, {"message": PYDANTIC.format("expected value at line 1 column 1")}),
    "vllm, as one": (400, {"message": "Invalid JSON: expected value [type=json_invalid, input_value='I will', x]"}),
    "groq, gpt-oss": (400, {"message": "Parsing failed.", "code": "output_parse_failed"}),
    "unknown": (422, {"message": "The model produced an invalid tool call: no object"}),
    "unknown, of the output": (400, {"message": "The model's output could not be parsed"}),
    "tgi": (422, {"message": 'Tool error: EOF while parsing a value; "name": "f"'}),
    "sglang": (400, {"message": "Failed to parse fc related info to json format!"}),
    "llama.cpp": (500, {"message": 'Failed to parse input at pos 12: {"name": "f"</tool_call>', "code": 500}),
    "ollama": (500, {"message": 'error parsing tool call: raw=\'{"name":"f"\', err=unexpected end of JSON input'}),
}


OURS = (
    (400, "messages[2].tool_calls[0]: the arguments could not be parsed"),
    (400, "Invalid tool call in the assistant message"),
    (400, "Invalid model. Its tool calls cannot be parsed from this template"),
)


def test_what_the_model_wrote_is_told_from_what_we_sent() -> None:
    def check(said: tuple[int, dict[str, object]]) -> None:
        verdict = judge(HttpResponse(status=said[0], headers={}, body=orjson.dumps({"error": said[1]})))
        assert (verdict.action, verdict.kind, verdict.outcome) == ("draw_again", "bad_call", "bad_call")
        assert verdict.billable

    check_each(SAID.items(), check)
    for status, message in (
        (400, "Unterminated string starting at"),
        (400, "Invalid JSON in the body"),
        (429, "EOF"),
        *OURS,
    ):
        body = orjson.dumps({"error": {"message": message}})
        assert judge(HttpResponse(status=status, headers={}, body=body)).kind != "bad_call"
    assert all(wording.source for wording in WORDINGS)


def test_the_reply_is_a_call_that_no_environment_reads() -> None:
    def check(said: tuple[int, dict[str, object]]) -> None:
        (call,) = malformed_reply(orjson.dumps({"error": said[1]})).calls
        assert call.name in ("f", "")
        for read in (read_arguments, read_call):
            assert isinstance(read(call.arguments), Refusal)

    whole: dict[str, object] = {"failed_generation": '{"name": "f", "arguments": {"k": 1}}'}
    check_each([*SAID.items(), ("a whole object", (400, whole)), ("nothing", (400, NOTHING))], check)
    nothing = (ToolCall(id="call_0", name="", arguments='[""]'),)
    assert [malformed_reply(body).calls for body in (b"", b"[]", b'{"error":"no"}')] == [nothing] * 3


def test_an_error_in_a_stream_is_read_alike() -> None:
    assert OPENAI_CHAT.stream is not None
    for start in (b"", b'data: {"id":"r","choices":[{"index":0,"delta":{"content":"So"}}]}\n\n'):
        stream = ReplyStream(OPENAI_CHAT.stream, 10_000)
        stream.feed(start + b"data: " + orjson.dumps({"error": SAID["groq"][1]}) + b"\n\n")
        came = stream.end()
        response = HttpResponse(status=came.status, headers={}, body=came.body, failure=came.failure)
        assert judge(response).action == "draw_again"
        assert malformed_reply(came.body).calls[0].arguments == '["<function=f"]'
