"""Whether a refusal means that the prompt is too long for its model, in whatever words.

Beside codes and phrases that are known, what such sentences have in common tells: they speak of the input, and that it
is beyond a limit; often both figures stand there. A `max_tokens` that is too large is none: that is a parameter.

Sources: cline #3120 (xAI), kimi-code (Moonshot), help.aliyun.com (Qwen), docs.z.ai (1261), and the wordings of OpenAI,
Anthropic, Google, Mistral, Groq, OpenRouter, Together, Cohere, NVIDIA, MiniMax, Bedrock, vLLM, TGI, llama.cpp, Ollama.
"""

import re

_CODES = (
    *("context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "context_window_exceeded"),
    *("input_too_long", "prompt_too_long", "context_too_long"),
)
_PHRASES = (
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
    "too many total text bytes",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "model token limit",
)
_INPUT = r"(?:input|inputs|prompt|prompts|messages?|conversation|chat|context|history|query|sequence|request(?! body))"
_BEYOND = r"(?:too long|too large|exceed|longer than|larger than|greater than|more than|over the|above|bigger than)"
_SENTENCES = re.compile(
    rf"\b{_INPUT}\b(?! should)(?! must)[^.]{{0,80}}(?:token|length|size|long|context|character)[^.]{{0,60}}{_BEYOND}"
    rf"|\b{_INPUT}\b[^.]{{0,80}}{_BEYOND}[^.]{{0,80}}(?:token|length|size|context|window|character)"
    rf"|\b{_INPUT}(?: is| are|'s)? too long"
    rf"|{_BEYOND}\w*[^.]{{0,60}}(?:model|max\w*|allowed)[^.]{{0,20}}(?:input|prompt|context)"
    rf"|max\w*(?: allowed)? (?:{_INPUT}|sequence|model)(?: token)?(?: length| size| tokens?)\b"
    rf"|range of (?:input|prompt) length|(?:reduce|shorten|truncate)[^.]{{0,30}}(?:length|size)?[^.]{{0,20}}\b{_INPUT}"
    r"|too many tokens|token limit exceeded|tokens? in (?:the )?(?:prompt|input|request)[^.]{0,40}(?:exceed|more than)"
    r"|超长|超过[^。]{0,12}(?:长度|上限|上下文)|长度[^。]{0,6}超"
)
_FIGURES = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d{3,9})(?![\w.]*\d)")
_OF_TOKENS = re.compile(r"token|context")
_OUTPUT = re.compile(
    r"requested max tokens|max tokens (?:value|parameter|is|must|should|of|\d|[:=])"
    r"|max_?(?:completion_|output_|new_|gen_)?(?:tokens|len)|maxoutputtokens|maximum tokens|max(?:imum)? (?:allowed )?"
    r"(?:number of )?(?:output|completion|new|generated) tokens|(?:output|completion) token"
)
_SIZE_OF_INPUT = re.compile(
    r"(\d[\d,]*)\s*(?:tokens? )?(?:of text input|in (?:the|your) (?:messages|prompt|input)|inputs? tokens|prompt tokens"
    r"|tokens? (?:from|in) the (?:input|prompt|messages))"
    r"|(?:input|prompt)(?: length| size| tokens?)?[^.\d]{0,60}?(\d[\d,]*)"
)
_WINDOW = re.compile(r"context (?:length|window|size|limit)[^.\d]{0,30}(\d[\d,]*)|> ?(\d[\d,]*)")
_OTHER_FIELD = re.compile(
    r"temperature|top_?[pk]|\btools?\b|function|\bname\b|description|\bstop\b|seed|schema|penalty|image|logprobs|\benum\b"
    r"|\bbudget|\bmetadata\b|\buser\b(?! (?:message|input|prompt))|\bid\b|\brate\b|per (?:min|sec|day)"
)


def is_too_long(code: str, message: str) -> bool:
    """Whether a refusal's code and message, in lower case, say so."""
    if any(known in code for known in _CODES):
        return True
    if _OUTPUT.search(message) and not _outgrown(message):
        return False
    if any(phrase in message for phrase in _PHRASES):
        return True
    if _OTHER_FIELD.search(message):
        return False
    return bool(_SENTENCES.search(message)) or _has_limit_and_more(message)


def speaks_of_size(message: str) -> bool:
    """Whether a message, in lower case, speaks of a size at all, or of nothing."""
    return not message or bool(
        re.search(r"token|length|size|long|large|context|exceed|limit|max|[^\x00-\x7f]", message)
    )


def _outgrown(message: str) -> bool:
    """Whether a message that names the limit of a reply speaks of an input that leaves no room for it."""
    size, window = _SIZE_OF_INPUT.search(message), _WINDOW.search(message)
    if size is None:
        return False
    if window is None:
        return True
    return 2 * _number(size) >= _number(window)


def _has_limit_and_more(message: str) -> bool:
    figures = [int(figure.replace(",", "")) for figure in _FIGURES.findall(message)]
    beyond = re.search(rf"{_BEYOND}|max|limit|at most|up to|less than|fewer than|allowed|>", message)
    return len(set(figures)) > 1 and bool(_OF_TOKENS.search(message)) and beyond is not None


def _number(found: re.Match[str]) -> int:
    return int(next(filter(None, found.groups())).replace(",", ""))
