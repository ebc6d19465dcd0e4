"""Plays a session in processes of any machine, which come, go and break off as they like (`silence.py` says how those
are settled that are lost)."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.listen import Listen, coordinators_token
from evalkit.engine.machines.link import Gone, WorkerLink
from evalkit.engine.machines.messages import Attend, decode_question, encode
from evalkit.engine.machines.silence import DistantWorkers
from evalkit.engine.machines.spread import Spread
from evalkit.engine.machines.tcp import Address, Unproven, address_of, is_loopback, prove_to_worker, server_context
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store.lead import Meeting
from evalkit.store.meeting import met_at, say_again

MOST_STRANGERS = 64
"""Connections that have not shown the token, at once."""
BACKLOG = 1024
MOST_TOLD = 20
"""Of those that have shown a wrong one, so many are noted."""
ALIVE_S, ALIVE_TRIES = 5, 3
"""A connection that carries nothing is tried so often, in seconds, and given up after so many tries without an answer:
that of a machine that was lost."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A socket that workers can connect to, and what they must know."""

    socket: socket.socket
    address: Address
    """As others reach it."""
    context: ssl.SSLContext | None
    token: str
    token_file: Path | None


def opened(listen: Listen, run: Path) -> Listener:
    """Listen for workers of a run. Raises UsageError where that cannot be."""
    wanted, context = listening_address(listen)
    token, token_file = coordinators_token(run, listen.token_file)
    try:
        family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
        bound = socket.create_server((wanted.host, wanted.port), family=family, backlog=BACKLOG)
    except OSError as flaw:
        raise UsageError(f"--listen {wanted}: {flaw.strerror or flaw}.") from flaw
    # Where all addresses are listened at, others know this machine by its name.
    host = socket.gethostname() if wanted.host in ("0.0.0.0", "::") else wanted.host  # noqa: S104 - compared, not bound
    address = Address(host=host, port=bound.getsockname()[1], tls=context is not None)
    return Listener(socket=bound, address=address, context=context, token=token, token_file=token_file)


async def play_joined(spread: Spread, listener: Listener) -> None:
    """Play all lanes in the processes that join; return when nothing remains, or the run stops, and each has ended or
    was settled."""
    with seldom_collected():
        await _JoinedWorkers(spread, listener).play()


class _JoinedWorkers:
    def __init__(self, spread: Spread, listener: Listener) -> None:
        self._spread, self._listener = spread, listener
        self._session, self._coordinator = spread.session, spread.coordinator
        self._directory = spread.session.options.directory
        self._meeting = Meeting(address=str(listener.address), tls=listener.address.tls)
        self._distant = DistantWorkers(
            spread,
            is_connected=lambda writer: self._connections[writer] > 0,
            tell=lambda: say_again(self._directory, self._meeting),
        )
        self._strangers = self._refused = 0
        self._connections = Counter[str]()
        """By writer."""

    async def play(self) -> None:
        """See `play_joined`."""
        try:
            async with asyncio.TaskGroup() as group, self._listening(group):
                self._tell(self._listener.address)
                self._spread.show()
                await self._distant.watch(group, self._is_over)
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            self._coordinator.abandon()
        self._spread.look(starting=False)

    def _is_over(self) -> bool:
        return self._distant.ends() and not self._coordinator.members

    # Connections.

    @asynccontextmanager
    async def _listening(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        connections = set[asyncio.Task[None]]()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _keep_alive(writer.get_extra_info("socket"))
            task = group.create_task(self._connected(WorkerLink(reader, writer)))
            connections.add(task)
            task.add_done_callback(connections.discard)

        listener = self._listener
        server = await asyncio.start_server(connected, sock=listener.socket, ssl=listener.context)
        try:
            with met_at(self._directory, self._session.store.lead, self._meeting):
                yield
        finally:
            server.close()
            for task in connections:
                task.cancel()

    def _tell(self, address: Address) -> None:
        known = "in the environment" if self._listener.token_file is None else f"in {self._listener.token_file}"
        self._session.store.event("listening", address=str(address), tls=address.tls)
        if self._session.options.announce is not None:
            self._session.options.announce(
                [f"Workers are listened for at {address}, and need the token {known}: evalkit join {self._directory}"]
            )

    async def _connected(self, link: WorkerLink) -> None:
        """One connection, from the first byte to the last."""
        writer = ""
        try:
            if await self._is_known(link):
                while True:
                    question = decode_question(await link.receive())
                    if not isinstance(question, Attend) and question.writer != writer:
                        self._connections.update({writer: -1, question.writer: 1})
                        writer = question.writer
                    reply = await self._spread.answer(question)
                    await link.send(encode(reply))
        except (Gone, msgspec.MsgspecError):
            pass
        except (StorageError, CorruptLogError) as flaw:
            self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
        finally:
            self._connections[writer] -= 1
            link.close()

    async def _is_known(self, link: WorkerLink) -> bool:
        """Whether the other end has shown that it knows the token."""
        if self._strangers >= MOST_STRANGERS:
            return False
        self._strangers += 1
        try:
            await prove_to_worker(link, self._listener.token)
        except Unproven as flaw:
            self._refused += 1
            if self._refused <= MOST_TOLD:
                self._session.store.event("refused", detail=str(flaw))
            return False
        except TimeoutError:
            return False
        finally:
            self._strangers -= 1
        return True


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice when the other machine answers no more."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", ALIVE_S), ("TCP_KEEPINTVL", ALIVE_S), ("TCP_KEEPCNT", ALIVE_TRIES)):
        if hasattr(socket, name):  # macOS has other names
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
