"""The worked example at the end of the instructions: invented tools A, B, C, .. and every way through them, in symbols.

Source: specification, section 4.1, point 2; figure 15 of the paper.
Chosen: at most `MOST_TOOLS` invented tools, the reference's longest chain: the list of ways doubles with every tool.
"""

from functools import lru_cache
from itertools import product
from string import ascii_uppercase

from evalkit.envs.environment import fill

LEAST_TOOLS = 3
MOST_TOOLS = 8


@lru_cache(maxsize=64)
def example(length: int, text: str, path: str, cost: str) -> str:
    """The example for a chain of so many tools, in a pack's words: the whole, a way's line, a tool's cost."""
    count = min(max(length, LEAST_TOOLS), MOST_TOOLS)
    letters = ascii_uppercase[:count]
    spans = [letters[i : i + size] for size in range(2, count) for i in range(count - size + 1)]
    lines = [
        fill(
            path,
            number=number,
            path=" -> ".join(blocks),
            sum=" + ".join(fill(cost, tool=block) for block in blocks),
        )
        for number, blocks in enumerate(ways(count), 1)
    ]
    return fill(text, count=count, atomic=" -> ".join(letters), composites=", ".join(spans), paths="\n".join(lines))


def ways(count: int) -> list[tuple[str, ...]]:
    """All ways through `count` letters in blocks, but for the one block that is everything: 2^(count - 1) - 1.

    More blocks come first, then an earlier first composite, then smaller sizes from the front.
    """
    letters = ascii_uppercase[:count]
    splits = []
    for cuts in product((False, True), repeat=count - 1):
        blocks, start = [], 0
        for end, cut in enumerate(cuts, 1):
            if cut:
                blocks.append(letters[start:end])
                start = end
        blocks.append(letters[start:])
        if len(blocks) > 1:
            splits.append(tuple(blocks))
    return sorted(splits, key=_order)


def _order(blocks: tuple[str, ...]) -> tuple[int, int, tuple[int, ...]]:
    sizes = tuple(len(block) for block in blocks)
    composite = next((index for index, size in enumerate(sizes) if size > 1), len(sizes))
    return -len(sizes), composite, sizes
