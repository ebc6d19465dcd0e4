"""The test double's prompt cache: how much of a prompt it has seen before, by its real provider's rule.

- Automatic (OpenAI, Gemini): read is the longest beginning seen before, in whole blocks of 128 tokens, from 1024 on.
  Writing costs nothing and is not reported.
- Marked (Anthropic): read is the longest beginning that was marked before, found from a mark or up to 19 blocks before
  it, from 1024 tokens on. Written is everything between that and the last mark.

A beginning ends after a message (after a content block if marks count), and is identified by a digest that is continued
from piece to piece. Tokens are bytes of JSON divided by four, as everywhere here. The cache is bounded: the least
recently used entry is removed.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from evalkit.wire.tokens import BYTES_PER_TOKEN

LEAST_TOKENS = 1024
BLOCK_TOKENS = 128
LOOK_BACK = 20
"""Blocks looked at from a mark, itself included."""
MOST_ENTRIES = 100_000

Piece = tuple[str, Any, bool]
"""Where it stands, its JSON value, whether it is marked."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A prompt up to the end of one piece."""

    digest: bytes
    tokens: int
    marked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShare:
    """What the cache has to do with a prompt."""

    read: int = 0
    """Tokens."""
    write: int = 0
    """Tokens that are billed as written."""
    entries: tuple[bytes, ...] = ()
    """Beginnings that will be known from now on."""


@dataclass(slots=True, kw_only=True)
class Cache:
    """All recent prompts. Mutable; changed by `keep` alone."""

    ttl_s: float
    """How long a beginning is kept after its last use."""
    used_s: OrderedDict[tuple[str, bytes], float] = field(default_factory=OrderedDict)
    """(model, digest) -> when it was used last, the longest ago first."""

    def share(self, model: str, pieces: Iterator[Piece], now_s: float, *, by_marks: bool) -> CacheShare:
        """The cache's share of a prompt of these pieces, by the rule of marks or the automatic one. Changes nothing."""
        prompt = list(_beginnings(pieces))

        def known(beginning: Beginning) -> bool:
            used_s = self.used_s.get((model, beginning.digest))
            return used_s is not None and now_s - used_s <= self.ttl_s

        return _marked(prompt, known) if by_marks else _automatic(prompt, known)

    def keep(self, model: str, share: CacheShare, now_s: float) -> None:
        """Know the share's beginnings from now on."""
        for digest in share.entries:
            self.used_s[model, digest] = now_s
            self.used_s.move_to_end((model, digest))
        while len(self.used_s) > MOST_ENTRIES:
            self.used_s.popitem(last=False)


def _automatic(prompt: Sequence[Beginning], known: Callable[[Beginning], bool]) -> CacheShare:
    long = [beginning for beginning in prompt if beginning.tokens >= LEAST_TOKENS]
    read = next((beginning.tokens for beginning in reversed(long) if known(beginning)), 0)
    return CacheShare(read=read // BLOCK_TOKENS * BLOCK_TOKENS, entries=tuple(beginning.digest for beginning in long))


def _marked(prompt: Sequence[Beginning], known: Callable[[Beginning], bool]) -> CacheShare:
    marks = [index for index, beginning in enumerate(prompt) if beginning.marked and beginning.tokens >= LEAST_TOKENS]
    if not marks:
        return CacheShare()
    indices = {index for mark in marks for index in range(max(0, mark - LOOK_BACK + 1), mark + 1)}
    hit = next((prompt[index] for index in sorted(indices, reverse=True) if known(prompt[index])), None)
    read, last = hit.tokens if hit else 0, prompt[marks[-1]].tokens
    entries = tuple(prompt[mark].digest for mark in marks)
    return CacheShare(read=read, write=max(0, last - read), entries=(*entries, hit.digest) if hit else entries)


def _beginnings(pieces: Iterator[Piece]) -> Iterator[Beginning]:
    running, size = hashlib.blake2b(digest_size=16), 0
    for name, piece, marked in pieces:
        text = orjson.dumps(piece)
        size += len(text)
        # The length goes in first: two pieces are not one that reads like both.
        running.update(f"{name}:{len(text)}:".encode())
        running.update(text)
        yield Beginning(running.digest(), size // BYTES_PER_TOKEN, marked)


def pieces_of(*names: str) -> Callable[[Mapping[str, Any]], Iterator[Piece]]:
    """The named fields in this order; the last is the chat, of which every entry is a piece."""

    def pieces(value: Mapping[str, Any]) -> Iterator[Piece]:
        for name in names[:-1]:
            if value.get(name):
                yield name, value[name], False
        chat = value[names[-1]]
        yield from ((names[-1], item, False) for item in (chat if isinstance(chat, list) else [chat]))

    return pieces
