"""Object stores of three clouds, by obstore: which one a name means, with whose credentials, and what errors mean.

Credentials are those of the environment, of the machine or of a web identity, which obstore finds by itself; profiles
of `~/.aws` are read by boto3 where it is installed. Nothing of them is logged or stored.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.errors import StorageError, StoreAway, UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az")

ANSWER_S = 30
"""How long one request may take. obstore tries three times within as long; what must last is tried again after that."""
_TRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=ANSWER_S)}
_REFUSED = re.compile(r"status code: 40[13]\b")
"""How obstore tells of a refusal where it has no class for it, as in a listing."""
_NEEDS = "Runs in buckets need obstore: pip install 'evalkit-econ[cloud]'."


@cache
def store_of(scheme: str, bucket: str) -> "ObjectStore":
    """The store of a bucket; one for the whole process. Raises UsageError if it cannot be used at all."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError as flaw:
        raise UsageError(f"{scheme}://{bucket}: {_NEEDS}") from flaw
    options: dict[str, Any] = {"timeout": timedelta(seconds=ANSWER_S), "connect_timeout": timedelta(seconds=5)}
    settings: dict[str, Any] = {"retry_config": _TRIES, "client_options": options}
    try:
        if scheme == "gs":
            options["allow_http"] = os.environ.get("GOOGLE_BASE_URL", "").startswith("http://")
            return GCSStore(bucket, **settings)
        if scheme == "az":
            return AzureStore(container_name=bucket, **settings)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            settings["endpoint"] = endpoint
            options["allow_http"] = endpoint.startswith("http://")
        return S3Store(bucket, **settings, **_profile())
    except (BaseError, ValueError) as flaw:
        raise UsageError(f"{scheme}://{bucket}: {_words(flaw)}") from flaw


def _profile() -> dict[str, Any]:
    """What boto3 is needed for: a profile of `~/.aws`, where nothing else names credentials."""
    named = os.environ.get("AWS_PROFILE")
    if not named and ("AWS_ACCESS_KEY_ID" in os.environ or not (Path.home() / ".aws").is_dir()):
        return {}
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as flaw:
        if not named:
            return {}
        raise UsageError(
            f"AWS_PROFILE names {named!r}, and profiles are read by boto3: pip install boto3. Or set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY."
        ) from flaw
    session = boto3.session.Session()
    return {"credential_provider": Boto3CredentialProvider(session)} if session.get_credentials() else {}


@contextmanager
def told(where: object) -> Iterator[None]:
    """Turn what obstore raises into FileNotFoundError, FileExistsError, StoreAway, or a StorageError that says what to
    do."""
    from obstore import exceptions as errors

    try:
        yield
    except FileNotFoundError as flaw:
        raise FileNotFoundError(str(where)) from flaw
    except errors.AlreadyExistsError as flaw:
        raise FileExistsError(str(where)) from flaw
    except (errors.PermissionDeniedError, errors.UnauthenticatedError) as flaw:
        raise _refusal(where, flaw) from flaw
    except (errors.NotSupportedError, errors.InvalidPathError, errors.UnknownConfigurationKeyError) as flaw:
        raise StorageError(f"{where}: {_words(flaw)}") from flaw
    except (errors.BaseError, OSError) as flaw:
        if _REFUSED.search(str(flaw)):
            raise _refusal(where, flaw) from flaw
        raise StoreAway(
            f"{where}: the store does not answer as it should ({_words(flaw)}). Start the same command again when it "
            "does; what was durable before is valid."
        ) from flaw


def _refusal(where: object, flaw: BaseException) -> StorageError:
    return StorageError(
        f"{where}: the store refuses this access ({_words(flaw)}). Check the credentials and what they permit; what "
        "was durable before is valid."
    )


def _words(flaw: BaseException) -> str:
    """The first lines of a message of obstore's, without what follows for its developers."""
    return " ".join(str(flaw).partition("Debug source")[0].split())[:300] or type(flaw).__name__
