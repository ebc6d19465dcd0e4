"""A provider of the tests' own, in all four dialects: it bills whatever may be billed, and says of it what it likes.

It may sell tiers: then it serves a request by the one that was asked for or by the standard one, says which, or says
nothing, and has no room for some requests of the cheap one.

It shares no code with evalkit's simulated provider. What it bills is never above a request's own bound: a token of
input a byte of the body, `max_tokens` of output, every token at the dearest rate that it may have.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from tests.support.patience import PATIENCE_S

INPUT, OUTPUT, READ, WRITE, HOUR = 1_000_000, 4_000_000, 100_000, 1_250_000, 2_000_000
"""Pico-dollars a token; the last: one that is written to be kept for an hour."""
PROVIDER = """
dialect = "{dialect}"
url = "{url}"
timeout_s = 600
[usd_per_mtok]
input = "1"
output = "4"
cached_read = "0.1"
cached_write = "1.25"
source = "made up, 2026-11-21"
"""
TIERED = """
service_tiers = {{ standard = "{standard}", flex = "flex", priority = "priority" }}
"""
PRICED = """
[models."*"]
tiers = { flex = "0.5", priority = "2" }
"""
"""What its file says beside, above its tables and after them, where it sells tiers."""
TIMES = {"standard": 10, "flex": 5, "priority": 20}
"""What its tiers cost, in tenths of the standard one."""
WORDS: Mapping[str, Mapping[str, str]] = {
    "openai_chat": {"standard": "default"},
    "openai_responses": {"standard": "default"},
    "anthropic_messages": {"standard": "standard_only"},
    "gemini": {"standard": "STANDARD"},
}
"""By dialect: what requests call the standard tier."""
FULL = (("429", "no room now"), ("498", "capacity_exceeded"), ("503", "overloaded"))
BILLED = ("408", "500", "502", "504", "520", "524", "reset", "truncated", "timeout", "page", "empty", "half")
"""Failures that it bills, at their bound."""
FREE = ("429", "503", "529", "409")
"""Those that it does not."""
LOST = ("usage", "input", "output", "cached_read", "cached_write", "reasoning")
LOST_CACHES = ("hour", "brief", "unsaid")
"""What of a reply's usage it does not say, or says wrongly; and of how long it keeps what is cached."""
NONSENSE = ("absent", "null", "-7", '"12"', "true", "7.5", "1e999", "1" + "0" * 30, "[3]", "{}")
OUTPUT_LIMITS: Mapping[str, Callable[[Any], int]] = {
    "openai_chat": lambda body: body["max_tokens"],
    "openai_responses": lambda body: body["max_output_tokens"],
    "anthropic_messages": lambda body: body["max_tokens"],
    "gemini": lambda body: body["generationConfig"]["maxOutputTokens"],
}
Expire = Callable[[str], None]
TEXT = "I would rather not say."


