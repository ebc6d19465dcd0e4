"""What may become of a file: flipped bytes, cuts, other JSON, another kind of thing under its name."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

Change = Callable[[Path], None]

TEXTS = (".json", ".jsonl")
ODD_LINES = (
    b"null",
    b"[]",
    b'["a", 1]',
    b"{}",
    b"3",
    b'"text"',
    b"1e999",
    b"1" + b"0" * 30,
    b"1" + b"0" * 5000,
    b"[" * 100_000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"\xff\xfe\x00",
    b'{"kind": "started", "budget_pico_usd": "many"}',
    b'{"kind": "ended", "messages": 3}',
    b'{"kind": ["deferred"], "why": "internal_error"}',
    b'{"torn": "li',
)
ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    [],
    {},
    "",
    "x",
    -1,
    0,
    1.5,
    10**19,
    10**400,
    [[[]]],
    {"a": 1},
    "\ud7ff",
    float("1e308"),
)


def flips(data: bytes, random: Random, count: int) -> Iterator[tuple[str, Change]]:
    """`count` single bytes changed, at places spread over the whole file."""
    for number in range(count):
        place = min(len(data) - 1, int((number + random.random()) * len(data) / count))
        value = random.choice([data[place] ^ (1 << random.randrange(8)), random.randrange(256)])
        if value != data[place]:
            yield f"byte {place} from {data[place]} to {value}", _put(data[:place] + bytes([value]) + data[place + 1 :])


def cuts(data: bytes, random: Random) -> Iterator[tuple[str, Change]]:
    """Emptied, cut, doubled, with other bytes behind."""
    yield "emptied", _put(b"")
    cut = random.randrange(1, max(2, len(data)))
    yield f"cut to {cut} bytes", _put(data[:cut])
    yield f"without its first {cut} bytes", _put(data[cut:])
    yield "doubled", _put(data + data)
    yield "with bytes behind", _put(data + random.randbytes(9))
    yield "of random bytes", _put(random.randbytes(len(data)))
    yield "of zeros", _put(bytes(len(data)))


def kinds(random: Random) -> Iterator[tuple[str, Change]]:
    """Something else under the name, or nothing."""
    del random
    yield "deleted", _delete
    yield "a directory", _directory
    yield "a link to nothing", _dangling


def lines(data: bytes, random: Random) -> Iterator[tuple[str, Change]]:
    """Other JSON instead of the whole, or as one more line."""
    for line in ODD_LINES:
        name = line[:24].decode("latin-1") + ("..." if len(line) > 24 else "")
        yield f"only {name}", _put(line)
        yield f"only {name} and a line's end", _put(line + b"\n")
        where = random.choice([0, len(data)])
        yield f"{name} added at {where}", _put(data[:where] + line + b"\n" + data[where:])


def values(data: bytes, random: Random, count: int) -> Iterator[tuple[str, Change]]:
    """Single values of a JSON document replaced or left out, at places drawn from all of its places."""
    first = data.splitlines()[0] if data.count(b"\n") > 1 and data.startswith(b'{"') else data
    places = list(_places(json.loads(first)))
    for _ in range(count):
        place, value = random.choice(places), random.choice(ODD_VALUES)
        found = json.loads(first)
        inner = found
        for key in place[:-1]:
            inner = inner[key]
        if random.random() < 0.3:
            del inner[place[-1]]
            name = "left out"
        else:
            inner[place[-1]] = value
            name = repr(value)[:20]
        yield f"{'/'.join(map(str, place))} {name}", _put(json.dumps(found).encode() + b"\n" + data[len(first) + 1 :])


def _places(value: object) -> Iterator[tuple[object, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (key,)
            yield from ((key, *rest) for rest in _places(item))


def changes(path: Path, random: Random, count: int) -> Iterator[tuple[str, Change]]:
    """All of the above for a file; `count` flips, and as many values."""
    data = path.read_bytes()
    yield from kinds(random)
    yield from cuts(data, random)
    if data:
        yield from flips(data, random, count)
    if path.suffix in TEXTS or path.name == "lock":
        yield from lines(data, random)
        if data:
            yield from values(data, random, count)


def _put(data: bytes) -> Change:
    def change(path: Path) -> None:
        path.write_bytes(data)

    return change


def _delete(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")
