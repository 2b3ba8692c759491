"""Multi-Krum: the average of the updates with the closest neighbours.

P. Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017.
"""

from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from lff.defenses.geometry import ROUNDING, ranks
from lff.defenses.registry import defense
from lff.fast.sorting import column_blocks, fill
from lff.updates import Decision, Updates, weighted_mean

GRAM_BLOCK = 1 << 18  # entries of a block of the Gram matrix's sum: 2 MiB of float64


@defense("multi_krum", label="MKrum", needs=("attacker_count",))
def multi_krum(updates: Updates) -> Decision:
    """Keep the n - f - 2 updates of the lowest scores and average them equally.

    The score of an update is the sum of its squared distances to its n - f - 2 nearest other
    updates, f being the number of attackers it is told. At least one is kept, and at
    least one neighbour is looked at. (Libraries differ here: Blanchard et al. leave the number
    kept free, and some count an update among its own neighbours.) Of equal scores the peer of
    the lower id goes first: with one neighbour the two closest updates always tie.
    """
    n = len(updates)
    if n == 1:
        return weighted_mean(updates, torch.ones_like(updates.examples))
    count = max(n - updates.told("attacker_count") - 2, 1)
    distances = squared_distances(updates.weights, updates.global_weights)
    distances.fill_diagonal_(torch.inf)
    scores = distances.sort(dim=1).values[:, :count].sum(dim=1)
    by_id = torch.tensor(updates.peers, device=scores.device).argsort(stable=True)
    kept = torch.zeros_like(updates.examples)
    kept[by_id[ranks(scores[by_id]).argsort(stable=True)[:count]]] = 1
    decision = weighted_mean(updates, kept)
    return Decision(
        aggregate=decision.aggregate,
        weights=decision.weights,
        scores=scores,
        saw={"kept": count},
    )


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
    buffer = torch.empty(n, GRAM_BLOCK // n + 1, dtype=torch.float64, device=matrix.device)
    with _blas().limit(limits=1):  # on so small blocks, threads would wait for each other
        for columns in column_blocks(matrix, GRAM_BLOCK):
            block = fill(buffer, matrix[:, columns])
            block -= center[columns]
            gram += _times_its_transpose(block)
    return (gram + gram.T) / 2  # symmetric to the last bit, so that equal distances tie


def _times_its_transpose(block: Tensor) -> Tensor:
    if block.device.type != "cpu":
        return block @ block.T
    rows = block.numpy()
    return torch.from_numpy(rows @ rows.T)  # NumPy sees the symmetry and computes one half


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
