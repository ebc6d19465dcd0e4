"""An immutable mapping that shares its parts: putting a value in costs the same at the tenth and the millionth.

Environments keep here what episodes collect (notes by period, feedback by action). A dict copied at each step would
make the cost of a step grow with the episode.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ValueT = TypeVar("ValueT")

_BITS = 4
_WAYS = 1 << _BITS
_EMPTY: tuple[Any, ...] = (None,) * _WAYS


@dataclass(frozen=True, slots=True)
class _Leaf:
    """All entries whose keys have one hash; nearly always one."""

    code: int
    entries: tuple[tuple[Hashable, Any], ...]


@dataclass(frozen=True, slots=True)
class PersistentMap(Generic[ValueT]):
    """A mapping from hashable keys to values: a radix tree over the keys' hashes, 16 ways at each node."""

    _root: Any = None
    """None, a leaf, or a tuple of 16 nodes."""

    def get(self, key: Hashable) -> ValueT | None:
        """The value of a key, or None."""
        code = rest = _code(key)
        node = self._root
        while isinstance(node, tuple):
            node, rest = node[rest % _WAYS], rest >> _BITS
        if node is None or node.code != code:
            return None
        return next((value for other, value in node.entries if other == key), None)

    def put(self, key: Hashable, value: ValueT) -> "PersistentMap[ValueT]":
        """The mapping with a key set to a value; this one stays as it is."""
        return PersistentMap(_put(self._root, 0, _Leaf(_code(key), ((key, value),))))


def _code(key: Hashable) -> int:
    return hash(key) & 0xFFFF_FFFF_FFFF_FFFF


def _put(node: Any, depth: int, leaf: _Leaf) -> Any:
    """The node, `depth` levels below the root, with the leaf's one entry."""
    if node is None:
        return leaf
    if isinstance(node, _Leaf):
        if node.code == leaf.code:
            key = leaf.entries[0][0]
            return _Leaf(leaf.code, (*(entry for entry in node.entries if entry[0] != key), *leaf.entries))
        node = _put(_EMPTY, depth, node)
    way = (leaf.code >> depth * _BITS) % _WAYS
    return (*node[:way], _put(node[way], depth + 1, leaf), *node[way + 1 :])
