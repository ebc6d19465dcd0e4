"""`evalkit providers` and `providers check`: what they say of keys, prices and endpoints, and never a key itself."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.errors import KeyringLocked

from evalkit.client.clouds import LIBRARIES
from evalkit.money import show_usd
from evalkit.serve.formats import BASE_PATH
from tests.provider.dialects import SERVED_DIALECTS
from tests.provider.serving import simulated
from tests.support.certificates import self_signed
from tests.support.command_line import Call
from tests.support.patience import PATIENCE_S

KEY = "sk-planted-0123456789"
ACME = """
dialect = "openai_chat"
url = "{url}"
key_env = "ACME_KEY"
timeout_s = {timeout_s}
[models.dear]
usd_per_mtok = {{ input = "10", output = "50", source = "a page, 2026-01-01" }}
[models.cheap.usd_per_mtok]
input = "1"
output = "2"
over = {{ tokens = 9000, input = "3", output = "4" }}
source = "a page, 2026-01-01"
"""
REPLY = {
    "model": "cheap-2026",
    "choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 50, "completion_tokens": 10},
}
PAGE = f"<!DOCTYPE html><html><head><title>Sign in {KEY}</title></head></html>".encode()

Answer = tuple[int, bytes, dict[str, str]]
Serve = Callable[[Answer], str]


def answering(status: int, body: Any, **headers: str) -> Answer:
    return status, body if isinstance(body, bytes) else json.dumps(body).encode(), headers


def refusing(status: int, message: str, **more: str) -> Answer:
    return answering(status, {"error": {"message": message, **more}})


class Server(ThreadingHTTPServer):
    """Answers every POST alike, but for a stream if it has another answer to that; keeps what it was sent."""

    answer: Answer
    to_stream: Answer | None = None
    to_results: Answer | None = None
    bodies: list[dict[str, Any]]
    release: threading.Event


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        streamed = self.server.bodies[-1].get("stream") and self.server.to_stream
        roles = [message["role"] for message in self.server.bodies[-1]["messages"]]
        status, body, headers = streamed or ("tool" in roles and self.server.to_results) or self.server.answer
        if status == 0:  # silent until the test is over
            self.server.release.wait(PATIENCE_S)
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A provider `acme` on this machine, and its key in the environment."""
    with Server(("127.0.0.1", 0), Handler) as listening:
        listening.bodies, listening.release = [], threading.Event()
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("ACME_KEY", KEY)
        acme(here, f"http://127.0.0.1:{listening.server_port}/v1")
        yield listening
        listening.release.set()
        listening.shutdown()
        thread.join()


def acme(here: Path, url: str, timeout_s: float = 60.0) -> None:
    (here / "providers").mkdir(exist_ok=True)
    (here / "providers" / "acme.toml").write_text(ACME.format(url=url, timeout_s=timeout_s))


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_provider_that_works_is_asked_once_for_its_cheapest_model(call: Call, server: Server) -> None:
    server.answer = answering(200, REPLY)
    said = call("providers", "check", "acme")
    assert said.code == 0
    asked = "Sends two requests to 1 provider, the first again as a stream, within 20 s each: at most $0.0076."
    assert asked in words(said.out)
    assert "s: cheap-2026, 50 tokens in, 10 out, $0.0002" in words(said.out)
    body, after, again = server.bodies
    assert (body["model"], body["max_tokens"], len(body["tools"])) == ("cheap", 512, 1)
    assert [message["role"] for message in after["messages"]] == ["system", "user", "assistant", "user"]
    assert again == {**body, "stream": True, "stream_options": {"include_usage": True}}
    assert call("providers", "check", "acme", "--model", "dear").code == 0
    assert server.bodies[-1]["model"] == "dear"


