"""Refusals that no wait of a run cures: money, quota, access and models that an account does not have. One table.

Providers answer them with any status (400, 402, 403, 404, 412, 429, 498), or with words in a body of status 200, so the
words decide. Each row names the kind by what such sentences have in common, with the providers whose texts it was
written from; the first row that applies counts. Limits by the minute are none: those pass.

Sources, for all rows: the error pages of platform.openai.com, platform.claude.com, ai.google.dev, docs.mistral.ai,
api-docs.deepseek.com, console.groq.com, docs.x.ai, openrouter.ai, docs.together.ai, docs.fireworks.ai,
platform.moonshot.ai, help.aliyun.com/model-studio, docs.z.ai, docs.cohere.com, learn.microsoft.com,
docs.aws.amazon.com, inference-docs.cerebras.ai, docs.nvidia.com, docs.sambanova.ai, docs.litellm.ai; and
the reports that rows name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from evalkit.wire.http import Action

# Whether a refused request is the model's doing: one table, by the kind of its verdict.
#
# Only what the model did is scored. A refusal leaves its episode unscored and remaining, unless the table says that the
# model caused it, and the suite counts such a kind. `docs/statistics.md` has the same table for readers.

CONTEXT_LENGTH, CONTENT_FILTER = "context_length", "content_filter"


@dataclass(frozen=True, slots=True)
class ModelsPart:
    """What speaks for the model having caused a kind of refusal."""

    by_default: bool
    """Whether a suite that says nothing counts it."""
    why: str


MODELS_PART: Mapping[str, ModelsPart] = {
    CONTEXT_LENGTH: ModelsPart(
        True,
        # CostBench's reference ends an episode at any failed request and scores what it holds (spec, request loop);
        # EconAgentBench keeps whole histories. A chat that was accepted before has grown by what the model did.
        "the provider took an earlier request of the episode, so the conversation has outgrown the window",
    ),
    CONTENT_FILTER: ModelsPart(
        False,
        # Azure, OpenAI, Anthropic: the filter reads the whole prompt, of which the benchmark wrote a part.
        "the provider took an earlier request of the episode, so what was added since may have met the filter",
    ),
}
"""Kinds that may be the model's doing, each only after a request of the same episode was answered. All others never
are: their cause is a setting, an account, the history as evalkit wrote it, or the provider."""

COUNTED = tuple(kind for kind, part in MODELS_PART.items() if part.by_default)
"""What a suite counts as the model's doing if its sweep does not say."""


def is_models_doing(kind: str, counted: Collection[str], *, answered: bool) -> bool:
    """Whether a refusal ends its episode as the model's doing. `counted`: the kinds that its suite counts; `answered`:
    whether a request of the episode was answered before."""
    return answered and kind in MODELS_PART and kind in counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopeless:
    """One kind of refusal."""

    kind: str
    action: Action = "end_lane"
    pattern: re.Pattern[str]
    """In code and message, in lower case."""
    source: str


def _row(kind: str, source: str, *patterns: str, action: Action = "end_lane") -> Hopeless:
    return Hopeless(kind=kind, action=action, pattern=re.compile("|".join(patterns)), source=source)


TOO_LARGE = _row(
    "too_large",
    "OpenAI, Groq (`Limit 30000, Requested 342389`; vanna-flask #11, continue #10218), Anthropic (claude-code #29584)",
    r"request too large\b.*?\b(?:per|tpm|tokens|limit)",
    r"(?:input|output|message|tokens)\b[^.]{0,40}must be reduced",
    r"(?:extra usage|usage credits?) (?:is|are) required for long context",
    r"long context (?:beta|requests?) (?:is|are) not (?:yet )?(?:available|enabled)",
    action="defer",
)
"""More than the account may ever ask at once: this request alone, so its episode is set aside."""

