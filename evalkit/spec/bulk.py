"""A suite too large to be looked into line by line when a run begins: what one quick pass over its file can tell.

Checked of every line in that pass: that it is a JSON object with an id of its own and the environment of the first one;
of which stratum it is, from its likeness to a line that was loaded; that it says nothing that an earlier line says too.
Loaded in full, as of a small suite every line is: the first line of each likeness, and every `SAMPLED`th one. Whatever
else may be wrong with a line is found when its instance is reached.
"""

import hashlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.envs.environment import Environment
from evalkit.envs.lines import canonical, marks_of, reach, varied
from evalkit.errors import UsageError, nearest
from evalkit.spec.byte_marks import without_mark
from evalkit.spec.model import SuiteInstance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from evalkit.envs.lines import Marks

ROWS = 128
"""Lines whose place in the file is known together."""
SAMPLED = 4096
CHUNK = 2**20


@dataclass(slots=True, kw_only=True, eq=False)
class Bulk:
    """A large suite as a sweep plays it: the numbers of its lines, blank ones aside, and little else."""

    name: str
    path: Path
    env: Environment[Any, Any]
    axes: Mapping[str, Any]
    digest: str = ""
    """Of the suite: made from the file's and what the sweep varies and chooses."""
    source: str = ""
    """SHA-256 of the file."""
    length: int = 0
    """Of the file, in bytes."""
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    """Where each `ROWS` lines begin; and where the last ones end."""
    lines: "npt.NDArray[np.int32] | None" = None
    """By place: the line; None: all lines, in order."""
    strata: dict[str, int] = field(default_factory=dict)
    """Instances by stratum."""
    codes: "npt.NDArray[np.uint32]" = None  # type: ignore[assignment]
    """By place: the stratum's number."""
    marks: "Marks" = None  # type: ignore[assignment]
    """By place: a hash of the id."""
    samples: list[SuiteInstance] = field(default_factory=list)
    """Those that were loaded."""

    def __len__(self) -> int:
        return len(self.codes)

    def block(self, number: int) -> list[bytes]:
        """The lines of a block of `ROWS`. Raises UsageError if the file is shorter than it was."""
        with self.path.open("rb") as file:
            file.seek(self.starts[number])
            raw = file.read(self.starts[number + 1] - self.starts[number])
            raw = raw if self.starts[number] else without_mark(raw, self.path)
        return [line for line in raw.split(b"\n") if line.strip()]

    def chosen(self) -> Iterator[bytes]:
        """All lines in order, as `parts` has them."""
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Sequence[bytes]]:
        """All lines in order, in one pass, many at a time. Raises UsageError if the file is not what it was."""
        digest, number = hashlib.sha256(), 0
        for chunk in chunks(self.path):
            digest.update(chunk)
            lines = [raw for raw in chunk.split(b"\n") if raw and not raw.isspace()]
            yield lines if self.lines is None else [lines[row] for row in self._rows(number, len(lines))]
            number += len(lines)
        if digest.hexdigest() != self.source:
            raise UsageError(f"{self.path} changed while it was read. Nothing was played. Start again.")

    def _rows(self, first: int, count: int) -> list[int]:
        """Of so many lines from one on, which belong to the suite."""
        import numpy as np

        low, high = np.searchsorted(self.lines, [first, first + count])  # type: ignore[arg-type]
        rows: list[int] = (self.lines[low:high] - first).tolist()  # type: ignore[index]
        return rows


