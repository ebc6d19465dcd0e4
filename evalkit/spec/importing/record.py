"""What reads an environment's texts out of a user's copy of its reference: its record names it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Texts = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImport:
    """How the texts of one environment are found."""

    source: str
    """The file by which a copy of its reference is known, as a message says it."""
    tables: Callable[[Path, str], Iterator[str]]
    """(a copy, a wording or nothing) -> its tables of a pack's TOML text; none if it is a copy of something else.
    Raises UsageError for what must be there and is not."""
    wordings: tuple[str, ...] = ()
    """Other wordings that the reference compares with its plain one."""
    place: int = 100
    """Where its tables stand in the pack: lower ones first."""


def table_text(name: str, texts: Mapping[str, str]) -> str:
    """One table of a pack."""
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand.
    lines = [
        f"{key} = {json.dumps(text, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, text in texts.items()
    ]
    return "\n".join([f"[{name}]", *lines, ""])


def absent_text(keys: Iterable[str]) -> str:
    """The comment on what a copy does not say."""
    return f"# Not found in the copy, hence in evalkit's wording: {', '.join(sorted(keys)) or 'nothing'}."
