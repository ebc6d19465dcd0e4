"""The clouds' own SDKs: what their chains find, and AWS's signatures against botocore's client and against a server
that computes them itself."""

import asyncio
import hashlib
import hmac
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from evalkit.client import clouds
from evalkit.client.open import endpoint_of, open_transport
from evalkit.errors import UsageError
from evalkit.redact import KEYS
from evalkit.spec.model import Provider
from evalkit.wire.http import HttpResponse
from tests.sdks.holding import WHY

pytest.importorskip("botocore", reason=WHY)
pytest.importorskip("google.auth", reason=WHY)
pytest.importorskip("azure.identity", reason=WHY)
import botocore.auth
import botocore.awsrequest
import botocore.session

ACCESS, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token-0123456789"
MODEL = "global.anthropic.claude-haiku-4-5-20251001-v1:0"
BODY = json.dumps(
    {"anthropic_version": "bedrock-2023-05-31", "messages": [{"role": "user", "content": "é\n"}]}
).encode()
BEDROCK = Provider(name="bedrock", dialect="anthropic_bedrock", credentials="aws")


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine."""
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("no_proxy", "*")


def given_keys(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("region", ["us-east-1", "ap-southeast-2"])
def test_a_signature_is_the_one_of_botocores_own_client(
    monkeypatch: pytest.MonkeyPatch, token: str, region: str
) -> None:
    given_keys(monkeypatch, token)
    moment = datetime(2026, 11, 23, 1, 2, 3, tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: moment)
    seen: list[Any] = []

    def send(request: Any, **_: Any) -> Any:
        seen.append(request)
        return botocore.awsrequest.AWSResponse(request.url, 200, {}, None)

    client = botocore.session.Session().create_client("bedrock-runtime", region_name=region)
    client.meta.events.register("before-send.bedrock-runtime.InvokeModel", send)
    client.meta.events.register("before-parse.*", lambda **_: None)
    with suppress(AttributeError):  # the answer that was made up has no body
        client.invoke_model(modelId=MODEL, body=BODY, contentType="application/json", accept="application/json")
    (theirs,) = seen
    text = {name: value.decode() if isinstance(value, bytes) else value for name, value in theirs.headers.items()}
    signed = text["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    ours_too = {"host", "x-amz-date", "x-amz-security-token"}
    given = {name: value for name, value in text.items() if name.lower() in signed and name.lower() not in ours_too}
    grant = clouds._aws(f"https://bedrock-runtime.{region}.amazonaws.com")
    url = f"https://bedrock-runtime.{region}.amazonaws.com/model/{quote(MODEL, safe='')}/invoke"
    assert url == theirs.url
    ours = grant.headers(url, given, BODY)
    assert ours["Authorization"] == text["Authorization"]
    assert {name: text[name] for name in ours} == ours
    assert ("X-Amz-Security-Token" in ours) == bool(token)
    assert not grant.due()


def expected_signature(request: web.Request, body: bytes, secret: str) -> str:
    """The Authorization header that AWS's documentation asks for, from what arrived."""
    scope, names = (
        request.headers["Authorization"].split(f"{mark}=")[1].split(",")[0] for mark in ("Credential", "SignedHeaders")
    )
    access, day, region, service, end = scope.split("/")
    lines = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names.split(";"))
    path = quote(request.raw_path, safe="/-_.~")
    whole = "\n".join(["POST", path, "", lines, names, hashlib.sha256(body).hexdigest()])
    moment, area = request.headers["X-Amz-Date"], f"{day}/{region}/{service}/{end}"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, area, hashlib.sha256(whole.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, end):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"AWS4-HMAC-SHA256 Credential={access}/{area}, SignedHeaders={names}, Signature={signature}"


