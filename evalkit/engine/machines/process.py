"""A process that works: started by `launch.py`, it hears from whoever has started it what to do. That is the
coordinator, or, on another machine, `join.py`; then it looks for the coordinator itself."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from evalkit import __version__
from evalkit.engine.listen import VARIABLE as TOKEN_VARIABLE
from evalkit.engine.listen import workers_token
from evalkit.engine.loop import run_loop
from evalkit.engine.machines.link import Gone, WorkerLink, linked
from evalkit.engine.machines.messages import (
    LEAVE,
    Attend,
    Errand,
    JoinSettings,
    WorkerRefused,
    WorkerSetup,
    WorkerTransport,
)
from evalkit.engine.machines.tcp import LastingLink, address_of, connect, is_loopback
from evalkit.engine.machines.worker import Worker
from evalkit.errors import EvalkitError, UsageError
from evalkit.store.bucket import place_of
from evalkit.store.files.schema import FORMAT
from evalkit.store.meeting import meeting_place

GONE, FAILED, REFUSED = 4, 1, 2
"""Exit codes: the coordinator has ended; the worker could not go on; it may not, or need not, work."""


async def main(descriptor: int) -> int:
    """Work for the process at the other end of a socket, or where it says; the exit code."""
    link = await linked(socket.socket(fileno=descriptor))
    try:
        code, words = await ended(_told(link))
    finally:
        link.close()
    if code:
        print(words, file=sys.stderr, flush=True)
    return code


async def ended(work: Coroutine[Any, Any, None]) -> tuple[int, str]:
    """Let a worker work: (the exit code of its end, why it could not go on)."""
    try:
        await work
    except Gone as flaw:
        return GONE, str(flaw)
    except UsageError as flaw:
        return REFUSED, str(flaw)
    except EvalkitError as flaw:
        return FAILED, str(flaw)
    return 0, ""


async def _told(link: WorkerLink) -> None:
    errand = msgspec.msgpack.decode(await link.receive(), type=Errand)
    directory = place_of(errand.place)
    if errand.join is None:
        await Worker(directory, await attended(link), link).work()
    else:
        await _joined(directory, errand.join, link)


async def attended(coordinator: WorkerTransport) -> WorkerSetup:
    """What there is to do. Raises UsageError where there is nothing, Gone."""
    answer = await coordinator.ask(Attend(evalkit=__version__, log=FORMAT))
    if isinstance(answer, WorkerRefused):
        raise UsageError(answer.why)
    assert isinstance(answer, WorkerSetup)
    return answer


async def _joined(directory: Path, join: JoinSettings, parent: WorkerLink) -> None:
    """Work for a coordinator that is elsewhere, until the run ends or `parent` says that it is enough. Raises
    EvalkitError."""
    coordinator = LastingLink(_connecting(directory, join), orphan_s=join.wait_s)
    present = list[Worker]()
    left, task = False, asyncio.current_task()

    async def listen() -> None:
        """Hear the process that has started this one; if it is gone, it is as if it had said that it is enough."""
        nonlocal left
        try:
            while await parent.receive() != LEAVE:
                pass
        except Gone:
            pass
        left = True
        for worker in present:
            worker.leave()
        if task is not None and not present:
            task.cancel()  # it still waits for a coordinator

    listening = asyncio.create_task(listen())
    try:
        again = True
        while again and not left:
            setup = await attended(coordinator)
            coordinator.orphan_s = setup.orphan_s
            present[:] = [Worker(directory, setup, coordinator)]
            again = await present[0].work()
            present.clear()
    except asyncio.CancelledError:
        if not left:
            raise
    finally:
        listening.cancel()
        coordinator.close()


def _connecting(directory: Path, join: JoinSettings) -> Callable[[], Awaitable[WorkerLink]]:
    """What connects to the coordinator, wherever it is now."""
    authority = Path(join.authority) if join.authority else None
    token_file = Path(join.token_file) if join.token_file else None

    async def connected() -> WorkerLink:
        token = workers_token(directory, token_file)
        if token is None:
            raise Gone(
                "the token is not here: `evalkit run --on join` says in which file it is; bring it by "
                f"{TOKEN_VARIABLE} or `--token-file`"
            )
        if join.coordinator:
            address = address_of(join.coordinator, "--coordinator")
            secured = join.authority != "" or not is_loopback(address.host)
            return await connect(msgspec.structs.replace(address, tls=secured), token, authority)
        place = await asyncio.to_thread(meeting_place, directory)
        if place is None:
            raise Gone(f"nobody coordinates {directory} (`evalkit run ... --on join`)")
        address = address_of(place.address, str(directory))
        return await connect(msgspec.structs.replace(address, tls=place.tls), token, authority)

    return connected


if __name__ == "__main__":
    sys.exit(run_loop(main(int(sys.argv[1]))))
