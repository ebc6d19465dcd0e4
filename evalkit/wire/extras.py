"""Which fields of a request's body an agent's `extra` may set: an allow list for each format, where a request costs.

A budget is a hard ceiling only if a request costs what its size and `max_tokens` allow. A field that asks for several
answers, a dearer tier, a search, another model or a longer cache voids that, and providers invent new ones. So `extra`
may hold what is known to change neither what is billed nor how many answers come. A provider's own file can allow more
(`extra_allowed`). Where nothing is paid, any field may be sent that evalkit does not set itself.

Names are written with dots where they are nested (`generationConfig.topK`), and compared without case and underscores:
Gemini takes each of its names in two spellings. An allowed field may have any value, unless the list goes deeper.

Source: the request schemas of https://platform.openai.com/docs/api-reference/chat/create, .../responses/create,
https://platform.claude.com/docs/en/api/messages, https://ai.google.dev/api/generate-content; for Chat Completions also
https://openrouter.ai/docs/api-reference/parameters, https://docs.vllm.ai (sampling parameters of its server),
https://api-docs.deepseek.com, https://console.groq.com/docs/api-reference, https://docs.mistral.ai/api,
https://docs.together.ai/reference/chat-completions, https://docs.fireworks.ai/api-reference, https://docs.z.ai/api-reference.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraFields:
    """What `extra` may and may not set in one format; nested names with dots."""

    ours: frozenset[str]
    """Fields that evalkit sets itself, or reads no second answer of: never."""
    harmless: frozenset[str] = frozenset()
    """Fields that do not change the bill: always."""
    merged: frozenset[str] = frozenset()
    """Objects that evalkit reads, or adds members to: they must be objects, and spelt like this."""


NO_FIELDS = ExtraFields(ours=frozenset())
"""Of a format that knows none: where a request costs, `extra` sets what the provider's file allows."""


def field_objections(extra: str, fields: ExtraFields) -> list[str]:
    """What no request may have, in sentences: a text that is not an object, and fields of evalkit's own."""
    if not extra:
        return []
    try:
        value = orjson.loads(extra)
    except orjson.JSONDecodeError as flaw:
        return [f"extra is not JSON: {flaw}."]
    if not isinstance(value, dict):
        return [f"extra must be a JSON object, not {extra[:50]!r}."]
    ours, merged = {_fold(name) for name in fields.ours}, {_fold(name): name for name in fields.merged}
    objections = []
    for name, member in _walk(value, "", merged):
        key = _fold(name)
        if key in ours:
            objections.append(f"extra may not set {name!r}: evalkit sets it, or cannot bound the cost with it.")
        elif key in merged and name != merged[key]:
            objections.append(f"extra: write {merged[key]!r}, not {name!r}.")
        elif key in merged and not isinstance(member, dict):
            objections.append(f"extra: {name} must be an object, not {member!r}.")
    return objections


def owned(name: str, fields: ExtraFields) -> bool:
    """Whether evalkit sets a field itself."""
    return _fold(name) in {_fold(own) for own in fields.ours}


def unlisted(extra: str, fields: ExtraFields, allowed: Collection[str]) -> list[str]:
    """The fields of a valid `extra` that are not known to leave the bill alone. `allowed`: those of the provider's own
    file."""
    listed = {_fold(name) for name in (*fields.harmless, *allowed)}
    inner = {".".join(parts[:depth]) for key in listed for parts in [key.split(".")] for depth in range(1, len(parts))}
    return [
        name
        for name, member in _walk(orjson.loads(extra) if extra else {}, "", inner - listed)
        if _fold(name) not in listed and not (_fold(name) in inner and isinstance(member, dict))
    ]


def _walk(value: Mapping[str, Any], path: str, inner: Collection[str]) -> Iterator[tuple[str, Any]]:
    """All members with their names, also those of objects that are named in `inner`."""
    for name, member in value.items():
        whole = f"{path}{name.replace('.', '?')}"  # a dot within a name does not nest
        yield whole, member
        if isinstance(member, dict) and _fold(whole) in inner:
            yield from _walk(member, f"{whole}.", inner)


