"""A run's directory as kill -9 would leave it, taken without killing anybody."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalkit.client.transport import EndpointTransport
from evalkit.wire.http import HttpResponse


@contextmanager
def snapshot_at(run: Path, copy: Path, sends: int) -> Iterator[None]:
    """Copy the run's directory as it lies there just before so many requests have been sent."""
    plain, seen = EndpointTransport.send, 0

    async def send(self: EndpointTransport, body: bytes, request_id: str) -> HttpResponse:
        nonlocal seen
        seen += 1
        if seen == sends:
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns(".*", "lock"))
        return await plain(self, body, request_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EndpointTransport, "send", send)
        yield