_CREDIT = r"(?:credits?|balance|funds?|quota)"
ROWS: Sequence[Hopeless] = (
    _row(
        "no_credit",
        "OpenAI, Anthropic, DeepSeek, xAI, OpenRouter, Together, Moonshot, z.ai, Qwen, NVIDIA, MiniMax, LiteLLM; "
        "GLM-5 #148, openclaude #936, OpenManus #438, claude-code #38035",
        rf"insufficient[ _-]?(?:\w+ )?{_CREDIT}|{_CREDIT}[^.]{{0,30}}\b(?:insufficient|not enough|not sufficient)\b",
        rf"(?:not enough|too few|out of|ran out of|no (?:more|remaining|available)"
        rf"|used (?:up )?(?:all )?(?:your |its )?(?:available |remaining )?) ?(?:\w+ )?{_CREDIT}\b(?! volume)",
        rf"{_CREDIT}[^.]{{0,40}}\b(?:too low|exhausted|depleted|expired|required|negative|used up|has run out)\b",
        r"\b(?:doesn't|don't|does not|do not) have (?:any|enough|sufficient)[^.]{0,20}\bcredits?|no credits?\b",
        r"\b(?:requires?|purchase|buy|add) (?:more |some |additional )?(?:paid )?(?:credits?|balance|funds)\b"
        r"(?! to (?:unlock|increase|raise))",
        r"payment[ _]required|billing[ _](?:hard[ _]limit|limit|not[ _]active|inactive|issue|is (?:disabled|not))"
        r"|billing (?:account|to be enabled)|trial (?:period )?(?:has )?(?:ended|expired)",
        r"spend(?:ing)?[ _-]?(?:limit|cap|budget)|budget[ _](?:has been |was |is )?exceeded|exceeded[ _]?budget",
        r"\bno (?:more |remaining |available )budget\b|\bbudget[^.]{0,30}\b(?:exhausted|depleted|used up)\b",
        r"(?:reached|exceeded|hit) your (?:\w+ ){0,3}usage limit",
        r"exceeded[ _](?:your )?current[ _]quota|in arrears|arrearage|overdue|unpaid|past invoices|good standing",
        r"please (?:recharge|top[ -]?up|add funds)|please top|\brecharge\b",
        r"subscription[^.]{0,30}\b(?:expired|required|cancell?ed|inactive)|plan (?:has )?expired",
        r"account[^.]{0,40}\b(?:suspended|has been disabled|deactivated)|organization has been (?:disabled|suspended)",
        r"key limit exceeded|credit limit|\b1113\b",
        "余额不足|欠费|充值|额度不足|账户余额",
    ),
    _row(
        "quota",
        "Qwen (`AllocationQuota.FreeTierOnly`), Azure (`Out of call volume quota`), z.ai (1304, 1308, 1310, 1316)",
        r"freetieronly|free (?:tier|quota|trial|allocated quota)[^.]{0,40}\b(?:exhausted|used up|expired|ended|only)\b",
        r"free allocated quota[^.]{0,20}\bexceeded\b|out of call volume quota|\b(?:1304|1308|1310|1316)\b",
        "用量上限|使用上限|次日",
    ),
    _row(
        "no_access",
        "OpenAI, Groq (`model_terms_required`), Bedrock, Mistral, z.ai (1311), Vercel",
        r"must be verified(?! to stream)|verification[ _]required|requires? (?:terms|acceptance)|model_terms_required",
        r"\b(?:do|does|don't|doesn't)(?: not)? have access to (?:the |this )?(?:project|model|organization|`|')",
        r"not (?:allowed|permitted|authorized|entitled|subscribed|enabled) (?:to|for) "
        r"(?:use|access|call|invoke|this|the) ?(?:the |this )?(?:model|api|operation|resource|feature)",
        r"access to (?:the |this )?model\b[^.]{0,30}\bdenied",
        r"use case details have not been|model access is denied|operation not allowed|unsupported_country"
        r"|\b1311\b"
        r"|not (?:available|supported) in your (?:country|region)|unpurchased|permission_blocked",
    ),
    _row(
        "bad_key",
        "xAI, Google, Qwen, Moonshot, MiniMax",
        r"(?:incorrect|invalid|expired|missing|unknown|revoked|no valid) (?:\w+ )?(?:api[ _-]?keys?|access token)\b",
        r"\b(?:api[ _-]?key|access token)[^.]{0,20}\b"
        r"(?:not valid|invalid|expired|revoked|disabled|not found|incorrect)",
        r"invalid_?api_?key",
    ),
    _row(
        "unknown_model",
        "Groq (`model_decommissioned`), Together, Fireworks, Qwen, DeepSeek (`Model Not Exist`)",
        r"\bmodel\b[^.]{0,80}\b(?:decommissioned|deprecated and|retired|no longer (?:available|supported)"
        r"|does not exist|doesn't exist|not exist|is not available|not found|unavailable for)",
        r"(?:unknown|no such|unsupported|invalid) model\b(?! (?:output|input|parameter|response))|model_decommissioned",
    ),
)
"""What ends a lane at once. Where a status says that a limit was reached, only the first two apply."""

