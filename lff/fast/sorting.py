"""Order statistics of each coordinate over the peers, in blocks of bounded memory.

Coordinate-wise rules order millions of short columns. `torch.sort` treats them one by one and
slowly. For few peers, a sorting network of elementwise `minimum` and `maximum` over blocks that
fit the cache does the comparisons on whole rows, and those that cannot reach the ranks asked for
are left out. For more peers, NumPy's vectorized sort of one column after the other is faster.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import torch
from torch import Tensor

NETWORK_PEERS = 32  # beyond, the network's comparators (n log^2 n) outgrow a vectorized sort
BLOCK = 1 << 20  # entries of a block: 4 MiB of float32

Comparator = tuple[int, int, bool, bool]  # i < j, and whether minimum and maximum are used


@cache
def batcher_network(n: int) -> tuple[tuple[int, int], ...]:
    """The comparators (i < j) of Batcher's odd-even merge sort for `n` values.

    K. E. Batcher, "Sorting networks and their applications", AFIPS 1968; in the form of Knuth,
    The Art of Computer Programming 3, Algorithm 5.2.2M.
    """
    comparators = []
    top = 1 << max(n - 1, 0).bit_length() - 1 if n > 1 else 0
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while d > 0:
            comparators += [(i, i + d) for i in range(n - d) if i & p == r]
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return tuple(comparators)


@cache
def ranks_network(n: int, low: int, high: int) -> tuple[Comparator, ...]:
    """The comparators that bring ranks low .. high - 1 to those places, in any order.

    Each comes with whether its minimum and whether its maximum is used. Going backward, one whose
    results nobody uses falls away, and so does one that only orders two of the ranks asked for.
    """
    used = [low <= place < high for place in range(n)]
    unordered = list(used)
    comparators = []
    for i, j in reversed(batcher_network(n)):
        if (used[i] or used[j]) and not (unordered[i] and unordered[j]):
            comparators.append((i, j, used[i], used[j]))
            used[i] = used[j] = True
            unordered[i] = unordered[j] = False
    return tuple(reversed(comparators))


def column_blocks(matrix: Tensor, entries: int = BLOCK) -> Iterator[slice]:
    """Slices of columns, each of about `entries` values."""
    width = max(1, entries // len(matrix))
    for start in range(0, matrix.shape[1], width):
        yield slice(start, min(start + width, matrix.shape[1]))


def scratch(like: Tensor, n: int, *shape: int) -> Tensor:
    """An empty block `[n, *shape]` whose layout suits what orders its first dimension.

    A network wants each of the `n` rows contiguous, a sort each column.
    """
    if n <= NETWORK_PEERS:
        return like.new_empty(n, *shape)
    return like.new_empty(*shape, n).movedim(-1, 0)


def fill(buffer: Tensor, block: Tensor) -> Tensor:
    """A copy of `block` in the first columns of `buffer`."""
    return buffer[:, : block.shape[1]].copy_(block)


def sort_columns(block: Tensor) -> Tensor:
    """A copy of `block` with each column sorted in ascending order."""
    n = len(block)
    copy = fill(scratch(block, *block.shape), block)
    if n > NETWORK_PEERS:
        return _sort(copy)
    rows = _exchange(copy, ((i, j, True, True) for i, j in batcher_network(n)))
    return torch.stack(rows)


def mean_of_ranks(block: Tensor, low: int, high: int) -> Tensor:
    """The mean of ranks low .. high - 1 of each column of a `scratch` block, which it destroys."""
    n = len(block)
    if n > NETWORK_PEERS:
        return _sort(block)[low:high].mean(dim=0)
    total, *others = _exchange(block, ranks_network(n, low, high))[low:high]
    for row in others:
        total += row
    return total.div_(high - low)


def median_of(block: Tensor, count: int | None = None) -> Tensor:
    """The median of the `count` (else all) lowest values of each column of a `scratch` block.

    For even counts it is the mean of the two middle values. The block is destroyed.
    """
    count = len(block) if count is None else count
    return mean_of_ranks(block, (count - 1) // 2, count // 2 + 1)


def _sort(block: Tensor) -> Tensor:
    if block.device.type == "cpu":
        block.numpy().sort(axis=0)
        return block
    return block.sort(dim=0).values


def _exchange(block: Tensor, comparators: Iterable[Comparator]) -> list[Tensor]:
    """The rows of `block`, which it destroys, after these comparators."""
    rows = list(block)
    spare = torch.empty_like(rows[0])
    for i, j, minimum, maximum in comparators:
        a, b = rows[i], rows[j]
        if minimum and maximum:
            torch.minimum(a, b, out=spare)
            torch.maximum(a, b, out=b)
            rows[i], spare = spare, a
        elif minimum:
            torch.minimum(a, b, out=a)
        else:
            torch.maximum(a, b, out=b)
    return rows