@pytest.mark.parametrize(
    ("usage", "says", "cost"),
    [
        (None, "the reply has no usage: a run charges the worst case", None),
        ({"prompt_tokens": 50, "completion_tokens": "many"}, "the reply has no output usage: a run", 50 + 2 * 512),
        ({"completion_tokens": 10}, "the reply has no input usage: a run", None),
    ],
)
def test_a_provider_that_does_not_count_is_told_with_its_worst_case(
    call: Call, server: Server, usage: object, says: str, cost: int | None
) -> None:
    server.answer = answering(200, {**REPLY, "usage": usage})
    said = " ".join(call("providers", "check", "acme").out.split())
    assert says in said
    assert "$0.00" in said.partition("worst case")[2]
    if cost is not None:
        assert show_usd(3 * cost * 10**6) in said  # going on with it, and as a stream too


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refusing(401, f"Incorrect API key provided: {KEY}"), "Check the key in ACME_KEY"),
        (refusing(403, f"No access for {KEY}", code=KEY), "Check the key in ACME_KEY"),
        (refusing(404, f"No model for {KEY}", code="model_not_found"), "Check the model name 'cheap' and the url"),
        (refusing(402, f"Out of credit, {KEY}"), "has no credit left"),
        (refusing(429, f"Slow down, {KEY}"), "try again later"),
        (refusing(500, KEY), "Try again later"),
        (refusing(400, f"Unknown field max_tokens {KEY}"), "Check `refuses`"),
        (answering(307, b"", Location=f"https://elsewhere.example/?key={KEY}"), "Correct the url of provider 'acme'"),
        (answering(200, PAGE), "an HTML page"),
        (answering(404, PAGE), "an HTML page"),
        (answering(200, {"said": KEY}), "Check the url and the dialect"),
        (answering(200, {**REPLY, "model": KEY}), "ok in"),
        (answering(200, b"[", **{"Content-Length": "900"}), "Content"),
        ((0, b"", {}), "no complete reply within 1 s"),
    ],
    ids=lambda value: "" if isinstance(value, str) else f"{value[0]}-{len(value[1])}",
)
def test_every_failure_is_one_message_that_holds_no_key(
    call: Call, here: Path, server: Server, answer: Answer, says: str
) -> None:
    server.answer = answer
    if not answer[0]:
        acme(here, f"http://127.0.0.1:{server.server_port}/v1", timeout_s=1)
    said = call("providers", "check", "acme")
    assert says in words(said.out), said.out
    assert said.code == (0 if says == "ok in" else 3)
    assert KEY not in said.out + said.err
    assert KEY[:9] not in said.out + said.err
    assert len(server.bodies) == (3 if says == "ok in" else 1), "more is asked for after a reply alone"


SIMULATED = """
dialect = "{dialect}"
timeout_s = {timeout_s}
stream = "{stream}"
[simulate]
{fault}
[models.random]
refuses = {refuses}
[usd_per_mtok]
input = "1"
output = "2"
source = "a page, 2026-01-01"
"""


@pytest.mark.usefixtures("any_provider")
@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("dialect", ["anthropic_messages", "gemini", "openai_chat", "openai_responses"])
def test_a_stream_that_comes_to_the_same_kind_of_reply(call: Call, here: Path, dialect: str) -> None:
    text = SIMULATED.format(dialect=dialect, stream="auto", fault="", refuses=[], timeout_s=20)
    (here / "providers").mkdir(exist_ok=True)
    (here / "providers" / "sim.toml").write_text(text)
    said = call("providers", "check", "sim", "--model", "random")
    assert (said.code, "the same kind of reply, with its usage" in words(said.out)) == (0, True), said.out


@pytest.mark.usefixtures("any_provider")
@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("changed", "says", "code"),
    [
        ({"refuses": ["stream_options"]}, "without its usage (input and output): a run charges the worst case", 0),
        ({"refuses": ["stream"]}, "not asked for", 0),
        ({"stream": "off"}, "not asked for", 0),
        ({"fault": "fault_stream_end = 1.0"}, "failed: ", 3),
        ({"fault": "fault_stream_error = 1.0"}, "failed: ", 3),
        ({"fault": "fault_stream_silent = 1.0"}, "failed: no ", 3),
        ({"fault": "fault_stream_comments = 1.0"}, "the same kind of reply", 0),
    ],
)
def test_what_is_wrong_with_a_stream_is_said(
    call: Call, here: Path, changed: dict[str, Any], says: str, code: int
) -> None:
    # Only what is silent waits for its end; on a busy machine the others may take long.
    timeout_s = 2 if "silent" in changed.get("fault", "") else 20
    chosen = {"dialect": "openai_chat", "stream": "auto", "fault": "", "refuses": [], "timeout_s": timeout_s, **changed}
    (here / "providers").mkdir(exist_ok=True)
    (here / "providers" / "sim.toml").write_text(SIMULATED.format(**chosen))
    said = call("providers", "check", "sim", "--model", "random")
    assert (said.code, says in " ".join(said.out.split())) == (code, True), said.out
    assert "ok in" in said.out