class Foreign:
    """The provider; `answer` is its handler."""

    def __init__(
        self,
        dialect: str,
        outcomes: tuple[str, ...],
        share: float,
        expire: Expire = lambda request: None,
        *,
        tiers: bool = False,
        full: float = 0.0,
        other: float = 0.0,
        silent: float = 0.0,
    ) -> None:
        """`outcomes`: what befalls `share` of the requests, each as often as the others. `expire`: what ends the
        patience of whoever sent a request that is never answered. `tiers`: whether it sells some; then how often the
        cheap one is `full`, how often a request is served by another (`other`), and how often the reply is `silent`
        about its tier."""
        self.dialect, self.outcomes, self.share, self.expire = dialect, outcomes, share, expire
        self.tiers, self.full, self.other, self.silent = tiers, full, other, silent
        self.asked, self.served = Counter[str](), Counter[str]()
        self.lasting = 0
        """Requests that asked for a prompt cache that lasts longer."""
        self.standard = 0
        """What its replies would have cost by the standard tier alone, in pico-dollars."""
        self.bill = 0
        """Pico-dollars."""
        self.met = Counter[str]()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        draw = random.Random(request.headers["X-Client-Request-Id"])
        outcome = draw.choice(self.outcomes) if draw.random() < self.share else ""
        tier, named = "standard", None
        if self.tiers:
            tier, named = self._tier_of(json.loads(raw), draw)
        if tier == "full":
            self.met[tier] += 1
            status, words = draw.choice(FULL)
            return web.Response(status=int(status), body=json.dumps({"error": {"message": words}}).encode())
        self.met[outcome] += 1
        self.times = TIMES[tier]
        self.hour = b'"cache_control":{"type":"ephemeral","ttl":"1h"}' in raw
        self.lasting += self.hour or json.loads(raw).get("prompt_cache_retention") == "24h"
        most_in, most_out = len(raw), OUTPUT_LIMITS[self.dialect](json.loads(raw))
        if outcome in LOST + LOST_CACHES or not outcome:
            self.served[tier] += 1
            self.named = named
            return web.Response(body=self._reply(draw, outcome, most_in, most_out), content_type="application/json")
        if outcome in BILLED:
            dearest = INPUT if self.dialect == "gemini" else HOUR if self.hour else WRITE
            most = most_in * dearest + most_out * OUTPUT
            self.bill += most * self.times // 10
        return await self._fail(request, draw, outcome)

    def _tier_of(self, body: Any, draw: random.Random) -> tuple[str, str | None]:
        """(the tier that serves a request, or `full`; what the reply calls it). Raises KeyError if it asks for none."""
        word = body["serviceTier" if self.dialect == "gemini" else "service_tier"]
        own = {said: tier for tier, said in WORDS[self.dialect].items()}
        asked = own.get(word, word)
        self.asked[asked] += 1
        if asked == "flex" and draw.random() < self.full:
            return "full", None
        tier = "standard" if draw.random() < self.other else asked
        said = {"anthropic_messages": "standard"}.get(self.dialect, WORDS[self.dialect]["standard"])
        return tier, None if draw.random() < self.silent else said if tier == "standard" else tier

    async def _fail(self, request: web.Request, draw: random.Random, outcome: str) -> web.StreamResponse:
        if outcome.isdigit():
            return web.Response(status=int(outcome), body=b'{"error":{"message":"no"}}', headers={"retry-after": "0"})
        if outcome == "page":
            return web.Response(body=b"<html><title>Sign in</title></html>", content_type="text/html")
        if outcome in ("empty", "half"):
            return web.Response(body=b"" if outcome == "empty" else b'{"choices":[{"mess')
        if outcome == "timeout":
            self.expire(request.headers["X-Client-Request-Id"])
            await asyncio.sleep(PATIENCE_S)
        assert request.transport is not None
        if outcome == "truncated":
            response = web.StreamResponse(headers={"Content-Length": "4000"})
            await response.prepare(request)
            await response.write(b'{"choices":[')
        request.transport.close()
        return web.Response()

    def _reply(self, draw: random.Random, lost: str, most_in: int, most_out: int) -> bytes:
        """A reply that is billed by its true tokens, with what is `lost` of them in its usage."""
        greedy = draw.random() < 0.5  # half the time all that its bound allows
        tokens = most_in if greedy and lost in ("input", "usage") else draw.randint(1, most_in)
        written = most_out if greedy and lost in ("output", "usage") else draw.randint(1, most_out)
        read = draw.randint(0, tokens)
        kept = 0 if self.dialect == "gemini" else tokens - read if greedy else draw.randint(0, tokens - read)
        plain = tokens - read - kept
        brief = kept if not self.hour else draw.choice((0, 0, kept, draw.randint(0, kept)))
        if lost in ("usage", "hour", "unsaid"):
            brief = 0 if self.hour else kept  # what it does not say is the dearest
        listed = plain * INPUT + read * READ + brief * WRITE + (kept - brief) * HOUR + written * OUTPUT
        self.bill += listed * self.times // 10
        self.standard += listed
        thought = draw.randint(0, written)
        figures = {"input": tokens, "output": written, "cached_read": read, "cached_write": kept, "reasoning": thought}
        if self.dialect == "anthropic_messages":
            figures["input"] = plain
            if self.hour and lost != "unsaid":
                figures |= {"brief": brief, "hour": kept - brief}
        if self.dialect == "gemini":
            figures["output"] = written - thought
        said: dict[str, Any] = {name: str(count) for name, count in figures.items()}
        # No input at all, and no output beside a text, cannot be; where a figure is a part of several, 0 can.
        impossible = {"openai_chat": ("input", "output"), "openai_responses": ("input", "output"), "gemini": ("input",)}
        zero = lost in impossible.get(self.dialect, ("output",))
        nonsense = draw.choice((*NONSENSE, "0") if zero else NONSENSE)
        if lost in said:
            said[lost] = nonsense
        usage = self._usage(said, total=tokens + written, with_total=draw.random() < 0.5)
        if lost == "usage":
            usage = draw.choice(["null", "[]", '"much"', "{}", "7"])
        body = BODIES[self.dialect].replace("TEXT", json.dumps(TEXT))
        if self.named is not None and usage.startswith("{"):
            field = "serviceTier" if self.dialect == "gemini" else "service_tier"
            stated = f'"{field}":"{self.named}"'
            if self.dialect in ("gemini", "anthropic_messages"):
                usage = "{" + stated + ("," if usage != "{}" else "") + usage[1:]
            else:
                body = "{" + stated + "," + body[1:]
        return body.replace("USAGE", usage).encode()

    def _usage(self, said: Mapping[str, str], *, total: int, with_total: bool) -> str:
        names = NAMES[self.dialect]
        groups: dict[str, list[str]] = {}
        for figure, text in said.items():
            if figure in names and text != "absent":
                group, _, name = names[figure].rpartition(".")
                groups.setdefault(group, []).append(f'"{name}":{text}')
        parts = [*groups.pop("", []), *(f'"{group}":{{{",".join(own)}}}' for group, own in groups.items())]
        if self.dialect == "gemini" and with_total:
            parts.append(f'"totalTokenCount":{total}')
        return "{" + ",".join(parts) + "}"


