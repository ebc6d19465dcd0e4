from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.persistent_map import PersistentMap


class Clash:
    """A key whose hash it shares with every other."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clash) and other.name == self.name


KEYS = st.one_of(
    st.integers(-40, 40),
    st.integers(0, 3).map(lambda i: i * 16**9),  # equal in their low bits
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(0, 5).map(Clash),
)


@given(st.lists(st.tuples(KEYS, st.integers())))
def test_it_holds_what_a_dict_holds_and_older_ones_stay_as_they_were(entries: list[tuple[object, int]]) -> None:
    plain: dict[object, int] = {}
    kept: PersistentMap[int] = PersistentMap()
    history = [(kept, dict(plain))]
    for key, value in entries:
        kept, plain = kept.put(key, value), {**plain, key: value}
        history.append((kept, plain))
    for then, was in history:
        assert {key: then.get(key) for key, _ in entries} == {key: was.get(key) for key, _ in entries}


def test_putting_a_value_in_makes_a_few_new_nodes_however_many_there_are() -> None:
    kept: PersistentMap[int] = PersistentMap()
    for key in range(100_000):
        kept = kept.put(key, key)

    def depth(node: object, key: int) -> int:
        levels = 0
        while isinstance(node, tuple):
            node, key, levels = node[key % 16], key >> 4, levels + 1
        return levels

    assert max(depth(kept._root, key) for key in range(0, 100_000, 997)) <= 6
    assert kept.get(99_999) == 99_999
    assert kept.get(100_000) is None
