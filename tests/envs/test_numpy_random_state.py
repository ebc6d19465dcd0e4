import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs import mersenne
from evalkit.envs.mersenne import RandomStateStream

MASK = 0xFFFF_FFFF


class Words:
    """The 32-bit words of the Mersenne Twister with its plain integer seeding, as its authors wrote it."""

    def __init__(self, seed: int) -> None:
        self.key = [seed]
        for i in range(1, 624):
            self.key.append((1812433253 * (self.key[-1] ^ self.key[-1] >> 30) + i) & MASK)
        self.at = 624

    def word(self) -> int:
        if self.at == 624:
            for i in range(624):
                y = self.key[i] & 0x8000_0000 | self.key[(i + 1) % 624] & 0x7FFF_FFFF
                self.key[i] = self.key[(i + 397) % 624] ^ y >> 1 ^ (0x9908_B0DF if y % 2 else 0)
            self.at = 0
        y = self.key[self.at]
        self.at += 1
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C_5680
        y ^= y << 15 & 0xEFC6_0000
        return y ^ y >> 18

    def double(self) -> float:
        high, low = self.word() >> 5, self.word() >> 6
        return (high * 2**26 + low) / 2**53

    def below(self, n: int) -> int:
        if n == 1:
            return 0
        mask = (1 << (n - 1).bit_length()) - 1
        while (found := self.word() & mask) >= n:
            pass
        return found

    def permutation(self, n: int) -> list[int]:
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order


SEEDS = st.integers(0, MASK)


@given(SEEDS, st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_every_draw_is_what_the_words_of_the_generator_say(seed: int, sizes: list[int]) -> None:
    stream, words = RandomStateStream(seed), Words(seed)
    for n in sizes:
        assert stream.below(n) == words.below(n)
        assert stream.permutation(n) == words.permutation(n)
        assert stream.sample(n, n // 2) == words.permutation(n)[: n // 2]
        assert stream.double() == words.double()
        assert stream.choices(n, 3) == [words.below(n) for _ in range(3)]
        assert stream.uniform(2.0, 5.0) == 2.0 + 3.0 * words.double()


@given(SEEDS)
def test_exponentials_take_one_double_each_row_by_row(seed: int) -> None:
    scales = [1.0, 2.5, 3.0]
    drawn = RandomStateStream(seed).exponentials(scales, 2)
    words = Words(seed)
    expected = [[-math.log(1 - words.double()) * scale for scale in scales] for _ in range(2)]
    assert np.allclose(drawn, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("p", [0.9, 0.5, 0.1])
def test_geometric_draws_take_one_double_and_start_at_one(p: float) -> None:
    stream, words = RandomStateStream(5), Words(5)
    drawn = [stream.geometric(p) for _ in range(200)]
    for x in drawn:
        u = words.double()
        assert x == max(1, math.ceil(math.log1p(-u) / math.log1p(-p)))


@given(SEEDS, st.integers(0, 1500))
def test_a_frozen_stream_goes_on_where_it_stood_and_is_not_moved_by_it(seed: int, words: int) -> None:
    stream = RandomStateStream(seed)
    stream.choices(2, words)
    frozen = stream.freeze()
    ahead = [stream.double(), stream.below(1000)]
    again, once_more = RandomStateStream(frozen), RandomStateStream(frozen)
    assert [again.double(), again.below(1000)] == ahead == [once_more.double(), once_more.below(1000)]
    assert frozen == RandomStateStream(frozen).freeze()
    assert hash(frozen) == hash(RandomStateStream(frozen).freeze())


def test_a_stream_that_was_left_goes_on_once_and_its_state_stays_good_for_all() -> None:
    stream = RandomStateStream(5)
    stream.sample(100, 3)
    wanted = RandomStateStream(stream.freeze()).choices(1000, 8)
    state = stream.leave()
    first, second = RandomStateStream(state), RandomStateStream(state)
    assert first.choices(1000, 8) == second.choices(1000, 8) == wanted
    assert RandomStateStream(state).choices(1000, 8) == wanted
    with pytest.raises(AttributeError):
        stream.double()


@given(SEEDS, st.lists(st.tuples(st.sampled_from(["sample", "double", "leave"]), st.integers(1, 40)), max_size=60))
def test_a_stream_that_is_left_and_taken_up_again_draws_what_one_stream_does(
    seed: int, moves: list[tuple[str, int]]
) -> None:
    whole, part = RandomStateStream(seed), RandomStateStream(RandomStateStream(seed).freeze())
    for move, n in moves:
        if move == "sample":
            assert part.sample(n, n) == whole.sample(n, n)
        elif move == "double":
            assert part.double() == whole.double()
        else:
            state = part.leave()
            if n % 2:
                mersenne._STANDING.clear()  # so that it is built from its state alone
            part = RandomStateStream(state)
            assert len(state.drawn) <= mersenne._MOST_DRAWN
    assert part.double() == whole.double()


def test_the_words_of_a_stream_are_read_out_once_in_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    read, real = [], RandomStateStream.freeze
    monkeypatch.setattr(RandomStateStream, "freeze", lambda stream: (read.append(1), real(stream))[1])
    state = RandomStateStream(3).freeze()
    for _ in range(100):
        stream = RandomStateStream(state)
        stream.sample(30, 2)
        state = stream.leave()
    assert 1 < len(read) <= 1 + 100 // 16


def test_only_so_many_streams_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mersenne, "_MOST_STANDING", 3)
    monkeypatch.setattr(mersenne, "_STANDING", {})
    states = [RandomStateStream(seed).leave() for seed in range(5)]
    assert list(mersenne._STANDING) == states[2:]
    assert [RandomStateStream(state).double() for state in states] == [
        RandomStateStream(seed).double() for seed in range(5)
    ]
    assert not mersenne._STANDING