NAMES: Mapping[str, Mapping[str, str]] = {
    "openai_chat": {
        "input": "prompt_tokens",
        "output": "completion_tokens",
        "cached_read": "prompt_tokens_details.cached_tokens",
        "cached_write": "prompt_tokens_details.cache_write_tokens",
        "reasoning": "completion_tokens_details.reasoning_tokens",
    },
    "openai_responses": {
        "input": "input_tokens",
        "output": "output_tokens",
        "cached_read": "input_tokens_details.cached_tokens",
        "cached_write": "input_tokens_details.cache_write_tokens",
        "reasoning": "output_tokens_details.reasoning_tokens",
    },
    "anthropic_messages": {
        "input": "input_tokens",
        "output": "output_tokens",
        "cached_read": "cache_read_input_tokens",
        "cached_write": "cache_creation_input_tokens",
        "brief": "cache_creation.ephemeral_5m_input_tokens",
        "hour": "cache_creation.ephemeral_1h_input_tokens",
        "reasoning": "output_tokens_details.thinking_tokens",
    },
    "gemini": {
        "input": "promptTokenCount",
        "output": "candidatesTokenCount",
        "cached_read": "cachedContentTokenCount",
        "reasoning": "thoughtsTokenCount",
    },
}
BODIES: Mapping[str, str] = {
    "openai_chat": '{"choices":[{"message":{"role":"assistant","content":TEXT},"finish_reason":"stop"}],"usage":USAGE}',
    "openai_responses": (
        '{"status":"completed","output":[{"type":"message","role":"assistant","content":'
        '[{"type":"output_text","text":TEXT}]}],"usage":USAGE}'
    ),
    "anthropic_messages": (
        '{"type":"message","content":[{"type":"text","text":TEXT}],"stop_reason":"end_turn","usage":USAGE}'
    ),
    "gemini": '{"candidates":[{"content":{"parts":[{"text":TEXT}]},"finishReason":"STOP"}],"usageMetadata":USAGE}',
}
