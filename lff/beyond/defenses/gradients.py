"""What rules of gradients share: gradients scaled to a length, and the model they lead to."""

import torch
from torch import Tensor

from lff.defenses.median import coordinate_median
from lff.updates import Updates, within_range, without_overflow


def lengths(gradients: Tensor) -> Tensor:
    """The Euclidean length of each row, float64."""
    return torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)


def clipped(gradients: Tensor, longest: Tensor | float) -> Tensor:
    """The rows longer than `longest` scaled down to that length."""
    size = lengths(gradients)
    factors = (longest / torch.where(size > 0, size, 1)).clamp(max=1)
    return gradients * factors.to(gradients.dtype).unsqueeze(1)


def mean(gradients: Tensor) -> Tensor:
    """The mean of the rows, also of very large ones."""
    return without_overflow(lambda rows: rows.mean(dim=0), gradients)


def step(updates: Updates, gradient: Tensor) -> Tensor:
    """The global model after a step: W^t - eta gradient.

    BatchNorm's running statistics, which have no gradient, are the medians of the peers'.
    """
    n = updates.layout.parameters
    parameters = updates.global_weights[:n] - updates.learning_rate * gradient
    statistics = without_overflow(coordinate_median, updates.weights[:, n:])
    return within_range(torch.cat([parameters, statistics]))
