"""Plays a session in processes of any machine, which come, go and break off as they like.

Nobody here can tell a process that has ended from one that stands still or is cut off. So one that says nothing for
long is taken for lost, whatever it does: its journal is sealed, all that it was lent is charged, and others go on with
its episodes. If it comes back, its next write meets the seal.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import gethostname

import msgspec

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.listen import Listen, coordinators_token
from evalkit.engine.machines.link import Gone, WorkerLink
from evalkit.engine.machines.messages import decode_question, encode
from evalkit.engine.machines.spread import TICK_S, Spread
from evalkit.engine.machines.tcp import Address, Unproven, address_of, is_loopback, prove_to_worker, server_context
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store.lead import Meeting
from evalkit.store.meeting import met_at

MOST_STRANGERS = 64
"""Connections that have not shown the token, at once."""
BEGIN_S = 900.0
"""A worker that has been let in may read the log for so long before it asks for episodes."""
NOTICED_S = 1.0
"""The coordinator stood still itself if its clock has jumped by more: then nobody was silent meanwhile."""


def listening_address(listen: Listen) -> tuple[Address, ssl.SSLContext | None]:
    """Where to listen, and with what. Raises UsageError if others than this machine would be listened for without
    TLS."""
    address = address_of(listen.address, "--listen")
    if listen.certificate is None and not is_loopback(address.host):
        raise UsageError(
            f"--listen {address}: other machines are listened for with TLS only. Give a certificate by `--certificate "
            "FILE` (docs/machines.md says how to make one), or listen at 127.0.0.1 and let a tunnel lead there."
        )
    context = None if listen.certificate is None else server_context(listen.certificate, listen.key)
    return msgspec.structs.replace(address, tls=context is not None), context


async def play_joined(spread: Spread, listen: Listen) -> None:
    """Play all lanes in the processes that join; return when nothing remains, or the run stops, and each has ended or
    was settled. Raises UsageError if nobody can be listened for."""
    with seldom_collected():
        await _Joined(spread, listen).play()


class _Joined:
    def __init__(self, spread: Spread, listen: Listen) -> None:
        self._spread, self._listen = spread, listen
        self._session, self._coordinator = spread.session, spread.coordinator
        self._directory = spread.session.options.directory
        self._token, self._token_file = coordinators_token(self._directory, listen.token_file)
        self._times = spread.session.resolved.sweep.times
        self._strangers = 0
        self._looked_at = spread.loop.time()

    async def play(self) -> None:
        """See `play_joined`."""
        try:
            async with asyncio.TaskGroup() as group, self._listening() as address:
                self._tell(address)
                burials = dict[str, asyncio.Task[None]]()
                while not self._is_over() or burials:
                    self._spread.look(starting=False)
                    for writer in self._silent():
                        if writer not in burials:
                            burials[writer] = group.create_task(self._bury(writer))
                    burials = {writer: task for writer, task in burials.items() if not task.done()}
                    await asyncio.sleep(TICK_S)
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            self._coordinator.abandon()
        self._spread.look(starting=False)

    def _is_over(self) -> bool:
        ends = self._coordinator.finishing or bool(self._session.stop.reason)
        return ends and not self._coordinator.members

    def _silent(self) -> list[str]:
        """Workers that have said nothing for too long."""
        now = self._spread.loop.time()
        paused_s = now - self._looked_at - TICK_S
        self._looked_at = now
        members = self._coordinator.members.values()
        if paused_s > NOTICED_S:
            for member in members:
                member.heard += paused_s
        return [
            member.writer
            for member in members
            if now - member.heard > (self._times.silent_s if member.report is not None else BEGIN_S)
        ]

    async def _bury(self, writer: str) -> None:
        self._spread.replaced += 1
        try:
            await self._spread.bury(writer, who=writer.split("-", 1)[1].rsplit("-", 1)[0], reaped=False)
        except (StorageError, CorruptLogError) as flaw:
            self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
            self._coordinator.members.pop(writer, None)

    # Connections.

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[Address]:
        wanted, context = listening_address(self._listen)
        try:
            server = await asyncio.start_server(self._connected, wanted.host, wanted.port, ssl=context)
        except OSError as flaw:
            raise UsageError(f"--listen {wanted}: {flaw.strerror or flaw}.") from flaw
        port = server.sockets[0].getsockname()[1]
        # Where all addresses are listened at, others know this machine by its name.
        host = gethostname() if wanted.host in ("0.0.0.0", "::") else wanted.host  # noqa: S104 - compared, not bound
        address = Address(host=host, port=port, tls=wanted.tls)
        meeting = Meeting(address=str(address), tls=address.tls)
        try:
            with met_at(self._directory, self._session.store.lead, meeting):
                yield address
        finally:
            server.close()

    def _tell(self, address: Address) -> None:
        known = "in the environment" if self._token_file is None else f"in {self._token_file}"
        self._session.store.event("listening", address=str(address), tls=address.tls)
        if self._session.options.announce is not None:
            self._session.options.announce(
                [f"Workers are listened for at {address}, and need the token {known}: evalkit join {self._directory}"]
            )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from the first byte to the last."""
        link = WorkerLink(reader, writer)
        try:
            if await self._is_known(link):
                while True:
                    question = decode_question(await link.receive())
                    reply = await self._spread.answer(question)
                    await link.send(encode(reply))
        except (Gone, msgspec.MsgspecError):
            pass
        except (StorageError, CorruptLogError) as flaw:
            self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
        finally:
            link.close()

    async def _is_known(self, link: WorkerLink) -> bool:
        """Whether the other end has shown that it knows the token."""
        if self._strangers >= MOST_STRANGERS:
            return False
        self._strangers += 1
        try:
            await prove_to_worker(link, self._token)
        except Unproven as flaw:
            self._session.store.event("refused", detail=str(flaw))
            return False
        except TimeoutError:
            return False
        finally:
            self._strangers -= 1
        return True
