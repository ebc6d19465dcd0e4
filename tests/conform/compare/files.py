"""The golden files of a directory, and the cases in one of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalkit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One golden case and where it stands."""

    place: str
    """File and line: `econagentbench/scheduling_matchings.jsonl:17`."""
    row: Any
    """What stands there, as JSON gives it; None where it could not be read."""
    flaw: str = ""
    """Why it could not be read."""


def golden_files(folder: Path) -> list[Path]:
    """Every file below a directory that may hold golden cases, in order of path; hidden files and notes are left out.

    Raises UsageError if the directory is none or holds none.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no directory. Name one that holds golden files: make conform GOLDENS=dir")
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in (".md", ".txt")
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise UsageError(f"{folder} holds no file. Name a directory that holds golden files: make conform GOLDENS=dir")
    return found


def cases(path: Path, folder: Path) -> Iterator[Case]:
    """The cases of a file: a `.jsonl` file's lines, lazily; the entries of a list; or the document as one case."""
    name = path.relative_to(folder).as_posix()
    if path.suffix != ".jsonl":
        yield from _document(path, name)
        return
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if raw.strip():
                yield _case(raw, f"{name}:{number}")


def with_rows(case: Case, path: Path, pattern: str) -> Case:
    """A document with the rows of the files beside it, under `beside`."""
    if not pattern or not isinstance(case.row, dict):
        return case
    files = sorted(path.parent.glob(pattern))
    rows = [one.row for file in files for one in cases(file, path.parent) if not one.flaw]
    return replace(case, row={**case.row, "beside": rows})


def _document(path: Path, name: str) -> Iterator[Case]:
    whole = _case(path.read_bytes(), name)
    if isinstance(whole.row, list):
        for i, entry in enumerate(whole.row):
            yield Case(place=f"{name}[{i}]", row=entry)
    else:
        yield whole


def _case(raw: bytes, place: str) -> Case:
    try:
        # Python's own reader: golden files hold NaN and Infinity, which strict JSON refuses.
        return Case(place=place, row=json.loads(raw))
    except (ValueError, RecursionError) as flaw:
        return Case(place=place, row=None, flaw=f"not valid JSON: {flaw}")
