"""A server of OpenAI's chat completions that costs little: what is measured beside it is the client.

It keeps no state of conversations: a request whose messages hold k results of tools is answered with a tool call while
k < turns - 1, and else with a text that holds 42. So a conversation is exactly `turns` requests. Each answer comes
`latency` seconds after its request. With `events` each answer also holds a text of as many words; a request that asks
for a stream gets a word in each event, spread over `over` seconds. It says `ready <port>` once it listens. When its
input ends, it writes what it has counted as one JSON line and ends.

HTTP is read by hand, as far as these clients use it: requests with a Content-Length, one at a time a connection.
"""

import argparse
import asyncio
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import msgspec

HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
EPISODE = re.compile(rb"episode-(\d+)")
LONGEST_HEAD = 2**16


class _Said(msgspec.Struct):
    role: str


class _Chat(msgspec.Struct):
    """What matters of a request."""

    model: str
    messages: list[_Said]


_chat = msgspec.json.Decoder(_Chat)


@dataclass(slots=True)
class Counts:
    """What the server has seen."""

    requests: int = 0
    finals: int = 0
    """Requests answered with the last text."""
    repeated: int = 0
    """Requests for a step of a conversation that had been answered already."""
    connections: int = 0
    most_in_flight: int = 0
    span_s: float = 0.0
    """Seconds from the first request to the last answer."""
    cpu_s: float = 0.0
    """Of the server itself."""


@dataclass(slots=True)
class Server:
    """The answers, and what is counted of them."""

    turns: int
    latency_s: float
    tell_at: int = 0
    """Print `reached` at this request; 0: never."""
    events: int = 0
    """Words of the text in each answer."""
    over_s: float = 0.0
    """From the first event of a stream to its last."""
    counts: Counts = field(default_factory=Counts)
    in_flight: int = 0
    began: float = 0.0
    answered: set[tuple[bytes, int]] = field(default_factory=set)
    """(conversation, step)."""

    def asked(self, body: bytes) -> bytes:
        """The answer to a request, whole with its head. A body that is no chat is answered with a 400."""
        return b"".join(self.pieces(body))

    def pieces(self, body: bytes) -> list[bytes]:
        """The same, as it is sent: of a stream the events."""
        counts = self.counts
        self.began = self.began or time.perf_counter()
        counts.requests += 1
        if counts.requests == self.tell_at:
            print("reached", flush=True)
        self.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, self.in_flight)
        try:
            chat = _chat.decode(body)
        except msgspec.MsgspecError as flaw:
            return [response(b'{"error":{"message":%b}}' % msgspec.json.encode(str(flaw)), status=b"400 Bad Request")]
        step = sum(said.role == "tool" for said in chat.messages)
        episode = EPISODE.search(body)
        place = (episode[1] if episode else b"", step)
        counts.repeated += place in self.answered
        self.answered.add(place)
        last = step >= self.turns - 1
        counts.finals += last
        if body.startswith(b'{"stream":true'):
            return _stream(chat.model, step, len(body), last=last, words=self.events)
        return [response(_completion(chat.model, step, len(body), last=last, words=self.events))]

    def sent(self) -> None:
        """An answer left."""
        self.in_flight -= 1
        self.counts.span_s = time.perf_counter() - self.began


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.counts.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Answers that were due go nowhere."""
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Answer what has come whole."""
        self._held += data
        while (end := self._held.find(HEAD_END)) >= 0:
            length = LENGTH.search(self._held, 0, end)
            whole = end + len(HEAD_END) + int(length[1] if length else 0)
            if len(self._held) < whole:
                return
            body, self._held = self._held[end + len(HEAD_END) : whole], self._held[whole:]
            pieces = self._server.pieces(body)
            if not self._server.over_s:
                pieces = [b"".join(pieces)]
            asyncio.get_running_loop().call_later(self._server.latency_s, self._send, pieces, 0)
        if len(self._held) > LONGEST_HEAD and self._transport is not None:
            self._transport.close()

    def _send(self, pieces: list[bytes], place: int) -> None:
        if self._transport is not None:
            self._transport.write(pieces[place])
        if place + 1 < len(pieces):
            gap_s = self._server.over_s / len(pieces)
            asyncio.get_running_loop().call_later(gap_s, self._send, pieces, place + 1)
        else:
            self._server.sent()


def response(body: bytes, *, status: bytes = b"200 OK") -> bytes:
    """Head and body."""
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


def reply(step: int, *, last: bool, words: int = 0) -> dict[str, Any]:
    """The message of one reply."""
    text = "word " * words
    call = {
        "id": f"call_{step}",
        "type": "function",
        "function": {"name": "lookup", "arguments": f'{{"key":"k{step}"}}'},
    }
    if last:
        return {"role": "assistant", "content": text + "It is 42."}
    return {"role": "assistant", "content": text or None, "tool_calls": [call]}


def _completion(model: str, step: int, asked_bytes: int, *, last: bool, words: int = 0) -> bytes:
    """The JSON of one reply; a token is taken for four bytes."""
    message = reply(step, last=last, words=words)
    usage = {"prompt_tokens": asked_bytes // 4, "completion_tokens": 16, "total_tokens": asked_bytes // 4 + 16}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if last else "tool_calls"}
    return msgspec.json.encode(
        {
            "id": f"reply-{step}",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [choice],
            "usage": usage,
        }
    )


def _stream(model: str, step: int, asked_bytes: int, *, last: bool, words: int) -> list[bytes]:
    """The same reply as events, with head and end."""
    whole = msgspec.json.decode(_completion(model, step, asked_bytes, last=last))
    choice, usage = whole["choices"][0], whole.pop("usage")
    whole["object"] = "chat.completion.chunk"

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        inner = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        data = msgspec.json.encode({**whole, "choices": [inner]})
        return _chunk(b"data: " + data + b"\n\n")

    message = choice["message"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head + event({"role": "assistant"}), *[event({"content": "word "})] * words]
    if last:
        pieces.append(event({"content": message["content"]}))
    else:
        (call,) = message["tool_calls"]
        pieces.append(event({"tool_calls": [{**call, "index": 0}]}))
    pieces.append(event({}, choice["finish_reason"]))
    pieces.append(_chunk(b"data: " + msgspec.json.encode({**whole, "choices": [], "usage": usage}) + b"\n\n"))
    return [*pieces, _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]


def _chunk(data: bytes) -> bytes:
    """A piece of a body in chunks."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(server: Server) -> None:
    """Until the input ends."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=4096)
    print("ready", listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    listening.close()
    server.counts.cpu_s = time.process_time()
    print(msgspec.json.encode(asdict(server.counts)).decode(), flush=True)


def main() -> None:
    """Serve by what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--events", type=int, default=0, help="words of text in each answer")
    parser.add_argument("--over", type=float, default=0.0, help="seconds from a stream's first event to its last")
    parser.add_argument("--tell-at", type=int, default=0, help="print `reached` at this request")
    chosen = parser.parse_args()
    import uvloop

    server = Server(
        turns=chosen.turns,
        latency_s=chosen.latency,
        tell_at=chosen.tell_at,
        events=chosen.events,
        over_s=chosen.over,
    )
    uvloop.run(serve(server))


if __name__ == "__main__":
    main()
