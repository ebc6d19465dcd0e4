"""What every request to the pages is checked for, and what every answer is sent with."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from evalkit.errors import EvalkitError, RunError, UsageError
from evalkit.view.overview import glimpse, run_links
from evalkit.view.render import Frame, render

HOST = "127.0.0.1"
RETRY_S = 1
"""Seconds after which a page that is being computed is asked for again."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_NAMED = re.compile(rf"({re.escape(HOST)}|localhost)(:\d{{1,5}})?", re.ASCII | re.IGNORECASE)
"""The `Host` of a request for this server: nothing else, such as a user's name in front, belongs there."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Computing(Exception):
    """The run is being read for the first time: the page is asked for again."""

    def __init__(self, name: str, directory: Path, elapsed_s: float) -> None:
        super().__init__(name)
        self.name, self.directory, self.elapsed_s = name, directory, elapsed_s


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign host names and anything but reading; put the headers on every answer."""
    try:
        response = await _guarded(request, handler)
    except Computing as wait:
        frame = Frame(title=wait.name, run=wait.name, links=run_links(wait.name, ""), refresh_s=RETRY_S)
        facts = await asyncio.to_thread(glimpse, wait.directory)
        response = answer("computing.html", frame, status=202, name=wait.name, facts=facts, elapsed_s=wait.elapsed_s)
    except web.HTTPException as left:
        response = message(left.status, left.reason, "")
    except RunError as flaw:
        response = message(404, "Not found", str(flaw))
    except UsageError as flaw:
        response = message(400, "This cannot be shown", str(flaw))
    except EvalkitError as flaw:
        response = message(500, "This cannot be shown", str(flaw))
    response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
    return response


async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    # A page of another site that has its own name point at 127.0.0.1 (DNS rebinding) sends that name here.
    if _NAMED.fullmatch(request.host) is None:
        return message(403, "Refused", f"This server answers only requests to {HOST} and localhost.")
    if request.method not in ("GET", "HEAD"):
        return message(405, "Refused", "Pages can only be read.")
    return await handler(request)


def message(status: int, heading: str, text: str) -> web.Response:
    """A page that only says something."""
    return answer("message.html", Frame(title=heading), status=status, heading=heading, text=text)


def answer(template: str, frame: Frame, *, status: int = 200, **values: object) -> web.Response:
    """A page of a template; `values`: what it names."""
    return web.Response(status=status, text=render(template, frame, **values), content_type="text/html")