@pytest.mark.parametrize(
    ("answer", "says", "code"),
    [
        (None, "ignored: the reply came in one piece", 0),
        (refusing(400, f"`stream` is not for you, {KEY}"), "refused: `stream` is not for you", 0),
        (refusing(500, KEY), "failed: ", 3),
        (
            answering(200, b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"length"}]}\n\n'
                      b'data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":10}}\n\ndata: [DONE]\n\n',
                      **{"Content-Type": "text/event-stream"}),
            "finish: length, in one piece stop; model: not named, in one piece cheap-2026",
            0,
        ),
    ],
    ids=["ignored", "refused", "failed", "other"],
)  # fmt: skip
def test_a_provider_that_treats_streams_otherwise(
    call: Call, server: Server, answer: Answer | None, says: str, code: int
) -> None:
    server.answer, server.to_stream = answering(200, REPLY), answer
    said = call("providers", "check", "acme")
    assert (said.code, says in words(said.out)) == (code, True), said.out
    assert KEY[:9] not in said.out + said.err


def test_a_provider_that_refuses_the_order_of_a_chat_fails_before_a_run_does(call: Call, server: Server) -> None:
    called = [{"id": "c1", "type": "function", "function": {"name": "report_ready", "arguments": "{}"}}]
    choice = {"message": {"content": None, "tool_calls": called}, "finish_reason": "tool_calls"}
    server.answer = answering(200, {**REPLY, "choices": [choice]})
    server.to_results = refusing(400, "Unexpected role 'user' after role 'tool'")
    said = call("providers", "check", "acme")
    assert said.code == 3
    assert "refuses the chat that follows: Unexpected role" in words(said.out)
    assert "write `after_results = \"bridged\"` for 'cheap'" in words(said.out)
    assert [message["role"] for message in server.bodies[-1]["messages"]][2:] == ["assistant", "tool", "user"]


def test_what_a_provider_says_moves_no_cursor(call: Call, server: Server) -> None:
    server.answer = refusing(400, "[bold]a\x1b[2Jb[/bold]")
    out = call("providers", "check", "acme").out
    assert "[bold]a\\x1b[2Jb[/bold]" in words(out)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:9/v1", "not running at http://127.0.0.1:9/v1"),
        ("https://nowhere.invalid/v1", "this machine's network and proxy"),
        ("http://nowhere.invalid/v1", "A key would be sent to nowhere.invalid unencrypted"),
        ("${ACME_HOST}/v1", "set the environment variable ACME_HOST"),
    ],
    ids=["closed", "unknown-host", "unencrypted", "variable"],
)
def test_an_endpoint_that_cannot_be_reached(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, url: str, says: str
) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    acme(here, url)
    said = call("providers", "check", "acme")
    assert (said.code, says in words(said.out)) == (3, True), said.out
    assert KEY not in said.out + said.err


def test_a_certificate_that_nobody_vouches_for(call: Call, here: Path, server: Server, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    acme(here, f"https://127.0.0.1:{server.server_port}/v1")
    said = call("providers", "check", "acme")
    assert (said.code, server.bodies) == (3, [])
    assert "The certificate of provider 'acme' was not accepted" in words(said.out)


def alone(here: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """No providers but these."""
    (here / "providers").mkdir(exist_ok=True)
    for name, text in files.items():
        (here / "providers" / f"{name}.toml").write_text(text)
    for module in ("evalkit.cli.make.providers", "evalkit.cli.make.providers"):
        monkeypatch.setattr(f"{module}.provider_names", lambda: sorted(files))


OWN = """dialect = "openai_chat"
url = "{url}"
usd_per_mtok = {{ input = "0", output = "0", source = "mine, 2026-01-01" }}
"""


def test_who_is_not_named_is_passed_over_without_a_key_or_a_server(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)
    alone(
        here, monkeypatch, acme=ACME.format(url="https://a.invalid", timeout_s=1), own=OWN.format(url="http://[::1]:9")
    )
    said = call("providers", "check")
    assert said.code == 0
    assert "skipped: ACME_KEY is not set" in said.out
    assert "not running at http://[::1]:9" in said.out
    assert call("providers", "check", "own").code == 3
    named = call("providers", "check", "acme")
    assert named.code == 3
    assert "'acme' needs a key: set the environment variable ACME_KEY" in words(named.out)


def test_a_server_of_ones_own_whose_models_nobody_named(
    call: Call, here: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = refusing(404, "The model `default` does not exist.")
    own = f'{OWN.format(url=f"http://127.0.0.1:{server.server_port}/v1")}key_env = "ACME_KEY"\n'
    alone(here, monkeypatch, own=own)
    said = call("providers", "check", "own")
    assert said.code == 0
    assert "it is running; name one of its models: evalkit providers check own --model MODEL" in words(said.out)
    assert call("providers", "check", "own", "--model", "mine").code == 3


def test_each_of_several_servers_is_asked(call: Call, here: Path, server: Server) -> None:
    server.answer = answering(200, REPLY)
    there, gone = f"127.0.0.1:{server.server_port}", "127.0.0.1:9"
    file = here / "providers" / "acme.toml"
    file.write_text(file.read_text().replace(f'"http://{there}/v1"', f'["http://{there}/v1", "http://{gone}/v1"]'))
    said = call("providers", "check", "acme")
    assert said.code == 3
    assert "Sends two requests to each of 2 servers" in words(said.out)
    assert f"{there}: ok in" in words(said.out)
    assert f"{gone}: not running at http://{gone}/v1" in words(said.out)
    assert f"acme: openai_chat, http://{there}/v1, http://{gone}/v1" in words(call("providers", "acme").out)


def test_the_simulated_provider_is_started_and_asked(call: Call) -> None:
    said = call("providers", "check", "simulated")
    assert (said.code, "at most $0." in said.out) == (0, True), said.out
    assert "(simulated money)" in words(said.out)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["check", "acme", "simulated", "--model", "x"], "--model needs the name of exactly one provider"),
        (["check", "--model", "x"], "--model needs the name of exactly one provider"),
        (["check", "simulatd"], "Did you mean 'simulated'"),
        (["simulated", "--model", "x"], "--model goes with `providers check PROVIDER`"),
        (["openai", "gpt-5-mnii"], "Did you mean 'gpt-5-mini'"),
    ],
)
def test_a_call_that_makes_no_sense(call: Call, argv: list[str], says: str) -> None:
    said = call("providers", *argv)
    assert said.code == 2
    assert says in said.message


