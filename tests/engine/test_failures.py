"""Every way in which a provider can fail: one message that says what, where and what to do; other lanes finish."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from evalkit.cli.display import plain
from evalkit.client import retry
from evalkit.client.lanes import health, lane
from evalkit.client.lanes.health import MOST_PAID
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.view import View
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.model import Provider
from evalkit.spec.sweep import read_sweep
from evalkit.store.reading.index import read_index
from tests.provider.options import options_from
from tests.provider.serving import serving

KEY = "sk-planted-0123456789"
EPISODES = 6
"""Of each lane."""

SWEEP = """
replicates = 3
width = 4
[[agents]]
name = "works"
provider = "simulated"
model = "knuth"
[[agents]]
name = "fails"
provider = "acme"
model = "m-1"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = { periods = [2] }
"""
WORKS = """[[agents]]
name = "works"
provider = "simulated"
model = "knuth"
"""
PROVIDER = """
dialect = "openai_chat"
url = "{url}"
key_env = "ACME_KEY"
timeout_s = 600
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
PAGE = b"<!doctype html><html><head><title>Please sign in</title></head><body>" + b"x" * 5000 + b"</body></html>"
TEXT = (
    b'{"choices":[{"message":{"content":"hm"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":1}}'
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def says(status: int, body: bytes) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, body=body)

    return answer


@dataclass(frozen=True, slots=True)
class Failed:
    """What a sweep with one lane that fails has come to."""

    outcome: RunOutcome
    bill: int
    """Of the other lane's provider."""
    charges: list[str]
    """Reasons."""
    charged: int
    requests: int
    """That have reached the provider that fails."""


@asynccontextmanager
async def listening(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    seen: list[str] = []

    async def counted(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["X-Client-Request-Id"])
        return await handler(request)

    app = web.Application(client_max_size=2**30)
    app.router.add_post("/{tail:.*}", counted)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    finally:
        await runner.cleanup()


def failed(folder: Path, handler: Handler, *, tls: ssl.SSLContext | None = None, url: str = "") -> Failed:
    """Play the sweep beside a provider that answers with `handler`, or at `url` where nobody does."""

    async def play() -> Failed:
        async with listening(handler, tls) as (here, seen), serving(options_from({})) as (simulated, simulator):

            @contextmanager
            def launch(provider: Provider, run: Path) -> Iterator[str]:
                yield simulated

            (folder / "providers").mkdir(exist_ok=True)
            (folder / "providers" / "acme.toml").write_text(PROVIDER.format(url=url or here))
            (folder / "mine.toml").write_text(SWEEP)
            resolved = resolve(read_sweep(folder / "mine.toml"))
            outcome = await run_sweep(resolved, RunOptions(directory=folder / "run", launch=launch), lambda view: None)
            charges = [row for row in read_index(folder / "run").ledger if row.kind == "charge"]
            return Failed(
                outcome,
                simulator.totals.bill,
                [row.reason for row in charges],
                sum(c.amount for c in charges),
                len(seen),
            )

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds in place of minutes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACME_KEY", KEY)
    monkeypatch.setattr(retry, "FIRST_S", 0.01)
    monkeypatch.setattr(health, "FIRST_PROBE_S", 0.02)
    for module in (health, lane):
        monkeypatch.setattr(module, "GIVE_UP_S", 0.2)


def check(found: Failed, *words: str) -> None:
    """What holds of every failure."""
    outcome = found.outcome
    assert (outcome.exit_code, outcome.ended, outcome.remaining, outcome.broken) == (3, EPISODES, EPISODES, 0)
    assert len(outcome.messages) == 1, outcome.messages
    message = outcome.messages[0]
    assert message.startswith("acme/m-1: ")
    assert [word for word in words if word not in message] == [], message
    assert len(message) < 800
    assert KEY not in message
    assert outcome.spent == found.bill + found.charged
    assert found.bill > 0


def error(text: str, code: str) -> bytes:
    return b'{"error":{"message":"%b","code":"%b"}}' % (text.encode(), code.encode())


REFUSALS = [
    ("wrong-key", 401, error(f"Incorrect API key: {KEY}", "invalid_api_key"), ("Incorrect API key: ***", "ACME_KEY")),
    ("no-access", 403, error("Your account may not", "forbidden"), ("Your account may not", "ACME_KEY")),
    ("unknown-model", 404, error("The model m-1 does not exist", "model_not_found"), ("m-1", "does not exist", "url")),
    ("wrong-url", 404, PAGE, ("HTML page (Please sign in)", "url of provider 'acme'")),
    ("no-credit", 402, error("Top up", "insufficient_quota"), ("Top up", "no credit left")),
]


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(("status", "body", "words"), [one[1:] for one in REFUSALS], ids=[one[0] for one in REFUSALS])
def test_a_refusal_ends_its_lane_at_no_cost(tmp_path: Path, status: int, body: bytes, words: tuple[str, ...]) -> None:
    found = failed(tmp_path, says(status, body))
    check(found, *words)
    assert found.charges == []
    assert found.requests <= 4, "more were sent after the first had been refused"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            error("temperature: only 1 is allowed", "unsupported_value"),
            "write `refuses = [\"temperature\"]` for 'm-1' into the file of provider 'acme'.",
        ),
        (error("no", "bad"), "Check `refuses` of 'm-1' in the file of provider 'acme'."),
    ],
)
def test_requests_taken_for_invalid_end_their_lane_and_the_run_says_why(
    tmp_path: Path, body: bytes, words: str
) -> None:
    found = failed(tmp_path, says(400, body))
    check(found, f"its first {health.FIRST} episodes were refused", words, "No score was made of that.")
    assert found.charges == []
    # What is in flight when the lane ends still comes back; nothing is asked after that.
    assert health.FIRST <= found.requests < health.FIRST + 4


