"""What the real provider of each dialect does beyond its wire format: base path, ids, headers of limits, models.

Sources: OpenAI's `x-ratelimit-*` spans, Anthropic's `anthropic-ratelimit-*` with moments as RFC 3339 has them, Google's
`google.rpc.RetryInfo` among an error's details (it sends no headers of limits). OpenAI and Anthropic ask to wait in
`retry-after`; the first also in milliseconds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

import orjson

from evalkit.dialogue import Request
from evalkit.serve.limits import Standing, show_span

CREATED_S = 1_700_000_000
"""The moment, in Unix time, at which every model claims to have been made, and a provider without a clock to start."""

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """One provider's ways."""

    base_path: str
    """Before the dialect's path."""
    sdk_path: str
    """What the base URL that its official SDK wants ends in."""
    other_paths: tuple[str, ...] = ()
    """Further base paths at which its requests are taken."""
    id_header: str = ""
    """The header that names a request; empty: none does."""
    reply_id: Callable[[str], str]
    """Hexadecimal digits, at least 48 -> a reply's id."""
    limit_headers: Callable[[Mapping[str, Standing], float], dict[str, str]]
    """(where the limits stand, by kind; now in Unix time) -> headers."""
    wait_in_body: bool = False
    """Whether the wait that a refusal asks for stands in its body and not in a header."""
    keys: Callable[[str], Sequence[tuple[str, str]]]
    """A key -> the headers (name in lower case, value) of which any one carries it."""
    objection: Callable[[Mapping[str, str], Request], str] = lambda _headers, _request: ""
    """(headers, request) -> what is wrong with them together, as an error's message; empty: nothing."""
    bad_key_status: int = 401
    bad_key_code: str = "invalid_api_key"
    models: Callable[[Sequence[str]], object]
    """The list of models, as a JSON value."""
    model: Callable[[str], object]
    """One model of that list."""


def retry_headers(manner: Manner, wait_s: float | None, form: str, wall_s: float) -> dict[str, str]:
    """The headers that ask to wait; `form` is `seconds` or `date`, `wall_s` now in Unix time.

    Whole seconds are rounded up, and so is a date beside the response's own, so that nobody comes too early.
    """
    if wait_s is None or manner.wait_in_body:
        return {}
    if form == "date":
        return {"retry-after": _http_date(math.ceil(wall_s + wait_s)), "date": _http_date(math.floor(wall_s))}
    return {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}


def with_wait(manner: Manner, body: bytes, wait_s: float | None) -> bytes:
    """An error's body with the wait in it, where the provider says it there."""
    if wait_s is None or not manner.wait_in_body:
        return body
    value = orjson.loads(body)
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(wait_s * 1000) / 1000:g}s"}
    value["error"]["details"] = [*value["error"].get("details", []), retry]
    return orjson.dumps(value)


def _http_date(unix_s: float) -> str:
    return format_datetime(datetime.fromtimestamp(unix_s, UTC), usegmt=True)


def _openai_limits(standings: Mapping[str, Standing], _wall_s: float) -> dict[str, str]:
    found: dict[str, str] = {}
    for kind in ("requests", "tokens"):
        if kind in standings:
            one = standings[kind]
            found[f"x-ratelimit-limit-{kind}"] = str(one.limit)
            found[f"x-ratelimit-remaining-{kind}"] = str(one.remaining)
            found[f"x-ratelimit-reset-{kind}"] = show_span(one.full_in_s)
    return found