def test_the_list_says_where_each_key_is(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(here, monkeypatch, acme=ACME.format(url="https://a.invalid", timeout_s=1))
    monkeypatch.delenv("ACME_KEY", raising=False)
    monkeypatch.setattr(keyring, "get_password", lambda service, name: None)
    assert "ACME_KEY (not set)" in call("providers").out
    monkeypatch.setattr(keyring, "get_password", lambda service, name: KEY)
    assert "ACME_KEY (keyring)" in call("providers").out

    def locked(service: str, name: str) -> str:
        raise KeyringLocked(KEY)

    monkeypatch.setattr(keyring, "get_password", locked)
    assert "ACME_KEY (keyring locked)" in call("providers").out
    monkeypatch.setenv("ACME_KEY", KEY)
    for argv in ([], ["acme"], ["acme", "cheap"]):
        said = call("providers", *argv)
        assert "ACME_KEY (env)" in said.out
        assert KEY not in said.out + said.err


def test_models_are_shown_with_the_prices_of_long_prompts_and_further_ones_on_request(call: Call, here: Path) -> None:
    acme(here, "${HOST}/v1")
    out = call("providers", "acme").out
    assert "acme: openai_chat, ${HOST}/v1" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["cheap", "?", "1", "2", "1"] in lines
    assert ["prompts", "over", "9,000", "3", "4", "3"] in lines
    further = call("providers", "openai", "gpt-6-sol").out
    assert "gpt-6-sol" in further
    assert "gpt-5-mini" not in further
    assert "Prices from genai-prices" in further


CLOUD = """
dialect = "{dialect}"
url = "{url}"
key_env = "CLOUD_TOKEN"
[usd_per_mtok]
input = "1"
output = "2"
source = "a page, 2026-01-01"
"""


@pytest.mark.exhaustive
def test_clouds_are_asked_with_a_key_of_the_environment(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "night-token-0123456789"
    names = ("anthropic_bedrock", "anthropic_vertex", "gemini_vertex")
    (here / "providers").mkdir(exist_ok=True)
    monkeypatch.setenv("CLOUD_TOKEN", token)
    with simulated({"key": token}) as url:
        for name in names:
            base = url.removesuffix(BASE_PATH) + SERVED_DIALECTS[name].base_path
            (here / "providers" / f"{name}.toml").write_text(CLOUD.format(dialect=name, url=base))
            said = call("providers", "check", name, "--model", "random")
            assert said.code == 0, said.out
            assert "s: random, " in words(said.out)
            assert "CLOUD_TOKEN (env)" in words(call("providers", name).out)
        monkeypatch.setenv("CLOUD_TOKEN", f"not-{token}")
        said = call("providers", "check", "anthropic_bedrock", "--model", "random")
    assert said.code == 3
    assert "Check the key in CLOUD_TOKEN" in words(said.out)
    assert token not in said.out


def test_a_cloud_without_its_sdk_is_named_with_the_line_that_installs_it(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIBRARIES, "google", ("no_such_package.part",))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    (here / "providers").mkdir(exist_ok=True)
    said = call("providers", "check", "vertex")
    assert said.code == 3
    assert "credentials = \"google\" needs its SDK: `pip install 'evalkit-econ[google]'`" in words(said.out)
    assert "SDK of google (not installed)" in words(call("providers", "vertex").out)
