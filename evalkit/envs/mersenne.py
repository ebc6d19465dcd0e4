"""Python's `random.Random(seed)`, draw for draw: the reference's second kind of stream.

Both Python and numpy drive the same Mersenne Twister and both seed it from an array of 32-bit words in the same way; so
the words come from numpy, and what Python makes of them is written here. The words are frozen by numpy's policy
(NEP 19), unlike the methods of Python's own module, some of which have changed between versions.

Source: specification of CostBench, section 9 (numeric traps); documentation of Python's `random`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]


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


# The reference's stream of draws: numpy's `RandomState`, with its generator state as an immutable value.
#
# `RandomState` is frozen by numpy's policy (NEP 19), so the same seed gives the same draws in every version: that is
# why published instances can be made again. Its position is carried inside an environment's state, so replay restores
# it.
#
# Source: specification of the reference, section A.0; each method says how many 32-bit words it takes.

MOST_SEED = 2**32 - 1
"""The largest seed the reference's generator takes."""


class RandomStateSnapshot(msgspec.Struct, frozen=True):
    """Where a stream stands. Equal snapshots give equal draws."""

    key: bytes
    """The Mersenne Twister's 624 words, little-endian."""
    position: int
    drawn: tuple[int, ...] = ()
    """Sizes of the permutations that were drawn from there on: to read the words out takes ten times as long."""


_MOST_DRAWN = 16
"""Permutations after which a stream's words are read out."""
_MOST_STANDING = 2048
"""Streams that are kept where they were left, of 5 kB each: as many as episodes are played at a time, or so."""
_STANDING: "dict[RandomStateSnapshot, np.random.RandomState]" = {}


class RandomStateStream:
    """A stream of draws, from a seed (0 to 2**32 - 1) or from where another one stood."""

    __slots__ = ("_base", "_drawn", "_draws")

    def __init__(self, begin: "int | RandomStateSnapshot") -> None:
        import numpy as np

        self._base: RandomStateSnapshot | None = None
        """Where the stream stood before `_drawn`; None if nobody knows, or if something else was drawn."""
        self._drawn: list[int] = []
        if not isinstance(begin, RandomStateSnapshot):
            self._draws = np.random.RandomState(begin)
            return
        # Whoever continues where a stream stood takes that very stream, once; its state is as good for any other.
        draws = _STANDING.pop(begin, None)
        if draws is None:
            draws = np.random.RandomState(0)
            key = np.frombuffer(begin.key, dtype="<u4").astype(np.uint32)
            draws.set_state(("MT19937", key, begin.position, 0, 0.0))
            for n in begin.drawn:
                draws.permutation(n)
        self._draws, self._base = draws, begin

    def freeze(self) -> RandomStateSnapshot:
        """Where the stream stands now. A half-used pair of normal draws is not kept: nothing here draws normals."""
        state = self._draws.get_state(legacy=False)["state"]
        return RandomStateSnapshot(state["key"].astype("<u4", copy=False).tobytes(), int(state["pos"]))

    def leave(self) -> RandomStateSnapshot:
        """`freeze`, where nothing more is drawn from this stream: who continues from there needs not build it again,
        which takes as long as all else that a step does."""
        base = self._base
        drawn = () if base is None else (*base.drawn, *self._drawn)
        if base is None or len(drawn) > _MOST_DRAWN:
            state = self.freeze()
        else:
            state = RandomStateSnapshot(base.key, base.position, drawn)
        if len(_STANDING) >= _MOST_STANDING:
            _STANDING.pop(next(iter(_STANDING)))
        _STANDING[state] = self._draws
        del self._draws
        return state

    def _other(self) -> "np.random.RandomState":
        """The generator, for what is no permutation."""
        self._base = None
        return self._draws

    def double(self) -> float:
        """A double in [0, 1). Two words."""
        return float(self._other().random_sample())

    def uniform(self, low: float, high: float) -> float:
        """A double in [low, high). Two words."""
        return float(self._other().uniform(low, high))

    def below(self, n: int) -> int:
        """An integer in 0..n-1: words masked to the bits of n-1, until one is small enough; none for n = 1."""
        return int(self._other().randint(0, n))

    def choices(self, n: int, size: int) -> list[int]:
        """`size` integers in 0..n-1, with replacement: so many times `below(n)`."""
        return [self.below(n) for _ in range(size)]

    def permutation(self, n: int) -> list[int]:
        """0..n-1 in random order: for i from n-1 down to 1, swap i with `below(i + 1)`."""
        return self.sample(n, n)

    def sample(self, n: int, size: int) -> list[int]:
        """`size` distinct integers of 0..n-1: the first of a permutation of them all."""
        if self._base is not None:
            self._drawn.append(n)
        chosen: list[int] = self._draws.permutation(n)[:size].tolist()
        return chosen

    def geometric(self, p: float) -> int:
        """Number of trials up to the first success, from 1. Two words."""
        return int(self._other().geometric(p))

    def exponentials(self, scales: "Sequence[float] | Doubles", rows: int) -> "Doubles":
        """Exponential draws with the given means, row by row: shape (rows, len(scales)). Two words each."""
        return self._other().exponential(scales, size=(rows, len(scales)))
