"""The connection of workers on other machines: who is let in, what is refused, and questions that are repeated."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import pytest

from evalkit.engine.listen import Listen
from evalkit.engine.machines import tcp
from evalkit.engine.machines.joined import listening_address
from evalkit.engine.machines.link import MOST_BYTES, Gone, WorkerLink
from evalkit.engine.machines.messages import Attend, Bye, Directive, Question, Renew, Reply, decode_question, encode
from evalkit.engine.machines.tcp import (
    Address,
    LastingLink,
    Unproven,
    address_of,
    client_context,
    connect,
    prove_to_worker,
    server_context,
)
from evalkit.errors import UsageError
from evalkit.spec.model import MachineTimes
from tests.support.patience import PATIENCE_S
from tests.support.virtual_clock import run_virtual

TOKEN = "a token of some length"
Value = TypeVar("Value")
Server = Callable[[WorkerLink], Awaitable[None]]


def within(awaited: Awaitable[Value]) -> Value:
    async def limited() -> Value:
        async with asyncio.timeout(PATIENCE_S):
            return await awaited

    return asyncio.run(limited())


@asynccontextmanager
async def listening(serve: Server, context: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    tasks = list[asyncio.Task[None]]()

    async def served(link: WorkerLink) -> None:
        try:
            await serve(link)
        except (Gone, Unproven):
            pass
        finally:
            link.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(served(WorkerLink(reader, writer))))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        yield Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1], tls=context is not None)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answering(link: WorkerLink) -> None:
    """Let those in who know the token, and answer each question."""
    await prove_to_worker(link, TOKEN)
    while True:
        await link.send(encode(Directive(share=int(isinstance(decode_question(await link.receive()), Renew)))))


def test_both_ends_show_that_they_know_the_token() -> None:
    async def tried(token: str) -> object:
        async with listening(answering) as address:
            link = await connect(address, token, None)
            answer = await link.ask(Renew(writer="a", number=1))
            link.close()
            return answer

    assert within(tried(TOKEN)) == Directive(share=1)
    with pytest.raises(Unproven, match="has another token"):
        within(tried(TOKEN + "x"))


def test_a_coordinator_that_does_not_know_the_token_is_not_believed_and_does_not_learn_it() -> None:
    heard = list[bytes]()

    async def pretending(link: WorkerLink) -> None:
        await link.send(tcp.GREETING + bytes(tcp.NONCE_BYTES))
        heard.append(await link.receive())
        await link.send(heard[0][-tcp.PROOF_BYTES :])  # it sends back what it was shown

    async def tried() -> None:
        async with listening(pretending) as address:
            await connect(address, TOKEN, None)

    with pytest.raises(Unproven, match="has another token"):
        within(tried())
    assert TOKEN.encode() not in heard[0]


def test_what_else_listens_there_is_named() -> None:
    async def other(link: WorkerLink) -> None:
        await link.send(b"220 welcome to another service, which has many more words than that")

    async def tried() -> None:
        async with listening(other) as address:
            await connect(address, TOKEN, None)

    with pytest.raises(Unproven, match="no coordinator of this version"):
        within(tried())


@pytest.mark.parametrize("known", [False, True])
def test_a_message_that_is_too_long_is_not_read(known: bool) -> None:
    async def tried() -> bool:
        async with listening(answering) as address:
            if known:
                link = await connect(address, TOKEN, None)
            else:
                link = WorkerLink(*await asyncio.open_connection(address.host, address.port))
                await link.receive()
            most = MOST_BYTES if known else tcp.MOST_UNPROVEN
            link._writer.write((most + 1).to_bytes(4, "big"))
            rest = await link._reader.read()
            link.close()
            return rest == b""

    assert within(tried()), "the connection was closed"


def test_what_is_no_question_ends_the_connection_and_nothing_else() -> None:
    for data in (b"", b"\xc1", encode(Directive()), msgspec.msgpack.encode({"type": "Renew", "writer": 3})):
        with pytest.raises(msgspec.MsgspecError):
            decode_question(data)


def test_a_question_is_repeated_on_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "AGAIN_S", 0.01)
    asked = list[Question]()

    async def breaking(link: WorkerLink) -> None:
        """Answer only every third question, and let the connection break off at the others."""
        await prove_to_worker(link, TOKEN)
        while True:
            asked.append(decode_question(await link.receive()))
            if len(asked) % 3:
                return
            await link.send(encode(Directive(share=len(asked))))

    async def tried() -> list[object]:
        async with listening(breaking) as address:
            link = LastingLink(lambda: connect(address, TOKEN, None), orphan_s=PATIENCE_S)
            questions: list[Question] = [
                Attend(evalkit="1", log=2),
                Renew(writer="a", number=1),
                Bye(writer="a", number=3),
            ]
            answers: list[object] = [await link.ask(question) for question in questions]
            link.close()
            return answers

    assert within(tried()) == [Directive(share=3), Directive(share=6), Directive(share=9)]
    assert [type(question) for question in asked] == [Attend] * 3 + [Renew] * 3 + [Bye] * 3


def test_a_connection_that_says_nothing_is_given_up_before_its_worker_is_taken_for_lost() -> None:
    class Silent:
        async def ask(self, question: Question) -> Reply:
            await asyncio.sleep(1e6)
            raise AssertionError

        def close(self) -> None:
            pass

    class Answering(Silent):
        async def ask(self, question: Question) -> Reply:
            return Directive(share=7)

    links = [Silent(), Answering()]

    async def connected() -> WorkerLink:
        return cast(WorkerLink, links.pop(0))

    async def tried() -> tuple[Reply, float]:
        link = LastingLink(connected, orphan_s=MachineTimes().orphan_s)
        return await link.ask(Renew(writer="a", number=1)), asyncio.get_running_loop().time()

    answer, took_s = run_virtual(tried())
    assert answer == Directive(share=7)
    assert took_s < MachineTimes().share_s


def test_a_coordinator_that_stays_away_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "AGAIN_S", 0.01)

    async def nowhere() -> WorkerLink:
        raise Gone("nobody is there")

    with pytest.raises(Gone, match=r"no answer for 0 s: nobody is there"):
        within(LastingLink(nowhere, orphan_s=0.1).ask(Bye(writer="a", number=1)))


def test_an_answer_that_was_given_up_is_never_taken_for_that_of_the_next_question() -> None:
    async def tried() -> object:
        heard, given_up = asyncio.Event(), asyncio.Event()

        async def slow(link: WorkerLink) -> None:
            await prove_to_worker(link, TOKEN)
            while True:
                question = decode_question(await link.receive())
                assert isinstance(question, Renew)
                heard.set()
                await given_up.wait()
                await link.send(encode(Directive(share=question.number)))

        async with listening(slow) as address:
            link = LastingLink(lambda: connect(address, TOKEN, None), orphan_s=PATIENCE_S)
            asking = asyncio.ensure_future(link.ask(Renew(writer="a", number=1)))
            await heard.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            given_up.set()
            answer = await link.ask(Renew(writer="a", number=2))
            link.close()
            return answer

    assert within(tried()) == Directive(share=2)


def certificate(folder: Path, host: str) -> Path:
    """A self-signed certificate for an address, with its key in the same file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "coordinator")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_with_a_certificate_the_connection_is_encrypted_and_its_owner_is_known(tmp_path: Path) -> None:
    file = certificate(tmp_path, "127.0.0.1")

    async def tried(address: Address | None, authority: Path | None) -> object:
        async with listening(answering, server_context(file, None)) as there:
            link = await connect(address or there, TOKEN, authority)
            assert link._writer.get_extra_info("cipher") is not None
            answer = await link.ask(Renew(writer="a", number=1))
            link.close()
            return answer

    assert within(tried(None, file)) == Directive(share=1)
    with pytest.raises(Unproven, match="is not trusted"):
        within(tried(None, None))
    other = certificate(tmp_path, "127.0.0.2")
    with pytest.raises(Unproven, match="is not trusted"):
        within(tried(None, other))


