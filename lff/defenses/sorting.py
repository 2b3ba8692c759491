"""Sorting each coordinate over the peers, in blocks of bounded memory.

Coordinate-wise rules sort millions of short columns. `torch.sort` treats them one by one and
slowly; for few peers, a sorting network of elementwise `minimum` and `maximum` over blocks that
fit the cache does the same comparisons on whole vectors, on any device.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

NETWORK_PEERS = 32  # beyond, the network's comparators (n log^2 n) outgrow a vectorized sort
BLOCK = 1 << 19  # entries of a block: 2 MiB of float32


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


def column_blocks(matrix: Tensor, entries: int = BLOCK) -> Iterator[slice]:
    """Slices of columns, each of about `entries` values."""
    width = max(1, entries // len(matrix))
    for start in range(0, matrix.shape[1], width):
        yield slice(start, min(start + width, matrix.shape[1]))


def sort_columns(block: Tensor) -> Tensor:
    """A copy of `block` with each column sorted in ascending order."""
    n = len(block)
    if n <= NETWORK_PEERS:
        rows = list(block.unbind(0))
        for i, j in batcher_network(n):
            rows[i], rows[j] = torch.minimum(rows[i], rows[j]), torch.maximum(rows[i], rows[j])
        return torch.stack(rows)
    if block.device.type == "cpu":
        return torch.from_numpy(np.sort(block.numpy(), axis=0))
    return block.sort(dim=0).values


def middle(ordered: Tensor) -> Tensor:
    """The median of sorted columns: for even counts, the mean of the two middle values."""
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
