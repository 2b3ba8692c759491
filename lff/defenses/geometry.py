"""Angles between updates, safe for zero and equal vectors."""

import torch
from torch import Tensor

SAME_DIRECTION = 1e-12  # 1 - cosine of two vectors that rounding alone tells apart


def cosines(vectors: Tensor) -> Tensor:
    """The cosine between each two rows, in float64.

    It is exactly 1 for rows of the same direction, so that rounding never decides between equal
    updates, and 0 between a zero row and any other.
    """
    vectors = vectors.double()
    lengths = vectors.norm(dim=1, keepdim=True)
    units = vectors / torch.where(lengths > 0, lengths, 1)
    cosine = (units @ units.T).clamp(-1, 1)
    return torch.where(cosine > 1 - SAME_DIRECTION, 1, cosine).fill_diagonal_(1)