def _fold(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _names(text: str, within: str = "") -> frozenset[str]:
    return frozenset(f"{within}.{name}" if within else name for name in text.split())


OPENAI_CHAT_FIELDS = ExtraFields(
    ours=_names(
        "model messages tools tool_choice parallel_tool_calls functions function_call max_tokens max_completion_tokens "
        "temperature top_p reasoning_effort seed stream stream_options prompt_cache_key n best_of service_tier "
        "prompt_cache_retention"
    ),
    harmless=(
        # OpenAI
        _names("frequency_penalty presence_penalty logit_bias logprobs top_logprobs stop response_format verbosity")
        | _names("store metadata user safety_identifier")
        # Samplers and templates of servers for open models
        | _names("top_k top_a min_p typical_p repetition_penalty length_penalty no_repeat_ngram_size min_tokens")
        | _names("stop_token_ids ignore_eos bad_words allowed_token_ids skip_special_tokens include_stop_str_in_output")
        | _names("spaces_between_special_tokens truncate_prompt_tokens context_length_exceeded_behavior")
        | _names("structured_outputs guided_json guided_regex guided_choice guided_grammar regex ebnf")
        | _names("chat_template_kwargs include_reasoning separate_reasoning reasoning_format reasoning_split")
        | _names("thinking_token_budget")
        # DeepSeek, Z.AI, Moonshot; Mistral
        | _names("type budget_tokens clear_thinking keep", "thinking")
        | _names("do_sample user_id random_seed")
        # OpenRouter, Together
        | _names("max_tokens exclude enabled summary", "reasoning")
        | _names("transforms usage.include")
        | _names("order only ignore allow_fallbacks require_parameters data_collection zdr quantizations", "provider")
        | _names("sort max_price preferred_min_throughput preferred_max_latency", "provider")
    ),
)
"""OpenRouter's `provider` chooses who serves a model at the price that its file or the library has for it."""

OPENAI_RESPONSES_FIELDS = ExtraFields(
    ours=_names(
        "model input max_output_tokens temperature top_p tools tool_choice parallel_tool_calls store include stream "
        "stream_options seed background previous_response_id conversation prompt prompt_cache_key reasoning.effort "
        "service_tier prompt_cache_retention"
    ),
    harmless=(
        _names("instructions text.format text.verbosity truncation metadata user safety_identifier top_logprobs")
        | _names("summary generate_summary", "reasoning")
        | _names("max_tool_calls frequency_penalty presence_penalty top_k min_p repetition_penalty")
    ),
    merged=frozenset({"reasoning"}),
)

ANTHROPIC_FIELDS = ExtraFields(
    ours=_names(
        "model messages system tools tool_choice max_tokens temperature top_p output_config cache_control stream "
        "anthropic_version service_tier inference_geo"
    ),
    harmless=(
        _names("top_k stop_sequences metadata thinking.block_binding.prefix_mismatch_behavior")
        | _names("type budget_tokens display", "thinking")
    ),
    merged=frozenset({"thinking"}),
)

GEMINI_FIELDS = ExtraFields(
    ours=(
        _names("model contents systemInstruction tools toolConfig serviceTier")
        | _names("maxOutputTokens temperature topP seed candidateCount", "generationConfig")
        | _names("thinkingLevel thinkingBudget", "generationConfig.thinkingConfig")
    ),
    harmless=(
        _names("safetySettings labels generationConfig.thinkingConfig.includeThoughts")
        | _names("stopSequences topK presencePenalty frequencyPenalty responseLogprobs logprobs", "generationConfig")
        | _names("responseMimeType responseSchema responseJsonSchema _responseJsonSchema", "generationConfig")
    ),
    merged=frozenset({"generationConfig", "generationConfig.thinkingConfig"}),
)
