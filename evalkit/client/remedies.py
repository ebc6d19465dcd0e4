"""What a user can do about each kind of failure that a verdict names."""

from collections.abc import Mapping

from evalkit.wire.http import Verdict

_REMEDIES: Mapping[str, str] = {
    "bad_key": "Check the key in {key}.",
    "unknown_model": "Check the model name {model!r} and the url of provider {provider!r}.",
    "no_credit": "The account of provider {provider!r} has no credit left; top it up and run again.",
    "quota": "The quota of provider {provider!r} is used up for today; run again once it is renewed, or raise it.",
    "tls": "The certificate of provider {provider!r} was not accepted; check its url and this machine's CA settings.",
    "proxy": "Check the environment's proxy and its credentials (https_proxy, http_proxy).",
    "redirect": "Correct the url of provider {provider!r}.",
    "not_supported": "Check the url and the dialect of provider {provider!r}.",
    "connect": "Check the url of provider {provider!r}, and this machine's network and proxy.",
    "unreadable": "Check the url and the dialect of provider {provider!r}, and any proxy or gateway on the way.",
    "bad_request": "Check `max_tokens_field` and `refuses` of {model!r} in the file of provider {provider!r}.",
    "rate_limit": "It works, but it is busy or a limit is reached: try again later.",
    "overload": "Try again later.",
    "server_error": "Try again later.",
}


def with_remedy(verdict: Verdict, *, provider: str, model: str, key: str) -> str:
    """What went wrong, and what to do about it, in sentences. `key`: where the key comes from."""
    remedy = _REMEDIES.get(verdict.kind, "").format(key=key, model=model, provider=provider)
    return f"{(verdict.message or verdict.kind).rstrip('.')}. {remedy}".rstrip()