def test_a_certificate_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    file = certificate(tmp_path, "127.0.0.2")

    async def tried() -> None:
        async with listening(answering, server_context(file, None)) as address:
            await connect(address, TOKEN, file)

    with pytest.raises(Unproven, match="is not trusted"):
        within(tried())


def test_without_a_certificate_only_this_machine_is_listened_for_and_asked(tmp_path: Path) -> None:
    for address in ("127.0.0.1:0", "localhost:8112", "[::1]:0", "127.3.2.1:5"):
        assert not listening_address(Listen(address=address))[0].tls
    for address in ("0.0.0.0:0", "node-3:8112", "[::]:0", "10.0.0.3:8112"):
        with pytest.raises(UsageError, match="with TLS only"):
            listening_address(Listen(address=address))
        assert listening_address(Listen(address=address, certificate=certificate(tmp_path, "127.0.0.1")))[0].tls
    with pytest.raises(UsageError, match="uses no TLS"):
        within(connect(Address(host="10.0.0.3", port=8112), TOKEN, None))


@pytest.mark.parametrize("text", ["", "node-3", ":8112", "node-3:", "node-3:x", "node-3:99999", "node-3:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        address_of(text, "--listen")


def test_addresses_are_read_as_they_are_written() -> None:
    for text in ("node-3:8112", "127.0.0.1:0", "[::1]:8112"):
        assert str(address_of(text, "")) == text


def test_files_that_hold_no_certificate_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("no certificate")
    for make in (lambda path: server_context(path, None), client_context):
        with pytest.raises(UsageError, match=r"a\.pem"):
            make(tmp_path / "a.pem")
        with pytest.raises(UsageError, match=r"b\.pem"):
            make(tmp_path / "b.pem")
