"""The simulated provider behind HTTP: a thin shell that waits and writes, around the pure core in `provider.py`.

A request's line on the bill is written before anything else happens to it, in one unbuffered append, so the bill holds
every request that was accepted, however client or server ended. aiohttp's low-level server is used, without an
application around it: routing is the core's, and a small request costs about a third less.
"""

import argparse
import asyncio
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import orjson
from aiohttp import web

from evalkit.errors import EvalkitError, UsageError
from evalkit.serve.formats import BASE_PATH
from evalkit.serve.options import given_flags, options_from
from evalkit.serve.outcome import Arrival, Ending, ServedOutcome
from evalkit.serve.provider import Simulator
from evalkit.text import visible

READY = "listening on "
"""The first line printed begins with it; the base URL follows."""
_MOST_BODY_BYTES = 256 * 2**20
_BACKLOG = 4096
_GRACE_S = 0.2
"""The answer to requests in flight when the server is told to stop."""
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Shell:
    """What every request needs."""

    simulator: Simulator
    bill: IO[bytes] | None
    """None: no bill is kept."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Read, decide, write the bill, wait, and do what was decided."""
        body = await request.read()
        arrival = Arrival(method=request.method, path=request.path, headers=request.headers, body=body)
        outcome = self.simulator.handle(arrival, asyncio.get_running_loop().time())
        if outcome.line is None:
            return _whole(outcome)
        try:
            if self.bill is not None:
                self.bill.write(outcome.line.json())
            return await _perform(request, outcome)
        finally:
            self.simulator.leave(outcome)


async def _perform(request: web.BaseRequest, outcome: ServedOutcome) -> web.StreamResponse:
    if outcome.delay_s > 0:
        await asyncio.sleep(outcome.delay_s)
    if outcome.pieces or outcome.streamed:
        return await _send(request, outcome)
    await _end(request, outcome.ending)
    return _whole(outcome)


def _whole(outcome: ServedOutcome) -> web.Response:
    # A broken connection has no status; what is returned then is never sent.
    return web.Response(status=outcome.status or 500, headers=outcome.headers, body=outcome.body)


async def _send(request: web.BaseRequest, outcome: ServedOutcome) -> web.StreamResponse:
    """The body in its pieces; in one where they are sent at the same time."""
    response = web.StreamResponse(status=outcome.status, headers=outcome.headers)
    if not outcome.streamed:
        response.content_length = len(outcome.body)
    await response.prepare(request)
    sent, at = 0, 0.0
    for share, end in outcome.pieces if outcome.over_s > 0 else [(0.0, outcome.sent)]:
        if share > at:
            await asyncio.sleep((share - at) * outcome.over_s)
        if end > sent:
            await response.write(outcome.body[sent:end])
        sent, at = end, share
    await _end(request, outcome.ending)
    return response


async def _end(request: web.BaseRequest, ending: Ending) -> None:
    """What happens after the last byte that is sent."""
    if ending == "stall":
        # The handler is cancelled when its client goes.
        await asyncio.Event().wait()
    transport = request.transport
    if ending == "complete" or transport is None:
        return
    if ending == "truncated":
        transport.close()
        return
    # The client is to see a reset, not an orderly end.
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


@asynccontextmanager
async def listening(simulator: Simulator) -> AsyncIterator[str]:
    """Have a provider listen as long as the block lasts; gives its base URL.

    Raises UsageError if the address cannot be listened on or the bill cannot be written.
    """
    loop, options = asyncio.get_running_loop(), simulator.options

    def request(*parts: Any) -> web.BaseRequest:
        message, payload, protocol, writer, task = parts
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BODY_BYTES)

    with _opened(options.bill) as bill:
        shell = Shell(simulator, bill)
        server = web.Server(
            shell.answer, request_factory=request, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0
        )
        runner = web.ServerRunner(server, shutdown_timeout=_GRACE_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, options.host, options.port, backlog=_BACKLOG)
            try:
                await site.start()
            except OSError as flaw:
                address = f"{options.host}:{options.port}"
                raise UsageError(f"simulate: cannot listen on {address}: {flaw.strerror or flaw}.") from flaw
            host = f"[{options.host}]" if ":" in options.host else options.host
            yield f"http://{host}:{runner.addresses[0][1]}{BASE_PATH}"
        finally:
            await runner.cleanup()


def _opened(bill: str) -> AbstractContextManager[IO[bytes] | None]:
    if not bill:
        return nullcontext()
    try:
        return Path(bill).open("ab", buffering=0)
    except OSError as flaw:
        raise UsageError(f"simulate: bill: cannot write {bill}: {flaw.strerror}.") from flaw


def serve(make: Callable[[float], Simulator], *, until_eof: bool = False) -> None:
    """Serve a provider that is made with the time at which it starts, until SIGINT or SIGTERM. `listening on <base
    URL>` is printed when it is ready.

    With `until_eof` it also ends when standard input does: so the server ends with the parent that holds the other end,
    however the parent dies. Raises UsageError as `listening` does.
    """
    served = _serve(make, until_eof=until_eof)
    try:
        import uvloop
    except ImportError:  # not made for Windows
        asyncio.run(served)
    else:
        uvloop.run(served)


async def _serve(make: Callable[[float], Simulator], *, until_eof: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with listening(make(loop.time())) as url:
        if until_eof:
            threading.Thread(target=_wait_for_eof, args=(loop, stop), daemon=True).start()
        print(f"{READY}{url}", flush=True)
        await stop.wait()


def _wait_for_eof(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # A thread, not the loop's reader: standard input may be a file or /dev/null, which event loops cannot watch.
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    loop.call_soon_threadsafe(stop.set)


def simulate(arguments: argparse.Namespace) -> int:
    """`evalkit simulate`: serve as the flags of `add_arguments` say. Raises UsageError before anything is served."""
    serve(partial(Simulator, options_from(given_flags(arguments))))
    return 0


def main(values: str) -> int:
    """A run's own provider, from options as JSON, until standard input ends: `python -m evalkit.serve.server JSON`."""
    try:
        serve(partial(Simulator, options_from(orjson.loads(values))), until_eof=True)
    except EvalkitError as flaw:
        print(visible(str(flaw)), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
