"""The connection of a worker on another machine: over TCP, with TLS unless both ends are on one machine, and with a
token that both ends know.

Neither end sends the token: each shows by a keyed digest of the other's random bytes that it has it. So nobody who
listens at an address that was found in a bucket learns it, and no worker does what a stranger says. Nothing is decoded
before that. A worker whose connection breaks off connects again and repeats its question.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from evalkit.engine.machines.link import MOST_BYTES, Gone, WorkerLink
from evalkit.engine.machines.messages import Question, Reply
from evalkit.errors import UsageError

GREETING = b"evalkit coordinator 1\n"
NONCE_BYTES, PROOF_BYTES = 32, 32
MOST_UNPROVEN = 256
"""Bytes of a message of somebody who has not shown the token."""
PROOF_S = 10.0
"""How long both ends have for that."""
AGAIN_S = 1.0
"""How often a worker tries to connect."""
ANSWER_S = 10.0
"""A connection on which an answer takes longer is given up for a new one: before the worker's shares have ended, and
before it was silent for so long that it is taken for lost."""


class Unproven(UsageError):
    """The other end does not know the token."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a coordinator listens."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str, where: str) -> Address:
    """`HOST:PORT`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{where}: expected HOST:PORT, such as node-3:8112, got {text!r}.")
    return Address(host=host, port=int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """The coordinator's side of TLS. Raises UsageError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as flaw:
        raise UsageError(f"--certificate: {certificate} is no certificate with its key ({flaw}).") from flaw
    return context


def client_context(authority: Path | None) -> ssl.SSLContext:
    """The worker's side: certificates of this authority are trusted, or those that the machine trusts. Raises
    UsageError."""
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as flaw:
        raise UsageError(f"--authority: {authority} holds no certificate ({flaw}).") from flaw


async def prove_to_worker(link: WorkerLink, token: str) -> None:
    """The coordinator's side: let only those in who know the token. Raises Unproven, Gone."""
    link.most_bytes = MOST_UNPROVEN
    nonce = secrets.token_bytes(NONCE_BYTES)
    async with asyncio.timeout(PROOF_S):
        await link.send(GREETING + nonce)
        said = await link.receive()
        theirs, proof = said[:NONCE_BYTES], said[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(token, b"worker", nonce, theirs)):
            raise Unproven("a process that does not know this run's token")
        await link.send(_proof(token, b"coordinator", nonce, theirs))
    link.most_bytes = MOST_BYTES


async def prove_to_coordinator(link: WorkerLink, token: str) -> None:
    """The worker's side. Raises Unproven, Gone."""
    link.most_bytes = MOST_UNPROVEN
    own = secrets.token_bytes(NONCE_BYTES)
    said = await link.receive()
    greeting, nonce = said[:-NONCE_BYTES], said[-NONCE_BYTES:]
    if greeting != GREETING:
        raise Unproven("What listens there is no coordinator of this version of evalkit.")
    await link.send(own + _proof(token, b"worker", nonce, own))
    try:
        proof = await link.receive()
    except Gone:
        proof = b""
    if not hmac.compare_digest(proof, _proof(token, b"coordinator", nonce, own)):
        raise Unproven(
            "The coordinator has another token. Give its token by EVALKIT_JOIN_TOKEN or `--token-file`; each "
            "`evalkit run --on join` without one of these makes a new one."
        )
    link.most_bytes = MOST_BYTES


def _proof(token: str, role: bytes, coordinators: bytes, workers: bytes) -> bytes:
    return hmac.digest(token.encode(), role + b"\n" + coordinators + workers, hashlib.sha256)


async def connect(address: Address, token: str, authority: Path | None) -> WorkerLink:
    """A connection to a coordinator, once both ends have shown that they know the token. Raises Unproven, Gone, and
    UsageError for an address that would need TLS and has none."""
    if not address.tls and not is_loopback(address.host):
        raise UsageError(
            f"The coordinator at {address} uses no TLS, so it is reached from its own machine only. Start it with "
            "`--certificate`, or reach it by a tunnel to 127.0.0.1."
        )
    context = client_context(authority) if address.tls else None
    try:
        async with asyncio.timeout(PROOF_S):
            link = WorkerLink(*await asyncio.open_connection(address.host, address.port, ssl=context))
            try:
                await prove_to_coordinator(link, token)
            except BaseException:
                link.close()
                raise
    except ssl.SSLCertVerificationError as flaw:
        raise Unproven(
            f"The certificate of {address} is not trusted ({flaw.verify_message}). Name its authority, or the "
            "certificate itself, by `--authority FILE`."
        ) from flaw
    except (OSError, ssl.SSLError) as flaw:
        raise Gone(f"{address}: {flaw}") from flaw
    return link


class LastingLink:
    """A transport that connects again and repeats its question, for as long as a worker may be without coordinator."""

    def __init__(self, connected: Callable[[], Awaitable[WorkerLink]], *, orphan_s: float) -> None:
        self._connected = connected
        self.orphan_s = orphan_s
        self._link: WorkerLink | None = None

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer. Raises Gone once it has given none for `orphan_s`, Unproven at once."""
        why = ""
        try:
            async with asyncio.timeout(self.orphan_s):
                while True:
                    try:
                        if self._link is None:
                            self._link = await self._connected()
                        async with asyncio.timeout(ANSWER_S):
                            return await self._link.ask(question)
                    except Gone as flaw:
                        why = f": {flaw}"
                        self.close()
                        await asyncio.sleep(AGAIN_S)
                    except TimeoutError:
                        self.close()
        except TimeoutError:
            self.close()
            raise Gone(f"no answer for {self.orphan_s:.0f} s{why}") from None
        except BaseException:
            self.close()  # whoever gave up waiting has left an answer on the way
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None
