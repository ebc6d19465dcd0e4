"""What each provider refuses in a chat that comes back, from its documents and from public reports. By no code of
evalkit's: a test must not believe what it tests.

`check` raises `Refused` with words like the provider's. `wrote`: what the provider's model wrote in this chat so far,
by which it knows its own thoughts again.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

JSON = dict[str, Any]


class Refused(Exception):
    """A request that the provider answers with status 400."""


def must(true: object, words: str) -> None:
    if not true:
        raise Refused(words)


# --- Chat Completions.

LENIENT = frozenset({"openai", "azure", "simulated"})
"""Take any text as arguments, and an empty one as a reply."""
BRIDGE = "OK."
"""What evalkit puts between a result and a user's message, which no model wrote."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # semantic-kernel #4447
KNOWN = {
    "groq": {"role", "content", "tool_calls", "reasoning", "name"},  # janhq/jan #8136
    "mistral": {"role", "content", "tool_calls", "prefix"},  # docs.mistral.ai/api: extra fields are forbidden
}


def chat(provider: str, model: str, body: JSON, wrote: Sequence[JSON]) -> None:
    """OpenAI's rules, and those of the provider."""
    mistral = "stral" in model
    own = (reply["choices"][0]["message"] for reply in wrote)
    before, open_ids = "", list[str]()
    for at, message in enumerate(body["messages"]):
        role = message["role"]
        if role == "tool":
            must(message["tool_call_id"] in open_ids, f"messages.{at}: no call has this id")
            open_ids.remove(message["tool_call_id"])
            must(isinstance(message["content"], str), f"messages.{at}: a result needs a text")
        else:
            # platform.openai.com/docs/guides/function-calling; TurixAI/TuriX-CUA #15
            must(not open_ids, "An assistant message with 'tool_calls' must be followed by tool messages")
        if mistral:  # mistral-common, validator.py: _validate_message_order; code 3230
            must((before, role) != ("tool", "user"), "Unexpected role 'user' after role 'tool'")
        if role == "assistant":
            bridge = mistral and before == "tool" and message["content"] == BRIDGE
            open_ids = _assistant(provider, at, message, {} if bridge else next(own), mistral=mistral, bridge=bridge)
        before = role
    must(before in ("user", "tool"), "Expected last role User or Tool")
    must(next(own, None) is None, "a message of the model's is missing")
    must(len(body.get("tools", ())) <= 128, "too many tools")


def _assistant(provider: str, at: int, message: JSON, wrote: JSON, *, mistral: bool, bridge: bool) -> list[str]:
    where, calls = f"messages.{at}", message.get("tool_calls") or []
    if provider in KNOWN:
        must(not set(message) - KNOWN[provider], f"{where}: property {set(message) - KNOWN[provider]} is unsupported")
    if provider not in LENIENT:  # Mistral 3240, ProxyAI #834, AstrBot #7721, kimi-code #1985
        must(calls or (message["content"] or "").strip(), "content or tool_calls must be set")
    if provider == "deepseek":  # hermes-agent PR #15228: of every message, also of words, also if it is empty
        must("reasoning_content" in message, "The `reasoning_content` in the thinking mode must be passed back")
        must(message["reasoning_content"] == wrote.get("reasoning_content", ""), "another `reasoning_content`")
    if provider == "openrouter":  # openrouter.ai/docs/guides/best-practices/reasoning-tokens
        must(message.get("reasoning_details") == wrote.get("reasoning_details"), "other reasoning_details")
    must(bridge or len(calls) == len(wrote.get("tool_calls") or ()), f"{where}: a call is missing")
    ids = [call["id"] for call in calls]
    must(len(set(ids)) == len(ids), f"{where}: Duplicate tool call id")
    for call in calls:
        must(NAME.fullmatch(call["function"]["name"]), f"{where}: name: string does not match pattern")
        must(0 < len(call["id"]) <= 40, f"{where}: id: string too long")  # dify #28987
        if mistral:  # mistral-common, MistralRequestValidatorV3
            must(re.fullmatch("[a-zA-Z0-9]{9}", call["id"]), f"Tool call id was {call['id']} but must be of length 9")
        arguments = call["function"]["arguments"]
        must(isinstance(arguments, str) and arguments, f"{where}: arguments must be a text")
        if provider not in LENIENT:  # templates read them as objects: vLLM #47761
            must(_is_object(arguments), "Expecting value: line 1 column 1 (char 0)")
    return ids


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


# --- Responses. platform.openai.com/docs/api-reference/responses/create; Roo-Code PR #10763


