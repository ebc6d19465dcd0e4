"""Credentials of three clouds by their own SDKs, each in an extra of its own: botocore, google-auth, azure-identity.

The SDK finds them as its documentation says: variables, its configuration files, the login of its command-line tool,
the machine's own identity. Requests to AWS are signed one by one (Signature Version 4, by botocore); the others carry
a token. The SDKs are loaded only here, and block, so they work in a thread.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html,
https://cloud.google.com/docs/authentication/application-default-credentials,
https://learn.microsoft.com/azure/foundry/openai/how-to/managed-identity.
"""

import asyncio
import importlib.util
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

from evalkit.client.credentials import Fetch, Grant, key_grant
from evalkit.errors import UsageError

LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "aws": ("botocore",),
    "google": ("google.auth", "requests"),
    "azure": ("azure.identity",),
}
"""What each chain imports; the extra of evalkit has the chain's name."""

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_REGION = re.compile(r"\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.")
_SHOWN_CHARS = 300


def missing_library(cloud: str) -> str:
    """The line that installs a cloud's SDK; empty if it is installed."""
    return "" if all(map(_is_there, LIBRARIES[cloud])) else f"pip install 'evalkit-econ[{cloud}]'"


def _is_there(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # not even the package that it is part of
        return False


def from_cloud(cloud: str, url: str) -> Fetch:
    """Credentials of a cloud. `url`: the provider's, which names AWS's region. Raises UsageError if the SDK is not
    installed."""
    install = missing_library(cloud)
    if install:
        raise UsageError(f'credentials = "{cloud}" needs its SDK: `{install}`.')
    find: Mapping[str, Callable[[], Grant]] = {"aws": lambda: _aws(url), "google": _google, "azure": _azure}

    async def fetch() -> Grant:
        return await asyncio.to_thread(find[cloud])

    return fetch


def _aws(url: str) -> Grant:
    import botocore.session
    from botocore.exceptions import BotoCoreError, ClientError

    logging.getLogger("botocore").setLevel(logging.INFO)  # below that it writes down what it signs, with the token
    try:
        session = botocore.session.Session()
        found = session.get_credentials()
        if found is None:
            raise UsageError(
                "AWS's chain found no credentials. Log in (`aws sso login`), choose a profile (AWS_PROFILE), or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        frozen = found.get_frozen_credentials()
        region = _region(url) or session.get_config_variable("region")
    except (BotoCoreError, ClientError, OSError) as flaw:
        raise _failed("aws", flaw) from None
    if not region:
        raise UsageError("AWS's region is unknown: set AWS_REGION.")
    service = "bedrock-mantle" if "bedrock-mantle" in (urlsplit(url).hostname or "") else "bedrock"
    expires = getattr(found, "refresh_needed", None)
    return Grant(
        headers=signer(frozen, region=region, service=service),
        secrets=tuple(filter(None, (frozen.access_key, frozen.secret_key, frozen.token))),
        due=expires or _never,
        over=_never if expires is None else lambda: expires(0),
    )


def _never() -> bool:
    return False


def signer(credentials: Any, *, region: str, service: str) -> Callable[[str, Mapping[str, str], bytes], dict[str, str]]:
    """Signs requests with AWS's credentials, as botocore's own clients do: the given headers, the host and the body."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    auth = SigV4Auth(credentials, service, region)

    def sign(url: str, given: Mapping[str, str], body: bytes) -> dict[str, str]:
        request = AWSRequest(method="POST", url=url, headers=dict(given), data=body)
        auth.add_auth(request)
        return {name: value for name, value in request.headers.items() if name not in given}

    return sign


def _region(url: str) -> str:
    named = _REGION.search(urlsplit(url).hostname or "")
    return named[1] if named else os.environ.get("AWS_REGION", "").strip()


def _google() -> Grant:
    import google.auth
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    try:
        found, _project = google.auth.default(scopes=[_GOOGLE_SCOPE])
        found.refresh(Request())
    except (GoogleAuthError, OSError) as flaw:
        raise _failed("google", flaw) from None
    headers = {"Authorization": f"Bearer {found.token}"}
    if getattr(found, "quota_project_id", None):
        headers["x-goog-user-project"] = found.quota_project_id
    expiry = found.expiry  # in UTC, without saying so
    return key_grant(found.token, headers, math.inf if expiry is None else expiry.replace(tzinfo=UTC).timestamp())


def _azure() -> Grant:
    from azure.core.exceptions import AzureError
    from azure.identity import DefaultAzureCredential

    try:
        with DefaultAzureCredential() as found:
            token = found.get_token(_AZURE_SCOPE)
    except (AzureError, OSError, ValueError) as flaw:
        raise _failed("azure", flaw) from None
    return key_grant(token.token, {"Authorization": f"Bearer {token.token}"}, float(token.expires_on))


def _failed(cloud: str, flaw: Exception) -> UsageError:
    words = " ".join(str(flaw).split())[:_SHOWN_CHARS]
    return UsageError(f"{cloud}'s SDK gave no credentials: {type(flaw).__name__}: {words}")
