"""The first normal draw of many numpy generators at once: `default_rng(seed).standard_normal()` for each seed.

The reference makes one generator for each tool, and of what that takes, seeding is nearly all. Here all seeds go
through numpy's seeding together, and one generator is then set to each of the states: the same draws, in less time.
Seeding and words are frozen by numpy's policy (NEP 19); how words become a normal draw is numpy's own code still.

Source: documentation of numpy's `SeedSequence` (O'Neill 2015, "Developing a seed_seq alternative") and of `PCG64`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_POOL = 4  # words in which a seed is mixed
_STEP = 0x2360ED051FC65DA44385DF649FCCF645  # multiplier of PCG64's state
_ALL = (1 << 128) - 1
_HALF = np.uint32(16)
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_OTHERS = tuple([i for i in range(_POOL) if i != source] for source in range(_POOL))


def _powers(first: int, factor: int, count: int) -> Words:
    """A hash's running constants, shape (count, 1)."""
    powers = [first]
    while len(powers) < count:
        powers.append(powers[-1] * factor & 0xFFFF_FFFF)
    return np.array(powers, dtype=np.uint32)[:, None]


_MIXING = _powers(0x43B0D7E5, 0x931E8875, 1 + _POOL + _POOL * (_POOL - 1))
_GIVING = _powers(0x8B51F9DD, 0x58F38DED, 1 + 2 * _POOL)


def first_normals(seeds: Sequence[int]) -> list[float]:
    """`default_rng(seed).standard_normal()` for each seed of 0 to 2^32 - 1."""
    words = _state_words(np.array(seeds, dtype=np.uint32)).astype(np.uint64)
    halves = words[::2] | words[1::2] << np.uint64(32)
    bits = np.random.PCG64(0)
    generator = np.random.Generator(bits)
    normals = []
    for begin, begin_low, stream, stream_low in halves.T.tolist():
        increment = ((stream << 64 | stream_low) << 1 | 1) & _ALL
        state = ((increment + (begin << 64 | begin_low)) * _STEP + increment) & _ALL
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        normals.append(generator.standard_normal())
    return normals


def _state_words(seeds: Words) -> Words:
    """What `SeedSequence(seed)` gives a generator, shape (8, seeds); every seed is one word."""
    pool = np.zeros((_POOL, len(seeds)), dtype=np.uint32)
    pool[0] = seeds
    pool = _hashed(pool, _MIXING[: _POOL + 1])
    offset = _POOL
    for source, others in enumerate(_OTHERS):
        hashed = _hashed(pool[source], _MIXING[offset : offset + _POOL])
        mixed = pool[others] * _LEFT - hashed * _RIGHT
        pool[others] = mixed ^ (mixed >> _HALF)
        offset += _POOL - 1
    return _hashed(np.concatenate((pool, pool)), _GIVING)


def _hashed(words: Words, constants: Words) -> Words:
    """Row by row, each with its constant and the next one, shape (constants - 1, seeds)."""
    product = (words ^ constants[:-1]) * constants[1:]
    return product ^ (product >> _HALF)