Answer = Callable[[web.Request, bytes], Mapping[str, Any] | int]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A server that answers with JSON, or with a status."""

    async def handler(request: Any) -> web.Response:
        value = answer(request, await request.read())
        if isinstance(value, int):
            return web.json_response({"message": "The security token included in the request is expired"}, status=value)
        return web.json_response(value)

    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("token", ["", TOKEN])
def test_a_server_that_computes_signatures_itself_accepts_ours_and_no_other(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    given_keys(monkeypatch, token)
    seen: Counter[bool] = Counter()

    def answer(request: web.Request, body: bytes) -> Mapping[str, Any] | int:
        assert request.raw_path == f"/model/{quote(MODEL, safe='')}/invoke"
        assert request.headers.get("X-Amz-Security-Token", "") == token
        names = request.headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        assert {"accept", "content-type", "host", "x-amz-date"} <= {*names}
        good = request.headers["Authorization"] == expected_signature(request, body, SECRET)
        assert request.headers["Authorization"] != expected_signature(request, body + b" ", SECRET)
        seen[good] += 1
        return {} if good else 403

    async def main() -> list[HttpResponse]:
        async with serving(answer) as url, open_transport(BEDROCK, url=url) as transport:
            endpoint = endpoint_of(transport, BEDROCK, MODEL)
            return [await endpoint.send(body, "e/0/0") for body in (BODY, b"{}", b"x" * 2**19)]

    assert [response.status for response in asyncio.run(main())] == [200] * 3
    assert seen == {True: 3}


def test_aws_credentials_that_expire_are_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By botocore's chain: a profile whose credentials come from a process of the user's own."""
    script, count = tmp_path / "issue.py", tmp_path / "count"
    script.write_text(
        "import json, pathlib, sys\n"
        f"path = pathlib.Path({str(count)!r})\n"
        "number = int(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text(str(number))\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId='AKID%d' % number, SecretAccessKey={SECRET!r},\n"
        "    SessionToken='token-of-the-night-%d' % number, Expiration='2099-01-01T00:00:00Z')))\n"
    )
    (tmp_path / "config").write_text(f"[profile night]\ncredential_process = {sys.executable} {script}\n")
    monkeypatch.setenv("AWS_PROFILE", "night")
    valid = 1
    tokens: list[str] = []

    def answer(request: web.Request, body: bytes) -> Mapping[str, Any] | int:
        tokens.append(request.headers["X-Amz-Security-Token"])
        good = request.headers["Authorization"] == expected_signature(request, body, SECRET)
        return {} if good and tokens[-1] == f"token-of-the-night-{valid}" else 403

    async def main() -> list[tuple[int, int]]:
        nonlocal valid
        async with serving(answer) as url, open_transport(BEDROCK, url=url) as transport:
            endpoint = endpoint_of(transport, BEDROCK, MODEL)
            found = []
            for newest in (1, 2, 2, 2):
                valid = newest
                response = await endpoint.send(BODY, "e/0/0")
                found.append((response.status, response.credentials))
                assert "token-of-the-night" not in KEYS.text(" ".join(tokens))
            return found

    assert asyncio.run(main()) == [(200, 1), (403, 1), (200, 2), (200, 2)]


def test_google_finds_a_service_account_and_azure_a_managed_identity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    asked: list[str] = []

    def answer(request: web.Request, body: bytes) -> Mapping[str, Any]:
        asked.append(f"{request.path_qs} {body.decode()}")
        whose = "google" if request.path == "/token" else "azure"
        expires = {"expires_in": 3600} if whose == "google" else {"expires_on": str(int(time.time()) + 3600)}
        return {"access_token": f"token-of-{whose}-0123456789", "token_type": "Bearer", "resource": "r", **expires}

    async def main() -> dict[str, tuple[Mapping[str, str], bool]]:
        async with serving(answer) as url:
            account = {"type": "service_account", "client_email": "a@b.example", "token_uri": f"{url}/token"}
            path = tmp_path / "account.json"
            path.write_text(json.dumps({**account, "private_key": key.decode(), "project_id": "p"}))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
            monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/identity")
            monkeypatch.setenv("IDENTITY_HEADER", "header")
            found = {}
            for cloud in ("google", "azure"):
                grant = await clouds.from_cloud(cloud, "https://x.example")()
                found[cloud] = grant.headers("", {}, b""), grant.due()
            return found

    found = asyncio.run(main())
    for cloud in ("google", "azure"):
        assert found[cloud] == ({"Authorization": f"Bearer token-of-{cloud}-0123456789"}, False)
    assert any("resource=https://cognitiveservices.azure.com" in one for one in asked), asked


def test_a_chain_that_finds_nothing_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"found no credentials. Log in \(`aws sso login`\)"):
        clouds._aws("https://bedrock-runtime.us-east-1.amazonaws.com")