UNREADABLE = [
    ("page", PAGE, ("status 200 with an HTML page (Please sign in)",)),
    ("empty", b"", ("status 200 with an empty body",)),
    ("broken", b'{"choices":', ("status 200 with text that is not JSON",)),
    ("other", b'{"status":"ok"}', ('other JSON ({"status":"ok"})',)),
    ("huge", b"x" * 10 * 2**20, ("a body of more than 8388608 bytes",)),
]


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize(("body", "words"), [one[1:] for one in UNREADABLE], ids=[one[0] for one in UNREADABLE])
def test_answers_that_are_no_replies_end_their_lane_before_they_burn_the_budget(
    tmp_path: Path, body: bytes, words: tuple[str, ...]
) -> None:
    found = failed(tmp_path, says(200, body))
    check(found, *words, "answers in a row could not be read", "charged", "url and the dialect of provider 'acme'")
    # What is in flight when the lane ends still comes back; nothing is asked after that.
    assert MOST_PAID <= found.requests < MOST_PAID + 4
    assert len(found.charges) == found.requests
    assert set(found.charges) <= {"unreadable", "oversize"}


def test_a_page_of_a_gateway_is_waited_for_and_then_named(tmp_path: Path) -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head></html>"
    found = failed(tmp_path, says(502, page))
    check(found, "502 Bad Gateway", "no answer for", "Run again when the provider is back")
    # The server behind the gateway may have done the work: every one of the few that were sent is charged.
    assert found.charges == ["server_error"] * found.requests
    assert found.requests < 20


def test_an_unreachable_host_is_named(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{held.getsockname()[1]}"
        found = failed(tmp_path, says(200, b""), url=f"http://{place}/v1")
    check(
        found,
        f"nothing listens at http://{place} (connection refused)",
        "no answer for",
        "check the url",
        "Run again when the provider is back",
    )
    assert (found.charges, found.requests) == ([], 0)


def test_where_nothing_listens_is_told_while_it_is_awaited_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (health, lane):
        monkeypatch.setattr(module, "GIVE_UP_S", 60.0)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{held.getsockname()[1]}"
        (tmp_path / "providers").mkdir()
        (tmp_path / "providers" / "acme.toml").write_text(PROVIDER.format(url=f"http://{place}/v1"))
        (tmp_path / "mine.toml").write_text('budget_usd = "1"\ndeadline = "1h"\n' + SWEEP.replace(WORKS, ""))
        stop, views = Stop(), list[View]()

        def look(view: View) -> None:
            views.append(view)
            if view.lanes[0].trouble:
                stop.set("deadline", "The deadline has passed.")

        options = RunOptions(directory=tmp_path / "run", stop=stop)
        outcome = asyncio.run(run_sweep(resolve(read_sweep(tmp_path / "mine.toml")), options, look))
    words = f"nothing listens at http://{place} (connection refused): start its server, or correct"
    troubled = next(view for view in views if view.lanes[0].trouble and not view.stopping)
    assert words in plain(troubled)
    assert "(tried for 15 min at most)" in plain(troubled)
    assert troubled.lanes[0].waits_for == "provider that does not answer"
    assert outcome.why == "The deadline has passed."
    started = "4 of them had started and did not end, since their provider does not answer."
    assert [message for message in outcome.messages if message.startswith(started)], outcome.messages
    assert [message for message in outcome.messages if message.startswith(f"acme/m-1: {words}")], outcome.messages


def test_a_host_without_a_name_is_named(tmp_path: Path) -> None:
    found = failed(tmp_path, says(200, b""), url="https://no-such-host.invalid/v1")
    check(found, "no-such-host.invalid", "no answer for", "has not answered once")
    assert found.charges == []


def test_a_bad_certificate_ends_its_lane(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("making a certificate needs openssl")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", "tls.key", "-out", "tls.crt", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    found = failed(tmp_path, says(200, b""), tls=tls)
    check(found, "certificate", "provider 'acme'", "CA settings")
    assert (found.charges, found.requests) == ([], 0)


@pytest.mark.exhaustive
def test_one_answer_that_is_no_reply_now_and_then_is_asked_again(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        _, step, attempt = request.headers["X-Client-Request-Id"].split("/")
        return web.Response(body=PAGE if attempt == "0" and int(step) % 3 == 0 else TEXT)

    found = failed(tmp_path, answer)
    assert found.outcome.messages == ()
    assert found.outcome.exit_code == 0
    assert set(found.charges) == {"unreadable"}


def test_what_a_lane_owes_is_played_once_its_provider_works(tmp_path: Path) -> None:
    first = failed(tmp_path, says(401, error("no", "invalid_api_key")))
    check(first, "ACME_KEY")
    again = failed(tmp_path, says(200, TEXT))
    assert (again.outcome.exit_code, again.outcome.remaining, again.outcome.messages) == (0, 0, ())
