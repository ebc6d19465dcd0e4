"""Plays a session in processes of any machine, which come, go and break off as they like.

Nobody here can tell a process that has ended from one that stands still or is cut off. So one that says nothing for
long is taken for lost, whatever it does: its journal is sealed, all that it was lent is charged, and others go on with
its episodes. If it comes back, its next write meets the seal.
"""

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
from evalkit.engine.machines.dealt import WorkerState
from evalkit.engine.machines.link import Gone, WorkerLink
from evalkit.engine.machines.messages import Attend, decode_question, encode
from evalkit.engine.machines.spread import TICK_S, Spread
from evalkit.engine.machines.tcp import Address, Unproven, address_of, is_loopback, prove_to_worker, server_context
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store.files.journal import refuse_sealed
from evalkit.store.lead import Meeting
from evalkit.store.meeting import met_at, say_again

MOST_STRANGERS = 64
"""Connections that have not shown the token, at once."""
BACKLOG = 1024
MOST_TOLD = 20
"""Of those that have shown a wrong one, so many are noted."""
BEGIN_S = 900.0
"""A worker that has been let in may read the log for so long before it asks for episodes."""
ALIVE_S, ALIVE_TRIES = 5, 3
"""A connection that carries nothing is tried so often, in seconds, and given up after so many tries without an answer:
that of a machine that was lost."""
ASK_S = 5.0
"""How often one that has no workers looks whether another one coordinates the run."""
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
        self._times = spread.session.resolved.sweep.times
        self._strangers = self._refused = 0
        self._connections = Counter[str]()
        """By writer."""
        self._looked_at = self._asked_at = spread.loop.time()

    async def play(self) -> None:
        """See `play_joined`."""
        try:
            async with asyncio.TaskGroup() as group, self._listening(group):
                self._tell(self._listener.address)
                self._spread.show()
                burials = dict[str, asyncio.Task[None]]()
                while not self._is_over() or burials:
                    self._spread.look(starting=False)
                    self._look_who_leads()
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
        return self._ends() and not self._coordinator.members

    def _ends(self) -> bool:
        return self._coordinator.finishing or bool(self._session.stop.reason)

    def _look_who_leads(self) -> None:
        """Without workers nothing is written, and a coordinator would not learn that its run was taken over: on a disk
        whose locks do not hold it would wait for workers for good; and so would the one that has taken it over, if the
        other has said meanwhile where workers find it."""
        store, now = self._session.store, self._spread.loop.time()
        if store.lead is None and not self._coordinator.members and now >= self._asked_at + ASK_S:
            self._asked_at = now
            try:
                refuse_sealed(self._directory, store.writer)
                say_again(self._directory, self._meeting)
            except (StorageError, CorruptLogError) as flaw:
                self._stop(flaw)

    def _silent(self) -> list[str]:
        """Workers that have said nothing for too long."""
        now = self._spread.loop.time()
        paused_s = now - self._looked_at - TICK_S
        self._looked_at = now
        members = self._coordinator.members.values()
        if paused_s > NOTICED_S:
            for member in members:
                member.heard += paused_s
        return [member.writer for member in members if now - member.heard > self._patience_s(member)]

    def _patience_s(self, member: WorkerState) -> float:
        """How long a worker may be silent. One that has not asked for episodes reads the log, if it is connected; and
        it holds nothing, so no end of a run waits for it."""
        reads = member.report is None and self._connections[member.writer] > 0 and not self._ends()
        return BEGIN_S if reads else self._times.silent_s

    async def _bury(self, writer: str) -> None:
        self._spread.replaced += 1
        try:
            await self._spread.bury(writer, who=writer.split("-", 1)[1].rsplit("-", 1)[0], reaped=False)
        except (StorageError, CorruptLogError) as flaw:
            self._stop(flaw)
            self._coordinator.members.pop(writer, None)

    def _stop(self, flaw: StorageError | CorruptLogError) -> None:
        self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))

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
            self._stop(flaw)
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
