"""Distances between whole updates through one matrix product, in blocks of bounded memory."""

from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from lff.defenses.geometry import ROUNDING
from lff.defenses.multi_krum import closest
from lff.defenses.rule import checked
from lff.fast.sorting import column_blocks, fill
from lff.updates import Decision, Updates

BLOCK = 1 << 18  # entries of a block of the sum: 2 MiB of float64


@checked("multi_krum")
def multi_krum(updates: Updates) -> Decision:
    """`lff.defenses.multi_krum`, on distances from a Gram matrix."""
    return closest(updates, squared_distances(updates.weights, updates.global_weights))


def squared_distances(matrix: Tensor, center: Tensor) -> Tensor:
    """All squared Euclidean distances between rows, float64 `[n, n]`, through a Gram matrix.

    |a - b|^2 = |a|^2 + |b|^2 - 2ab cancels when a and b are close beside their lengths. Measured
    in float64 from a `center` near most rows (the global model, which no single peer can move),
    it has digits to spare; what rounding leaves between equal rows is zero.
    """
    gram = centered_gram(matrix, center)
    lengths = gram.diagonal().unsqueeze(1) + gram.diagonal()
    distances = lengths - 2 * gram
    return torch.where(distances > ROUNDING * lengths, distances, 0).fill_diagonal_(0)


def centered_gram(matrix: Tensor, center: Tensor) -> Tensor:
    """The inner products of the rows minus `center`, float64 `[n, n]`, block by block."""
    n = len(matrix)
    gram = torch.zeros(n, n, dtype=torch.float64, device=matrix.device)
    buffer = torch.empty(n, BLOCK // n + 1, dtype=torch.float64, device=matrix.device)
    with _blas().limit(limits=1):  # on so small blocks, threads would wait for each other
        for columns in column_blocks(matrix, BLOCK):
            block = fill(buffer, matrix[:, columns])
            block -= center[columns]
            gram += _times_its_transpose(block)
    return (gram + gram.T) / 2  # symmetric to the last bit, so that equal distances tie


def _times_its_transpose(block: Tensor) -> Tensor:
    if block.device.type != "cpu":
        return block @ block.T
    rows: np.ndarray = block.numpy()
    return torch.from_numpy(rows @ rows.T)  # NumPy sees the symmetry and computes one half


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