_PERIOD = re.compile(
    r"(?:\bper|/|\bby|\beach|\bevery)[ _-]?(second|sec|s|minute|min|m|hour|h|day|week|month)\b"
    r"|\b(tp[smhd]|rp[smhd])\b|\bper[ _]?(second|minute|hour|day|week|month)|by(minute|hour|day|month)\b"
    r"|\bfor (?:the |this )?(today|day|week|month)\b|\b(24)[ -]?h(?:ours?|rs?)?\b"
    r"|\b(minute|hour|day|week|month)[ _-](?:allocated|usage|limit|quota)|\b(dai|week|month|hour|minute)ly\b"
    r"|\bper (86400) ?s|past \d+ (hour|day)s?|\d+ (?:\u5c0f)?(hour|day)s? limit"
)
"""The period that a limit is counted by; of several the first is the one that was reached."""
_LONG = ("d", "week", "month", "86400", "dai", "today", "24")
_REACHED = re.compile(r"limit|quota|exceed|exhaust|reached|too many|used up|throttl|allowance|usage")
_RATIO = re.compile(r"limit:? ?([\d,]+)[^\d]{1,20}requested:? ?([\d,]+)")


def row_of(code: str, message: str, *, limited: bool) -> Hopeless | None:
    """The row of a refusal, from its code and message in lower case; None: it may be cured, or is of another kind.
    `limited`: its status says that a limit was reached."""
    text = f"{code} {message}"
    if TOO_LARGE.pattern.search(text) or _asks_too_much(message):
        return TOO_LARGE
    counted_long = long_period(message)
    if limited:
        # Gemini sends the words of a used-up quota for its limits by the minute, too.
        curable = not counted_long and _SHORT.search(text) and "insufficient" not in text
        own = next((row for row in ROWS[:2] if row.pattern.search(text)), None)
        return own if own and not curable else _USED_UP if counted_long and _REACHED.search(text) else None
    row = next((row for row in ROWS if row.pattern.search(text)), None)
    return row or (_USED_UP if counted_long and "quota" in message and "exceed" in message else None)


_USED_UP = _row(
    "quota",
    "OpenAI, Groq, Moonshot (`tokens per day (TPD)`), OpenRouter (`free-models-per-day`), Bedrock, Cerebras, Cohere, "
    "z.ai, GitHub Models (`per 86400s`); smolagents #361, continue #10920, gajae-code #1821",
    "$^",
)
"""A limit that is counted by the day, the week or the month."""


def long_period(message: str) -> bool:
    """Whether the limit that a message names first is counted by the day or longer."""
    found = _PERIOD.search(message)
    if found is None:
        return False
    unit = next(filter(None, found.groups()))
    return unit.startswith(_LONG) or unit in ("tpd", "rpd") or (unit == "hour" and "past" in found[0])


_SHORT = re.compile(
    r"(?:retry|try again) (?:in|after) [\d.]+ ?(?:ms|s|seconds?|m|minutes?)\b|per[ _]?minute|\b[tr]pm\b"
)


def _asks_too_much(message: str) -> bool:
    found = _RATIO.search(message)
    if found is None or not _PERIOD.search(message):
        return False
    return int(found[2].replace(",", "") or 0) > int(found[1].replace(",", "") or 0)
