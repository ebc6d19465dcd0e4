"""A record of what a run does to the disk and to its provider, in order, and the rules that it must keep.

`recording` wraps the functions of `store/disk.py` and `EndpointTransport.send`; an operation is noted once it is over,
a request before it is sent. `violations` is a pure function over such a trace: it believes a row to be durable only
after write, fsync of the file, naming (by a link or by renaming) and fsync of the directory, in this order.
"""

import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from evalkit.client.transport import EndpointTransport
from evalkit.engine import sweep
from evalkit.store import disk
from evalkit.store.files.schema import LEDGER
from evalkit.store.writing import writer
from evalkit.store.writing.writer import Store
from evalkit.wire.http import HttpResponse
from evalkit.wire.openai_chat import OPENAI_CHAT

Rows = tuple[dict[str, Any], ...]

MONEY = ("kind", "session", "amount", "episode", "step", "attempt", "at")
FAILURES_THAT_COST = {"reset", "truncated", "timeout", "oversize"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One operation that was carried out, or one request."""

    what: str
    """`write`, `sync_file`, `name`, `sync_directory`; `send` and `back` of a request; `session`: one begins."""
    path: str = ""
    """A file or directory; of `session` its name."""
    target: str = ""
    rows: Rows = ()
    """What a written file holds: steps and money rows as plain values."""
    request: tuple[str, int, int] = ("", 0, 0)
    """Episode, step, attempt."""
    amount: int = 0
    """Of `send`: the most it can cost. Of `back`: what it did cost. Pico-dollars."""
    unknown: bool = False
    """Of `back`: whether the provider may have billed the attempt and nobody knows what."""


@dataclass(slots=True)
class _Books:
    """What a reader of the disk would know at this moment, had the machine just died."""

    written: dict[str, Rows] = field(default_factory=dict)
    synced: set[str] = field(default_factory=set)
    named: dict[str, tuple[str, Rows]] = field(default_factory=dict)
    """Files with their final name whose directory is not synced yet: (directory, rows)."""
    files: set[str] = field(default_factory=set)
    steps: set[tuple[str, int]] = field(default_factory=set)
    cost: dict[str, int] = field(default_factory=dict)
    """Of durable steps, by session."""
    money: list[dict[str, Any]] = field(default_factory=list)
    """Durable money rows."""

    def note(self, event: Event) -> None:
        """An operation on the disk."""
        if event.what == "write":
            self.written[event.path] = event.rows
            self.synced.discard(event.path)
        elif event.what == "sync_file":
            self.synced.add(event.path)
        elif event.what == "name" and event.path in self.synced and event.path in self.written:
            self.named[event.target] = str(Path(event.target).parent), self.written.pop(event.path)
        elif event.what == "sync_directory":
            for name in [name for name, (folder, _) in self.named.items() if folder == event.path]:
                self._keep(name, self.named.pop(name)[1])

    def _keep(self, name: str, rows: Rows) -> None:
        if name in self.files:
            return  # a file that is written again
        self.files.add(name)
        for row in rows:
            if "kind" in row:
                if row not in self.money:  # compaction writes rows a second time
                    self.money.append(row)
            elif (row["episode"], row["step"]) not in self.steps:  # likewise
                self.steps.add((row["episode"], row["step"]))
                self.cost[row["worker"]] = self.cost.get(row["worker"], 0) + row["cost"]

    def sum(self, session: str, kind: str) -> int:
        return sum(row["amount"] for row in self.money if (row["session"], row["kind"]) == (session, kind))

    def has(self, session: str, kind: str) -> bool:
        return any((row["session"], row["kind"]) == (session, kind) for row in self.money)

    def unsettled(self) -> Iterator[str]:
        """Sessions that have not been closed, or of which leases or spending are not on the books."""
        for session in {row["session"] for row in self.money}:
            booked = self.sum(session, "charge") + self.sum(session, "crash") + self.cost.get(session, 0)
            settled = next((kind for kind in ("crash", "close") if self.has(session, kind)), None)
            if settled is None or booked < self.sum(session, "lease" if settled == "crash" else "close"):
                yield session


def violations(trace: Iterable[Event]) -> list[tuple[str, str]]:
    """(rule, what broke it), in order. Rules: `manifest`, `open`, `step`, `lease`, `charge`, `crash`."""
    found: list[tuple[str, str]] = []
    books, out, spent, session = _Books(), dict[tuple[str, int, int], int](), 0, ""
    owing: dict[tuple[str, int], int] = {}
    for event in trace:
        if event.what == "send":
            out[event.request] = event.amount
            found += [(rule, f"{event.request}: {words}") for rule, words in _before(event, books, owing, session)]
            leased = books.sum(session, "lease")
            if spent + sum(out.values()) > leased:
                found.append(("lease", f"{event.request}: {spent} spent, {sum(out.values())} out, {leased} leased"))
        elif event.what == "session":
            session, spent = event.path, 0
        elif event.what == "back":
            del out[event.request]
            spent += event.amount
            if event.unknown:
                owing[event.request[:2]] = event.request[2]
        else:
            books.note(event)
    return found


def _before(event: Event, books: _Books, owing: dict[tuple[str, int], int], session: str) -> Iterator[tuple[str, str]]:
    """What should have been durable before a request was sent, and was not."""
    episode, step, attempt = event.request
    if not any("/manifest/" in name for name in books.files):
        yield "manifest", "no manifest is durable"
    if step > 0 and (episode, step - 1) not in books.steps:
        yield "step", f"step {step - 1} is not durable"
    failed = owing.get((episode, step))
    if attempt and failed is not None:
        charges = [row for row in books.money if row["kind"] == "charge" and row["attempt"] == failed]
        if not any((row["episode"], row["step"]) == (episode, step) for row in charges):
            yield "charge", f"attempt {failed} may have been billed, and no charge is durable"
    if not books.has(session, "open"):
        yield "open", f"session {session} is not durable"
    for other in books.unsettled():
        if other != session:
            yield "crash", f"session {other} is not settled"


@contextmanager
def recording(price_in: int, price_out: int, max_tokens: int) -> Iterator[list[Event]]:
    """Record everything inside the context; prices in pico-dollars a token, to bound requests independently."""
    trace: list[Event] = []
    lock = threading.Lock()

    def note(**values: Any) -> None:
        with lock:
            trace.append(Event(**values))

    plain = {name: getattr(disk, name) for name in ("write", "sync_file", "rename", "link", "sync_directory")}
    plain_send = EndpointTransport.send

    def write(path: Path, data: bytes | memoryview) -> FileIO:
        rows = rows_in(bytes(data))
        file: FileIO = plain["write"](path, data)
        note(what="write", path=str(path), rows=rows)
        return file

    def sync_file(file: FileIO) -> None:
        plain["sync_file"](file)
        note(what="sync_file", path=str(file.name))

    def rename(source: Path, target: Path) -> None:
        plain["rename"](source, target)
        note(what="name", path=str(source), target=str(target))

    def link(source: Path, target: Path) -> None:
        plain["link"](source, target)
        note(what="name", path=str(source), target=str(target))

    def sync_directory(path: Path) -> None:
        plain["sync_directory"](path)
        note(what="sync_directory", path=str(path))

    async def send(self: EndpointTransport, body: bytes, request_id: str) -> HttpResponse:
        episode, step, attempt = request_id.split("/")
        request = episode, int(step), int(attempt)
        bound = (len(body) + OPENAI_CHAT.overhead_tokens) * price_in + max_tokens * price_out
        note(what="send", request=request, amount=bound)
        response = await plain_send(self, body, request_id)
        cost, unknown = _cost(response, bound, price_in, price_out)
        note(what="back", request=request, amount=cost, unknown=unknown)
        return response

    def open_store(run: Path, *, session: str) -> AbstractContextManager[Store]:
        note(what="session", path=session)
        return writer.open_store(run, session=session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "open_store", open_store)
        for wrapper in (write, sync_file, rename, link, sync_directory):
            patch.setattr(disk, wrapper.__name__, wrapper)
        patch.setattr(EndpointTransport, "send", send)
        yield trace


def _cost(response: HttpResponse, bound: int, price_in: int, price_out: int) -> tuple[int, bool]:
    """(what a response cost, whether that is only feared)."""
    if response.failure in FAILURES_THAT_COST:
        return bound, True
    if response.status != 200:
        return 0, False
    usage = orjson.loads(response.body)["usage"]
    return usage["prompt_tokens"] * price_in + usage["completion_tokens"] * price_out, False


def rows_in(data: bytes) -> Rows:
    """The rows of a file of the log, steps and money; none of any other file."""
    if not data.startswith(b"PAR1"):
        return ()
    table = pq.read_table(io.BytesIO(data))
    says = table.schema.metadata or pq.read_metadata(io.BytesIO(data)).metadata or {}
    if b"evalkit.kind" not in says:
        return ()
    kind = says[b"evalkit.kind"].decode()
    if kind == "ledger":
        return tuple(table.select(MONEY).to_pylist())
    money = [dict(zip(LEDGER.names, row, strict=True)) for row in orjson.loads(says.get(b"evalkit.money", b"[]"))]
    steps = table.select(("episode", "step", "worker", "cost")).to_pylist()
    return (*steps, *({name: row[name] for name in MONEY} for row in money))


def surviving(run: Path) -> list[Event]:
    """A run directory as the trace that would have made it: what a crash has left."""
    events = []
    for path in sorted(path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")):
        name, aside = str(path), str(path.with_name("aside"))
        events += [
            Event(what="write", path=aside, rows=rows_in(path.read_bytes())),
            Event(what="sync_file", path=aside),
            Event(what="name", path=aside, target=name),
            Event(what="sync_directory", path=str(path.parent)),
        ]
    return events


def rules(found: Sequence[tuple[str, str]]) -> set[str]:
    """The rules that were broken."""
    return {rule for rule, _ in found}
