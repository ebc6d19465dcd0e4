"""Python's `random.Random(seed)`, draw for draw: the reference's second kind of stream.

Both Python and numpy drive the same Mersenne Twister and both seed it from an array of 32-bit words in the same way; so
the words come from numpy, and what Python makes of them is written here. The words are frozen by numpy's policy
(NEP 19), unlike the methods of Python's own module, some of which have changed between versions.

Source: specification of CostBench, section 9 (numeric traps); documentation of Python's `random`.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

_WORD = 32
_BLOCK = 128  # words fetched at once; one cost table takes at most 96 of them at the reference's lengths


class Mersenne:
    """A stream of draws from a seed; only its absolute value counts, of any size, as in Python."""

    __slots__ = ("_left", "_words")

    def __init__(self, seed: int) -> None:
        from numpy.random import RandomState

        size = abs(seed)
        key = [size & 0xFFFF_FFFF]
        while size := size >> _WORD:
            key.append(size & 0xFFFF_FFFF)
        self._words = RandomState(key)
        self._left: list[int] = []

    def word(self) -> int:
        """32 random bits."""
        if not self._left:
            import numpy as np

            self._left = self._words.randint(0, 1 << _WORD, size=_BLOCK, dtype=np.uint32).tolist()
            self._left.reverse()
        return self._left.pop()

    def random(self) -> float:
        """A double in [0, 1): 27 bits of one word, then 26 of the next."""
        high, low = self.word() >> 5, self.word() >> 6
        return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)

    def uniform(self, low: float, high: float) -> float:
        """A double between `low` and `high`. Two words."""
        return low + (high - low) * self.random()

    def bits(self, size: int) -> int:
        """`size` random bits, at least one: whole words from the lowest up, of the last one its top bits."""
        if size < 1:
            raise ValueError("bits() needs a positive size")
        if size <= _WORD:
            return self.word() >> (_WORD - size)
        value = 0
        for shift in range(0, size, _WORD):
            value |= (self.word() >> max(0, _WORD - (size - shift))) << shift
        return value

    def below(self, n: int) -> int:
        """An integer in 0..n-1: as many bits as `n` has, until they are small enough. Raises ValueError if n < 1."""
        if n < 1:
            raise ValueError("below() needs a positive bound")
        size = n.bit_length()
        while (value := self.bits(size)) >= n:
            pass
        return value

    def randint(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included. Raises ValueError if there is none."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[ItemT]) -> ItemT:
        """One of the items. Raises ValueError if there is none."""
        return items[self.below(len(items))]

    def sample(self, n: int, size: int) -> list[int]:
        """`size` distinct integers of 0..n-1, in the order drawn. Raises ValueError if there are not so many."""
        if not 0 <= size <= n:
            raise ValueError("sample() needs a size between 0 and the number of items")
        # Python keeps a pool or a set of what was drawn, whichever is smaller in memory; that decides the draws.
        set_size = 21
        if size > 5:
            set_size += 4 ** math.ceil(math.log(size * 3, 4))
        if n <= set_size:
            pool = list(range(n))
            chosen = []
            for i in range(size):
                j = self.below(n - i)
                chosen.append(pool[j])
                pool[j] = pool[n - i - 1]
            return chosen
        drawn: dict[int, None] = {}
        while len(drawn) < size:
            drawn[self.below(n)] = None
        return list(drawn)