def responses(provider: str, _model: str, body: JSON, wrote: Sequence[JSON]) -> None:
    """Items, calls with their results, and reasoning before what it led to."""
    items, open_ids = body["input"], list[str]()
    must(body["store"] is False, "it would have to be found again")
    for at, item in enumerate(items):
        kind = item["type"]
        if kind == "function_call_output":
            must(item["call_id"] in open_ids, "No tool call found for function call output")
            open_ids.remove(item["call_id"])
        elif kind == "function_call":
            must(NAME.fullmatch(item["name"]), f"input[{at}].name: string does not match pattern")
            must(0 < len(item["call_id"]) <= 64, f"input[{at}].call_id: string too long")
            must(item["call_id"] not in open_ids, "Duplicate call_id")
            must(item["arguments"], f"input[{at}].arguments: empty")
            open_ids.append(item["call_id"])
        elif kind == "reasoning":
            must(item["encrypted_content"] and "status" not in item, f"input[{at}]: reasoning that nobody can find")
            follows = items[at + 1] if at + 1 < len(items) else {"type": ""}
            must(
                follows["type"] == "function_call" or follows.get("role") == "assistant",
                "Item of type 'reasoning' was provided without its required following item",
            )
        else:
            must(not open_ids or item["role"] == "assistant", "No tool output found for function call")
            text = item["content"] if isinstance(item["content"], str) else "".join(p["text"] for p in item["content"])
            must(text.strip(), "empty content")  # inspect_ai PR #2842 (xAI)
    must(not open_ids, "No tool output found for function call")
    came = [item for reply in wrote for item in reply["output"] if item["type"] == "reasoning"]
    kept = [item["encrypted_content"] for item in items if item["type"] == "reasoning"]
    must(kept == [one["encrypted_content"] for one in came if one.get("followed")], "reasoning is missing")


# --- Anthropic Messages. docs: api/messages, build-with-claude/extended-thinking; forgecode #2107


def anthropic(_provider: str, _model: str, body: JSON, wrote: Sequence[JSON]) -> None:
    """Blocks, results right after their calls, and thinking as it was."""
    own, open_ids, seen = iter(wrote), list[str](), set[str]()
    for at, message in enumerate(body["messages"]):
        where, blocks = f"messages.{at}", message["content"]
        must(message["role"] == ("assistant" if at % 2 else "user"), f"{where}: roles must alternate")
        must(blocks, f"{where}: content must not be empty")
        if message["role"] == "user":
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            first = [block["type"] for block in blocks[: len(results)]]
            must(sorted(results) == sorted(open_ids), "tool_use ids were found without tool_result blocks after them")
            must(set(first) <= {"tool_result"}, "tool_result blocks must come first")
        else:
            _reply_blocks(where, blocks, next(own), seen)
            open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        must(all(text.strip() for text in texts), "text content blocks must contain non-whitespace text")
    must(json.dumps(body).count('"cache_control"') <= 4, "at most 4 blocks with cache_control")


def _reply_blocks(where: str, blocks: Sequence[JSON], wrote: JSON, seen: set[str]) -> None:
    must(blocks[-1]["type"] not in ("thinking", "redacted_thinking"), f"{where}: The final block cannot be `thinking`")
    thoughts = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
    must(all(block.get("signature") for block in thoughts), f"{where}: Invalid `signature` in `thinking` block")
    signed = [block for block in wrote["content"] if block["type"] == "thinking" and block["signature"]]
    must(thoughts == signed, f"{where}: `thinking` blocks cannot be modified")
    for block in blocks:
        if block["type"] == "tool_use":
            must(re.fullmatch("[a-zA-Z0-9_-]{1,64}", block["id"]), f"{where}: tool_use.id: should match pattern")
            must(NAME.fullmatch(block["name"]), f"{where}: tool_use.name: should match pattern")
            must(isinstance(block["input"], dict), f"{where}: tool_use.input: should be a valid dictionary")
            must(block["id"] not in seen, f"{where}: `tool_use` ids must be unique")
            seen.add(block["id"])


# --- Gemini. ai.google.dev/api/caching#FunctionDeclaration, ai.google.dev/gemini-api/docs/thought-signatures

GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def gemini(_provider: str, _model: str, body: JSON, wrote: Sequence[JSON]) -> None:
    """Turns, as many results as calls, and signatures where they were."""
    own, called = iter(wrote), list[str]()
    for at, turn in enumerate(body["contents"]):
        parts = turn["parts"]
        must(turn["role"] == ("model" if at % 2 else "user"), "roles must alternate")
        must(parts, f"contents[{at}].parts must not be empty")
        for part in parts:
            must(part.get("text") != "" or "thoughtSignature" in part, "must not have an empty text parameter")
        answers = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if turn["role"] == "user":
            must(answers == called, "function response parts must equal function call parts")
            called = []
            continue
        must(not all(part.get("thought") for part in parts), "nothing but thoughts")
        calls = [part for part in parts if "functionCall" in part]
        called = [part["functionCall"]["name"] for part in calls]
        must(all(GEMINI_NAME.fullmatch(name) for name in called), "function_call.name: Invalid function name")
        must(all(isinstance(part["functionCall"]["args"], dict) for part in calls), "args must be an object")
        came = next(own)["candidates"][0]["content"].get("parts", ())
        signatures = [[part["thoughtSignature"] for part in ps if "thoughtSignature" in part] for ps in (parts, came)]
        must(signatures[0] == signatures[1], "Function call is missing a thought_signature")


RULES: Mapping[str, Callable[[str, str, JSON, Sequence[JSON]], None]] = {
    "openai_chat": chat,
    "openai_responses": responses,
    "anthropic_messages": anthropic,
    "anthropic_bedrock": anthropic,
    "anthropic_vertex": anthropic,
    "gemini": gemini,
    "gemini_vertex": gemini,
}
