"""Angles and distances between updates, and ranks of scores: rounding never decides between equal
updates."""

import torch
from torch import Tensor

ROUNDING = 1e-12  # the relative difference of float64 results that rounding alone tells apart


def cosines(vectors: Tensor) -> Tensor:
    """The cosine between each two rows, in float64.

    It is exactly 1 for rows of the same direction, so that rounding never decides between equal
    updates, and 0 between a zero row and any other.
    """
    vectors = vectors.double()
    lengths = vectors.norm(dim=1, keepdim=True)
    units = vectors / torch.where(lengths > 0, lengths, 1)
    cosine = (units @ units.T).clamp(-1, 1)
    return torch.where(cosine > 1 - ROUNDING, 1, cosine).fill_diagonal_(1)


def squared_distances(matrix: Tensor) -> Tensor:
    """All squared Euclidean distances between rows, float64 `[n, n]`."""
    rows = matrix.double()
    return torch.stack([(rows - row).square().sum(dim=1) for row in rows])


def ranks(scores: Tensor) -> Tensor:
    """0 for the lowest of these non-negative scores, and so on; equal for equal scores."""
    ordered, order = scores.sort()
    steps = ordered.diff() > ROUNDING * ordered[1:]
    ranks = torch.zeros_like(order)
    ranks[order[1:]] = steps.cumsum(dim=0)
    return ranks
