"""The loops over chains, written for numba and run without it too; callers check the arguments.

`batch.py` takes them as they are for small jobs, compiled (`kernels.py`) for big ones: both give the same numbers.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Places = npt.NDArray[np.int8]

UNAVAILABLE = 1 << 40
"""The cost, in cents, of a tool that cannot be used; whatever costs as much, plans too, is out of reach."""


def solve_rows(
    costs: "Ints", held: "Ints", least: "Ints", number: "Ints", path: "Places", far: "Ints", ways: "Ints", then: "Ints"
) -> bool:
    """One cheapest plan a row; False: a cost is below 1.

    far, ways, then  (N + 1,)  scratch, by position: cents to the goal * 65536 + calls, number of cheapest plans,
                               position that the first call leads to
    """
    n = costs.shape[1]
    beyond = UNAVAILABLE << 16
    far[n], ways[n], then[n] = 0, 1, -1
    for k in range(costs.shape[0]):
        for i in range(n - 1, -1, -1):
            best, cents, count, to = beyond, UNAVAILABLE, 0, -1
            for j in range(i, n):
                cost = costs[k, i, j]
                if cost < 1:
                    return False
                if cost >= UNAVAILABLE:
                    continue
                total = (cost << 16) + 1 + far[j + 1]
                if total >> 16 < cents:
                    cents, count = total >> 16, ways[j + 1]
                elif total >> 16 == cents and cents < UNAVAILABLE:
                    count += ways[j + 1]
                if total < best:
                    best, to = total, j + 1
            far[i], ways[i], then[i] = best, count, to
        begin, best, count = -1, beyond, 0
        for i in range(n + 1):
            if held[k] >> i & 1 and far[i] < beyond:
                if far[i] >> 16 < best >> 16:
                    count = ways[i]
                elif far[i] >> 16 == best >> 16:
                    count += ways[i]
                # Of equal plans the shorter first tool stands first among the tools; of equally long ones the earlier.
                if far[i] < best or (far[i] == best and then[i] - i < then[begin] - begin):
                    begin, best = i, far[i]
        least[k] = best >> 16 if begin >= 0 else -1
        number[k] = count
        for p in range(n + 1):
            path[k, p] = begin
            begin = then[begin] if begin >= 0 else -1
    return True


def greedy_rows(costs: "Ints", held: "Ints", least: "Ints", number: "Ints", path: "Places") -> bool:
    """One greedy plan a row; False: a cost is below 1."""
    n = costs.shape[1]
    for k in range(costs.shape[0]):
        position, total, calls = -1, 0, 0
        first, behind, open_at = 0, n, held[k]
        if open_at >> n & 1:
            position = path[k, 0] = n
        while position < n:
            begin, cents, size = -1, UNAVAILABLE, 1
            for i in range(first, behind):
                if not open_at >> i & 1:
                    continue
                for j in range(i, n):
                    cost, wide = costs[k, i, j], j - i + 1
                    if cost < 1:
                        return False
                    if cost >= UNAVAILABLE or cost * size > cents * wide:
                        continue
                    # Equal shares can differ as the floats that the rule compares; of equal floats the smaller tool.
                    if cost * size == cents * wide:
                        ours, theirs = cost / 100 / wide, cents / 100 / size
                        if ours > theirs or (ours == theirs and wide >= size):
                            continue
                    begin, cents, size = i, cost, wide
            if calls == 0:
                path[k, 0] = begin
            if begin < 0:
                break
            position, total, calls = begin + size, total + cents, calls + 1
            path[k, calls] = position
            first, behind, open_at = position, position + 1, -1
        for p in range(calls + 1, n + 1):
            path[k, p] = -1
        least[k] = total if position == n else -1
        number[k] = 1 if position == n else 0
    return True
