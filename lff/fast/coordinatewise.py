"""Median, trimmed mean and repeated median of millions of coordinates, by sorting networks.

The plain rules are in `lff.defenses`; these are equal to them up to the last bits of sums.
"""

from functools import partial

import torch
from torch import Tensor

from lff.defenses.rule import checked
from lff.fast.sorting import (
    BLOCK,
    column_blocks,
    fill,
    mean_of_ranks,
    median_of,
    scratch,
    sort_columns,
)
from lff.updates import Decision, Updates, without_overflow


@checked("median")
def median(updates: Updates) -> Decision:
    """`lff.defenses.median`."""
    return Decision(aggregate=without_overflow(coordinate_median, updates.weights))


@checked("trimmed_mean")
def trimmed_mean(updates: Updates) -> Decision:
    """`lff.defenses.trimmed_mean`."""
    trimmed = updates.told("attacker_count")
    rule = partial(coordinate_trimmed_mean, trimmed=trimmed)
    return Decision(aggregate=without_overflow(rule, updates.weights), saw={"trimmed": trimmed})


@checked("repeated_median")
def repeated_median(updates: Updates) -> Decision:
    """`lff.defenses.repeated_median`."""
    return Decision(aggregate=without_overflow(coordinate_repeated_median, updates.weights))


def coordinate_median(matrix: Tensor) -> Tensor:
    """The median of each column; for even counts, the mean of the two middle values."""
    return coordinate_trimmed_mean(matrix, len(matrix))


def coordinate_trimmed_mean(matrix: Tensor, trimmed: int) -> Tensor:
    """The mean of each column without its `trimmed` lowest and highest values.

    One or two values (the median) remain in any case.
    """
    n = len(matrix)
    trimmed = min(trimmed, (n - 1) // 2)
    if trimmed == 0:
        return matrix.mean(dim=0)
    result = torch.empty_like(matrix[0])
    buffer = scratch(matrix, n, BLOCK // n + 1)
    for columns in column_blocks(matrix):
        block = fill(buffer, matrix[:, columns])
        result[columns] = mean_of_ranks(block, trimmed, n - trimmed)
    return result


def coordinate_repeated_median(matrix: Tensor) -> Tensor:
    """Siegel's line through the sorted values of each column, at its middle."""
    n = len(matrix)
    if n == 1:
        return matrix[0].clone()
    # Centered positions: the value at the middle is then the intercept itself.
    x = torch.arange(n, dtype=matrix.dtype, device=matrix.device).unsqueeze(1) - (n - 1) / 2
    result = torch.empty_like(matrix[0])
    run = scratch(matrix, n, n, 1).copy_(x.unsqueeze(1) - x)  # j - i
    buffer = scratch(matrix, n, n, BLOCK // n**2 + 1)
    for columns in column_blocks(matrix, BLOCK // n):
        y = sort_columns(matrix[:, columns])
        slopes = buffer[:, :, : y.shape[1]]  # [j, i, column]
        torch.sub(y.unsqueeze(1), y, out=slopes).div_(run)
        slopes.diagonal().fill_(torch.inf)  # j = i comes last and does not count
        slope = median_of(median_of(slopes, n - 1))
        result[columns] = median_of(y - slope * x)
    return result
