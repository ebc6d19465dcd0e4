"""The commands for alarms in `docs/recipes/`: what they send, and the JSON that they are given."""

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.test_command import fall, two_nights
from tests.support.command_line import Call
from tests.support.patience import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[2]
RECIPES = PROJECT / "docs" / "recipes"
SAMPLE = RECIPES / "alarm.json"
SECRET = "a-secret-path"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    """A server in a thread; yields its port."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[index,misc]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Mails(socketserver.StreamRequestHandler):
    """A mail server that keeps what it is given."""

    kept: list[str]

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().decode():
            if line.upper().startswith("DATA"):
                self.wfile.write(b"354 go\r\n")
                text = ""
                while (more := self.rfile.readline().decode()) != ".\r\n":
                    text += more
                self.kept.append(text)
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith("QUIT") else b"250 ok\r\n")
            if line.upper().startswith("QUIT"):
                return


class Posts(BaseHTTPRequestHandler):
    """A chat that keeps what is posted."""

    kept: list[tuple[str, Any]]
    code = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.kept.append((self.path, json.loads(body)))
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def called(name: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RECIPES / name), *words],
        input=SAMPLE.read_text(),
        env={"PATH": os.environ["PATH"], **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_an_alarm_is_mailed() -> None:
    kept: list[str] = []
    handler = type("Kept", (Mails,), {"kept": kept})
    with serving(socketserver.TCPServer(("127.0.0.1", 0), handler)) as port:
        done = called("alarm_mail.py", "you@example.org", MAIL_SERVER=f"127.0.0.1:{port}", MAIL_FROM="a@example.org")
    assert (done.returncode, done.stderr) == (0, "")
    (mail,) = kept
    head, _, text = mail.replace("=\r\n", "").replace("\r\n", "\n").partition("\n\n")
    assert "To: you@example.org" in head
    assert "From: a@example.org" in head
    assert "Subject: nightly 2026-11-21: regression of gpt" in head
    assert "gpt on scheduling/basic" in text
    assert "tonight 71.2" in text
    assert "served: gpt-5-mini-2026-11-18; before: gpt-5-mini-2026-08-07" in text
    assert "evalkit compare runs/nightly/nights/2026-11-07..2026-11-20:gpt" in text


def test_a_mail_that_is_not_sent_is_an_error_in_one_line() -> None:
    with serving(socketserver.TCPServer(("127.0.0.1", 0), Mails)) as port:
        pass  # the port is free again
    done = called("alarm_mail.py", "you@example.org", MAIL_SERVER=f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert re.fullmatch(r"The mail was not sent: .*\n", done.stderr)


@pytest.mark.parametrize("field", ["text", "content"])
def test_an_alarm_is_posted(field: str) -> None:
    kept: list[tuple[str, Any]] = []
    handler = type("Kept", (Posts,), {"kept": kept})
    with serving(HTTPServer(("127.0.0.1", 0), handler)) as port:
        url = f"http://127.0.0.1:{port}/{SECRET}"
        done = called("alarm_webhook.py", WEBHOOK_URL=url, WEBHOOK_FIELD=field)
    assert (done.returncode, done.stderr) == (0, "")
    ((path, body),) = kept
    assert path == f"/{SECRET}"
    assert list(body) == [field]
    head, line = body[field].splitlines()
    assert head == "Regression in nightly, night 2026-11-21:"
    assert line.startswith("gpt on scheduling/basic: tonight 71.2")


def test_a_chat_that_refuses_is_an_error_that_does_not_name_the_address() -> None:
    handler = type("Refusing", (Posts,), {"kept": [], "code": 403})
    with serving(HTTPServer(("127.0.0.1", 0), handler)) as port:
        done = called("alarm_webhook.py", WEBHOOK_URL=f"http://127.0.0.1:{port}/{SECRET}")
    assert done.returncode == 1
    assert done.stderr == "The chat answered 403: Forbidden\n"
    for url in ("", f"ftp://127.0.0.1/{SECRET}", f"http://127.0.0.1:{port}/{SECRET}"):
        done = called("alarm_webhook.py", WEBHOOK_URL=url)
        assert done.returncode == 1
        assert done.stderr.startswith("Nothing was posted: ")
        assert SECRET not in done.stderr


def test_a_night_that_falls_is_posted_and_its_facts_have_the_keys_of_the_sample(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[str, Any]] = []
    handler = type("Kept", (Posts,), {"kept": kept})
    two_nights(call)
    fall(monkeypatch)
    with serving(HTTPServer(("127.0.0.1", 0), handler)) as port:
        monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{port}/")
        hook = f"{sys.executable} {RECIPES / 'alarm_webhook.py'}"
        said = call("nightly", "mine.toml", "--date", "2026-11-03", "--on-alarm", hook)
    assert (said.code, said.err) == (4, "")
    assert "knuth on scheduling/basic?periods=4: tonight" in kept[0][1]["text"]
    facts = json.loads(call("nightly", "mine.toml", "--look", "--json").out.splitlines()[-1])
    sample = json.loads(SAMPLE.read_text())
    assert list(facts)[: len(sample)] == list(sample)
    assert list(facts["alarms"][0]) == list(sample["alarms"][0])
    for key, value in sample["alarms"][0].items():
        assert type(facts["alarms"][0][key]) is type(value), key


def test_the_page_shows_the_sample_and_names_each_of_its_keys() -> None:
    page = (PROJECT / "docs" / "nightly.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert block == SAMPLE.read_text()
    table = page.partition("| key | what it holds |")[2].partition("\n\n")[0]
    sample = json.loads(block)
    for key in [*sample, *sample["alarms"][0]]:
        assert f"`{key}`" in table or key in ("agent", "suite"), key