def _anthropic_limits(standings: Mapping[str, Standing], wall_s: float) -> dict[str, str]:
    """Moments are rounded up to whole seconds, beside a date that is rounded down.

    Where input and output are limited apart, `tokens` stands for both together, as at the real provider.
    """
    if not standings:
        return {}
    known = dict(standings)
    if "tokens" not in known and {"input_tokens", "output_tokens"} <= known.keys():
        both = (known["input_tokens"], known["output_tokens"])
        known["tokens"] = Standing(
            limit=sum(one.limit for one in both),
            remaining=sum(one.remaining for one in both),
            full_in_s=max(one.full_in_s for one in both),
        )
    found = {"date": _http_date(math.floor(wall_s))}
    for kind, one in known.items():
        start = f"anthropic-ratelimit-{kind.replace('_', '-')}"
        found[f"{start}-limit"] = str(one.limit)
        found[f"{start}-remaining"] = str(one.remaining)
        full = datetime.fromtimestamp(math.ceil(wall_s + one.full_in_s), UTC)
        found[f"{start}-reset"] = full.strftime(_MOMENT)
    return found


_VERSIONS = ("2023-06-01", "2026-10-21")


def _anthropic_objection(headers: Mapping[str, str], request: Request) -> str:
    """Every request names a version of the API, and the newest has no sampling fields any more."""
    version, sampling = headers.get("anthropic-version", ""), request.sampling
    if version not in _VERSIONS:
        return f"anthropic-version: is required: one of {', '.join(_VERSIONS)}"
    if version == _VERSIONS[-1] and (sampling.temperature is not None or sampling.top_p is not None):
        return f"temperature, top_p: are not supported in version {version}"
    return ""


def _bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


def _openai_model(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED_S, "owned_by": "evalkit"}


def _openai_models(models: Sequence[str]) -> object:
    return {"object": "list", "data": [_openai_model(model) for model in models]}


def _anthropic_model(model: str) -> dict[str, object]:
    created = datetime.fromtimestamp(CREATED_S, UTC).strftime(_MOMENT)
    return {"type": "model", "id": model, "display_name": model, "created_at": created, "lifecycle": "active"}


def _anthropic_models(models: Sequence[str]) -> object:
    cards = [_anthropic_model(model) for model in models]
    return {"data": cards, "has_more": False, "first_id": models[0], "last_id": models[-1]}


def _gemini_model(model: str) -> dict[str, object]:
    return {"name": f"models/{model}", "displayName": model, "supportedGenerationMethods": ["generateContent"]}


def _openai(prefix: str, digits: int) -> Manner:
    return Manner(
        base_path="/v1",
        sdk_path="/v1",
        id_header="x-request-id",
        reply_id=lambda name: f"{prefix}{name[:digits]}",
        limit_headers=_openai_limits,
        keys=lambda key: [_bearer(key)],
        models=_openai_models,
        model=_openai_model,
    )


MANNERS: Mapping[str, Manner] = {
    "openai_chat": _openai("chatcmpl-", 24),
    "openai_responses": _openai("resp_", 48),
    "anthropic_messages": Manner(
        base_path="/v1",
        sdk_path="",
        id_header="request-id",
        reply_id=lambda name: f"msg_01{name[:22]}",
        limit_headers=_anthropic_limits,
        # Its SDK sends the second since version 2.
        keys=lambda key: [("x-api-key", key), _bearer(key)],
        objection=_anthropic_objection,
        models=_anthropic_models,
        model=_anthropic_model,
    ),
    "gemini": Manner(
        base_path="/v1beta",
        sdk_path="",
        # The stable version of the API: the same requests.
        other_paths=("/v1",),
        reply_id=lambda name: name[:22],
        limit_headers=lambda _standings, _wall_s: {},
        wait_in_body=True,
        keys=lambda key: [("x-goog-api-key", key)],
        bad_key_status=400,
        bad_key_code="api_key_invalid",
        models=lambda models: {"models": [_gemini_model(model) for model in models]},
        model=_gemini_model,
    ),
}
"""By dialect."""


def base_urls(host: str, dialects: Sequence[str]) -> list[str]:
    """A line a dialect: its base URL, and the one for its official SDK where that is another. `host`: `http://...`."""
    width = max(map(len, dialects))
    lines = []
    for name in dialects:
        manner = MANNERS[name]
        own, theirs = host + manner.base_path, host + manner.sdk_path
        lines.append(f"{name:<{width}}  {own}" + ("" if own == theirs else f"  (its official SDK: {theirs})"))
    return lines
