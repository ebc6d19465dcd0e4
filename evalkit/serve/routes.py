"""The paths of the simulated provider: a model in some dialect, the list of models, or the statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from evalkit.dialogue import Request
from evalkit.serve.dialects.served import ServedDialect, model_in, with_wait
from evalkit.serve.dialects.streamed import StreamWish
from evalkit.serve.dialects.table import SERVED_DIALECTS
from evalkit.serve.outcome import JSON, Arrival, RefusedRequest, ServedOutcome
from evalkit.wire.fields import object_text

STATS_PATH = "/stats"


@dataclass(frozen=True, slots=True)
class Route:
    """Who is asked in which dialect."""

    served: ServedDialect
    model: str
    """The model that the path names; empty if the body does."""
    wish: StreamWish | None = None
    """How the answer is streamed; None: it comes whole."""


def route_of(path: str) -> Route | None:
    """What a path asks for; None if it asks no model."""
    for served in SERVED_DIALECTS.values():
        for base in served.base_paths:
            if not path.startswith(f"{base}/"):
                continue
            model = served.model_of(path.removeprefix(base))
            if model is not None:
                return Route(served, model)
            if served.dialect.stream is not None and served.dialect.stream.path:
                # Where the path alone asks for a stream; on Vertex the body of Anthropic's format does too.
                model = model_in(served.dialect.stream.path.partition("?")[0], path.removeprefix(base))
                if model is not None:
                    return Route(served, model, StreamWish() if served.stream.path else None)
    return None


def failed(refusal: RefusedRequest, route: Route) -> ServedOutcome:
    """The refusal in the dialect's words, without headers of its own."""
    body = route.served.encode_error(refusal.status, refusal.code, refusal.message)
    return ServedOutcome(status=refusal.status, headers=JSON, body=with_wait(route.served, body, refusal.wait_s))


def check_key(route: Route, key: str, headers: Mapping[str, str]) -> None:
    """Raises RefusedRequest if a key is required and a wrong one, or none, was sent."""
    if key and not any(headers.get(name) == value for name, value in route.served.keys(key)):
        message = "Incorrect API key provided, or none: API key not valid."
        raise RefusedRequest(status=route.served.bad_key_status, code=route.served.bad_key_code, message=message)


def check_calls(request: Request) -> None:
    """Raises RefusedRequest, in the words of llama.cpp's server, if the arguments of an earlier call are no object."""
    texts = (call.arguments for message in request.messages for call in message.calls)
    if any(object_text(text) != text.encode() for text in texts):
        message = "Failed to parse tool call arguments as JSON"
        raise RefusedRequest(status=500, code="server_error", message=message)


def page(arrival: Arrival, models: Sequence[str], key: str, stats: bytes) -> ServedOutcome:
    """Whatever asks no model: the lists of models, the statistics, and mistakes."""
    path = arrival.path.rstrip("/")
    route = route_of(arrival.path)
    if route is not None:
        message = f"{arrival.path} takes POST only."
        return failed(RefusedRequest(status=405, code="method_not_allowed", message=message), route)
    if path == STATS_PATH and arrival.method in ("GET", "HEAD"):
        return ServedOutcome(status=200, headers=JSON, body=stats)
    lister = _lister(arrival)
    base = next(
        (base_path for base_path in lister.served.base_paths if f"{path}/".startswith(f"{base_path}/models/")), None
    )
    if base is not None and arrival.method in ("GET", "HEAD"):
        try:
            check_key(lister, key, arrival.headers)
            return _models(lister, path.removeprefix(f"{base}/models").lstrip("/"), models)
        except RefusedRequest as refusal:
            return failed(refusal, lister)
    served = SERVED_DIALECTS.values()
    paths = [served_dialect.base_path + served_dialect.dialect.path for served_dialect in served]
    known = ", ".join(
        (*paths, *sorted({f"{served_dialect.base_path}/models" for served_dialect in served}), STATS_PATH)
    )
    message = f"Unknown: {arrival.method} {arrival.path}. Known: {known}."
    return failed(RefusedRequest(status=404, code="unknown_url", message=message), lister)


def _lister(arrival: Arrival) -> Route:
    """Whose client asks for something other than a reply: its path or its headers tell."""
    name = "openai_chat"
    if arrival.path.startswith("/v1beta/") or "x-goog-api-key" in arrival.headers:
        name = "gemini"
    elif "anthropic-version" in arrival.headers or "x-api-key" in arrival.headers:
        name = "anthropic_messages"
    return Route(SERVED_DIALECTS[name], "")


def _models(route: Route, model: str, models: Sequence[str]) -> ServedOutcome:
    """All models, or the named one. Raises RefusedRequest if there is no such model."""
    if model and model not in models:
        raise unknown_model(model, models)
    value = route.served.model(model) if model else route.served.models(models)
    return ServedOutcome(status=200, headers=JSON, body=orjson.dumps(value))


def unknown_model(model: str, models: Sequence[str]) -> RefusedRequest:
    """The refusal of a model that is not served."""
    message = f"The model `{model}` does not exist. Served: {', '.join(models)}."
    return RefusedRequest(status=404, code="model_not_found", message=message)
