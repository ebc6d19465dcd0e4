"""A run of which something is another than was written, and still makes sense: nobody may go on from it unawares.

A word of a footer; a bit or a line of a suite's file.
What is promised: a process that would go on refuses it, or takes the same for true as before.
"""

import struct
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.envs.suite_rows import ENDING, SuiteRows, encode_rows
from evalkit.errors import CorruptLogError
from evalkit.frozen.instances import Instances, laid
from evalkit.frozen.manifests import is_run, read_manifest
from evalkit.frozen.suite_file import FOLDER as SUITES
from evalkit.seeds import Stream
from evalkit.store.files.layout import journals
from evalkit.store.files.segment import claim
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from evalkit.store.writing.opening import refuse_damage
from tests.sim.checks import Broken
from tests.sim.commands import findings

if TYPE_CHECKING:
    from tests.sim.world import World

ASKED = 0.2
"""How often `verify` is asked as well where a process refuses."""
WORDS = ("money", "spent", "leased")
"""Of a footer, by which money is counted."""


def try_one(world: "World", number: int) -> None:
    """Alter a file of a run that has ended its life of this number, see who notices, and put it back."""
    run, draws = world.run, Stream(world.scenario.seed, "altered", number)
    if not is_run(run) or world.checks.suspended or world.harmed:
        return
    before = taken_for_true(run)
    found = (_word, _suite)[draws.below(2)](run, draws) if before is not None else None
    if found is None:
        return
    path, data, words = found
    held = path.read_bytes()
    path.write_bytes(data)
    try:
        world.counts["altered"] += 1
        after = taken_for_true(run)
        world.say(f"{words} of {path.relative_to(run)} is another: {'refused' if after is None else 'read'}")
        if after not in (None, before):
            raise Broken(f"a process goes on with another run than was written: {words} of {path.relative_to(run)}")
        if after is None and draws.uniform() < ASKED and not findings(run):
            raise Broken(f"verify finds nothing, and the log is refused: {words} of {path.relative_to(run)}")
    finally:
        path.write_bytes(held)
    world.say("it is put back")


def taken_for_true(run: Path) -> tuple[object, ...] | None:
    """What a process that goes on builds on: steps, money, ended episodes, instances. None where it refuses."""
    try:
        refuse_damage(run)
        index = read_index(run)
        rows = scan(run, ("episode", "step", "step_digest", "cost", "worker"))
        manifest = read_manifest(run)
        instances = {name: _all_of(laid(suite.instances)) for name, suite in manifest.suites.items()}
    except CorruptLogError:
        return None
    episodes = {name: (one.steps, one.ending, one.cost, one.requests) for name, one in index.episodes.items()}
    money = index.ledger, dict(index.totals), dict(index.cost_by_worker), dict(index.cost_by_agent)
    return rows.to_pydict(), episodes, money, instances


def _all_of(instances: Instances) -> tuple[object, ...]:
    return tuple(instances), instances.codes().tolist(), tuple(instances.ids), tuple(instances.digests)


Altered = tuple[Path, bytes, str]
"""A file, what it holds now, and in words what is another."""


def _word(run: Path, draws: Stream) -> Altered | None:
    """A digit of what the log's newest object says of money."""
    written = [objects[-1] for objects in journals(run).values() if objects]
    if not written:
        return None
    path = written[-1].path
    says = _footer(path)
    words = [word for word in WORDS if says.get(word, "0") != "0"]
    if not words:
        return None
    word = words[draws.below(len(words))]
    text, held = says[word].encode(), path.read_bytes()
    digits = [place for place, letter in enumerate(text) if letter in b"123456789"]
    if not digits:
        return None
    place = digits[draws.below(len(digits))]
    other = text[:place] + bytes([text[place] - 1 if text[place] > ord("1") else ord("2")]) + text[place + 1 :]
    return path, held.replace(text, other), f"the word `{word}` in the footer"


def _suite(run: Path, draws: Stream) -> Altered | None:
    """A bit of a suite's file; or a digit of a line in it, in a file that is whole."""
    files = sorted((run / SUITES).glob(f"*{ENDING}"))
    if not files:
        return None
    path = files[draws.below(len(files))]
    held = path.read_bytes()
    if draws.uniform() < 0.5:
        rows = list(chain.from_iterable(SuiteRows(lambda: pa.OSFile(str(path))).groups()))
        place = draws.below(len(rows))
        line = orjson.loads(rows[place].line)
        rows[place] = rows[place]._replace(line=orjson.dumps({**line, "seed": line.get("seed", 0) + 1}).decode())
        return path, encode_rows(rows).data.to_pybytes(), f"the seed of row {place}"
    # The footer is small beside the rows: half of the bits are of it.
    footer = 8 + struct.unpack("<I", held[-8:-4])[0] if draws.uniform() < 0.5 else len(held)
    place, bit = len(held) - 1 - draws.below(footer), draws.below(8)
    return path, held[:place] + bytes([held[place] ^ 1 << bit]) + held[place + 1 :], f"bit {bit} of byte {place}"


def _footer(path: Path) -> dict[str, str]:
    with pq.ParquetFile(path) as file:
        return claim(file.metadata)