def chunks(path: Path) -> Iterator[bytes]:
    """A file by whole lines, without a mark at its beginning."""
    first = True
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            chunk = without_mark(chunk, path) if first else chunk
            first = False
            yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def bulk_digest(environment: str, source: str, axes: Mapping[str, Any], wanted: Collection[str]) -> str:
    """Hex digest of a suite by what it is read from: of its file's, and of what a sweep varies and chooses of it."""
    identity = ["lines of a file", environment, source, dict(axes), sorted(wanted)]
    return hashlib.sha256(canonical(identity)).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    for chunk in chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def scan(name: str, path: Path, env: Environment[Any, Any], axes: Mapping[str, Any], wanted: Collection[str]) -> Bulk:
    """A suite's file in one pass; `wanted`: ids to choose, none: all. Raises UsageError naming file and line."""
    scanner = _Scan(Bulk(name=name, path=path, env=env, axes=axes), frozenset(wanted))
    scanner.read()
    return scanner.settled()


class _Scan:
    """One pass, and what it has found."""

    def __init__(self, bulk: Bulk, wanted: frozenset[str]) -> None:
        self._bulk, self._wanted = bulk, wanted
        self._kinds: dict[Any, int] = {}
        """By likeness: the stratum's number."""
        self._strata: dict[str, int] = {}
        self._codes, self._contents = array("I"), array("q")
        self._marks: list[Marks] = []
        self._chosen: array[int] | None = array("i") if wanted else None
        self._seen: set[str] = set()
        """Of the wanted ids, those that are there."""

    def read(self) -> None:
        """Look at every line."""
        source, number, position = hashlib.sha256(), 0, 0
        for chunk in chunks(self._bulk.path):
            source.update(chunk)
            self._chunk(chunk, number, position)
            number += chunk.count(b"\n")
            position += len(chunk)
        self._bulk.starts.append(position)
        self._bulk.source, self._bulk.length = source.hexdigest(), position

    def _chunk(self, chunk: bytes, number: int, position: int) -> None:
        loads, count, environment, kinds = orjson.loads, len(self._codes), self._bulk.env.name, self._kinds
        likeness = None if self._wanted or self._bulk.axes else self._bulk.env.likeness
        names: list[bytes] = []
        add_name, add_code, add_content = names.append, self._codes.append, self._contents.append
        for raw in chunk.split(b"\n"):
            number += 1
            here, position = position, position + len(raw) + 1
            try:
                line = loads(raw)
                name = line["id"].encode()
                declared = line["environment"]
            except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as flaw:
                if not raw or raw.isspace():
                    continue
                raise self._odd(number, raw) from flaw
            if declared != environment:
                raise UsageError(
                    f"{self._bulk.path}:{number}: environment: {declared!r} differs from {environment!r} "
                    "in the lines before; all instances of a suite must have the same environment."
                )
            if not count % ROWS:
                self._bulk.starts.append(here)
            try:
                stratum = kinds.get(likeness(line)) if likeness is not None and count % SAMPLED else None
            except TypeError:
                stratum = None  # `_code` says what is wrong
            add_code(self._code(line, number, count) if stratum is None else stratum)
            add_name(name)
            add_content(hash(raw.replace(name, b"", 1)))
            count += 1
        self._marks.append(marks_of(names))

    def _odd(self, number: int, raw: bytes) -> UsageError:
        where = f"{self._bulk.path}:{number}"
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError as flaw:
            return UsageError(f"{where}: not valid JSON: {flaw}")
        if isinstance(line, dict) and isinstance(line.get("id"), str):
            return UsageError(f"{where}: environment: missing.")
        return UsageError(f"{where}: expected a JSON object with an `id`.")

    def _code(self, line: Mapping[str, Any], number: int, count: int) -> int:
        """The stratum's number; 0 of a line that is not chosen."""
        env, axes = self._bulk.env, self._bulk.axes
        if self._chosen is not None:
            if line["id"] not in self._wanted:
                return 0
            self._seen.add(line["id"])
            self._chosen.append(count)
        try:
            if env.likeness is None:
                return self._look(line, number)
            kind = env.likeness(varied(line, axes) if axes else line)
            known = self._kinds.get(kind)
            if known is None:
                known = self._kinds[kind] = self._look(line, number)
            elif not count % SAMPLED and self._look(line, number) != known:
                raise RuntimeError(f"{env.name}: lines with equal likeness have different strata")
            return known
        except TypeError:
            return self._look(line, number)  # it says what is wrong

    def _look(self, line: Mapping[str, Any], number: int) -> int:
        bulk = self._bulk
        reached = reach(bulk.env, line, bulk.axes, f"{bulk.path}:{number}: {line['id']}")
        bulk.samples.append(
            SuiteInstance(
                suite=bulk.name,
                id=line["id"],
                environment=bulk.env.name,
                digest=reached.digest,
                instance=reached.instance,
                stratum=reached.stratum,
                axes=bulk.axes,
            )
        )
        return self._strata.setdefault(reached.stratum, len(self._strata))

    def settled(self) -> Bulk:
        """What was found, after what only all lines together tell. Raises UsageError."""
        import numpy as np

        bulk, marks = self._bulk, np.concatenate(self._marks)
        self._check_ids(marks)
        missing = sorted(self._wanted - self._seen)
        if missing:
            raise UsageError(f"Suite {bulk.name!r} has no instance {missing[0]!r}.{nearest(missing[0], self._names())}")
        codes = np.array(self._codes, np.uint32)
        lines = np.arange(len(codes), dtype=np.int32) if self._chosen is None else np.array(self._chosen, np.int32)
        repeats = self._repeats(np.array(self._contents, np.int64), lines)
        if repeats:
            lines = np.setdiff1d(lines, np.array(repeats, np.int32))
        if len(lines) < len(codes):
            bulk.lines, codes, marks = lines, codes[lines], marks[lines]
        counts = np.bincount(codes, minlength=len(self._strata)).tolist()
        bulk.strata = dict(zip(self._strata, counts, strict=True))
        bulk.codes, bulk.marks = codes, marks
        bulk.digest = bulk_digest(bulk.env.name, bulk.source, bulk.axes, self._wanted)
        return bulk

    def _check_ids(self, marks: "Marks") -> None:
        for group in _alike(marks):
            names: dict[str, int] = {}
            for number in group:
                name = self._line(number)["id"]
                if name in names:
                    raise UsageError(f"{self._bulk.path}: two lines share the id {name!r}; ids must be unique.")
                names[name] = number

    def _repeats(self, contents: "npt.NDArray[np.int64]", lines: "npt.NDArray[np.int32]") -> list[int]:
        """Lines that an earlier one makes superfluous: the same instance under another id."""
        bulk, repeats = self._bulk, list[int]()
        for group in _alike(contents[lines]):
            known: set[str] = set()
            for index in group:
                number = int(lines[index])
                line = self._line(number)
                digest = reach(bulk.env, line, bulk.axes, f"{bulk.path}: {line['id']}").digest
                if digest in known:
                    repeats.append(number)
                known.add(digest)
        return repeats

    def _line(self, number: int) -> Mapping[str, Any]:
        block, row = divmod(number, ROWS)
        line: Mapping[str, Any] = orjson.loads(self._bulk.block(block)[row])
        return line

    def _names(self) -> Iterator[str]:
        return (
            orjson.loads(raw)["id"] for chunk in chunks(self._bulk.path) for raw in chunk.split(b"\n") if raw.strip()
        )


def _alike(values: "npt.NDArray[Any]") -> Iterator[list[int]]:
    """The indices of equal values, for each value that is there more than once; in order."""
    import numpy as np

    inorder = np.sort(values)
    if not (inorder[1:] == inorder[:-1]).any():  # as a rule: a fifth of the time
        return
    order = np.argsort(values, kind="stable")
    same = values[order][1:] == values[order][:-1]
    group: list[int] = []
    for index in np.flatnonzero(same).tolist():
        if group and group[-1] == order[index]:
            group.append(int(order[index + 1]))
            continue
        if group:
            yield group
        group = [int(order[index]), int(order[index + 1])]
    if group:
        yield group
