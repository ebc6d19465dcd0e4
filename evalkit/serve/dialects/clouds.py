"""Formats as clouds serve them: `wire/clouds.py` in the direction that a server speaks.

The key is a bearer token. AWS's signatures are not checked here: with them, no key may be required.
"""

from dataclasses import replace
from functools import partial

from evalkit.serve.dialects.anthropic_messages import FIELDS, SERVED_ANTHROPIC_MESSAGES, decode_request
from evalkit.serve.dialects.gemini import SERVED_GEMINI
from evalkit.serve.dialects.served import bearer
from evalkit.wire.clouds import ANTHROPIC_BEDROCK, ANTHROPIC_VERTEX, BEDROCK_VERSION, GEMINI_VERTEX, VERTEX_VERSION
from evalkit.wire.lenient import dumps_any

PROJECT = "/projects/simulated/locations/global/publishers"
"""Of the simulated Vertex."""
_VERTEX_FIELDS = FIELDS - {"model"} | {"anthropic_version"}

SERVED_ANTHROPIC_BEDROCK = replace(
    SERVED_ANTHROPIC_MESSAGES,
    dialect=ANTHROPIC_BEDROCK,
    decode_request=partial(decode_request, version=BEDROCK_VERSION, fields=_VERTEX_FIELDS - {"stream"}),
    encode_error=lambda _status, _code, message: dumps_any({"message": message}),
    base_path="",
    other_paths=("/v1",),
    id_header="x-amzn-requestid",
    limit_headers=lambda _standings, _wall_s: {},
    keys=lambda key: [bearer(key)],
    objection=lambda _headers, _request: "",
    bad_key_status=403,
)
SERVED_ANTHROPIC_VERTEX = replace(
    SERVED_ANTHROPIC_MESSAGES,
    dialect=ANTHROPIC_VERTEX,
    decode_request=partial(decode_request, version=VERTEX_VERSION, fields=_VERTEX_FIELDS),
    base_path=f"/v1{PROJECT}/anthropic",
    sdk_path="/v1",
    other_paths=("/v1",),
    limit_headers=lambda _standings, _wall_s: {},
    keys=lambda key: [bearer(key)],
    objection=lambda _headers, _request: "",
)
SERVED_GEMINI_VERTEX = replace(
    SERVED_GEMINI,
    dialect=GEMINI_VERTEX,
    base_path=f"/v1{PROJECT}/google",
    # The version that its SDK calls if it is not told otherwise. At `/v1`, where a run finds what it starts itself,
    # these requests are taken for Gemini's own: they are the same but for the key's header.
    other_paths=(f"/v1beta1{PROJECT}/google",),
    keys=lambda key: [bearer(key)],
    bad_key_status=401,
    bad_key_code="access_token_expired",
)
