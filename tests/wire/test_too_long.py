"""A prompt that is too long is recognised in words that nobody listed; a refused parameter is not taken for one."""

import orjson

from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.table import DIALECTS
from tests.support.each_case import check_each


def judged(message: str, status: int = 400) -> Verdict:
    body = orjson.dumps({"error": {"message": message, "type": "invalid_request_error", "code": str(status)}})
    return DIALECTS["openai_chat"].judge(HttpResponse(status=status, headers={}, body=body))


TOO_LONG = [
    "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
    "Range of input length should be [1, 983616]",
    "InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 310000)",
    "Prompt exceeds max length",
    "Prompt 超长",
    "输入长度超过模型上限",
    "too many tokens: size limit exceeded by 6101 tokens. Try using shorter or fewer inputs.",
    "The input (300000 tokens) is longer than the model's context length (262144 tokens).",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 "
    "`max_new_tokens`",
    "This model's maximum context length is 4097 tokens. However, you requested 4200 tokens (3104 in the messages, "
    "1096 in the completion).",
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 65536 tokens "
    "and your request has 57879 input tokens (8192 > 65536 - 57879).",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "prompt is too long: 202128 tokens > 200000 maximum",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Please reduce the length of the messages or completion. Current length is 140000 while limit is 131072",
    "prompt token count of 5000 exceeds the limit of 4096",
    "invalid params, context window exceeds limit",
    "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
    "Prompt contains 140001 tokens, too large for model with 131072 maximum context length",
    "Input length 140000 exceeds maximum allowed input length of 131072 tokens.",
    "prompt too long; exceeded max context length by 1190 tokens",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Requested token count exceeds the model's maximum: 140000 tokens were asked, 131072 are possible",
    "The conversation is too long for this model",
    "Sequence of 9,000 tokens does not fit; up to 8,192 tokens are allowed",
    "inputs must have less than 4096 tokens. Given: 5000",
    "tokens in request more than max tokens allowed",
]
PARAMETERS = [
    "max_tokens must be less than or equal to 8192",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you gave 100000.",
    "max_tokens (384000) exceeds model's maximum output tokens (65536) for model deepseek",
    "Range of max_tokens should be [1, 8192]",
    "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is "
    "lower than 4096.",
    "maxOutputTokens must be in the range from 1 (inclusive) to 65537 (exclusive), not 100000 tokens",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 tokens (1463 of text "
    "input, 131000 in the output), since max_tokens is 131000.",
    "Input should be greater than or equal to 0",
    "Input should be less than or equal to 1",
    "temperature must be at most 2, not 3",
    "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string "
    "with length 70 instead.",
    "thinking.budget_tokens: Input should be greater than or equal to 1024",
    "Unknown parameter: 'input_limit'",
    "Requested max tokens 100000 is greater than the allowed 8192",
    "no such field",
]


def test_a_prompt_that_is_too_long_is_recognised_in_any_words() -> None:
    def check(case: tuple[str, int]) -> None:
        assert (judged(*case).action, judged(*case).kind) == ("end_episode", "context_length")

    check_each(((text[:60], (text, status)) for text in TOO_LONG for status in (400, 413, 422)), check)


def test_a_refused_parameter_is_not_taken_for_a_long_prompt() -> None:
    def check(text: str) -> None:
        assert (judged(text).action, judged(text).kind) == ("end_episode", "bad_request")

    check_each(((text[:60], text) for text in PARAMETERS), check)
