"""Random draws keyed by place: step 40 is drawn without drawing steps 0 to 39, so a resume restores no generator.

Only the raw 64-bit words of Philox are used, never numpy's distributions: the distributions can change between numpy
versions, the words cannot (NEP 19), and a frozen instance must never change.
"""

import hashlib
import math
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from numpy.random import Philox

    Words = npt.NDArray[np.uint64]
    Doubles = npt.NDArray[np.float64]


class Stream:
    """The draws of one place, in order. Two streams of different places are independent."""

    __slots__ = ("_philox", "_place")

    def __init__(self, seed: int, *place: str | int) -> None:
        self._place = (seed, *place)
        self._philox: Philox | None = None

    def _source(self) -> "Philox":
        # Made with the first draw: that takes longer than a reply of most policies, and many do not draw.
        if self._philox is None:
            from numpy.random import Philox

            name = "/".join(map(str, self._place)).encode()
            # The whole name is digested: unlike `hash()`, that is the same in every process.
            self._philox = Philox(key=int.from_bytes(hashlib.sha256(name).digest()[:16], "big"))
        return self._philox

    def word(self) -> int:
        """64 random bits."""
        return int(self._source().random_raw())

    def uniform(self) -> float:
        """A double in [0, 1): the top 53 bits of a word."""
        return (self.word() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """An integer in 0..n-1, without bias (multiply and reject, Lemire 2019). Raises ValueError if n < 1."""
        if n < 1:
            raise ValueError("below() needs a positive bound")
        product = self.word() * n
        while (product & 0xFFFF_FFFF_FFFF_FFFF) < (2**64 - n) % n:
            product = self.word() * n
        return product >> 64

    def permutation(self, n: int) -> list[int]:
        """0..n-1 in random order (Fisher-Yates)."""
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order

    def words(self, n: int) -> "Words":
        """`n` words of 64 random bits at once, shape (n,). In the order of the uniforms that would be drawn, at a third
        of their cost."""
        words: Words = self._source().random_raw(n)
        return words

    def uniforms(self, n: int) -> "Doubles":
        """`n` doubles in [0, 1) at once, shape (n,)."""
        import numpy as np

        doubles = (self.words(n) >> np.uint64(11)).astype(np.float64)
        doubles *= 2.0**-53
        return doubles


def derive(*place: str | int) -> int:
    """A seed of 31 bits made from a place, for generators that take one (a request's `seed` field)."""
    name = "/".join(map(str, place)).encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:4], "big") >> 1


def fractions(seed: int, *place: str | int) -> tuple[float, float]:
    """Two doubles in [0, 1) of one place, from its digest. This costs a tenth of a stream, for callers that need no
    more."""
    name = "/".join(map(str, (seed, *place))).encode()
    first, second = _two_words(hashlib.sha256(name).digest())
    return (first >> 11) * 2.0**-53, (second >> 11) * 2.0**-53


_two_words = Struct(">QQ").unpack_from


class Permutation:
    """A random order of 0..n-1 that is computed place by place. No list of it is made, whatever the size of `n`.

    A Feistel network over a rectangle that just holds `n`, walked until a value below `n` is met (Black and Rogaway
    2002, "Ciphers with arbitrary finite domains"). The integer arithmetic is our own, so a frozen order never changes.
    Chosen: 12 rounds, and 24 for few values, where 12 rounds can be distinguished from random; the tests show how this
    is measured.
    """

    __slots__ = ("_columns", "_n", "_rounds", "_rows")

    def __init__(self, n: int, seed: int, *place: str | int) -> None:
        if n < 1:
            raise ValueError("a permutation needs at least one element")
        self._n = n
        # Even: if both sides were odd, all orders would have the same parity.
        self._rows = (math.isqrt(n - 1) + 2) // 2 * 2 if n > 1 else 1
        self._columns = -(-n // self._rows)
        name = "/".join(map(str, (seed, *place, n))).encode()
        count = _MANY_ROUNDS if n <= _FEW else _ROUNDS
        words = b"".join(hashlib.sha256(name + b"/%d" % i).digest() for i in range(count // 4))
        self._rounds = tuple(
            (int.from_bytes(words[offset : offset + 8], "big"), int.from_bytes(words[offset + 8 : offset + 16], "big"))
            for offset in range(0, len(words), 16)
        )

    def at(self, i: int) -> int:
        """The value at place `i`, 0..n-1."""
        rows, columns = self._rows, self._columns
        while True:
            row, column = divmod(i, columns)
            for row_key, column_key in self._rounds:
                row = (row + (_mixed(column + row_key) * rows >> 64)) % rows
                column = (column + (_mixed(row + column_key) * columns >> 64)) % columns
            i = row * columns + column
            if i < self._n:
                return i


_FEW, _ROUNDS, _MANY_ROUNDS = 256, 12, 24


def _mixed(word: int) -> int:
    """64 bits that each depend on the whole word (multiply and fold, twice)."""
    word = word * 0x9E37_79B9_7F4A_7C15 & 0xFFFF_FFFF_FFFF_FFFF
    word = (word ^ (word >> 32)) * 0xD6E8_FEB8_6659_FD93 & 0xFFFF_FFFF_FFFF_FFFF
    return word ^ (word >> 32)
