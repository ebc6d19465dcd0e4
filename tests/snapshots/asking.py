"""What commands say today, each asked once; and what is kept of that for good, whatever its words."""

import json
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.snapshots.commands import (
    AFTER_DAMAGE,
    AFTER_DAMAGE_AND_KILL,
    ALONE,
    FOR_THEIR_KEYS,
    READERS,
    SPECS,
    WRITERS,
)
from tests.snapshots.damage import AFTER_A_KILL, RECIPES
from tests.snapshots.normal import normal
from tests.snapshots.workspace import RUN, Said, call, copy

WIDE = 150
"""Columns: a part of a JSON value that fits into one line is written so."""

HEAD = {".csv": 3, ".jsonl": 1}
"""Lines of a written file that a snapshot has."""


class Asking:
    """Commands called in copies of the runs below a folder, which are made when the first command needs them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: dict[tuple[str, str], Said] = {}

    def read(self, run: str, line: str) -> Said:
        """What a reading command says of a run; it is called once, whoever asks."""
        if (run, line) not in self._said:
            place = self._folder / run
            if not place.exists():
                copy(run, self._folder)
            self._said[run, line] = _called(place, line)
        return self._said[run, line]

    def alone(self, line: str) -> Said:
        """What a command says beside the run of policies and the specs."""
        if ("alone", line) not in self._said:
            place = self._folder / "alone"
            if not place.exists():
                copy("policies", self._folder, as_name="alone")
                for name, text in SPECS.items():
                    (place / name).write_text(text)
            self._said["alone", line] = _called(place, line)
        return self._said["alone", line]

    @cached_property
    def written(self) -> dict[str, tuple[list[tuple[str, Said]], str]]:
        """What each group of writing commands says, and what it leaves beside the run."""
        made = {}
        for name, lines in WRITERS.items():
            run, _, what = name.partition("/")
            place = copy(run, self._folder, as_name=f"{run}-{what}")
            before = set(place.rglob("*"))
            said = [(line, _called(place, line)) for line in lines]
            made[name] = said, "".join(_left(place, before))
        return made

    @cached_property
    def damaged(self) -> dict[str, list[tuple[str, Said]]]:
        """What commands say of each damaged run, by its name."""
        made = {}
        plain = [("policies", name, recipe, AFTER_DAMAGE) for name, recipe in RECIPES.items()]
        killed = [("killed", name, recipe, AFTER_DAMAGE_AND_KILL) for name, recipe in AFTER_A_KILL.items()]
        for run, name, recipe, lines in plain + killed:
            place = copy(run, self._folder, as_name=f"{run}-{name}")
            recipe(place / RUN)
            made[f"{run}/{name}"] = [(line, _called(place, line)) for line in lines]
        return made

    def everything(self) -> Iterator[tuple[str, str, Said]]:
        """(where, line, what it said) of all commands."""
        for run, lines in READERS.items():
            yield from ((run, line, self.read(run, line)) for line in lines.values())
        yield from (("finished", line, self.read("finished", line)) for line in FOR_THEIR_KEYS)
        yield from (("alone", line, self.alone(line)) for line in ALONE.values())
        for name, (said, _) in self.written.items():
            yield from ((name, line, one) for line, one in said)
        for name, said in self.damaged.items():
            yield from ((name, line, one) for line, one in said)

    def exit_codes(self) -> list[str]:
        """A line a command: where it was called, its exit code and its words."""
        return [f"{said.code} {where}: evalkit {line}" for where, line, said in self.everything()]

    def json_keys(self) -> list[str]:
        """A line a key of what commands print as JSON: the command's name and the key's place."""
        found: set[str] = set()
        for _, line, said in self.everything():
            if "--json" in line:
                name = line.split()[0]
                found |= {f"{name} {key}" for value in _values(said.out) for key in keys_of(value)}
        return sorted(found)

    def views(self) -> list[str]:
        """A line a column of the views that `evalkit sql` has, in their order: view, column, type."""
        lines = self.read("finished", READERS["finished"]["sql"]).out.splitlines()
        found = []
        for head, columns in zip(lines[::2], lines[1::2], strict=True):
            view = head.partition(":")[0]
            found += [f"{view} {column}" for column in _split(columns.strip())]
        return found


def transcript(said: list[tuple[str, Said]]) -> str:
    """Commands and what they said, as snapshots have it."""
    return "\n".join(f"$ evalkit {line}\n{pretty(str(one))}" for line, one in said)


def pretty(text: str) -> str:
    """What a command said, a JSON value in lines of a readable length."""
    head, mark, out = text.partition("--- stdout\n")
    try:
        value = json.loads(out)
    except ValueError:
        return text
    return head + mark + (_lines(value, "") if isinstance(value, dict | list) else out.strip()) + "\n"


def _called(place: Path, line: str) -> Said:
    said = call(place, *shlex.split(line))
    return Said(said.code, normal(said.out, place), normal(said.err, place))


def _left(place: Path, before: set[Path]) -> Iterator[str]:
    """What was written beside the run, as far as it is a text."""
    for path in sorted(set(place.rglob("*")) - before):
        name = path.relative_to(place)
        if name.parts[0] != RUN.parts[0] and path.suffix in HEAD:
            lines = normal(path.read_text()).splitlines()
            some = [*lines[: HEAD[path.suffix]], f"({len(lines)} lines)"]
            yield f"\n{name}:\n" + "\n".join(some) + "\n"


def _values(out: str) -> list[Any]:
    """The JSON values that were printed: one, or one a line."""
    try:
        return [json.loads(out)]
    except ValueError:
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def keys_of(value: Any, place: str = "$") -> Iterator[str]:
    """The places of all keys in a JSON value; entries of a list share theirs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{place}.{key}"
            yield from keys_of(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{place}[]")


def _lines(value: Any, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + len(indent) <= WIDE or not isinstance(value, dict | list) or not value:
        return flat
    more = f"{indent} "
    if isinstance(value, dict):
        inner = [f"{more}{json.dumps(key)}: {_lines(one, more)}" for key, one in value.items()]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    return "[\n" + ",\n".join(f"{more}{_lines(one, more)}" for one in value) + f"\n{indent}]"


def _split(columns: str) -> Iterator[str]:
    """Columns at the commas that are in no brackets."""
    depth, begun = 0, 0
    for at, sign in enumerate(columns):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            yield columns[begun:at].strip()
            begun = at + 1
    yield columns[begun:].strip()
