"""The documents' code blocks, and where they run: a folder with a finished quickstart, as a reader has one."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

PROJECT = Path(__file__).resolve().parent.parent.parent
SKIP = "skip"
"""Behind a fence's language: the block needs a key, a network or files that a reader brings."""
RUNNABLE = ("sh", "python", "sql", "toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced or indented block."""

    page: str
    line: int
    """Of the page, from 1."""
    language: str
    """Empty where the fence names none, and for indented blocks."""
    words: tuple[str, ...]
    """What the fence says behind its language."""
    text: str

    @property
    def place(self) -> str:
        """`docs/sql.md:12`"""
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and SKIP not in self.words

    @property
    def file(self) -> str:
        """The file that the block's first line names in a comment; empty where it names none."""
        mark, _, rest = self.text.partition("\n")[0].partition(" ")
        name = rest.partition(" ")[0].rstrip(",")
        return name if mark == "#" and name.endswith((".toml", ".py")) else ""


def pages() -> list[str]:
    """README, CONTRIBUTING and the pages below docs/, by their names."""
    below = sorted(path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *below]


@cache
def blocks_of(page: str) -> list[Block]:
    """A page's blocks in order; those inside lists too."""
    found = []
    for token in MarkdownIt("commonmark").parse((PROJECT / page).read_text()):
        if token.type in ("fence", "code_block"):
            language, *words = token.info.split() or [""]
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(page=page, line=line, language=language, words=tuple(words), text=token.content))
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The words of every call of evalkit in a block: comments, pipes and redirections are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        if "evalkit " not in line or line.lstrip().startswith("#"):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;<>"):
                while words and words[0] in ("watch", "time", "!"):
                    words = words[1:]
                if words and words[0].rpartition("/")[2] == "evalkit":
                    yield words[1:]
                words = []
            else:
                words.append(word)
