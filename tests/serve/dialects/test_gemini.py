"""What the simulated provider refuses in Gemini's format; what it takes is tested beside the client's direction."""

from base64 import b64decode
from typing import Any

import orjson
import pytest

from evalkit.dialogue import Message, Reply, ToolCall
from evalkit.serve.dialects.gemini import SERVED_GEMINI, decode_request, encode_error

TEXT = {"text": "x"}
CALL = {"functionCall": {"id": "a", "name": "lookup", "args": {}}}
RESULT = {"functionResponse": {"id": "a", "name": "lookup", "response": {"output": "y"}}}
NO_ID = {"functionResponse": {"name": "lookup", "response": {"output": "y"}}}


def turns(*contents: Any) -> dict[str, Any]:
    return {"contents": [{"role": ("user", "model")[i % 2], "parts": one} for i, one in enumerate(contents)]}


def config(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": fields}


def declared(*functions: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": list(functions)}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, 'Unknown name "messages"'),
    (config(max_tokens=5), 'Unknown name "generation_config.max_tokens"'),
    (config(maxOutputTokens=0), "max_output_tokens"),
    (config(maxOutputTokens="5"), "max_output_tokens"),
    (config(temperature=2.5), "temperature"),
    (config(topP=True), "topP"),
    (config(seed=2**31), "seed"),
    (config(seed=0.5), "seed"),
    (config(thinkingConfig={"thinkingLevel": "low", "thinkingBudget": 5}), "only one"),
    (config(thinkingConfig={"thinkingLevel": 5}), "thinking_level"),
    (config(thinkingConfig=[]), "thinkingConfig: must be an object"),
    ({"generationConfig": 5}, "generationConfig: must be an object"),
    ({"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "mode"),
    ({"tools": [{"googleSearch": {}}]}, "only function_declarations"),
    ({"tools": {}}, "tools: must be a list"),
    (declared({"name": ""}), r"function_declarations\[0\]\.name"),
    (declared({"name": "f", "parameters": {}, "parametersJsonSchema": {}}), "only one of parameters"),
    (declared({"name": "f", "parameters": []}), "parameters: must be an object"),
    ({"systemInstruction": {"parts": []}}, "system_instruction.parts: .*must not be empty"),
    ({"systemInstruction": "x"}, "system_instruction"),
    ({"systemInstruction": {"parts": [{"text": ""}]}}, "not empty"),
    ({"contents": []}, "contents: must not be empty"),
    ({"contents": [{"role": "system", "parts": [TEXT]}]}, r"contents\[0\]\.role"),
    ({"contents": [{"role": "user", "parts": [TEXT]}] * 3}, r"contents\[1\]\.role.*alternate"),
    (turns([TEXT], [TEXT]), "the last turn must be the user's"),
    (turns([]), "must not be empty"),
    (turns([{}]), "one initialized field"),
    (turns([{"text": ""}]), "not empty"),
    (turns([{"inlineData": {}}]), "only text"),
    (turns([TEXT], [CALL], [TEXT]), "number of function response parts"),
    (turns([TEXT], [CALL, CALL], [RESULT]), "number of function response parts"),
    (turns([TEXT], [CALL], [RESULT, RESULT]), "no function call is open"),
    (turns([RESULT]), "no function call is open"),
    (turns([TEXT], [CALL], [{"functionResponse": {"id": "b", "name": "lookup"}}]), "no function call is open"),
    (turns([TEXT], [CALL], [{"functionResponse": {"id": "a", "name": "other"}}]), "no function call is open"),
    (turns([TEXT], [CALL], [{"functionResponse": {"id": "a"}}]), "function_response.name: Name cannot be empty"),
    (turns([TEXT], [CALL], [{"functionResponse": {"name": "lookup", "response": "y"}}]), "response: must be an object"),
    (turns([TEXT], [{"functionCall": {"name": ""}}], [RESULT]), "function_call.name: Name cannot be empty"),
    (turns([TEXT], [{"functionCall": {"name": "f", "args": "{}"}}], [RESULT]), "args: must be an object"),
    (turns([TEXT], [{"text": ""}], [TEXT]), "not empty"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_a_server_refuses_what_the_real_one_refuses(change: dict[str, Any], words: str) -> None:
    value = {**declared({"name": "lookup"}), **turns([TEXT])}
    assert decode_request(orjson.dumps(value), "m")[0] == "m"
    with pytest.raises(ValueError, match=words):
        decode_request(orjson.dumps(value | change), "m")


@pytest.mark.parametrize("data", [b"{", b"[]", b"5"])
def test_a_server_refuses_what_is_no_object(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_request(data, "m")


def test_results_without_ids_belong_to_the_open_calls_of_their_name_in_order() -> None:
    other = {"functionCall": {"name": "other"}}
    named = {"functionResponse": {"name": "other", "response": {"rows": [1], "output": "z"}}}
    unnamed = {"functionCall": {"name": "lookup", "args": {"k": 1}}}
    _, request = decode_request(orjson.dumps(turns([TEXT], [CALL, other, unnamed], [named, NO_ID, NO_ID])), "m")
    said = request.messages[1]
    assert [call.id for call in said.calls] == ["a", "call_1", "call_2"]
    assert request.messages[2:] == (
        Message(role="tool", text='{"rows":[1],"output":"z"}', call_id="call_1", name="other"),
        Message(role="tool", text="y", call_id="a", name="lookup"),
        Message(role="tool", text="y", call_id="call_2", name="lookup"),
    )


def test_a_schema_may_come_in_either_field_and_a_role_may_be_left_out() -> None:
    schema = {"type": "object", "properties": {}}
    value = {**declared({"name": "f", "parameters": schema}), "contents": [{"parts": [TEXT]}]}
    request = decode_request(orjson.dumps(value), "m")[1]
    assert (request.tools[0].parameters, request.messages) == (schema, (Message(role="user", text="x"),))


def test_an_error_has_its_status_in_words_and_its_code_as_reason() -> None:
    error = orjson.loads(encode_error(429, "rate_limit_exceeded", "Slow down."))["error"]
    assert (error["code"], error["status"], error["message"]) == (429, "RESOURCE_EXHAUSTED", "Slow down.")
    assert error["details"][0]["reason"] == "RATE_LIMIT_EXCEEDED"
    assert orjson.loads(encode_error(529, "", "x"))["error"] == {
        "code": 529,
        "message": "x",
        "status": "UNKNOWN",
        "details": [],
    }


def test_a_signature_is_a_field_of_bytes() -> None:
    for reply in (
        Reply(text="Yes.", reasoning="Is it?"),
        Reply(calls=(ToolCall(id="c", name="go", arguments="{}"),), reasoning="Go?"),
    ):
        parts = orjson.loads(SERVED_GEMINI.encode_reply(reply))["candidates"][0]["content"]["parts"]
        (signature,) = (part["thoughtSignature"] for part in parts if "thoughtSignature" in part)
        assert b64decode(signature, validate=True)
